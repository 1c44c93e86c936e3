//! What ops' functions for the CPU have in common: they give the bytes of tensors to the loops of the crate `cpu_kernels`.

pub(super) mod attention;
pub(super) mod cache;
mod groups;
pub(super) mod linear;
pub(super) mod rope;
pub(super) mod team;

use rillm_cpu_kernels::Mismatch;

use crate::error::{Code, Error, Result};
use crate::gpu::Problem;

/// What a loop gave. Ops have inferred shapes by then, so lengths that don't fit are a fault of theirs.
pub(crate) fn fits<T>(result: std::result::Result<T, Mismatch>) -> Result<T> {
    result.map_err(|mismatch| {
        let code = if mismatch.is_no_room() { Code::OutOfMemory } else { Code::Internal };
        Error::new(code, format!("a function for the CPU: {mismatch}"))
    })
}

/// `count` elements, all the same; an error if there is no room.
pub(super) fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    fits(rillm_cpu_kernels::filled(value, count))
}

/// `count` zeros; an error if there is no room.
pub(super) fn zeros(count: usize) -> Result<Vec<f32>> {
    fits(rillm_cpu_kernels::zeros(count))
}

/// The error as the device takes it. `what` has failed.
pub(super) fn problem(what: &str, error: &Error) -> Problem {
    let text = format!("{what}: {}", error.message());
    if error.code() == Code::OutOfMemory { Problem::NoRoom(text) } else { Problem::Invalid(text) }
}
