//! What a team does at once, in parts that threads take one after the other.

use rillm_cpu_kernels::Mismatch;

use crate::activating::Activating;
use crate::attended::AttentionJob;
use crate::product::Product;
use crate::rounding::Rounding;

/// Multiplications below which a part is not worth a thread: some microseconds.
const LEAST: usize = 1 << 16;
/// Parts that a thread takes, about: as they end at different times, the last ones are short.
const PARTS_A_THREAD: usize = 4;
/// The same where there is much to do, as in a prompt: threads that share a core with others are slower than the rest, which would wait for them.
const PARTS_OF_MUCH: usize = 16;
/// Multiplications of one of those at least: some tenths of a millisecond.
const MUCH: usize = 1 << 22;

/// Columns of a piece of activations, which are rounded together.
pub(crate) const PIECE: usize = 32;
/// Words of a job on the board besides its kind.
pub(crate) const WORDS: usize = 11;

/// How many parts that many multiplications are worth.
pub(crate) fn parts_for(work: usize, threads: usize) -> usize {
    if threads <= 1 {
        return 1;
    }
    let [parts, of_much] =
        [(PARTS_A_THREAD, LEAST), (PARTS_OF_MUCH, MUCH)].map(|(parts, least)| (threads * parts).min(work / least));
    parts.max(of_much).max(1)
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Rows of a matrix with activations.
    Product(Product),
    /// Attention over keys and values.
    Attention(AttentionJob),
    /// Activations as int8.
    Rounding(Rounding),
    /// The function of a feed-forward.
    Activating(Activating),
}

const PRODUCT: usize = 0;
const ATTENTION: usize = 1;
const ROUNDING: usize = 2;
const ACTIVATING: usize = 3;

impl Job {
    /// How many parts it has.
    pub fn parts(&self) -> u32 {
        match self {
            Self::Product(product) => product.parts(),
            Self::Attention(attention) => attention.parts(),
            Self::Rounding(rounding) => rounding.parts(),
            Self::Activating(activating) => activating.parts(),
        }
    }

    pub(crate) fn words(&self) -> (usize, [usize; WORDS]) {
        match self {
            Self::Product(product) => (PRODUCT, product.words()),
            Self::Attention(attention) => (ATTENTION, attention.words()),
            Self::Rounding(rounding) => (ROUNDING, rounding.words()),
            Self::Activating(activating) => (ACTIVATING, activating.words()),
        }
    }

    /// Words of two jobs give one that nobody may work on.
    pub(crate) fn of(kind: usize, words: [usize; WORDS]) -> Self {
        match kind {
            ATTENTION => Self::Attention(AttentionJob::of(words)),
            ROUNDING => Self::Rounding(Rounding::of(words)),
            ACTIVATING => Self::Activating(Activating::of(words)),
            _ => Self::Product(Product::of(words)),
        }
    }

    /// Does a part.
    ///
    /// # Safety
    ///
    /// The addresses are those of what they stand for; nobody else writes any of it, but for other parts what is theirs of the results.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Self::Product(product) => product.work(part),
                Self::Attention(attention) => attention.work(part),
                Self::Rounding(rounding) => rounding.work(part),
                Self::Activating(activating) => activating.work(part),
            }
        }
    }
}
