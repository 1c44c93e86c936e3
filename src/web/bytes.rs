//! Bytes in a JavaScript array, which go to the GPU without entering the wasm heap.

use std::ops::Range;

use js_sys::Uint8Array;

use crate::error::Result;
use crate::gpu::{Buffer, Device, HostBytes};

pub struct JsBytes(Uint8Array);

impl JsBytes {
    pub fn new(array: Uint8Array) -> Self {
        Self(array)
    }
}

impl HostBytes for JsBytes {
    fn len(&self) -> usize {
        self.0.length() as usize
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.0.subarray(offset as u32, (offset + out.len()) as u32).copy_to(out);
    }

    fn write_to_buffer(&self, range: Range<usize>, device: &Device, buffer: &Buffer, offset: u64) -> Result<()> {
        device.write_js(buffer, offset, &self.0, range)
    }
}
