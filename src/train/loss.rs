//! What training makes small: the cross entropy of the tokens that count.

use std::rc::Rc;

use super::forward::Forward;
use crate::array::{Array, CrossEntropy, DType, Reduction};
use crate::error::Result;

/// Bytes that the logits of one piece may have. A few times as many are in use while a piece is computed.
const PIECE_BYTES: usize = 32 << 20;

/// A text to learn from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Which of them are to be learnt; the first never is, since nothing comes before it.
    pub counts: Vec<bool>,
}

impl Example {
    /// A text all of whose tokens are to be learnt.
    pub fn whole(ids: Vec<u32>) -> Self {
        Self { counts: vec![true; ids.len()], ids }
    }

    /// How many tokens are learnt.
    pub fn counted(&self) -> usize {
        self.counts.iter().skip(1).filter(|counts| **counts).count()
    }

    /// An error if it can't be learnt from: its parts don't fit, nothing of it counts, or an id is none of the vocabulary.
    pub fn check(&self, vocabulary: usize) -> Result<()> {
        let Self { ids, counts } = self;
        if ids.len() != counts.len() {
            bail!(InvalidRequest, "{} tokens, and of {} it is said whether they count", ids.len(), counts.len());
        }
        if self.counted() == 0 {
            bail!(InvalidRequest, "none of {} tokens is to be learnt; the first never is", ids.len());
        }
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => bail!(InvalidRequest, "the token {id} is none of the vocabulary, which has {vocabulary}"),
            None => Ok(()),
        }
    }
}

/// The tokens whose logits are computed at once.
pub(super) fn piece(vocab_size: usize) -> usize {
    (PIECE_BYTES / 4 / vocab_size).max(1)
}

impl Forward {
    /// The cross entropy of the tokens that count, added up, times `factor`; a number without dimensions. Logits are computed for those tokens alone,
    /// piece by piece, and again on the way back.
    pub fn loss(self: &Rc<Self>, Example { ids, counts }: &Example, factor: f64) -> Result<Array> {
        let hidden = self.hidden(ids)?;
        // The state after a token predicts the next one.
        let learnt: Vec<usize> = (1..ids.len()).filter(|place| counts[*place]).collect();
        let piece = piece(self.decoder.config.vocab_size);
        let words =
            |numbers: Vec<u32>| self.library.array(&[numbers.len()], DType::I32, bytemuck::cast_slice(&numbers));
        let mut sum: Option<Array> = None;
        for places in learnt.chunks(piece) {
            let rows = hidden.index_select(0, &words(places.iter().map(|place| *place as u32 - 1).collect())?)?;
            rows.evaluate()?;
            let target = words(places.iter().map(|place| ids[*place]).collect())?;
            let own = self.clone();
            let of_piece = self.library.checkpoint(move || {
                let how = CrossEntropy { reduction: Reduction::Sum, ..CrossEntropy::default() };
                own.logits(&rows)?.cross_entropy(&target, how)?.scaled(factor)
            })?;
            of_piece.evaluate()?;
            sum = Some(match sum {
                Some(sum) => sum.plus(&of_piece)?,
                None => of_piece,
            });
        }
        sum.ok_or_else(|| err!(Internal, "an example of which nothing counts"))
    }
}
