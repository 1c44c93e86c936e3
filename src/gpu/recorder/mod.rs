//! Records dispatches and copies, and submits them together.
//!
//! Commands are plain data until the flush. So a list of them can be kept as a [`plan::Recording`] and replayed: a replay
//! creates nothing and writes nothing. Order is program order. Freeing a buffer, copying and small writes do not flush; only
//! copies break the pass, because WebGPU has none inside one.
//!
//! The recorder is in one of three modes: it records what will run; it records and keeps (`capture`, with the tensors in an
//! arena); or it only traces, to learn what a step needs.

pub(super) mod plan;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::binder::Binder;
use super::binding::Binding;
use super::buffer::{Buffer, BufferSlice};
use super::command::{Command, Direction, Grid};
use super::cpu::{self, CpuKernel};
use super::id_ranges::IdRange;
use super::pacing::{Segment, SubmitQueue};
use super::pipeline::{Pipeline, Pipelines};
use super::pool::BufferPool;
use super::raw::RawDevice;
use super::stats::{FlushReason, add};
use super::trace::{ArenaCursor, Trace};
use super::wgsl::{Shader, Template};
use super::write::{SMALL, StagedWrites};
use crate::error::Result;

/// The most bytes of a write that waits for its turn; longer ones are cut. The browser's GPU process copies them, and draws nothing meanwhile.
pub(super) const LARGEST_PIECE: usize = 1 << 20;

pub(super) struct Recorder {
    pub raw: Rc<RawDevice>,
    pub pool: Rc<BufferPool>,
    pub pipelines: Pipelines,
    pub binder: Binder,
    pub queue: Rc<SubmitQueue>,
    staged_writes: StagedWrites,
    state: RefCell<State>,
}

/// The last buffer and the last uniform that were made, and whether there is a ring of staged writes.
#[derive(Clone, Copy)]
pub(super) struct Made {
    buffer: u64,
    uniform: u64,
    has_ring: bool,
}

/// What a step made and nobody else uses yet.
#[derive(Clone, Copy)]
pub(super) struct HeldBack {
    buffers: IdRange,
    uniforms: IdRange,
    has_ring: bool,
}

#[derive(Default)]
struct State {
    commands: Vec<Command>,
    dispatches: usize,
    mode: Mode,
}

#[derive(Default)]
enum Mode {
    #[default]
    Record,
    /// Where the capture began, the buffers named since, and the arena.
    Capture(usize, Vec<Buffer>, ArenaCursor),
    Trace(Trace),
}

impl State {
    /// Keeps a buffer alive for the recording that is captured.
    fn name(&mut self, buffer: &Buffer) {
        if let Mode::Capture(_, buffers, _) = &mut self.mode {
            buffers.push(buffer.clone());
        }
    }
}

impl Recorder {
    pub fn new(raw: Rc<RawDevice>, pool: Rc<BufferPool>, pipelines: Pipelines, binder: Binder) -> Self {
        Self {
            queue: Rc::new(SubmitQueue::new(raw.clone(), pool.clone())),
            raw,
            pool,
            pipelines,
            binder,
            staged_writes: StagedWrites::default(),
            state: RefCell::default(),
        }
    }

    /// How many dispatches and copies wait to be submitted.
    pub fn pending(&self) -> usize {
        self.state.borrow().commands.len()
    }

    pub fn is_empty(&self) -> bool {
        self.state.borrow().commands.is_empty()
    }

    pub fn is_tracing(&self) -> bool {
        matches!(self.state.borrow().mode, Mode::Trace(_))
    }

    pub fn is_capturing(&self) -> bool {
        matches!(self.state.borrow().mode, Mode::Capture(..))
    }

    /// Forgets what was recorded, and frees what is kept for more.
    pub fn clear(&self) {
        self.state.take();
        self.queue.forget();
        self.raw.timeline.set_open(false);
        self.staged_writes.clear(&self.raw);
        // Bind groups hold uniforms.
        self.binder.groups.clear();
        self.binder.uniforms.clear();
    }

    /// What has been made so far.
    pub fn made(&self) -> Made {
        Made {
            buffer: self.pool.last_id(),
            uniform: self.binder.uniforms.last_id(),
            has_ring: self.staged_writes.has_ring(),
        }
    }

    pub fn has_made_buffers_since(&self, made: &Made) -> bool {
        self.pool.last_id() > made.buffer
    }

    /// What was made since is used by nobody else until `decide`.
    pub fn hold_since(&self, made: &Made) -> HeldBack {
        let has_ring = !made.has_ring && self.staged_writes.has_ring();
        if has_ring {
            self.staged_writes.hold(true);
        }
        let (buffers, uniforms) = (self.pool.hold_since(made.buffer), self.binder.uniforms.hold_since(made.uniform));
        HeldBack { buffers, uniforms, has_ring }
    }

    /// It is known whether what was held works.
    pub fn decide(&self, held: HeldBack) {
        self.pool.decide(held.buffers);
        self.binder.uniforms.decide(held.uniforms);
        if held.has_ring {
            self.staged_writes.hold(false);
        }
    }

    /// Nothing of what was held is used again.
    pub fn forget(&self, held: HeldBack) {
        self.pool.forget(held.buffers);
        self.binder.groups.forget_made(held.buffers, held.uniforms);
        self.binder.uniforms.forget(held.uniforms);
        if held.has_ring {
            self.staged_writes.clear(&self.raw);
        }
    }

    /// A buffer that goes back to the pool.
    pub fn buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        match self.planned_buffer(size)? {
            Some(buffer) => Ok(buffer),
            None => Buffer::pooled(&self.pool, size, label),
        }
    }

    /// A buffer for what stays as long as a model does.
    pub fn lasting_buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        match self.planned_buffer(size)? {
            Some(buffer) => Ok(buffer),
            None => Buffer::lasting(&self.pool, size, label),
        }
    }

    /// The same for a weight, which may be in a team's memory.
    pub fn weight_buffer(&self, size: u64, label: &str) -> Result<Buffer> {
        match self.planned_buffer(size)? {
            Some(buffer) => Ok(buffer),
            None => {
                cpu::next_is_of_team(&self.raw.wgpu);
                Buffer::lasting(&self.pool, size, label)
            }
        }
    }

    /// The buffer of a step that is traced or captured.
    fn planned_buffer(&self, size: u64) -> Result<Option<Buffer>> {
        self.raw.check_usable()?;
        match &mut self.state.borrow_mut().mode {
            Mode::Record => Ok(None),
            Mode::Capture(_, _, arena) => arena.allocate(size).map(Some),
            Mode::Trace(trace) => Ok(Some(trace.allocate(&self.pool, size))),
        }
    }

    /// Records one dispatch. Who knows the shader's pipeline spares looking for it, which takes as long as the shader is.
    pub fn dispatch(
        &self,
        shader: &Shader<'_>,
        known: Option<&Rc<Pipeline>>,
        bindings: &[Binding<'_>],
        grid: Grid,
    ) -> Result<()> {
        let limit = self.raw.capabilities.max_workgroups_per_dimension;
        if grid.iter().any(|n| *n > limit) {
            bail!(AdapterLimits, "{}: a grid of {grid:?} workgroups; at most {limit} fit a dimension", shader.label);
        }
        if let Mode::Trace(trace) = &mut self.state.borrow_mut().mode {
            if let Some(transcript) = &mut trace.transcript {
                transcript.dispatch(shader, bindings, grid)?;
            }
            let is_asked = known.is_none() && !trace.leaves_pipelines_out;
            let request = if is_asked { self.pipelines.request(shader, bindings)? } else { None };
            trace.dispatch(request, bindings);
            return Ok(());
        }
        let pipeline = match known {
            Some(pipeline) => {
                self.raw.check_usable()?;
                pipeline.clone()
            }
            None => self.pipelines.get(shader, bindings)?,
        };
        let bind_group = self.binder.bind_group(&pipeline, bindings)?;
        let mut state = self.state.borrow_mut();
        for slice in bindings.iter().filter_map(Binding::slice) {
            state.name(&slice.buffer);
        }
        drop(state);
        self.record(Command::Dispatch { pipeline, bind_group, grid });
        if self.splits_submits() {
            self.submit_early();
        }
        Ok(())
    }

    /// Records a call of a function of the CPU's device.
    pub fn dispatch_on_cpu(&self, label: &str, kernel: Arc<dyn CpuKernel>, bindings: &[Binding<'_>]) -> Result<()> {
        let pipeline = self.pipelines.of_kernel(label, kernel, bindings)?;
        let shader = Shader { label, template: Template::Static(""), modules: &[], defines: &[] };
        self.dispatch(&shader, Some(&pipeline), bindings, [1; 3])
    }

    /// Records a copy of a slice to the start of another. Offsets and sizes are multiples of 4.
    pub fn copy(&self, source: &BufferSlice, target: &BufferSlice) -> Result<()> {
        self.raw.check_usable()?;
        for slice in [source, target] {
            slice.check("copy", &self.pool)?;
        }
        source.buffer.check_usage("copy", wgpu::BufferUsages::COPY_SRC)?;
        target.buffer.check_usage("copy", wgpu::BufferUsages::COPY_DST)?;
        if !source.offset.is_multiple_of(4) || !target.offset.is_multiple_of(4) || !source.size.is_multiple_of(4) {
            bail!(OutOfRange, "a copy of {} bytes: sizes and offsets must be multiples of 4", source.size);
        }
        if source.size > target.size {
            bail!(OutOfRange, "a copy of {} bytes into {}", source.size, target.size);
        }
        if let Mode::Trace(trace) = &mut self.state.borrow_mut().mode {
            trace.copy(source, target);
            return Ok(());
        }
        if source.buffer.id() == target.buffer.id() {
            // WebGPU does not copy within a buffer.
            let between = self.buffer(source.size, "copy")?;
            let between = BufferSlice { buffer: between, offset: 0, size: source.size };
            self.copy_to(source, between.buffer.wgpu()?, 0, Direction::Within)?;
            let at = target.buffer.start() + target.offset;
            return self.copy_to(&between, target.buffer.wgpu()?, at, Direction::Within);
        }
        self.state.borrow_mut().name(&target.buffer);
        self.copy_to(source, target.buffer.wgpu()?, target.buffer.start() + target.offset, Direction::Within)
    }

    /// Records a copy to a GPU buffer, which a recording does not keep alive.
    pub fn copy_to(
        &self,
        source: &BufferSlice,
        target: &wgpu::Buffer,
        target_offset: u64,
        direction: Direction,
    ) -> Result<()> {
        self.state.borrow_mut().name(&source.buffer);
        self.record(Command::Copy {
            source: source.buffer.wgpu()?.clone(),
            source_offset: source.buffer.start() + source.offset,
            target: target.clone(),
            target_offset,
            size: source.size,
            direction,
        });
        Ok(())
    }

    /// Writes bytes to a buffer, after all commands recorded so far. Offset and length are multiples of 4.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_write(buffer, offset, bytes.len() as u64)?;
        if let Mode::Trace(trace) = &mut self.state.borrow_mut().mode {
            if let Some(transcript) = &mut trace.transcript {
                transcript.write(buffer, offset, bytes);
            }
            return Ok(());
        }
        add(&self.raw.counters.bytes_uploaded, bytes.len() as u64);
        if bytes.is_empty() {
            return Ok(());
        }
        let (target, target_offset) = (buffer.wgpu()?, buffer.start() + offset);
        // A write that goes to the queue must not overtake what is recorded or held back.
        if bytes.len() > SMALL || (self.is_empty() && !self.queue.holds_back()) {
            self.flush(FlushReason::Write);
        } else if let Some((source, source_offset)) = self.staged_writes.stage(&self.raw, bytes) {
            let (target, size) = (target.clone(), bytes.len() as u64);
            let direction = Direction::Upload;
            self.record(Command::Copy { source, source_offset, target, target_offset, size, direction });
            return Ok(());
        } else {
            self.flush(FlushReason::PendingWrites);
        }
        if self.queue.holds_back() {
            for (number, piece) in bytes.chunks(LARGEST_PIECE).enumerate() {
                let (target, piece) = (target.clone(), piece.to_vec());
                let at = target_offset + (number * LARGEST_PIECE) as u64;
                self.queue.push_write(piece.len() as u64, move |raw| {
                    raw.queue.write_buffer(&target, at, &piece);
                    Ok(())
                });
            }
        } else {
            self.raw.queue.write_buffer(target, target_offset, bytes);
        }
        add(&self.raw.counters.queue_writes, 1);
        self.raw.timeline.wrote(bytes.len() as u64);
        Ok(())
    }

    /// An error if these bytes can't be written.
    pub fn check_write(&self, buffer: &Buffer, offset: u64, length: u64) -> Result<()> {
        self.raw.check_usable()?;
        BufferSlice { buffer: buffer.clone(), offset, size: length }.check("write", &self.pool)?;
        buffer.check_usage("write", wgpu::BufferUsages::COPY_DST)?;
        if !offset.is_multiple_of(4) || !length.is_multiple_of(4) {
            bail!(OutOfRange, "a write of {length} bytes at {offset}: both must be multiples of 4");
        }
        if self.is_capturing() {
            bail!(Internal, "a planned step must not write: a replay would not repeat it");
        }
        Ok(())
    }

    /// Whether submits happen before a flush asks for them.
    pub fn splits_submits(&self) -> bool {
        self.raw.options.debug || !self.raw.is_lazy.get() || self.raw.max_batch.get() > 0
    }

    fn record(&self, command: Command) {
        let mut state = self.state.borrow_mut();
        state.dispatches += usize::from(command.is_dispatch());
        state.commands.push(command);
        self.raw.timeline.set_open(true);
    }

    /// Submits early if the options say so. A capture is kept whole.
    pub fn submit_early(&self) {
        let options = &self.raw.options;
        if self.is_capturing() {
            return;
        }
        if options.debug {
            self.flush(FlushReason::Debug);
        } else if !self.raw.is_lazy.get() {
            self.flush(FlushReason::Eager);
        } else if self.raw.max_batch.get() > 0 && self.state.borrow().dispatches >= self.raw.max_batch.get() {
            self.flush(FlushReason::BatchLimit);
        }
    }

    /// Submits what was recorded: one encoder, one submit, and one pass between copies.
    pub fn flush(&self, reason: FlushReason) {
        let commands = {
            let mut state = self.state.borrow_mut();
            if state.commands.is_empty() {
                return;
            }
            if !matches!(state.mode, Mode::Trace(_)) {
                state.mode = Mode::Record;
            }
            state.dispatches = 0;
            std::mem::take(&mut state.commands)
        };
        let staged = if self.queue.holds_back() {
            self.staged_writes.take()
        } else {
            // Lands before the submit below, whose copies take it to its targets.
            self.staged_writes.upload(&self.raw.queue);
            None
        };
        self.queue.push(Segment { number: self.raw.timeline.submit(), commands, staged, reason });
    }
}
