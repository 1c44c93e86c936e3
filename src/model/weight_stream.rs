//! Reads the parts of tensors in the order of the files: one stream for each run of parts that lie close together.

use super::checkpoint::{Checkpoint, Part};
use super::folder::OpenFile;
use super::source::{Chunk, ChunkStream};
use crate::error::Result;

/// Called with the bytes read so far and their total. An error from it ends the load.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

/// If there are at most this many bytes between two parts, they are read and dropped: a new request takes as long.
const MAX_GAP: u64 = 256 << 10;
/// How many of a part's first bytes its sample takes.
pub(super) const SAMPLE_BYTES: usize = 256;
/// Often enough for a smooth bar and a quick abort, rarely enough to cost nothing.
const REPORT_BYTES: u64 = 256 << 10;

/// What a part of a tensor adds to the fingerprint: its number, what it is beside the quants of a packed matrix, and the CRC-32 of its first bytes.
pub(super) fn sample_of(tensor: &str, number: usize, side: Option<u8>, first_bytes: u32) -> u64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(tensor.as_bytes());
    sum.update(&(number as u64).to_le_bytes());
    sum.update(side.as_slice());
    sum.update(&first_bytes.to_le_bytes());
    sum.finalize().into()
}

/// Hands out the bytes of parts, which must be asked for in the order given to `new`.
pub(super) struct WeightStream<'c> {
    checkpoint: &'c Checkpoint<'c>,
    runs: std::vec::IntoIter<Part>,
    open: Option<Open<'c>>,
    done: u64,
    reported: u64,
    total: u64,
    /// Of the first bytes of the present part, and how many are still to come.
    sample: (crc32fast::Hasher, usize),
}

/// The open stream of a run.
struct Open<'c> {
    stream: Box<dyn ChunkStream + 'c>,
    file: usize,
    position: u64,
    /// The current chunk, and how many of its bytes are used.
    chunk: Option<(Chunk, usize)>,
}

impl<'c> WeightStream<'c> {
    /// `parts` must be in the order of files and offsets.
    pub fn new(checkpoint: &'c Checkpoint<'c>, parts: impl Iterator<Item = Part>) -> Self {
        let mut runs: Vec<Part> = Vec::new();
        for part in parts {
            match runs.last_mut() {
                Some(run) if run.file == part.file && part.offset.saturating_sub(run.offset + run.bytes) <= MAX_GAP => {
                    run.bytes = run.bytes.max(part.offset + part.bytes - run.offset);
                }
                _ => runs.push(part),
            }
        }
        let total = runs.iter().map(|run| run.bytes).sum();
        Self {
            checkpoint,
            runs: runs.into_iter(),
            open: None,
            done: 0,
            reported: 0,
            total,
            sample: (crc32fast::Hasher::new(), 0),
        }
    }

    /// A file of the checkpoint, for what is read beside the stream.
    pub fn file(&self, index: usize) -> Result<&'c OpenFile<'c>> {
        self.checkpoint.files.get(index).ok_or_else(|| err!(Internal, "there is no file {index}"))
    }

    /// Goes to the start of a part.
    pub async fn seek(&mut self, part: Part, progress: &mut Progress<'_>) -> Result<()> {
        self.sample.1 = 0;
        loop {
            match &self.open {
                Some(open) if open.file == part.file && open.position <= part.offset => {
                    let gap = part.offset - open.position;
                    if gap <= MAX_GAP {
                        self.take(gap, progress, &mut |_, _, _| Ok(())).await?;
                        break;
                    }
                    self.next_run().await?;
                }
                _ => self.next_run().await?,
            }
        }
        self.sample = (crc32fast::Hasher::new(), SAMPLE_BYTES);
        Ok(())
    }

    /// The CRC-32 of the first bytes taken of the present part.
    pub fn sample(&self) -> u32 {
        self.sample.0.clone().finalize()
    }

    async fn next_run(&mut self) -> Result<()> {
        let checkpoint = self.checkpoint;
        let Some((run, source)) = self.runs.next().and_then(|run| Some((run, checkpoint.files.get(run.file)?))) else {
            bail!(Internal, "parts of tensors were asked for in another order than they were announced");
        };
        // The old stream is dropped first, so that there is only one request at a time.
        self.open = None;
        let stream = source.stream(run.offset, run.bytes).await?;
        self.open = Some(Open { stream, file: run.file, position: run.offset, chunk: None });
        Ok(())
    }

    /// Passes the next `length` bytes to `sink`, chunk by chunk: the chunk, and the range of the bytes in it.
    pub async fn take(
        &mut self,
        length: u64,
        progress: &mut Progress<'_>,
        sink: &mut dyn FnMut(&Chunk, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut left = length;
        while left > 0 {
            let Some(open) = &mut self.open else { bail!(Internal, "no part of a tensor is open") };
            let (chunk, used) = match open.chunk.take() {
                Some(open) => open,
                None => match open.stream.next().await? {
                    Some(chunk) => (chunk, 0),
                    None => bail!(Truncated, "the stream ended {left} bytes early"),
                },
            };
            let n = ((chunk.len() - used) as u64).min(left);
            let end = used + n as usize;
            sink(&chunk, used, end)?;
            let sampled = self.sample.1.min(n as usize);
            if sampled > 0 {
                let mut bytes = [0; SAMPLE_BYTES];
                chunk.copy_to(used, &mut bytes[..sampled]);
                self.sample.0.update(&bytes[..sampled]);
                self.sample.1 -= sampled;
            }
            open.position += n;
            if end < chunk.len() {
                open.chunk = Some((chunk, end));
            }
            left -= n;
            self.done += n;
            if self.done - self.reported >= REPORT_BYTES || self.done == self.total {
                self.reported = self.done;
                progress(self.done, self.total)?;
            }
        }
        Ok(())
    }
}
