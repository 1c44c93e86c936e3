//! Records dispatches and copies, and turns them into one encoder, one compute pass and one submit.
//!
//! Commands are plain data until the flush. So a list of them can be kept as a [`Recording`] and replayed: a replay creates
//! nothing and writes nothing. Order is program order. Freeing a buffer, copying and small writes do not flush; only copies
//! break the pass, because WebGPU has none inside one.
//!
//! The recorder is in one of three modes: it records what will run; it records and keeps (`capture`, with the tensors in an
//! arena); or it only traces, to learn what a step needs.

use std::rc::Rc;

use super::bind::BindGroup;
use super::device::Inner;
use super::stats::{FlushReason, add};
use super::trace::{ArenaCursor, Trace};
use super::{Binding, Buffer, BufferSlice, Device, Pipeline, Shader};
use crate::error::Result;

/// Numbers of workgroups in x, y and z.
pub type Grid = [u32; 3];

#[derive(Clone)]
pub(super) enum Command {
    Dispatch { pipeline: Rc<Pipeline>, bind_group: Rc<BindGroup>, grid: Grid },
    Copy { source: wgpu::Buffer, source_offset: u64, target: wgpu::Buffer, target_offset: u64, size: u64 },
}

/// A list of commands that can be replayed. The bind groups in it are pinned in their cache and the buffers that it names are
/// kept alive while it lives.
pub struct Recording {
    commands: Vec<Command>,
    _buffers: Vec<Buffer>,
    arena_bytes: u64,
    arena_bytes_without_reuse: u64,
    device: std::rc::Weak<Inner>,
}

impl Recording {
    /// How many dispatches one replay is.
    pub fn dispatches(&self) -> usize {
        self.commands.iter().filter(|command| matches!(command, Command::Dispatch { .. })).count()
    }

    /// Bytes of the arena that the step's own tensors lie in.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Bytes that they would take if none shared its bytes with others.
    pub fn arena_bytes_without_reuse(&self) -> u64 {
        self.arena_bytes_without_reuse
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            let bytes = &device.counters.arena_bytes_without_reuse;
            bytes.set(bytes.get() - self.arena_bytes_without_reuse);
        }
    }
}

#[derive(Default)]
enum Mode {
    #[default]
    Record,
    /// Where the capture began, the buffers named since, and the arena.
    Capture(usize, Vec<Buffer>, ArenaCursor),
    Trace(Trace),
}

#[derive(Default)]
pub(super) struct Recorder {
    commands: Vec<Command>,
    dispatches: usize,
    mode: Mode,
}

impl Recorder {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn trace(&mut self) -> Option<&mut Trace> {
        match &mut self.mode {
            Mode::Trace(trace) => Some(trace),
            _ => None,
        }
    }

    pub fn arena(&mut self) -> Option<&mut ArenaCursor> {
        match &mut self.mode {
            Mode::Capture(_, _, arena) => Some(arena),
            _ => None,
        }
    }

    pub fn is_capturing(&self) -> bool {
        matches!(self.mode, Mode::Capture(..))
    }

    fn name(&mut self, buffer: &Buffer) {
        if let Mode::Capture(_, buffers, _) = &mut self.mode {
            buffers.push(buffer.clone());
        }
    }
}

impl Device {
    /// Records one dispatch.
    pub fn dispatch(&self, shader: &Shader<'_>, bindings: &[Binding<'_>], grid: Grid) -> Result<()> {
        let inner = self.inner();
        let limit = inner.capabilities.max_workgroups_per_dimension;
        if grid.iter().any(|n| *n > limit) {
            bail!(AdapterLimits, "{}: a grid of {grid:?} workgroups; at most {limit} fit a dimension", shader.label);
        }
        if let Some(trace) = inner.recorder.borrow_mut().trace() {
            return trace.dispatch(self, shader, bindings);
        }
        let pipeline = self.pipeline(shader, bindings)?;
        let bind_group = self.bind_group(&pipeline, bindings)?;
        let mut recorder = inner.recorder.borrow_mut();
        for binding in bindings {
            if let Binding::Read(_, slice) | Binding::ReadWrite(_, slice) = binding {
                recorder.name(&slice.buffer);
            }
        }
        recorder.commands.push(Command::Dispatch { pipeline, bind_group, grid });
        recorder.dispatches += 1;
        let (pending, capturing) = (recorder.dispatches, recorder.is_capturing());
        drop(recorder);
        inner.after_dispatch(pending, capturing);
        Ok(())
    }

    /// Records a copy of a slice to the start of another. Offsets and sizes are multiples of 4.
    pub fn copy(&self, source: &BufferSlice, target: &BufferSlice) -> Result<()> {
        let inner = self.inner();
        inner.check_usable()?;
        for slice in [source, target] {
            inner.check_slice("copy", slice)?;
        }
        if !source.offset.is_multiple_of(4) || !target.offset.is_multiple_of(4) || !source.size.is_multiple_of(4) {
            bail!(OutOfRange, "a copy of {} bytes: sizes and offsets must be multiples of 4", source.size);
        }
        if source.size > target.size {
            bail!(OutOfRange, "a copy of {} bytes into {}", source.size, target.size);
        }
        if let Some(trace) = inner.recorder.borrow_mut().trace() {
            trace.copy(&source.buffer, &target.buffer);
            return Ok(());
        }
        if source.buffer.id() == target.buffer.id() {
            // WebGPU does not copy within a buffer.
            let between = self.buffer(source.size, "copy")?;
            let between = BufferSlice { buffer: between, offset: 0, size: source.size };
            self.record_copy(source, between.buffer.wgpu()?, 0)?;
            return self.record_copy(&between, target.buffer.wgpu()?, target.buffer.start() + target.offset);
        }
        inner.recorder.borrow_mut().name(&target.buffer);
        self.record_copy(source, target.buffer.wgpu()?, target.buffer.start() + target.offset)
    }

    pub(super) fn record_copy(&self, source: &BufferSlice, target: &wgpu::Buffer, target_offset: u64) -> Result<()> {
        let from = source.buffer.start() + source.offset;
        self.inner().recorder.borrow_mut().name(&source.buffer);
        self.record_raw_copy(source.buffer.wgpu()?, from, target, target_offset, source.size);
        Ok(())
    }

    /// Records a copy between GPU buffers, of which a recording keeps none alive.
    pub(super) fn record_raw_copy(
        &self,
        source: &wgpu::Buffer,
        source_offset: u64,
        target: &wgpu::Buffer,
        target_offset: u64,
        size: u64,
    ) {
        let (source, target) = (source.clone(), target.clone());
        let copy = Command::Copy { source, source_offset, target, target_offset, size };
        self.inner().recorder.borrow_mut().commands.push(copy);
    }

    /// Runs `step` only for what it does besides: nothing of it is recorded, compiled or given memory.
    pub fn rehearse<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<()> {
        self.trace(step).map(|_| ())
    }

    /// Runs `step` only to learn what pipelines it needs, and compiles those. Nothing runs on the GPU; what the step writes
    /// or reads is left out.
    pub async fn prepare<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<()> {
        let (_, trace) = self.trace(step)?;
        self.compile(trace.pipelines).await
    }

    /// Prepares `step` and records it to be replayed, besides recording it once to run. The tensors that it makes lie in an
    /// arena, in which they share bytes as far as their lifetimes allow. The step must do the same each time it is called.
    pub async fn capture<T>(&self, step: impl Fn() -> Result<T>) -> Result<(T, Recording)> {
        let (traced, mut trace) = self.trace(&step)?;
        let capabilities = self.capabilities();
        let layout = trace.layout(capabilities.max_buffer_size.min(capabilities.max_storage_binding_size));
        drop(traced);
        self.compile(std::mem::take(&mut trace.pipelines)).await?;
        let arena = ArenaCursor::new(self.banks(&layout.banks)?, &layout, &trace);
        drop(trace);

        let inner = self.inner();
        {
            let mut recorder = inner.recorder.borrow_mut();
            recorder.mode = Mode::Capture(recorder.commands.len(), Vec::new(), arena);
        }
        let result = step();
        // The arena's banks are released outside of the borrow, since that looks at the recorder.
        let mode = std::mem::take(&mut inner.recorder.borrow_mut().mode);
        let Mode::Capture(start, buffers, _) = mode else {
            bail!(Internal, "the capture was flushed: a step that is captured must not write or wait");
        };
        let commands = {
            let mut recorder = inner.recorder.borrow_mut();
            let commands = recorder.commands[start..].to_vec();
            if result.is_err() {
                // Half a step is not to run.
                recorder.commands.truncate(start);
            }
            commands
        };
        let result = result?;
        add(&inner.counters.arena_bytes_without_reuse, layout.bytes_without_reuse);
        let recording = Recording {
            commands,
            _buffers: buffers,
            arena_bytes: layout.bytes(),
            arena_bytes_without_reuse: layout.bytes_without_reuse,
            device: Rc::downgrade(inner),
        };
        Ok((result, recording))
    }

    fn trace<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<(T, Trace)> {
        let inner = self.inner();
        inner.check_usable()?;
        {
            let mut recorder = inner.recorder.borrow_mut();
            if !matches!(recorder.mode, Mode::Record) {
                bail!(Internal, "a step is being planned already");
            }
            recorder.mode = Mode::Trace(Trace::default());
        }
        let result = step();
        let mode = std::mem::take(&mut inner.recorder.borrow_mut().mode);
        let Mode::Trace(trace) = mode else { bail!(Internal, "the trace was cleared while it was made") };
        Ok((result?, trace))
    }

    /// Records all commands of `recording` again.
    pub fn replay(&self, recording: &Recording) -> Result<()> {
        let inner = self.inner();
        inner.check_usable()?;
        if !std::ptr::eq(recording.device.as_ptr(), Rc::as_ptr(inner)) {
            bail!(WrongDevice, "a recording is replayed on the device that it was made on");
        }
        let debug = inner.options.debug;
        for command in &recording.commands {
            let mut recorder = inner.recorder.borrow_mut();
            recorder.commands.push(command.clone());
            recorder.dispatches += usize::from(matches!(command, Command::Dispatch { .. }));
            let pending = recorder.dispatches;
            drop(recorder);
            if debug || inner.options.max_batch > 0 {
                inner.after_dispatch(pending, false);
            }
        }
        Ok(())
    }

    /// Submits what was recorded: one encoder, one submit, and one pass where no copy stands between dispatches.
    pub fn flush(&self) {
        self.inner().flush(FlushReason::Explicit);
    }
}

impl Inner {
    /// Submits early where that was asked for. A capture is kept whole.
    fn after_dispatch(&self, pending: usize, capturing: bool) {
        if capturing {
            return;
        }
        if self.options.debug {
            self.flush(FlushReason::Debug);
        } else if self.options.max_batch > 0 && pending >= self.options.max_batch {
            self.flush(FlushReason::BatchLimit);
        }
    }

    pub(super) fn flush(&self, reason: FlushReason) {
        let commands = {
            let mut recorder = self.recorder.borrow_mut();
            if recorder.commands.is_empty() {
                return;
            }
            if !matches!(recorder.mode, Mode::Trace(_)) {
                recorder.mode = Mode::Record;
            }
            recorder.dispatches = 0;
            std::mem::take(&mut recorder.commands)
        };
        // Lands before the submit below, whose copies take it to its targets.
        self.upload_staged_writes();
        let scope = self.watches_submits().then(|| self.wgpu.push_error_scope(wgpu::ErrorFilter::Validation));
        let mut encoder = self.wgpu.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        add(&self.counters.encoders, 1);
        let mut profile = self.profiler.borrow_mut().begin(self, &commands);
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        let (mut dispatches, mut copies, mut bytes) = (0, 0, 0);
        // Setting again what is set costs as much as setting something new.
        let mut last_pipeline: *const Pipeline = std::ptr::null();
        let mut last_bind_group = std::ptr::null();
        for command in &commands {
            match command {
                Command::Dispatch { pipeline, bind_group, grid } => {
                    if profile.as_ref().is_some_and(|profile| profile.by_dispatch) {
                        // Timestamps come at the borders of passes, so a profiled dispatch has one of its own.
                        pass = None;
                    }
                    let pass = pass.get_or_insert_with(|| {
                        add(&self.counters.passes, 1);
                        last_pipeline = std::ptr::null();
                        last_bind_group = std::ptr::null();
                        let timestamps = profile.as_mut().and_then(|profile| profile.next());
                        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes: timestamps };
                        encoder.begin_compute_pass(&descriptor).forget_lifetime()
                    });
                    if last_pipeline != Rc::as_ptr(pipeline) {
                        pass.set_pipeline(&pipeline.wgpu);
                        last_pipeline = Rc::as_ptr(pipeline);
                    }
                    if last_bind_group != Rc::as_ptr(bind_group) {
                        pass.set_bind_group(0, &bind_group.wgpu, &[]);
                        last_bind_group = Rc::as_ptr(bind_group);
                    }
                    pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
                    dispatches += 1;
                }
                Command::Copy { source, source_offset, target, target_offset, size } => {
                    pass = None;
                    encoder.copy_buffer_to_buffer(source, *source_offset, target, *target_offset, Some(*size));
                    copies += 1;
                    bytes += size;
                }
            }
        }
        drop(pass);
        if let Some(profile) = &mut profile {
            profile.resolve(&mut encoder);
        }
        self.queue.submit([encoder.finish()]);
        self.timeline.submit();
        if let Some(profile) = profile {
            self.profiler.borrow_mut().submitted(profile);
        }
        add(&self.counters.dispatches, dispatches);
        add(&self.counters.copies, copies);
        add(&self.counters.bytes_copied, bytes);
        add(&self.counters.submits, 1);
        self.counters.flushed(reason);
        self.remember_kernels(&commands);
        if let Some(scope) = scope {
            self.watch_submit(scope);
        }
        if self.has_retired() {
            self.report_when_done();
            self.reap();
        }
    }

    /// Keeps the names of the last kernels, for messages of errors that arrive later.
    fn remember_kernels(&self, commands: &[Command]) {
        let mut names: Vec<Rc<Pipeline>> = Vec::new();
        for command in commands.iter().rev() {
            if let Command::Dispatch { pipeline, .. } = command {
                if names.iter().all(|known| !Rc::ptr_eq(known, pipeline)) {
                    names.push(pipeline.clone());
                }
                if names.len() == 4 {
                    break;
                }
            }
        }
        if !names.is_empty() {
            *self.last_kernels.borrow_mut() = names;
        }
    }
}
