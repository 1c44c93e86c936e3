//! Room for rounded activations, which jobs write in parts of some pieces of 32.

use rillm_cpu_kernels::{Mismatch, Quantized, Rounded};

use crate::job::{PIECE, parts_for};

/// Room for activations [tokens, columns].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    at: usize,
    pub(crate) tokens: usize,
    pub(crate) columns: usize,
    of_part: usize,
}

impl Pieces {
    /// Room that this makes in `into`, in parts for as many threads. A number takes `work` multiplications. An error if there is no room, or unless
    /// columns are whole pieces.
    pub(crate) fn new(
        [tokens, columns]: [usize; 2],
        into: &mut Quantized,
        work: usize,
        threads: usize,
    ) -> Result<Self, Mismatch> {
        let room = into.make_room(tokens, columns)?;
        let parts = parts_for(room.len().saturating_mul(PIECE * work), threads);
        let of_part = room.len().div_ceil(parts).max(1);
        Ok(Self { at: room.as_mut_ptr().expose_provenance(), tokens, columns, of_part })
    }

    /// Also of words of two jobs, which may be any.
    fn count(&self) -> usize {
        self.tokens.saturating_mul(self.columns) / PIECE
    }

    pub(crate) fn parts(&self) -> u32 {
        self.count().div_ceil(self.of_part.max(1)).max(1) as u32
    }

    pub(crate) fn words(&self) -> [usize; 4] {
        [self.at, self.tokens, self.columns, self.of_part]
    }

    pub(crate) fn of([at, tokens, columns, of_part]: [usize; 4]) -> Self {
        Self { at, tokens, columns, of_part }
    }

    /// The first place of a part, and its room.
    ///
    /// # Safety
    ///
    /// As for a job, whose part it is.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn part<'a>(&self, part: u32) -> (usize, &'a mut [Rounded]) {
        let first = part as usize * self.of_part;
        let count = self.of_part.min(self.count().saturating_sub(first));
        // SAFETY: as the caller promises; these pieces are this part's.
        (first, unsafe { std::slice::from_raw_parts_mut((self.at as *mut Rounded).wrapping_add(first), count) })
    }
}
