//! The device: one handle for all parts of the runtime. The parts don't know it.

#[cfg(target_arch = "wasm32")]
mod browser;
mod profiling;

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::adapter::{Adapter, AdapterInfo, Capabilities};
use super::attempt::attempt;
use super::bind_groups::BindGroups;
use super::binder::Binder;
use super::binding::Binding;
use super::buffer::{Buffer, BufferSlice};
use super::command::Grid;
use super::cpu::{self, CpuKernel};
use super::options::{DeviceKind, DeviceOptions};
use super::pipeline::{Pipeline, Pipelines};
use super::platform;
use super::pool::BufferPool;
use super::raw::RawDevice;
use super::readback::{Readback, RecordedReadback, StagingPool, settle, sync};
use super::recorder::Recorder;
use super::recorder::plan::Recording;
use super::stats::{FlushReason, Holdings, MemoryStats, Stats};
use super::transcript::Transcript;
use super::wgsl::Shader;
use crate::error::Result;

/// The WebGPU device and everything that is cached for it. Cloning clones the handle.
#[derive(Clone)]
pub struct Device(Rc<Parts>);

struct Parts {
    raw: Rc<RawDevice>,
    pool: Rc<BufferPool>,
    recorder: Recorder,
    staging: Rc<StagingPool>,
}

impl Device {
    /// Asks for an adapter and a device with every feature that kernels use and the adapter's largest limits.
    pub async fn request(options: &DeviceOptions) -> Result<Device> {
        let is_cpu = match options.kind {
            DeviceKind::Auto => platform::prefers_cpu(),
            kind => kind == DeviceKind::Cpu,
        };
        let device = if is_cpu { cpu::request(options.team.clone())? } else { platform::request(options).await? };
        Self::new(device, options, false).await
    }

    async fn new(
        device: (wgpu::Device, wgpu::Queue, Adapter),
        options: &DeviceOptions,
        is_foreign: bool,
    ) -> Result<Device> {
        let raw = Rc::new(RawDevice::new(device, options, is_foreign).await?);
        let bind_groups = Rc::new(BindGroups::new(options.caches.bind_groups));
        let pool = Rc::new(BufferPool::new(raw.clone(), bind_groups.clone()));
        let pipelines = Pipelines::new(raw.clone());
        let binder = Binder::new(raw.clone(), pool.clone(), bind_groups);
        let recorder = Recorder::new(raw.clone(), pool.clone(), pipelines, binder);
        let staging = Rc::new(StagingPool::new(raw.clone(), options.caches.staging));
        Ok(Device(Rc::new(Parts { raw, pool, recorder, staging })))
    }

    fn parts(&self) -> &Parts {
        &self.0
    }

    /// Which adapter runs.
    pub fn adapter(&self) -> &AdapterInfo {
        &self.0.raw.adapter.info
    }

    /// What kernels may use and how large things may be.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.raw.capabilities
    }

    /// The counters as they stand now.
    pub fn stats(&self) -> Stats {
        let Parts { raw, pool, recorder, .. } = self.parts();
        Stats {
            pooled_bytes: pool.free_bytes(),
            uniforms: recorder.binder.uniforms.stats(),
            bind_groups: recorder.binder.groups.stats(),
            pipelines: recorder.pipelines.stats(),
            ..raw.counters.snapshot()
        }
    }

    /// The GPU memory as it is now.
    pub fn memory(&self) -> MemoryStats {
        let Parts { raw, pool, .. } = self.parts();
        let counters = &raw.counters;
        let (live_buffers, live_bytes) = (counters.live_buffers.get(), counters.live_bytes.get());
        let (pooled_buffers, pooled_bytes) = (pool.free_buffers(), pool.free_bytes());
        MemoryStats {
            allocated_bytes: counters.allocated_bytes.get(),
            live_buffers,
            live_bytes,
            peak_bytes: counters.peak_bytes.get(),
            active_buffers: live_buffers - pooled_buffers,
            active_bytes: live_bytes - pooled_bytes,
            pooled_buffers,
            pooled_bytes,
            pool: pool.stats(),
        }
    }

    /// What it holds, by what it is used for.
    pub fn holdings(&self) -> Holdings {
        let Parts { raw, pool, staging, .. } = self.parts();
        Holdings {
            live_bytes: raw.counters.live_bytes.get(),
            peak_bytes: raw.counters.peak_bytes.get(),
            arena_bytes: raw.counters.arena_bytes.get(),
            waiting_bytes: pool.free_bytes() + staging.free_bytes(),
            unfinished_write_bytes: raw.timeline.unfinished_write_bytes(),
            peak_unfinished_write_bytes: raw.timeline.peak_unfinished_write_bytes(),
        }
    }

    /// Sets the counts to zero; what is alive stays counted.
    pub fn reset_stats(&self) {
        let Parts { raw, recorder, .. } = self.parts();
        raw.counters.reset();
        recorder.binder.uniforms.reset_stats();
        recorder.binder.groups.reset_stats();
        recorder.pipelines.reset_stats();
    }

    /// Runs `step`, which may allocate, and submits what it recorded. An error if there was no room: then nothing of it has run, what it
    /// allocated is freed, and nobody else hears of it. `what` names it.
    pub async fn attempt<T>(&self, what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        attempt(&self.0.recorder, what, step).await
    }

    /// An error if there is no room for what `step` allocates. Nothing runs, and nothing is kept.
    pub async fn check_room<T>(&self, what: &str, step: impl FnOnce() -> Result<T>) -> Result<()> {
        self.0.recorder.check_room(what, step).await
    }

    /// What the last step that found no room needed.
    pub fn refused_bytes(&self) -> u64 {
        self.0.raw.refused_bytes.get()
    }

    /// The most bytes of buffers from now on (`DeviceOptions::memory_limit`).
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        self.0.raw.memory_limit.set(bytes);
    }

    /// Frees all that waits for reuse, and waits until it is free.
    pub async fn free_unused(&self) -> Result<()> {
        self.trim();
        self.0.staging.trim();
        self.sync().await
    }

    /// The same for whom errors of others are not to end: the next wait reports them.
    pub async fn let_go(&self) {
        self.trim();
        self.0.staging.trim();
        settle(&self.0.recorder).await;
    }

    /// Frees memory that waits for reuse until at most `bytes` are left.
    pub fn trim_to(&self, bytes: u64) {
        self.0.pool.shrink(bytes);
    }

    /// Frees what the device keeps for reuse, such as after a model was dropped.
    pub fn trim(&self) {
        self.flush();
        self.0.pool.shrink(0);
    }

    /// Ends the device: submits what was recorded, frees all that it made, then destroys it (an application's own device is left alive).
    /// What is in flight is rejected; later calls end in `disposed`. What others hold is freed when they drop it.
    pub fn destroy(&self) {
        let Parts { raw, pool, recorder, staging } = self.parts();
        if raw.is_disposed() {
            return;
        }
        recorder.flush(FlushReason::End);
        if raw.is_foreign() {
            recorder.queue.send_all();
        }
        raw.dispose();
        recorder.clear();
        staging.clear();
        pool.clear();
        raw.destroy();
    }

    /// An error if the device is lost or was destroyed.
    pub fn check_usable(&self) -> Result<()> {
        self.0.raw.check_usable()
    }

    /// Resolves when the device is lost, with the browser's words for why.
    pub fn lost(&self) -> impl Future<Output = String> + use<> {
        self.0.raw.faults.lost()
    }

    /// A storage buffer of at least `size` bytes. Its contents are whatever was there: a new one is zeroed by WebGPU, a
    /// reused one is not.
    pub fn buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        self.0.recorder.buffer(size, label)
    }

    /// A storage buffer for what stays as long as a model does: no larger than it has to be, and not kept for reuse.
    pub fn lasting_buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        self.0.recorder.lasting_buffer(size, label)
    }

    /// The same for a weight that only ops use: on the CPU it is in the memory of the team, if there is one.
    pub fn weight_buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        self.0.recorder.weight_buffer(size, label)
    }

    /// The pipeline of a shader with these bindings; its entry point is `main`. A shader that does not compile is reported
    /// by the next read-back or sync, with the compiler's message.
    pub fn pipeline(&self, shader: &Shader<'_>, bindings: &[Binding<'_>]) -> Result<Rc<Pipeline>> {
        self.0.recorder.pipelines.get(shader, bindings)
    }

    /// Records one dispatch.
    pub fn dispatch(&self, shader: &Shader<'_>, bindings: &[Binding<'_>], grid: Grid) -> Result<()> {
        self.0.recorder.dispatch(shader, None, bindings, grid)
    }

    /// Whether it is the CPU, which runs no shaders.
    pub fn is_cpu(&self) -> bool {
        self.capabilities().cpu
    }

    /// Whose memory buffers are in, for people: the GPU's or the CPU's.
    pub fn place(&self) -> &'static str {
        self.0.raw.faults.place()
    }

    /// Whether what is submitted has been computed when the call returns, so that nothing runs beside the caller.
    pub fn runs_at_once(&self) -> bool {
        self.is_cpu()
    }

    /// How many threads compute. `None` if the device is no CPU.
    pub fn threads(&self) -> Option<usize> {
        let options = &self.parts().raw.options;
        self.is_cpu().then(|| options.team.as_ref().map_or(1, |team| team.threads()))
    }

    /// Records a call of `kernel` on what is bound. An error if the device is no CPU.
    pub fn dispatch_on_cpu(
        &self,
        label: &str,
        kernel: impl CpuKernel + 'static,
        bindings: &[Binding<'_>],
    ) -> Result<()> {
        let Some(kernel) = cpu::shared(kernel) else { bail!(Internal, "this build has no CPU device") };
        self.0.recorder.dispatch_on_cpu(label, kernel, bindings)
    }

    /// The same with the shader's pipeline, by `pipeline` for the same kinds of bindings: the shader's text is not looked at.
    pub fn dispatch_compiled(
        &self,
        shader: &Shader<'_>,
        pipeline: &Rc<Pipeline>,
        bindings: &[Binding<'_>],
        grid: Grid,
    ) -> Result<()> {
        self.0.recorder.dispatch(shader, Some(pipeline), bindings, grid)
    }

    /// Records a copy of a slice to the start of another. Offsets and sizes are multiples of 4.
    pub fn copy(&self, source: &BufferSlice, target: &BufferSlice) -> Result<()> {
        self.0.recorder.copy(source, target)
    }

    /// Writes bytes to a buffer, after all commands recorded so far. Offset and length are multiples of 4.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.recorder.write(buffer, offset, bytes)
    }

    /// Whether a step is only traced, so that nothing has memory.
    pub fn is_tracing(&self) -> bool {
        self.0.recorder.is_tracing()
    }

    /// How many dispatches and copies wait to be submitted.
    pub fn pending(&self) -> usize {
        self.0.recorder.pending()
    }

    /// Submits what was recorded after so many dispatches; 0 for no limit.
    pub fn set_max_batch(&self, most: usize) {
        self.0.raw.max_batch.set(most);
        self.0.recorder.submit_early();
    }

    /// Whether what is recorded waits until somebody asks. Otherwise each dispatch is submitted at once.
    pub fn set_lazy(&self, on: bool) {
        self.0.raw.is_lazy.set(on);
        self.0.recorder.submit_early();
    }

    /// Whether what is recorded waits until somebody asks.
    pub fn is_lazy(&self) -> bool {
        self.0.raw.is_lazy.get()
    }

    /// Submits what was recorded: one encoder, one submit, and one pass between copies.
    pub fn flush(&self) {
        self.0.recorder.flush(FlushReason::Explicit);
    }

    /// Runs `step` without recording, compiling or allocating anything, for what it returns and for its other effects.
    pub fn rehearse<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0.recorder.rehearse(step)
    }

    /// What `step` would run on the GPU. Two steps that do the same have the same transcript. Nothing runs.
    pub fn transcript<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<Transcript> {
        self.0.recorder.transcript(step)
    }

    /// Runs `step`, at the call, to find the pipelines that it needs, and compiles them. Nothing runs on the GPU: the step's writes and
    /// reads are left out.
    pub fn prepare<T>(&self, step: impl FnOnce() -> Result<T>) -> LocalBoxFuture<'static, Result<()>> {
        let needed = self.0.recorder.needed_pipelines(step);
        let device = self.clone();
        Box::pin(async move { device.0.recorder.compile(needed?).await })
    }

    /// Prepares `step`, records it once to run, and keeps the recording for replays. Its tensors lie in an arena, where tensors
    /// that never live at the same time share bytes. The step must do the same each time it is called.
    pub async fn capture<T>(&self, step: impl Fn() -> Result<T>) -> Result<(T, Recording)> {
        self.0.recorder.capture(step).await
    }

    /// Records all commands of `recording` again.
    pub fn replay(&self, recording: &Recording) -> Result<()> {
        self.0.recorder.replay(recording)
    }

    /// Starts reading these slices: one staging buffer, one submit together with all that was recorded, one map. Offsets
    /// must be multiples of 4 bytes; lengths may be anything.
    pub fn read(&self, slices: &[BufferSlice]) -> Result<Readback> {
        self.start_reading(self.record_read(slices)?)
    }

    /// Records the copies of a read-back, which go with whatever is submitted next. What is recorded later does not change what is read.
    pub fn record_read(&self, slices: &[BufferSlice]) -> Result<RecordedReadback> {
        RecordedReadback::record(&self.0.recorder, &self.0.staging, slices)
    }

    /// Starts a recorded read-back of this device; submits its copies if nothing has yet.
    pub fn start_reading(&self, recorded: RecordedReadback) -> Result<Readback> {
        recorded.start(&self.0.recorder)
    }

    /// Whether the page is to stay smooth: what is flushed then goes to the GPU in pieces of a few milliseconds, with no more than two of them
    /// queued.
    pub fn set_paced(&self, on: bool) {
        self.0.recorder.queue.set_paced(on);
    }

    /// Whether submits are cut now; never while the page is hidden.
    pub fn is_paced(&self) -> bool {
        self.0.recorder.queue.is_paced()
    }

    /// Submits what was recorded, and returns the number of that submission.
    pub fn submitted(&self) -> u64 {
        self.flush();
        self.0.raw.timeline.submitted()
    }

    /// Waits until what was flushed has been handed to the GPU. It need not be done.
    pub async fn sent(&self) {
        self.0.recorder.queue.sent(self.0.raw.timeline.submitted()).await;
    }

    /// The same for what was flushed after the submission `first` up to `last`. Once it is no longer wanted, takes back what the GPU was not
    /// given, and returns false.
    pub async fn sent_while(&self, (first, last): (u64, u64), is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        self.0.recorder.queue.sent_while(first, last, is_wanted).await
    }

    /// The time by which submits are measured.
    pub fn now(&self) -> web_time::Duration {
        self.0.recorder.queue.now()
    }

    /// How long the longest dispatch since the last call is expected to take, as far as submits were cut.
    pub fn take_longest_dispatch(&self) -> web_time::Duration {
        self.0.recorder.queue.take_longest()
    }

    /// Submits what was recorded and waits until the GPU has done it. Reports the first error since the last wait.
    pub async fn sync(&self) -> Result<()> {
        sync(&self.0.recorder).await
    }
}
