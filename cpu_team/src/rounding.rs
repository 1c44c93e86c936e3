//! The rounding of activations to int8, in parts of some pieces of 32.

use rillm_cpu_kernels::{Mismatch, Quantized, Rounded, round};

use crate::job::{PIECE, WORDS, parts_for};

/// What rounding a number takes, in multiplications.
const WORK: usize = 8;

/// Pieces from floats at one address, written to another.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    x: usize,
    tokens: usize,
    columns: usize,
    out: usize,
    pieces: usize,
    of_part: usize,
}

impl Rounding {
    /// Of floats [tokens, columns] at `x`, to room that this makes in `into`. An error if there is none, or unless columns are whole pieces.
    pub fn new(
        x: usize,
        [tokens, columns]: [usize; 2],
        into: &mut Quantized,
        threads: usize,
    ) -> Result<Self, Mismatch> {
        let out = into.make_room(tokens, columns)?;
        let pieces = out.len();
        let parts = parts_for(pieces.saturating_mul(PIECE * WORK), threads);
        let (out, of_part) = (out.as_mut_ptr().expose_provenance(), pieces.div_ceil(parts).max(1));
        Ok(Self { x, tokens, columns, out, pieces, of_part })
    }

    pub(crate) fn parts(&self) -> u32 {
        self.pieces.div_ceil(self.of_part.max(1)).max(1) as u32
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let mut words = [0; WORDS];
        let Self { x, tokens, columns, out, pieces, of_part } = *self;
        [words[0], words[1], words[2], words[3], words[4], words[5]] = [x, tokens, columns, out, pieces, of_part];
        words
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        let [x, tokens, columns, out, pieces, of_part, ..] = words;
        Self { x, tokens, columns, out, pieces, of_part }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        let first = part as usize * self.of_part;
        let count = self.pieces.min(first + self.of_part) - first;
        // SAFETY: as the caller promises; these pieces are this part's.
        let (x, out) = unsafe {
            (
                std::slice::from_raw_parts(self.x as *const f32, self.tokens * self.columns),
                std::slice::from_raw_parts_mut((self.out as *mut Rounded).wrapping_add(first), count),
            )
        };
        round(x, [self.tokens, self.columns], first, out)
    }
}
