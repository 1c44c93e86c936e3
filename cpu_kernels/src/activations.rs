//! The functions of a feed-forward.

use crate::functions::{exp, gelu, tanh};
use crate::lanes::{map, map2};
use crate::simd::F32x4;

/// The function of a feed-forward's gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// y · sigmoid(y) of the number times this.
    Silu(f32),
    /// GELU by the tanh approximation.
    GeluTanh,
    /// x · Φ(x).
    Gelu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)².
    ReluSquared,
    /// 1 / (1 + e^−x).
    Sigmoid,
}

impl Activation {
    /// What it is as two words, for another memory.
    pub fn words(self) -> [u32; 2] {
        match self {
            Self::Silu(scale) => [0, scale.to_bits()],
            Self::GeluTanh => [1, 0],
            Self::Gelu => [2, 0],
            Self::Relu => [3, 0],
            Self::ReluSquared => [4, 0],
            Self::Sigmoid => [5, 0],
        }
    }

    /// The function that `words` gave. `None` for others.
    pub fn of_words([kind, number]: [u32; 2]) -> Option<Self> {
        Some(match kind {
            0 => Self::Silu(f32::from_bits(number)),
            1 => Self::GeluTanh,
            2 => Self::Gelu,
            3 => Self::Relu,
            4 => Self::ReluSquared,
            5 => Self::Sigmoid,
            _ => return None,
        })
    }
}

/// Calls a macro's body with the function of an activation.
macro_rules! with_function {
    ($activation:expr, $f:ident => $call:expr) => {
        match $activation {
            Activation::Silu(scale) => {
                let scale = F32x4::splat(scale);
                let $f = |x: F32x4| silu(x.mul(scale));
                $call
            }
            Activation::GeluTanh => {
                let $f = gelu_tanh;
                $call
            }
            Activation::Gelu => {
                let $f = gelu;
                $call
            }
            Activation::Relu => {
                let $f = |x: F32x4| x.at_least(F32x4::splat(0.0));
                $call
            }
            Activation::ReluSquared => {
                let $f = |x: F32x4| {
                    let x = x.at_least(F32x4::splat(0.0));
                    x.mul(x)
                };
                $call
            }
            Activation::Sigmoid => {
                let $f = sigmoid;
                $call
            }
        }
    };
}

/// Applies the function to each number.
pub fn activate(activation: Activation, x: &mut [f32]) {
    with_function!(activation, f => map(x, f));
}

/// The function of each number of `gate`, times the number of `up`, for as many numbers as all three have.
pub fn gate(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    with_function!(activation, f => map2(gate, up, out, |gate, up| f(gate).mul(up)));
}

/// The gated unit of gpt-oss: `g · sigmoid(alpha · g) · (u + 1)`, with g at most `limit` and u between −limit and limit.
pub fn gate_clamped(alpha: f32, limit: f32, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let (alpha, one) = (F32x4::splat(alpha), F32x4::splat(1.0));
    let (least, most) = (F32x4::splat(-limit), F32x4::splat(limit));
    map2(gate, up, out, |gate, up| {
        let (gate, up) = (gate.at_most(most), up.at_least(least).at_most(most));
        gate.mul(sigmoid(gate.mul(alpha))).mul(up.add(one))
    });
}

/// Bounds numbers: cap · tanh(x / cap).
pub fn softcap(cap: f32, x: &mut [f32]) {
    let (cap, inverse) = (F32x4::splat(cap), F32x4::splat(1.0 / cap));
    map(x, |x| tanh(x.mul(inverse)).mul(cap));
}

#[inline(always)]
fn sigmoid(x: F32x4) -> F32x4 {
    let one = F32x4::splat(1.0);
    one.div(exp(x.mul(F32x4::splat(-1.0))).add(one))
}

#[inline(always)]
fn silu(x: F32x4) -> F32x4 {
    let minus = x.mul(F32x4::splat(-1.0));
    x.div(exp(minus).add(F32x4::splat(1.0)))
}

/// ½ x (1 + tanh(a)) = x / (1 + e^−2a), which keeps its digits where tanh is near −1.
#[inline(always)]
fn gelu_tanh(x: F32x4) -> F32x4 {
    let cube = x.mul(x).mul(x);
    // −2 √(2 / π)
    let a = cube.mul_add(F32x4::splat(0.044_715), x).mul(F32x4::splat(-1.595_769));
    x.div(exp(a).add(F32x4::splat(1.0)))
}
