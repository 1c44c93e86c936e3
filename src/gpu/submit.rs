//! Turns a list of commands into one encoder and one submit, with one compute pass between copies.

use std::rc::Rc;

use super::command::{Command, Direction};
use super::debug::log_when_finished;
use super::pipeline::Pipeline;
use super::pool::BufferPool;
use super::profile::Profiler;
use super::raw::RawDevice;
use super::stats::{FlushReason, add};

pub(super) fn submit(
    raw: &RawDevice,
    profiler: &Profiler,
    pool: &Rc<BufferPool>,
    commands: &[Command],
    reason: FlushReason,
) {
    let scope = raw.watches_submits().then(|| raw.wgpu.push_error_scope(wgpu::ErrorFilter::Validation));
    let mut encoder = raw.wgpu.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(reason.label()) });
    add(&raw.counters.encoders, 1);
    let mut profile = profiler.begin(raw, pool, commands);
    let mut pass: Option<wgpu::ComputePass<'static>> = None;
    let (mut dispatches, mut copies, mut bytes) = (0, 0, 0);
    // Setting what is already set costs as much as a change.
    let mut last_pipeline: *const Pipeline = std::ptr::null();
    let mut last_bind_group = std::ptr::null();
    for command in commands {
        match command {
            Command::Dispatch { pipeline, bind_group, grid } => {
                if profile.as_ref().is_some_and(|profile| profile.by_dispatch) {
                    // Timestamps are taken at the borders of passes, so a profiled dispatch has a pass of its own.
                    pass = None;
                }
                let pass = pass.get_or_insert_with(|| {
                    add(&raw.counters.passes, 1);
                    last_pipeline = std::ptr::null();
                    last_bind_group = std::ptr::null();
                    let timestamps = profile.as_mut().and_then(|profile| profile.next());
                    let descriptor =
                        wgpu::ComputePassDescriptor { label: Some(pipeline.label()), timestamp_writes: timestamps };
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
            Command::Copy { source, source_offset, target, target_offset, size, direction } => {
                pass = None;
                encoder.copy_buffer_to_buffer(source, *source_offset, target, *target_offset, Some(*size));
                if *direction == Direction::Within {
                    copies += 1;
                    bytes += size;
                }
            }
        }
    }
    drop(pass);
    if let Some(profile) = &mut profile {
        profile.resolve(&mut encoder);
    }
    raw.queue.submit([encoder.finish()]);
    if let Some(profile) = profile {
        profiler.submitted(profile);
    }
    add(&raw.counters.dispatches, dispatches);
    add(&raw.counters.copies, copies);
    add(&raw.counters.bytes_copied, bytes);
    add(&raw.counters.submits, 1);
    raw.counters.flushed(reason);
    note_kernels(raw, commands);
    if raw.options.debug {
        log_when_finished(raw, commands);
    }
    if let Some(scope) = scope {
        raw.faults.watch_submit(scope);
    }
}

/// Keeps the names of the last kernels, for messages of errors that arrive later.
fn note_kernels(raw: &RawDevice, commands: &[Command]) {
    let mut names: Vec<Rc<str>> = Vec::new();
    for command in commands.iter().rev() {
        if let Command::Dispatch { pipeline, .. } = command {
            let name = pipeline.shared_label();
            if names.iter().all(|known| !Rc::ptr_eq(known, name)) {
                names.push(name.clone());
            }
            if names.len() == 4 {
                break;
            }
        }
    }
    if !names.is_empty() {
        raw.faults.note_kernels(names);
    }
}
