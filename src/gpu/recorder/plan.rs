//! Planned steps: traced without running them, compiled ahead, captured, and replayed.

use std::rc::{Rc, Weak};

use super::{Mode, Recorder};
use crate::error::Result;
use crate::gpu::attempt::allocate;
use crate::gpu::buffer::Buffer;
use crate::gpu::command::Command;
use crate::gpu::pipeline::PipelineRequest;
use crate::gpu::raw::RawDevice;
use crate::gpu::stats::add;
use crate::gpu::trace::{ArenaCursor, Trace};
use crate::gpu::transcript::Transcript;

/// A list of commands that can be replayed. The bind groups in it are pinned in their cache and the buffers that it names are
/// kept alive while it lives.
pub struct Recording {
    commands: Vec<Command>,
    _buffers: Vec<Buffer>,
    arena_bytes: u64,
    arena_bytes_without_reuse: u64,
    device: Weak<RawDevice>,
}

impl Recording {
    /// The dispatches of one replay.
    pub fn dispatches(&self) -> usize {
        self.commands.iter().filter(|command| command.is_dispatch()).count()
    }

    /// Bytes of the arena that the step's own tensors lie in.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Bytes that they would take without sharing.
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

impl Recorder {
    /// Runs `step` without recording it, and tells what it would have needed.
    pub fn trace<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<(T, Trace)> {
        self.trace_into(Trace::default(), step)
    }

    /// Runs `step` without recording it.
    pub fn rehearse<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let (result, _) = self.trace_into(Trace::without_pipelines(), step)?;
        Ok(result)
    }

    /// Runs `step` without recording it, and tells what it would have had the GPU do.
    pub fn transcript<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<Transcript> {
        let (_, trace) = self.trace_into(Trace::with_transcript(), step)?;
        Ok(trace.transcript.unwrap_or_default())
    }

    fn trace_into<T>(&self, empty: Trace, step: impl FnOnce() -> Result<T>) -> Result<(T, Trace)> {
        self.raw.check_usable()?;
        {
            let mut state = self.state.borrow_mut();
            if !matches!(state.mode, Mode::Record) {
                bail!(Internal, "a step is being planned already");
            }
            state.mode = Mode::Trace(empty);
        }
        let result = step();
        let mode = std::mem::take(&mut self.state.borrow_mut().mode);
        let Mode::Trace(trace) = mode else { bail!(Internal, "the trace was cleared while it was made") };
        Ok((result?, trace))
    }

    /// Runs `step` only to learn what pipelines it needs.
    pub fn needed_pipelines<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<Vec<PipelineRequest>> {
        let (_, trace) = self.trace(step)?;
        Ok(trace.pipelines)
    }

    /// Compiles pipelines.
    pub async fn compile(&self, pipelines: Vec<PipelineRequest>) -> Result<()> {
        self.pipelines.compile(pipelines, self.queue.is_paced()).await
    }

    /// Prepares `step`, records it once to run, and keeps the recording for replays.
    pub async fn capture<T>(&self, step: impl Fn() -> Result<T>) -> Result<(T, Recording)> {
        let (traced, mut trace) = self.trace(&step)?;
        let capabilities = &self.raw.capabilities;
        let layout = trace.layout(capabilities.max_buffer_size.min(capabilities.max_storage_binding_size));
        drop(traced);
        self.pipelines.compile(std::mem::take(&mut trace.pipelines), self.queue.is_paced()).await?;
        let arena =
            allocate(self, "the tensors of a recorded step", || ArenaCursor::new(&self.pool, &layout, &trace)).await?;
        drop(trace);

        {
            let mut state = self.state.borrow_mut();
            state.mode = Mode::Capture(state.commands.len(), Vec::new(), arena);
        }
        let result = step();
        let mode = std::mem::take(&mut self.state.borrow_mut().mode);
        let Mode::Capture(start, buffers, _) = mode else {
            bail!(Internal, "the capture was flushed: a step that is captured must not write or wait");
        };
        let commands = {
            let mut state = self.state.borrow_mut();
            let commands = state.commands[start..].to_vec();
            if result.is_err() {
                // Half a step must not run.
                state.commands.truncate(start);
                self.raw.timeline.set_open(start > 0);
            }
            commands
        };
        let result = result?;
        add(&self.raw.counters.arena_bytes_without_reuse, layout.bytes_without_reuse);
        let recording = Recording {
            commands,
            _buffers: buffers,
            arena_bytes: layout.bytes(),
            arena_bytes_without_reuse: layout.bytes_without_reuse,
            device: Rc::downgrade(&self.raw),
        };
        Ok((result, recording))
    }

    /// An error if there is no room for what `step` allocates. Nothing runs, and nothing is kept.
    pub async fn check_room<T>(&self, what: &str, step: impl FnOnce() -> Result<T>) -> Result<()> {
        let (traced, trace) = self.trace_into(Trace::without_pipelines(), step)?;
        drop(traced);
        let capabilities = &self.raw.capabilities;
        let layout = trace.layout(capabilities.max_buffer_size.min(capabilities.max_storage_binding_size));
        let banks = allocate(self, what, || ArenaCursor::new(&self.pool, &layout, &trace)).await?;
        drop(banks);
        Ok(())
    }

    /// Records all commands of `recording` again.
    pub fn replay(&self, recording: &Recording) -> Result<()> {
        self.raw.check_usable()?;
        if !std::ptr::eq(recording.device.as_ptr(), Rc::as_ptr(&self.raw)) {
            bail!(WrongDevice, "a recording is replayed on the device that it was made on");
        }
        for command in &recording.commands {
            self.record(command.clone());
            if self.splits_submits() {
                self.submit_early();
            }
        }
        Ok(())
    }
}
