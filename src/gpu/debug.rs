//! Debug mode: each kernel is logged when the GPU has finished it.

use web_time::Instant;

use super::command::Command;
use super::platform::log;
use super::raw::RawDevice;

/// Logs the kernels of what was just submitted, their workgroups and the time since, when they are done. Nothing once the device is lost:
/// whether a kernel was finished is not known then.
pub(super) fn log_when_finished(raw: &RawDevice, commands: &[Command]) {
    let kernels: Vec<String> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Dispatch { pipeline, grid: [x, y, z], .. } => {
                Some(format!("{} [{x}, {y}, {z}]", pipeline.label()))
            }
            Command::Copy { .. } => None,
        })
        .collect();
    if kernels.is_empty() {
        return;
    }
    let begin = Instant::now();
    let is_lost = raw.faults.loss_probe();
    raw.queue.on_submitted_work_done(move || {
        if !is_lost() {
            let milliseconds = begin.elapsed().as_secs_f64() * 1000.0;
            log(&format!("rillm: {} finished after {milliseconds:.2} ms", kernels.join(", ")));
        }
    });
}
