//! What arrays are made of, and how it is computed.

pub(crate) mod compiled;
pub(crate) mod evaluate;
pub(crate) mod form;
pub(crate) mod functions;
mod memory;
pub(crate) mod node;
pub(crate) mod program;
