//! Two texts as one input of an encoder: which tokens stand around and between them, and of which type each token is.

/// A piece of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairPiece {
    /// All tokens of the first text, of this type.
    First(u32),
    /// All tokens of the second text, of this type.
    Second(u32),
    /// A special token, and its type.
    Token(u32, u32),
}

/// Token ids, and the type of each: 0 for the first text, mostly 1 for the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedIds {
    /// The tokens.
    pub ids: Vec<u32>,
    /// As many as `ids`, or none: then all are of type 0.
    pub types: Vec<u32>,
}

impl From<Vec<u32>> for TypedIds {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, types: Vec::new() }
    }
}

/// The form of a pair: the pieces in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairForm(pub Vec<PairPiece>);

impl PairForm {
    /// The two texts one after the other.
    pub fn plain() -> Self {
        Self(vec![PairPiece::First(0), PairPiece::Second(1)])
    }

    /// Tokens before the first text, after it and before the second one, and after that; `types` has that of each text.
    pub fn of(before: &[u32], (first_end, second_begin): (&[u32], &[u32]), after: &[u32], types: [u32; 2]) -> Self {
        let [first, second] = types;
        let tokens = |ids: &[u32], kind: u32| ids.iter().map(|id| PairPiece::Token(*id, kind)).collect::<Vec<_>>();
        let mut pieces = tokens(before, first);
        pieces.push(PairPiece::First(first));
        pieces.extend(tokens(first_end, first));
        pieces.extend(tokens(second_begin, second));
        pieces.push(PairPiece::Second(second));
        pieces.extend(tokens(after, second));
        Self(pieces)
    }

    /// The special tokens.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|piece| match piece {
            PairPiece::Token(id, _) => Some(*id),
            _ => None,
        })
    }

    /// Whether it has each text once.
    pub fn is_whole(&self) -> bool {
        let count = |is: fn(&PairPiece) -> bool| self.0.iter().filter(|piece| is(piece)).count();
        let firsts = count(|piece| matches!(piece, PairPiece::First(_)));
        firsts == 1 && count(|piece| matches!(piece, PairPiece::Second(_))) == 1
    }

    /// The whole input.
    pub fn join(&self, first: &[u32], second: &[u32]) -> TypedIds {
        let mut joined = TypedIds::default();
        let mut add = |ids: &[u32], kind: u32| {
            joined.ids.extend_from_slice(ids);
            joined.types.extend(std::iter::repeat_n(kind, ids.len()));
        };
        for piece in &self.0 {
            match piece {
                PairPiece::First(kind) => add(first, *kind),
                PairPiece::Second(kind) => add(second, *kind),
                PairPiece::Token(id, kind) => add(&[*id], *kind),
            }
        }
        joined
    }
}

/// What llama.cpp's files say of the tokens at a text's end. The separator stands between the texts of a pair; a text of its own ends
/// with it only if there is no other end.
pub(super) struct Ends {
    pub eos: Option<u32>,
    pub sep: Option<u32>,
}

impl Ends {
    /// After a text of its own.
    pub fn of_text(&self) -> Vec<u32> {
        self.eos.or(self.sep).into_iter().collect()
    }

    /// The form of two texts.
    pub fn of_pair(&self, before: &[u32], types: [u32; 2]) -> PairForm {
        let between: Vec<u32> = self.eos.into_iter().chain(self.sep).collect();
        PairForm::of(before, (&between, &[]), &self.of_text(), types)
    }
}

/// How many tokens stay of two texts that may have `most` together: the longer one is cut first, and then both to halves
/// (`longest_first` of the `tokenizers` crate).
pub fn longest_first(first: usize, second: usize, most: usize) -> (usize, usize) {
    if first + second <= most {
        return (first, second);
    }
    let (short, half) = (first.min(second), most / 2);
    let (short, long) = if short <= half { (short, most - short) } else { (half, most - half) };
    if first > second { (long, short) } else { (short, long) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_cut_first() {
        assert_eq!(longest_first(3, 4, 7), (3, 4));
        assert_eq!(longest_first(3, 9, 8), (3, 5));
        assert_eq!(longest_first(9, 3, 8), (5, 3));
        assert_eq!(longest_first(9, 8, 7), (4, 3));
        assert_eq!(longest_first(8, 8, 7), (3, 4));
        assert_eq!(longest_first(0, 8, 5), (0, 5));
        assert_eq!(longest_first(4, 4, 0), (0, 0));
    }

    #[test]
    fn a_pair_has_its_tokens_and_types() {
        let form = PairForm::of(&[1], (&[2], &[]), &[2], [0, 1]);
        let TypedIds { ids, types } = form.join(&[7, 8], &[9]);
        assert_eq!(ids, [1, 7, 8, 2, 9, 2]);
        assert_eq!(types, [0, 0, 0, 0, 1, 1]);
        assert!(form.is_whole() && !PairForm(vec![PairPiece::First(0)]).is_whole());
    }

    #[test]
    fn a_separator_stands_between_the_texts_of_a_pair() {
        let ends = Ends { eos: Some(2), sep: Some(3) };
        assert_eq!(ends.of_text(), [2]);
        assert_eq!(ends.of_pair(&[1], [0, 0]).join(&[7], &[8]).ids, [1, 7, 2, 3, 8, 2]);
        let ends = Ends { eos: None, sep: Some(3) };
        assert_eq!(ends.of_text(), [3]);
        assert_eq!(ends.of_pair(&[], [0, 0]).join(&[7], &[8]).ids, [7, 3, 8, 3]);
    }
}
