//! Gradients: what an array was computed from, and the way back from a result to what requires a gradient.

pub(crate) mod backward;
pub(crate) mod checkpoint;
mod follow;
pub(crate) mod history;
pub(crate) mod own;
pub(crate) mod tape;
