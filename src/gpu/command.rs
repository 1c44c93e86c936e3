//! Commands as plain data, until a flush encodes them.

use std::rc::Rc;

use super::bind_groups::BindGroup;
use super::pipeline::Pipeline;

/// Numbers of workgroups in x, y and z.
pub type Grid = [u32; 3];

#[derive(Clone)]
pub(super) enum Command {
    Dispatch {
        pipeline: Rc<Pipeline>,
        bind_group: Rc<BindGroup>,
        grid: Grid,
    },
    Copy {
        source: wgpu::Buffer,
        source_offset: u64,
        target: wgpu::Buffer,
        target_offset: u64,
        size: u64,
        direction: Direction,
    },
}

/// Where the bytes of a copy come from and go to, for the counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// A staged write: from the CPU.
    Upload,
    /// Between buffers of the GPU.
    Within,
    /// A read-back: to the CPU.
    Readback,
}

impl Command {
    pub fn is_dispatch(&self) -> bool {
        matches!(self, Command::Dispatch { .. })
    }
}
