//! What a step would run on the GPU, as text: shaders, grids, uniforms, places in buffers. Two steps with one text give the same
//! results from the same bytes on the same adapter, so tests check such a step once.

use std::fmt::Write;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use super::binding::Binding;
use super::buffer::{Buffer, BufferSlice};
use super::command::Grid;
use super::wgsl::Shader;
use crate::error::Result;

/// What a step would have the GPU do.
#[derive(Default, Hash)]
pub struct Transcript {
    /// The commands and what they bind, a line each.
    pub commands: String,
    /// The final text of each dispatch.
    pub shaders: Vec<String>,
}

impl Transcript {
    pub(super) fn dispatch(&mut self, shader: &Shader<'_>, bindings: &[Binding<'_>], grid: Grid) -> Result<()> {
        self.line(format_args!("dispatch {grid:?}"));
        for binding in bindings {
            let (number, kind) = binding.number_and_kind();
            match binding {
                Binding::Uniform(_, bytes) => self.line(format_args!("{number} {kind:?} {bytes:?}")),
                Binding::Read(_, slice) | Binding::ReadWrite(_, slice) => {
                    self.line(format_args!("{number} {kind:?} {}", place(slice)));
                }
            }
        }
        self.shaders.push(shader.assemble(super::platform::ENABLE_SUBGROUPS_LINE)?);
        Ok(())
    }

    pub(super) fn copy(&mut self, source: &BufferSlice, target: &BufferSlice) {
        self.line(format_args!("copy {} to {}", place(source), place(target)));
    }

    /// Bytes that are written, by a digest of 128 bits.
    pub(super) fn write(&mut self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        let [high, low] = [0, 1].map(|seed| FixedState::with_seed(seed).hash_one(bytes));
        let slice = BufferSlice { buffer: buffer.clone(), offset, size: bytes.len() as u64 };
        self.line(format_args!("write {high:016x}{low:016x} to {}", place(&slice)));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.commands, "{line}");
    }
}

/// The place of a slice: which buffer of the step, or that the buffer is not the step's, and the range in it.
fn place(slice: &BufferSlice) -> String {
    let buffer = match slice.buffer.traced() {
        Some(number) => format!("buffer {number}"),
        None => "another buffer".to_owned(),
    };
    format!("{buffer} of {} at {} + {}", slice.buffer.size(), slice.offset, slice.size)
}
