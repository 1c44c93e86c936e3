//! The array library: n-dimensional arrays on the GPU with NumPy's broadcasting and PyTorch's operations.
//!
//! Arrays are lazy. Functions of elements, and the matrix product before them, wait until somebody reads the result, and one kernel computes
//! what came together by then. Everything else is recorded at the call. Nothing is submitted before a read, a sync or the device's batch limit.

mod batch;
mod dtype;
mod gradient;
mod graph;
mod layout;
mod library;
mod ops;
mod plan;
mod sweep;
mod trial;
mod waiting;

pub use batch::Batch;
pub use dtype::{DType, promote};
pub use gradient::backward::Backward;
pub use gradient::own::{OwnRule, pulled_back};
pub use graph::node::Array;
pub use layout::Layout;
pub use library::Library;
pub use ops::*;
pub use plan::Plan;
