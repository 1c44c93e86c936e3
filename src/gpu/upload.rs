//! Bytes on their way to the GPU.

use std::ops::Range;

use super::buffer::Buffer;
use super::device::Device;
use crate::error::Result;

/// Bytes outside of the GPU: in Rust memory, or in a JavaScript typed array that never enters the wasm heap.
pub trait HostBytes {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from `offset` into Rust memory.
    fn copy_to(&self, offset: usize, out: &mut [u8]);

    /// Writes `range` of the bytes to `buffer` at `offset`; the range's length and the offset are multiples of 4. As every
    /// write, it lands after all commands that were recorded before it.
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
