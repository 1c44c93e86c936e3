//! Records dispatches and copies, and turns them into one encoder, one compute pass and one submit.
//!
//! Commands are plain data until `flush`. So a list of them can be kept as a [`Recording`] and replayed: a replay creates
//! nothing and writes nothing. Order is program order: a write to a buffer first flushes what was recorded before it.
//!
//! Only copies break the pass, because WebGPU has none inside one.

use std::rc::Rc;

use super::bind::BindGroup;
use super::device::Inner;
use super::stats::add;
use super::{Binding, BufferSlice, Device, Pipeline, Shader};
use crate::error::Result;

/// Numbers of workgroups in x, y and z.
pub type Grid = [u32; 3];

#[derive(Clone)]
pub(super) enum Command {
    Dispatch { pipeline: Rc<Pipeline>, bind_group: Rc<BindGroup>, grid: Grid },
    Copy { source: wgpu::Buffer, source_offset: u64, target: wgpu::Buffer, target_offset: u64, size: u64 },
}

/// A list of commands that can be replayed. The bind groups in it are pinned in their cache while it lives. Whoever keeps
/// it must also keep the buffers that it names: they are kept alive here.
pub struct Recording {
    commands: Vec<Command>,
    _buffers: Vec<BufferSlice>,
}

impl Recording {
    /// How many dispatches one replay is.
    pub fn dispatches(&self) -> usize {
        self.commands.iter().filter(|command| matches!(command, Command::Dispatch { .. })).count()
    }
}

#[derive(Default)]
pub(super) struct Recorder {
    commands: Vec<Command>,
    /// Where the open capture began in `commands`, and the buffers named since.
    capture: Option<(usize, Vec<BufferSlice>)>,
}

impl Recorder {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
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
        let pipeline = self.pipeline(shader, bindings)?;
        let bind_group = self.bind_group(&pipeline, bindings)?;
        let mut recorder = inner.recorder.borrow_mut();
        recorder.commands.push(Command::Dispatch { pipeline, bind_group, grid });
        if let Some((_, buffers)) = &mut recorder.capture {
            for binding in bindings {
                if let Binding::Read(_, slice) | Binding::ReadWrite(_, slice) = binding {
                    buffers.push(slice.clone());
                }
            }
        }
        Ok(())
    }

    /// Records a copy of `source` to the start of `target` at `target_offset`. Sizes and offsets are multiples of 4.
    pub(super) fn copy(&self, source: &BufferSlice, target: &wgpu::Buffer, target_offset: u64) {
        let mut recorder = self.inner().recorder.borrow_mut();
        recorder.commands.push(Command::Copy {
            source: source.buffer.wgpu().clone(),
            source_offset: source.offset,
            target: target.clone(),
            target_offset,
            size: source.size,
        });
        if let Some((_, buffers)) = &mut recorder.capture {
            buffers.push(source.clone());
        }
    }

    /// Runs `record` and returns what it recorded, to be replayed, besides recording it.
    pub fn capture<T>(&self, record: impl FnOnce() -> Result<T>) -> Result<(T, Recording)> {
        let inner = self.inner();
        {
            let mut recorder = inner.recorder.borrow_mut();
            if recorder.capture.is_some() {
                bail!(Internal, "a capture is already open");
            }
            recorder.capture = Some((recorder.commands.len(), Vec::new()));
        }
        let result = record();
        let mut recorder = inner.recorder.borrow_mut();
        let Some((start, buffers)) = recorder.capture.take() else {
            bail!(Internal, "the capture was flushed: a step that is captured must not write or wait");
        };
        let commands = recorder.commands[start..].to_vec();
        Ok((result?, Recording { commands, _buffers: buffers }))
    }

    /// Records all commands of `recording` again.
    pub fn replay(&self, recording: &Recording) -> Result<()> {
        self.inner().check_usable()?;
        self.inner().recorder.borrow_mut().commands.extend_from_slice(&recording.commands);
        Ok(())
    }

    /// Submits what was recorded: one encoder, one submit, and one pass where no copy stands between dispatches.
    pub fn flush(&self) {
        self.inner().flush();
    }
}

impl Inner {
    pub(super) fn flush(&self) {
        let commands = {
            let mut recorder = self.recorder.borrow_mut();
            if recorder.commands.is_empty() {
                return;
            }
            recorder.capture = None;
            std::mem::take(&mut recorder.commands)
        };
        let mut encoder = self.wgpu.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        add(&self.counters.encoders, 1);
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        let (mut dispatches, mut copies) = (0, 0);
        let mut last_pipeline: *const Pipeline = std::ptr::null();
        for command in &commands {
            match command {
                Command::Dispatch { pipeline, bind_group, grid } => {
                    let pass = pass.get_or_insert_with(|| {
                        add(&self.counters.passes, 1);
                        last_pipeline = std::ptr::null();
                        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
                    });
                    if last_pipeline != Rc::as_ptr(pipeline) {
                        pass.set_pipeline(&pipeline.wgpu);
                        last_pipeline = Rc::as_ptr(pipeline);
                    }
                    pass.set_bind_group(0, &bind_group.wgpu, &[]);
                    pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
                    dispatches += 1;
                }
                Command::Copy { source, source_offset, target, target_offset, size } => {
                    pass = None;
                    encoder.copy_buffer_to_buffer(source, *source_offset, target, *target_offset, Some(*size));
                    copies += 1;
                }
            }
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        add(&self.counters.dispatches, dispatches);
        add(&self.counters.copies, copies);
        add(&self.counters.submits, 1);
        self.remember_kernels(&commands);
        self.destroy_dying();
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
