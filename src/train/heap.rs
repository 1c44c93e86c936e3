//! What a training keeps in the program's own memory: its checkpoints, and the files of the adapter. Where that is WebAssembly's, it ends at 4 GiB,
//! and no allocation is larger than 2 GiB.

use crate::error::Result;

/// The memory that there is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapRoom {
    /// The most bytes of one allocation.
    pub largest: u64,
    /// The most bytes of all.
    pub all: u64,
}

impl HeapRoom {
    /// Of this program: a quarter of what can be addressed is left to the engine.
    pub const HERE: Self = Self { largest: isize::MAX as u64, all: (usize::MAX / 4 * 3) as u64 };
}

/// What headers say of a matrix with A and B, and of all.
const HEADER_BYTES: u64 = 1 << 16;
const HEADER_BYTES_OF_PAIR: u64 = 512;

/// The memory that a training takes, about.
pub(super) struct HeapNeeds {
    file: u64,
    checkpoint: u64,
    /// The most at one time.
    pub all: u64,
}

impl HeapNeeds {
    /// For tensors A and B with all of their parameters.
    pub fn new(tensors: usize, parameters: u64, has_checkpoints: bool) -> Self {
        let header = HEADER_BYTES + HEADER_BYTES_OF_PAIR * tensors as u64;
        let file = header + 4 * parameters;
        // The numbers and what AdamW remembers of them.
        let state = 12 * parameters;
        let checkpoint = if has_checkpoints { header + state } else { 0 };
        let with_numbers = [file + 4 * parameters, if has_checkpoints { checkpoint + state } else { 0 }];
        Self { file, checkpoint, all: with_numbers.into_iter().max().unwrap_or(0) }
    }

    /// An error if there is no room: it would end the training after what it had learnt.
    pub fn check(&self, room: HeapRoom) -> Result<()> {
        let what = [("a checkpoint of the training", self.checkpoint), ("the file of the adapter", self.file)];
        for (what, needed) in what {
            if needed > room.largest {
                bail!(
                    OutOfMemory,
                    "{what} has {needed} bytes, and the engine's memory takes {} in one piece; lower rank, or name fewer targets",
                    room.largest
                );
            }
        }
        if self.all > room.all {
            bail!(
                OutOfMemory,
                "the training's checkpoints and files take {} bytes of the engine's memory, which has room for {}; lower rank, name fewer \
                 targets, or leave out checkpoint",
                self.all,
                room.all
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{HeapNeeds, HeapRoom};
    use crate::error::Code;

    /// A model of 1B has 704 k numbers for each rank, in 112 tensors.
    #[test]
    fn what_webassembly_does_not_hold_is_refused() {
        let wasm = HeapRoom { largest: (1 << 31) - 1, all: 3 << 30 };
        let check = |rank: u64, has_checkpoints| HeapNeeds::new(112, 704_512 * rank, has_checkpoints).check(wasm);
        for (rank, has_checkpoints, words) in [
            (256, true, &["a checkpoint", "2164383744 bytes", "2147483647"][..]),
            (192, true, &["checkpoints and files", "3246514176 bytes", "3221225472"]),
            (800, false, &["the file of the adapter", "2147483647"]),
            (600, false, &["checkpoints and files", "3221225472"]),
        ] {
            let error = check(rank, has_checkpoints).unwrap_err();
            assert_eq!(error.code(), Code::OutOfMemory);
            for word in words {
                assert!(error.message().contains(word), "rank {rank}: {error}");
            }
        }
        assert!(check(128, true).is_ok() && check(512, false).is_ok());
        assert!(HeapNeeds::new(112, 704_512 * 4096, true).check(HeapRoom::HERE).is_ok(), "here there are 64 bits");
    }
}
