//! What ops' functions for the CPU have in common: they give the bytes of tensors to the loops of the crate `cpu_kernels`.

pub(super) mod attention;
pub(super) mod cache;
mod groups;
pub(super) mod linear;
pub(super) mod rope;
pub(super) mod team;

use rillm_cpu_kernels::Mismatch;

use crate::error::Result;

/// What a loop gave. Ops have inferred shapes by then, so lengths that don't fit are a fault of theirs.
pub(super) fn fits<T>(result: std::result::Result<T, Mismatch>) -> Result<T> {
    result.map_err(|mismatch| err!(Internal, "a function for the CPU: {mismatch}"))
}
