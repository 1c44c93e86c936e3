//! A norm of the residual stream, of what is added to it, or of heads.

use super::Weights;
use super::arch;
use super::config::Config;
use crate::error::Result;
use crate::tensor::ops::{LayerNorm, RmsNorm, RoundRows, RowNorm};
use crate::tensor::quant::BLOCK;
use crate::tensor::{Context, HostTensor, Tensor, to_soa};

/// A norm. If the model has no tensors for it, it is `None` and changes nothing.
pub(super) struct Norm {
    pub kind: RowNorm,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    /// The weight, then the bias, each in SoA: for ops that both norm and multiply.
    soa: Option<Tensor>,
    /// The result, an input of products, is rounded to 8 bits.
    rounds: bool,
}

impl Norm {
    /// From `STEM.weight` and `STEM.bias`.
    pub fn of(config: &Config, weights: &Weights, stem: &str) -> Self {
        let get = |end: &str| weights.optional(&format!("{stem}.{end}")).cloned();
        let epsilon = config.norm_eps;
        let weight = get("weight");
        let kind = match config.arch.norm {
            _ if weight.is_none() => RowNorm::None,
            arch::Norm::Rms => RowNorm::Rms { epsilon },
            arch::Norm::Layer => RowNorm::Layer { epsilon },
        };
        let rounds = config.rounds_activations && stem.starts_with("blk.");
        Self { kind, weight, bias: get("bias"), soa: None, rounds }
    }

    /// The same for fused ops.
    pub fn fused(context: &Context, config: &Config, weights: &Weights, stem: &str) -> Result<Self> {
        let values = Self::soa_values(config, weights, stem)?;
        let soa = Some(context.tensor(&HostTensor::f32(&[values.len()], &values))?);
        Ok(Self { soa, ..Self::of(config, weights, stem) })
    }

    /// An RMS norm with these weights; also for fused ops if those take rows of this length.
    pub fn rms(context: &Context, epsilon: f32, weight: &[f32]) -> Result<Self> {
        let tensor = |values: &[f32]| context.tensor(&HostTensor::f32(&[values.len()], values));
        let soa = weight.len().is_multiple_of(BLOCK).then(|| tensor(&to_soa(weight))).transpose()?;
        Ok(Self { kind: RowNorm::Rms { epsilon }, weight: Some(tensor(weight)?), bias: None, soa, rounds: false })
    }

    /// No norm.
    pub fn none() -> Self {
        Self { kind: RowNorm::None, weight: None, bias: None, soa: None, rounds: false }
    }

    /// No norm, of rows of `columns`, for fused ops.
    pub fn none_fused(context: &Context, columns: usize) -> Result<Self> {
        // Kernels need a vector; its contents don't matter.
        let soa = context.tensor(&HostTensor::f32(&[columns], &vec![1.0; columns]))?;
        Ok(Self { soa: Some(soa), ..Self::none() })
    }

    /// The vectors of a norm for fused ops.
    pub fn soa_values(config: &Config, weights: &Weights, stem: &str) -> Result<Vec<f32>> {
        let named = |end: &str| {
            let name = format!("{stem}.{end}");
            weights.optional(&name).map(|_| weights.vector(&name).map(to_soa)).transpose()
        };
        // Kernels need a vector; its contents don't matter.
        let Some(weight) = named("weight")? else { return Ok(vec![1.0; config.n_embd]) };
        match config.arch.norm {
            arch::Norm::Rms => Ok(weight),
            arch::Norm::Layer => {
                let bias = named("bias")?.unwrap_or_else(|| vec![0.0; weight.len()]);
                Ok([weight, bias].concat())
            }
        }
    }

    pub fn is_none(&self) -> bool {
        self.weight.is_none()
    }

    /// The vectors for fused ops.
    pub fn soa(&self) -> Result<&Tensor> {
        self.soa.as_ref().ok_or_else(|| err!(Internal, "a norm that was not loaded for fused ops"))
    }

    /// ε and the weight, if it is an RMS norm without a bias.
    pub fn rms_weight(&self) -> Option<(f32, &Tensor)> {
        match (self.kind, &self.weight, &self.bias) {
            (RowNorm::Rms { epsilon }, Some(weight), None) => Some((epsilon, weight)),
            _ => None,
        }
    }

    /// [rows, columns] → the same
    pub fn run(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        let Some(weight) = &self.weight else { return Ok(x.clone()) };
        match (self.kind, &self.bias) {
            (RowNorm::None, _) => Ok(x.clone()),
            (RowNorm::Rms { epsilon }, None) => {
                let normed = context.run1(&RmsNorm { epsilon }, &[x, weight])?;
                if self.rounds { context.run1(&RoundRows, &[&normed]) } else { Ok(normed) }
            }
            _ if self.rounds => bail!(Internal, "another norm than RMS, rounded"),
            (RowNorm::Rms { .. }, Some(_)) => {
                bail!(UnsupportedArchitecture, "an RMS norm with a bias is not supported")
            }
            (RowNorm::Layer { epsilon }, None) => context.run1(&LayerNorm { epsilon, bias: false }, &[x, weight]),
            (RowNorm::Layer { epsilon }, Some(bias)) => {
                context.run1(&LayerNorm { epsilon, bias: true }, &[x, weight, bias])
            }
        }
    }
}
