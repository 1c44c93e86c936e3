//! The rounding of activations to int8, in parts of some pieces of 32.

use rillm_cpu_kernels::{Mismatch, Quantized, round};

use crate::job::WORDS;
use crate::pieces::Pieces;

/// What rounding a number takes, in multiplications.
const WORK: usize = 8;

/// Pieces from floats at one address.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    x: usize,
    pieces: Pieces,
}

impl Rounding {
    /// Of floats [tokens, columns] at `x`, to room that this makes in `into`. An error if there is none, or unless columns are whole pieces.
    pub fn new(x: usize, shape: [usize; 2], into: &mut Quantized, threads: usize) -> Result<Self, Mismatch> {
        Ok(Self { x, pieces: Pieces::new(shape, into, WORK, threads)? })
    }

    pub(crate) fn parts(&self) -> u32 {
        self.pieces.parts()
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let mut words = [0; WORDS];
        let [at, tokens, columns, of_part] = self.pieces.words();
        words[..5].copy_from_slice(&[at, tokens, columns, of_part, self.x]);
        words
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        let [at, tokens, columns, of_part, x, ..] = words;
        Self { x, pieces: Pieces::of([at, tokens, columns, of_part]) }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        let Pieces { tokens, columns, .. } = self.pieces;
        // SAFETY: as the caller promises.
        let (x, (first, out)) =
            unsafe { (std::slice::from_raw_parts(self.x as *const f32, tokens * columns), self.pieces.part(part)) };
        round(x, [tokens, columns], first, out)
    }
}
