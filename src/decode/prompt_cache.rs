//! States of texts that no slot holds any more: several conversations, their edits and branches (vLLM: automatic prefix caching; llama.cpp:
//! `--cache-ram`). A slot's tokens come here before the slot loses them. Copies on the GPU bring them back.

use super::adapters::AdapterKey;
use super::prefix_tree::{BLOCK, Found, PrefixTree};
use super::slot::Slot;
use crate::error::Result;
use crate::model::LayerStates;
use crate::model::state::SequenceState;
use crate::tensor::{CacheStats, Context, Desc, Tensor};

/// Computing fewer tokens than this is about as fast as copying them.
pub const FEWEST_TOKENS: usize = 16;

pub struct PromptCache {
    tree: PrefixTree<Kept>,
    hits: u64,
    misses: u64,
}

/// What is kept of one block.
struct Kept {
    /// The states of its positions, part after part, as words.
    positions: Tensor,
    /// How many of its tokens were computed by passes over several tokens (`Slot::prefill_computed_len`).
    prefill_computed_len: usize,
    /// States that are not stored by position, each with the number of tokens before it.
    snapshots: Vec<(usize, Vec<Tensor>)>,
    /// A sequence can begin only at a snapshot.
    needs_snapshot: bool,
}

impl PromptCache {
    /// A budget of 0 keeps nothing.
    pub fn new(budget: u64) -> Self {
        Self { tree: PrefixTree::new(budget), hits: 0, misses: 0 }
    }

    /// A hit is a prompt that took tokens from here; other prompts are misses. Entries are blocks of up to 64 tokens.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits,
            misses: self.misses,
            evictions: self.tree.evictions(),
            entries: self.tree.len() as u64,
            bytes: self.tree.bytes(),
        }
    }

    /// Forgets all texts. Counts them as evicted.
    pub fn clear(&mut self) {
        self.tree.clear();
    }

    pub fn reset_stats(&mut self) {
        (self.hits, self.misses) = (0, 0);
        self.tree.reset_evictions();
    }

    /// How many tokens of a prompt can be taken from here with these adapters. Marks them as used, so that what is kept next does not drive
    /// them out.
    pub fn known(&mut self, key: AdapterKey, prompt: &[u32]) -> usize {
        let path = self.tree.longest(key.0, prompt);
        self.tree.touch(&path);
        self.loadable(&path, path.iter().map(|found| found.tokens).sum())
    }

    /// How many of a path's first `length` tokens a slot can begin with.
    fn loadable(&self, path: &[Found], length: usize) -> usize {
        let snapshots: Vec<usize> = path
            .iter()
            .filter_map(|found| self.tree.kept(found.block))
            .flat_map(|kept| kept.snapshots.iter().map(|(at, _)| *at))
            .collect();
        // All blocks of a model have such states, or none has.
        let first = path.first().and_then(|found| self.tree.kept(found.block));
        if first.is_some_and(|kept| kept.needs_snapshot) {
            snapshots.into_iter().filter(|at| *at <= length).max().unwrap_or(0)
        } else {
            length
        }
    }

    /// Keeps a slot's tokens, unless they are here already. The slot keeps its first `stays` tokens; if these are all, nothing is kept.
    pub fn keep(&mut self, context: &Context, slot: &Slot, stays: usize) -> Result<()> {
        let text = slot.reusable();
        if self.tree.budget() == 0 || text.len() < FEWEST_TOKENS || text.len() <= stays {
            return Ok(());
        }
        let states = slot.layer_states();
        let root = slot.adapter_key().0;
        let (mut path, is_known) = self.tree.whole_blocks(root, text);
        if is_known {
            return Ok(());
        }
        let mut first = path.len() * BLOCK;
        while first < text.len() {
            let range = first..text.len().min(first + BLOCK);
            // The last positions of a block may have no token yet. They are written before they are read, here as in the slot.
            let positions = states.positions(first..states.capacity().min(first + BLOCK))?;
            let snapshots = snapshots_within(states, &range)?;
            let words = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.bytes().div_ceil(4)).sum::<u64>();
            let bytes = 4 * (words(&positions) + snapshots.iter().map(|(_, of)| words(of)).sum::<u64>());
            let prefill_computed_len = slot.prefill_computed_len().clamp(range.start, range.end) - range.start;
            let kept =
                || Kept::new(context, &positions, prefill_computed_len, snapshots, states.checkpoints().is_some());
            if !self.tree.insert(&mut path, (root, &text[range.clone()]), bytes, kept)? {
                break;
            }
            first = range.end;
        }
        // The next prompt can then be written without waiting until these copies are submitted.
        context.device().flush();
        Ok(())
    }

    /// Loads as many of a prompt's first tokens as are known here with the slot's adapters into that slot, which loses what it held.
    pub fn load(&mut self, context: &Context, slot: &mut Slot, prompt: &[u32]) -> Result<()> {
        let path = self.tree.longest(slot.adapter_key().0, prompt);
        self.tree.touch(&path);
        let length = self.loadable(&path, path.iter().map(|found| found.tokens).sum());
        slot.forget();
        let states = slot.layer_states().clone();
        let mut prefill_computed_len = 0;
        let mut snapshot: &[Tensor] = &[];
        for (index, found) in path.iter().enumerate() {
            let first = index * BLOCK;
            let Some(kept) = self.tree.kept(found.block).filter(|_| first < length) else { break };
            let mut word = 0;
            for part in states.positions(first..states.capacity().min(first + BLOCK))? {
                context.unpack(&kept.positions, word, &part)?;
                word += part.bytes().div_ceil(4) as usize;
            }
            if prefill_computed_len == first {
                prefill_computed_len += kept.prefill_computed_len;
            }
            let of_length = kept.snapshots.iter().find(|(at, _)| *at == length);
            snapshot = of_length.map_or(snapshot, |(_, tensors)| tensors);
        }
        states.load(context, length, snapshot)?;
        slot.loaded(&prompt[..length], prefill_computed_len);
        Ok(())
    }

    /// Counts a prompt as a hit or a miss.
    pub fn count(&mut self, is_hit: bool) {
        if is_hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }
}

impl Kept {
    fn new(
        context: &Context,
        positions: &[Tensor],
        prefill_computed_len: usize,
        snapshots: Vec<(usize, Vec<Tensor>)>,
        needs_snapshot: bool,
    ) -> Result<Self> {
        let words: u64 = positions.iter().map(|part| part.bytes().div_ceil(4)).sum();
        let packed = context.lasting(Desc::u32(&[words as usize]), "prompt_cache")?;
        let mut word = 0;
        for part in positions {
            context.pack(part, &packed, word)?;
            word += part.bytes().div_ceil(4) as usize;
        }
        let mut copies = Vec::with_capacity(snapshots.len());
        for (at, tensors) in snapshots {
            let copy = |tensor: &Tensor| {
                let copy = context.lasting(tensor.desc(), "prompt_cache")?;
                context.copy(tensor, 0..tensor.shape().elements(), &copy, 0)?;
                Ok(copy)
            };
            copies.push((at, tensors.iter().map(copy).collect::<Result<_>>()?));
        }
        Ok(Self { positions: packed, prefill_computed_len, snapshots: copies, needs_snapshot })
    }
}

/// The states without positions for texts that end within `range`.
fn snapshots_within(states: &LayerStates, range: &std::ops::Range<usize>) -> Result<Vec<(usize, Vec<Tensor>)>> {
    let lengths = states.checkpoints().unwrap_or_default();
    let within = lengths.into_iter().filter(|at| range.start < *at && *at <= range.end);
    within.map(|at| Ok((at, states.snapshot(at)?))).collect()
}
