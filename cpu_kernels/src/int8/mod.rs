//! Products with activations that are rounded to int8, in integers: the precision `fast`.
//!
//! Weights are packed at load into what the inner loop wants. Eight rows are a group, and of each 32 columns of a group stand together, one
//! after the other: scales, perhaps offsets, and quants, of which a vector has four columns of four rows. So a vector of sums has a row in each
//! lane, activations are the same in all lanes, and nothing is ever added across lanes. Activations of four tokens stand side by side (`Places`).

mod activations;
mod dots;
mod kernel;
mod pack;
mod records;

pub use activations::{Inner, Places, Quantized, Rounded, round, round_activated};
pub use dots::{Bytes, Dots, Halves, Int8, Pairs, Unknown, Unsigned};
pub use kernel::{mat_mul_int8, mat_mul_packed, products_packed};
pub use pack::{GROUP, Packed, pack};
