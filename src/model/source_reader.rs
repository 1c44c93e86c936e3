//! Reads a source in order, and sums up what it reads (CRC-32, ISO-HDLC), so that damage is noticed.

use super::source::ByteSource;
use crate::error::Result;

/// Reads from an offset to the end.
pub struct SourceReader<'s> {
    source: &'s dyn ByteSource,
    at: u64,
    sum: crc32fast::Hasher,
}

impl<'s> SourceReader<'s> {
    /// Begins at an offset.
    pub fn new(source: &'s dyn ByteSource, at: u64) -> Self {
        Self { source, at, sum: crc32fast::Hasher::new() }
    }

    /// How many bytes follow.
    pub fn left(&self) -> u64 {
        self.source.size().saturating_sub(self.at)
    }

    /// Where the next byte is.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next `count` bytes. `invalid_file` if there are fewer: nothing is allocated for them then.
    pub async fn take(&mut self, count: u64) -> Result<Vec<u8>> {
        let Some(length) = usize::try_from(count).ok().filter(|_| count <= self.left()) else {
            bail!(
                InvalidFile,
                "{}: it is cut off: {count} more bytes wanted, {} there",
                self.source.name(),
                self.left()
            )
        };
        let bytes = self.source.read(self.at, length).await?;
        self.at += count;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    /// The next number, u32.
    pub async fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(array(&self.take(4).await?)?))
    }

    /// The next number, u64.
    pub async fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(array(&self.take(8).await?)?))
    }

    /// Compares the next number with the sum of what was read since the last one. `invalid_file` if it is another.
    pub async fn check_sum(&mut self) -> Result<()> {
        let sum = std::mem::take(&mut self.sum).finalize();
        let is_intact = self.u32().await? == sum;
        self.sum = crc32fast::Hasher::new();
        if !is_intact {
            bail!(InvalidFile, "{}: it is damaged: a checksum is another", self.source.name());
        }
        Ok(())
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| err!(Internal, "{N} bytes were read, and {} came", bytes.len()))
}
