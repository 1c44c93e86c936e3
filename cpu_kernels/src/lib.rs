//! The hot loops of rillm's CPU device, as pure functions on slices: nothing here starts a thread, and every function that takes a matrix takes a
//! range of its rows, so that threads may share one.
//!
//! Compiled with `-C target-feature=+simd128` it is made of wasm's vectors, with `+relaxed-simd` also of fused multiplications and dot products
//! of bytes.

mod activations;
mod attention;
mod blocks;
mod format;
mod functions;
mod half_floats;
mod int8;
mod lanes;
mod noise;
mod norms;
mod products;
mod recurrent;
mod room;
mod rope;
mod simd;
mod soa;
mod tally;

pub use activations::{Activation, activate, gate, gate_clamped, softcap};
pub use attention::{Added, Attention, Cache, Part, Received, Seen, Sent, normalize};
pub use format::{Format, GroupQuants, Groups, Mismatch, OtherFormat, Weights};
pub use half_floats::to_f16;
pub use int8::{
    Bytes, Dots, GROUP, Halves, Inner, Int8, Packed, Pairs, Places, Quantized, Rounded, Unknown, Unsigned,
    mat_mul_int8, mat_mul_packed, pack, products_packed, round, round_activated,
};
pub use noise::{NoiseKey, best_of_shares, noise};
pub use norms::{add, l2_norm, layer_norm, multiply, rms_norm, scale};
pub use products::{dequantize, mat_mul, mat_vec};
pub use recurrent::{add_products, add_scaled, delta_step, scan_step};
pub use room::{filled, reserved, resized, zeros};
pub use rope::{turn_halves, turn_neighbours};
pub use soa::{from_soa, to_soa};
pub use tally::{Depths, MASS_COEFFICIENTS, REST, extremes, nonzero, sum_exp};
