//! The frequencies of rotary position embedding (Su et al. 2021, RoFormer), with the scalings that extend models to longer contexts.
//! Kernels read them as a table.
//!
//! Sources: linear scaling (Chen et al. 2023, "Extending context window of LLMs via positional interpolation"), dynamic NTK (its
//! form in transformers' `modeling_rope_utils`), YaRN (Peng et al. 2023), factors of each pair (Llama 3.1's model card), LongRoPE
//! (Ding et al. 2024).

use super::arch::RopeKind;
use crate::error::Result;
use crate::tensor::{Context, HostTensor, Tensor};

/// Rope of some layers of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements are pairs.
    pub kind: RopeKind,
    /// The number of a head's elements that are rotated; even.
    pub dim: usize,
    /// The base of the frequencies: pair i has theta^(−2i / dim).
    pub theta: f32,
    /// The scaling of the frequencies.
    pub scaling: RopeScaling,
}

/// How a model was extended to a longer context.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies divided.
    Linear {
        /// The divisor; above 0.
        factor: f32,
    },
    /// The base grows with the context beyond the original one.
    Dynamic {
        /// How many times the original context the extended one is.
        factor: f32,
        /// The context length of training, in tokens.
        original: usize,
    },
    /// Slow pairs are divided, fast ones are not, and those between are divided partly.
    Yarn {
        /// The divisor of slow pairs.
        factor: f32,
        /// The context length of training, in tokens.
        original: usize,
        /// Pairs with more rotations within the original context are not divided; usually 32.
        beta_fast: f32,
        /// Pairs with fewer rotations are divided by all of `factor`; usually 1.
        beta_slow: f32,
        /// Both limits are rounded to whole pairs.
        truncate: bool,
        /// The factor of sine and cosine.
        attention_factor: f32,
    },
    /// Each frequency is divided by its element of a tensor.
    Factors {
        /// Its name.
        tensor: String,
    },
    /// The same, with one tensor for contexts up to the original one and another for longer contexts.
    Long {
        /// The tensor for contexts up to `original`.
        short: String,
        /// The tensor for longer ones.
        long: String,
        /// The context length of training, in tokens.
        original: usize,
        /// The factor of sine and cosine.
        attention_factor: f32,
    },
}

/// What kernels read.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// The angle of each pair at position 1, [dim / 2].
    pub frequencies: Vec<f32>,
    /// The factor of sine and cosine.
    pub scale: f32,
}

/// The table on the GPU.
pub(super) struct RopeTensor {
    pub frequencies: Tensor, // [dim / 2]
    pub scale: f32,
}

impl RopeTensor {
    pub fn new(context: &Context, RopeTable { frequencies, scale }: RopeTable) -> Result<Self> {
        let frequencies = context.tensor(&HostTensor::f32(&[frequencies.len()], &frequencies))?;
        Ok(Self { frequencies, scale })
    }
}

impl Rope {
    /// The factor of sine and cosine.
    pub fn attention_factor(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::Long { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    /// The table for a context of `context` tokens. `factors` returns tensors by name.
    pub fn table<'w>(&self, context: usize, factors: impl Fn(&str) -> Result<&'w [f32]>) -> Result<RopeTable> {
        let dim = self.dim as f64;
        let theta = match self.scaling {
            RopeScaling::Dynamic { factor, original } => {
                let stretch = f64::from(factor) * (context.max(original) as f64 / original as f64);
                f64::from(self.theta) * (stretch - (f64::from(factor) - 1.0)).powf(dim / (dim - 2.0))
            }
            _ => f64::from(self.theta),
        };
        let frequency = |pair: usize| theta.powf(-2.0 * pair as f64 / dim);
        let pairs = 0..self.dim / 2;
        let divided = |by: &str| {
            let factors = factors(by)?;
            Ok::<_, crate::Error>(pairs.clone().zip(factors).map(|(i, by)| frequency(i) / f64::from(*by)).collect())
        };
        let frequencies: Vec<f64> = match &self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => pairs.map(frequency).collect(),
            RopeScaling::Linear { factor } => pairs.map(|i| frequency(i) / f64::from(*factor)).collect(),
            RopeScaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } => {
                // The pair that makes `turns` rotations within the original context.
                let pair_of = |turns: f32| {
                    let length = *original as f64 / (f64::from(turns) * std::f64::consts::TAU);
                    dim * length.ln() / (2.0 * theta.ln())
                };
                let (low, high) = (pair_of(*beta_fast), pair_of(*beta_slow));
                let (low, high) = if *truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(dim - 1.0));
                let slowness = |i: usize| ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                let mixed = |i: usize| {
                    let slow = slowness(i);
                    frequency(i) * (1.0 - slow + slow / f64::from(*factor))
                };
                pairs.map(mixed).collect()
            }
            RopeScaling::Factors { tensor } => divided(tensor)?,
            RopeScaling::Long { short, long, original, .. } => divided(if context > *original { long } else { short })?,
        };
        let frequencies: Vec<f32> = frequencies.into_iter().map(|frequency| frequency as f32).collect();
        if frequencies.len() != self.dim / 2 || !frequencies.iter().all(|frequency| frequency.is_finite()) {
            bail!(
                InvalidFile,
                "rope gives no {} finite frequencies by its base {} and {:?}",
                self.dim / 2,
                self.theta,
                self.scaling
            );
        }
        Ok(RopeTable { frequencies, scale: self.attention_factor() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(scaling: RopeScaling, context: usize) -> RopeTable {
        let rope = Rope { kind: RopeKind::Halves, dim: 8, theta: 10000.0, scaling };
        let factors: &[f32] = &[1.0, 2.0, 4.0, 8.0];
        rope.table(context, |_| Ok(factors)).unwrap()
    }

    fn near(table: &RopeTable, wanted: [f64; 4]) {
        for (a, b) in table.frequencies.iter().zip(wanted) {
            assert!((f64::from(*a) / b - 1.0).abs() < 1e-6, "{table:?}, wanted {wanted:?}");
        }
    }

    #[test]
    fn frequencies_are_powers_of_the_base() {
        near(&table(RopeScaling::None, 64), [1.0, 0.1, 0.01, 0.001]);
        near(&table(RopeScaling::Linear { factor: 4.0 }, 64), [0.25, 0.025, 0.0025, 0.00025]);
    }

    #[test]
    fn dynamic_scaling_leaves_short_contexts_alone() {
        let dynamic = RopeScaling::Dynamic { factor: 2.0, original: 64 };
        assert_eq!(table(dynamic.clone(), 64).frequencies, table(RopeScaling::None, 64).frequencies);
        // At twice the context the base is multiplied by 3^(8/6).
        let base = 10000.0 * 3f64.powf(8.0 / 6.0);
        near(&table(dynamic, 128), [1.0, base.powf(-0.25), base.powf(-0.5), base.powf(-0.75)]);
    }

    #[test]
    fn yarn_divides_slow_pairs_only() {
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            original: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor: 1.5,
        };
        let table = table(yarn, 64);
        // The pairs rotate 652, 65, 6.5 and 0.65 times. The limits are at pairs 1.3 (32 rotations) and 2.8 (one), rounded to 1 and 3.
        near(&table, [1.0, 0.1, 0.01 * (0.5 + 0.125), 0.00025]);
        assert_eq!(table.scale, 1.5);
    }

    #[test]
    fn longrope_chooses_by_the_context() {
        let long = |context| {
            let (short, long) = ("short".to_owned(), "long".to_owned());
            let scaling = RopeScaling::Long { short, long, original: 64, attention_factor: 1.2 };
            let rope = Rope { kind: RopeKind::Halves, dim: 4, theta: 100.0, scaling };
            let by_name = |name: &str| Ok(if name == "long" { &[2.0f32, 5.0][..] } else { &[1.0, 1.0][..] });
            rope.table(context, by_name).unwrap()
        };
        assert_eq!(long(64), RopeTable { frequencies: vec![1.0, 0.1], scale: 1.2 });
        assert_eq!(long(65), RopeTable { frequencies: vec![0.5, 0.02], scale: 1.2 });
    }

    #[test]
    fn factors_that_are_no_numbers_are_refused() {
        let rope = Rope {
            kind: RopeKind::Halves,
            dim: 4,
            theta: 10000.0,
            scaling: RopeScaling::Factors { tensor: "f".into() },
        };
        for factors in [&[1.0f32, 0.0][..], &[1.0], &[f32::NAN, 1.0]] {
            assert_eq!(rope.table(64, |_| Ok(factors)).unwrap_err().code(), crate::Code::InvalidFile);
        }
    }
}
