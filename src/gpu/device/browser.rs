//! What a page hands to the device: its own GPUDevice, its buffers, its arrays.

use wasm_bindgen::JsValue;

use super::Device;
use crate::error::Result;
use crate::gpu::buffer::{Buffer, BufferSlice};
use crate::gpu::options::DeviceOptions;
use crate::gpu::platform::browser;
use crate::gpu::recorder::LARGEST_PIECE;
use crate::gpu::stats::{FlushReason, add};

impl Device {
    /// Takes in a GPUDevice of the application. It is shared: the application's own work on it goes on, and it is never
    /// destroyed here.
    pub async fn adopt(raw: &JsValue, options: &DeviceOptions) -> Result<Device> {
        Self::new(browser::take_in(raw).await?, options, true).await
    }

    /// Takes in a GPUDevice that was requested for us alone: its errors are ours, and it is destroyed with the device.
    pub async fn own(raw: &JsValue, options: &DeviceOptions) -> Result<Device> {
        Self::new(browser::take_in(raw).await?, options, false).await
    }

    /// Takes in a GPUBuffer of the application, which must have the usage STORAGE. It is never destroyed here.
    pub fn import_buffer(&self, raw: &JsValue, label: &str) -> Result<Buffer> {
        let parts = self.parts();
        parts.raw.check_usable()?;
        Ok(Buffer::foreign(&parts.pool, browser::take_in_buffer(&parts.raw.wgpu, raw, label)?))
    }

    /// The GPUDevice beneath, for whoever shares it. It stays the device's.
    pub fn export(&self) -> Result<JsValue> {
        let parts = self.parts();
        parts.raw.check_usable()?;
        browser::object(&parts.raw.wgpu)
    }

    /// The GPUBuffer that a slice lies in and the slice's first byte there, after submitting what was recorded, so that what the
    /// application submits next sees it. The buffer stays the device's.
    pub fn export_slice(&self, slice: &BufferSlice) -> Result<(JsValue, u64)> {
        let parts = self.parts();
        parts.raw.check_usable()?;
        let buffer = browser::given_out(slice.buffer.wgpu()?)?;
        self.flush();
        parts.recorder.queue.send_all();
        Ok((buffer, slice.buffer.start() + slice.offset))
    }

    /// Writes a range of a JavaScript array to a buffer; the bytes never enter the wasm heap.
    pub fn write_js(
        &self,
        buffer: &Buffer,
        offset: u64,
        bytes: &js_sys::Uint8Array,
        range: std::ops::Range<usize>,
    ) -> Result<()> {
        let parts = self.parts();
        parts.recorder.check_write(buffer, offset, range.len() as u64)?;
        if parts.recorder.is_tracing() {
            return Ok(());
        }
        // A write that goes to the queue must not overtake what is recorded.
        parts.recorder.flush(FlushReason::Write);
        let length = range.len() as u64;
        add(&parts.raw.counters.bytes_uploaded, length);
        let (target, offset) = (buffer.wgpu()?.clone(), buffer.start() + offset);
        let queue = &parts.recorder.queue;
        if queue.holds_back() {
            for start in range.clone().step_by(LARGEST_PIECE) {
                let piece = start..range.end.min(start + LARGEST_PIECE);
                let (target, bytes, at) = (target.clone(), bytes.clone(), offset + (start - range.start) as u64);
                queue.push_write(piece.len() as u64, move |raw| browser::write(&raw.queue, &target, at, &bytes, piece));
            }
        } else {
            browser::write(&parts.raw.queue, &target, offset, bytes, range)?;
        }
        add(&parts.raw.counters.queue_writes, 1);
        parts.raw.timeline.wrote(length);
        Ok(())
    }
}
