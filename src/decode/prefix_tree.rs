//! Texts of tokens in blocks, as a tree: texts that begin alike share blocks (radix tree; SGLang, Zheng et al. 2024). It has a budget of
//! bytes. Of the blocks that no others follow, the least recently used are removed first. Texts with different roots share nothing.

/// Tokens of a block. The last block of a text may have fewer.
pub const BLOCK: usize = 64;

/// A tree that keeps a `T` for each block of a text.
pub struct PrefixTree<T> {
    blocks: Vec<Option<Block<T>>>,
    budget: u64,
    bytes: u64,
    clock: u64,
    evictions: u64,
}

struct Block<T> {
    /// What the text means something beside.
    root: u64,
    tokens: Vec<u32>,
    parent: Option<usize>,
    children: usize,
    bytes: u64,
    used: u64,
    kept: T,
}

/// A block that a text begins with, and how many tokens they have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub block: usize,
    pub tokens: usize,
}

impl<T> PrefixTree<T> {
    pub fn new(budget: u64) -> Self {
        Self { blocks: Vec::new(), budget, bytes: 0, clock: 0, evictions: 0 }
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    /// Blocks that were removed since the last reset.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    pub fn reset_evictions(&mut self) {
        self.evictions = 0;
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.evictions += self.len() as u64;
        self.blocks.clear();
        self.bytes = 0;
    }

    pub fn kept(&self, block: usize) -> Option<&T> {
        self.blocks.get(block)?.as_ref().map(|block| &block.kept)
    }

    /// The blocks of a root that a text begins with. The text may have only a part of the last one.
    pub fn longest(&self, root: u64, text: &[u32]) -> Vec<Found> {
        let mut path: Vec<Found> = Vec::new();
        let mut rest = text;
        loop {
            let parent = path.last().map(|found| found.block);
            let common = |block: &Block<T>| block.tokens.iter().zip(rest).take_while(|(a, b)| a == b).count();
            let children = self.blocks.iter().enumerate().filter_map(|(index, block)| Some((index, block.as_ref()?)));
            let best = children
                .filter(|(_, block)| block.parent == parent && block.root == root)
                .map(|(block, of)| Found { block, tokens: common(of) })
                .max_by_key(|found| found.tokens);
            let Some(found) = best.filter(|found| found.tokens > 0) else { return path };
            path.push(found);
            if found.tokens < BLOCK {
                return path;
            }
            rest = &rest[found.tokens..];
        }
    }

    /// The whole blocks of a root that a text begins with, after which `insert` adds others, and whether all of the text is known. Marks
    /// them as used.
    pub fn whole_blocks(&mut self, root: u64, text: &[u32]) -> (Vec<Found>, bool) {
        let mut path = self.longest(root, text);
        self.touch(&path);
        let is_known = path.iter().map(|found| found.tokens).sum::<usize>() == text.len();
        while path.last().is_some_and(|found| found.tokens < BLOCK) {
            path.pop();
        }
        (path, is_known)
    }

    /// Marks these blocks as used now.
    pub fn touch(&mut self, path: &[Found]) {
        self.clock += 1;
        for found in path {
            if let Some(Some(block)) = self.blocks.get_mut(found.block) {
                block.used = self.clock;
            }
        }
    }

    /// Adds a block of a root after `path`, whose blocks are whole. Removes others to make room. Returns false, and adds nothing, if there
    /// is no room even then.
    pub fn insert(
        &mut self,
        path: &mut Vec<Found>,
        (root, tokens): (u64, &[u32]),
        bytes: u64,
        kept: impl FnOnce() -> crate::error::Result<T>,
    ) -> crate::error::Result<bool> {
        let parent = path.last().map(|found| found.block);
        // A block that is a part of the new one is not needed any more.
        let is_part =
            |block: &Block<T>| block.parent == parent && block.root == root && tokens.starts_with(&block.tokens);
        let parts: Vec<usize> = self.indices(|block| block.children == 0 && is_part(block));
        for part in parts {
            self.remove(part);
        }
        while self.bytes + bytes > self.budget {
            let oldest = self
                .indices(|block| block.children == 0)
                .into_iter()
                .filter(|index| path.iter().all(|found| found.block != *index))
                .min_by_key(|index| self.blocks[*index].as_ref().map(|block| block.used));
            let Some(oldest) = oldest else { return Ok(false) };
            self.remove(oldest);
            self.evictions += 1;
        }
        let kept = kept()?;
        let block = Block { root, tokens: tokens.to_vec(), parent, children: 0, bytes, used: self.clock, kept };
        let index = match self.blocks.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.blocks.push(None);
                self.blocks.len() - 1
            }
        };
        self.blocks[index] = Some(block);
        self.bytes += bytes;
        if let Some(Some(parent)) = parent.and_then(|parent| self.blocks.get_mut(parent)) {
            parent.children += 1;
        }
        path.push(Found { block: index, tokens: tokens.len() });
        Ok(true)
    }

    fn indices(&self, wanted: impl Fn(&Block<T>) -> bool) -> Vec<usize> {
        let of =
            |(index, block): (usize, &Option<Block<T>>)| block.as_ref().filter(|block| wanted(block)).map(|_| index);
        self.blocks.iter().enumerate().filter_map(of).collect()
    }

    fn remove(&mut self, index: usize) {
        let Some(block) = self.blocks[index].take() else { return };
        self.bytes -= block.bytes;
        if let Some(Some(parent)) = block.parent.and_then(|parent| self.blocks.get_mut(parent)) {
            parent.children -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds a text; each block keeps its own tokens.
    fn keep(tree: &mut PrefixTree<Vec<u32>>, text: &[u32], bytes: u64) {
        let (mut path, is_known) = tree.whole_blocks(0, text);
        if is_known {
            return;
        }
        for tokens in text[path.len() * BLOCK..].chunks(BLOCK) {
            if !tree.insert(&mut path, (0, tokens), bytes, || Ok(tokens.to_vec())).unwrap() {
                return;
            }
        }
    }

    fn known(tree: &PrefixTree<Vec<u32>>, text: &[u32]) -> usize {
        tree.longest(0, text).iter().map(|found| found.tokens).sum()
    }

    fn text(branch: u32, length: usize) -> Vec<u32> {
        // The branches differ from token 70 on.
        (0..length as u32).map(|at| if at < 70 { at } else { at * 5 + branch }).collect()
    }

    #[test]
    fn texts_that_begin_alike_share_blocks() {
        let mut tree = PrefixTree::new(1000);
        keep(&mut tree, &text(1, 200), 1);
        assert_eq!((tree.len(), known(&tree, &text(1, 200)), known(&tree, &text(2, 200))), (4, 200, 70));
        keep(&mut tree, &text(2, 150), 1);
        assert_eq!((tree.len(), known(&tree, &text(2, 150)), known(&tree, &text(1, 200))), (6, 150, 200));
        // A longer text replaces its own last part.
        keep(&mut tree, &text(2, 180), 1);
        assert_eq!((tree.len(), known(&tree, &text(2, 190))), (6, 180));
        // A shorter one adds nothing.
        keep(&mut tree, &text(2, 170), 1);
        assert_eq!((tree.len(), known(&tree, &text(2, 190))), (6, 180));
        assert_eq!(tree.evictions(), 0);
    }

    #[test]
    fn texts_of_other_roots_share_nothing() {
        let mut tree = PrefixTree::new(1000);
        keep(&mut tree, &text(1, 200), 1);
        assert!(tree.longest(7, &text(1, 200)).is_empty());
        let (mut path, is_known) = tree.whole_blocks(7, &text(1, 30));
        assert!(path.is_empty() && !is_known);
        assert!(tree.insert(&mut path, (7, &text(1, 30)), 1, || Ok(Vec::new())).unwrap());
        // It is no part of the other root's first block.
        assert_eq!((tree.len(), known(&tree, &text(1, 200)), tree.longest(7, &text(1, 200))[0].tokens), (5, 200, 30));
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut tree = PrefixTree::new(5);
        keep(&mut tree, &text(1, 192), 1);
        keep(&mut tree, &text(2, 192), 1);
        assert_eq!((tree.bytes(), tree.len()), (5, 5));
        let path = tree.longest(0, &text(1, 192));
        tree.touch(&path);
        keep(&mut tree, &text(3, 128), 1);
        assert_eq!(
            (known(&tree, &text(1, 192)), known(&tree, &text(2, 192)), known(&tree, &text(3, 192))),
            (192, 128, 128)
        );
        assert_eq!(tree.evictions(), 1);
        // A text longer than the budget keeps its beginning.
        keep(&mut tree, &text(4, 64 * 9), 1);
        assert_eq!((known(&tree, &text(4, 64 * 9)), tree.bytes()), (64 * 5, 5));
        keep(&mut tree, &[9; 64], 6);
        assert_eq!(known(&tree, &[9; 64]), 0, "a block that is larger than the budget");
    }

    proptest! {
        /// The tree finds what was kept, and stays within its budget.
        #[test]
        fn what_is_found_was_kept(
            texts in prop::collection::vec((0u32..4, 1usize..400), 1..20),
            budget in 0u64..12,
        ) {
            let mut tree = PrefixTree::new(budget);
            let mut whole = PrefixTree::new(u64::MAX);
            for (branch, length) in texts {
                let text = text(branch, length);
                for (tree, is_whole) in [(&mut tree, false), (&mut whole, true)] {
                    keep(tree, &text, 1);
                    prop_assert!(tree.bytes() <= tree.budget() && tree.bytes() == tree.len() as u64);
                    let mut at = 0;
                    for found in tree.longest(0, &text) {
                        let kept = tree.kept(found.block).unwrap();
                        prop_assert_eq!(&kept[..found.tokens], &text[at..at + found.tokens]);
                        at += found.tokens;
                    }
                    prop_assert!(!is_whole || at == length);
                }
            }
        }
    }
}
