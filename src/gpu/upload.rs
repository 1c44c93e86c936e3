//! Bytes on their way to the GPU.

use std::ops::Range;

use super::buffer::Buffer;
use super::device::Device;
use crate::error::Result;

/// Bytes on the host: in Rust memory, or in a JavaScript typed array that never enters the wasm heap.
pub trait HostBytes {
    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from `offset` into Rust memory.
    fn copy_to(&self, offset: usize, out: &mut [u8]);

    /// Writes `range` of the bytes to `buffer` at `offset`; the range's length and the offset are multiples of 4. Like every
    /// write, it takes effect after all commands recorded before it.
    fn write_to_buffer(&self, range: Range<usize>, device: &Device, buffer: &Buffer, offset: u64) -> Result<()>;
}

impl HostBytes for Vec<u8> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[offset..offset + out.len()]);
    }

    fn write_to_buffer(&self, range: Range<usize>, device: &Device, buffer: &Buffer, offset: u64) -> Result<()> {
        device.write(buffer, offset, &self[range])
    }
}
