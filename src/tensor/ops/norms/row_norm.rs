//! The norm of a token before the products with it, in the kernels of one token (`wgsl/normed_rows.wgsl`).

use rillm_cpu_kernels::{layer_norm, rms_norm};

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::cpu::fits;
use crate::tensor::soa::from_soa;

/// The kind of norm. Its input is a vector in SoA (`tensor/soa.rs`): the weight, then the bias of a layer norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowNorm {
    /// The token as it is; the input is ignored.
    None,
    /// Root mean square (`rms_norm`).
    Rms {
        /// ε in the formula.
        epsilon: f32,
    },
    /// With a mean and a bias (`layer_norm`).
    Layer {
        /// ε in the formula.
        epsilon: f32,
    },
}

impl RowNorm {
    /// One of each kind.
    pub(in crate::tensor::ops) const ALL: [RowNorm; 3] =
        [RowNorm::Rms { epsilon: 1e-5 }, RowNorm::Layer { epsilon: 1e-5 }, RowNorm::None];

    /// The vectors in the norm's input, each as long as the token.
    pub fn vectors(self) -> usize {
        if matches!(self, Self::Layer { .. }) { 2 } else { 1 }
    }

    /// The bits of ε.
    pub(in crate::tensor::ops) fn epsilon_bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Rms { epsilon } | Self::Layer { epsilon } => epsilon.to_bits(),
        }
    }

    pub(in crate::tensor::ops) fn defines(self) -> Vec<(&'static str, Define)> {
        let flag = match self {
            Self::None => Some("UNNORMED"),
            Self::Rms { .. } => None,
            Self::Layer { .. } => Some("LAYER_NORM"),
        };
        let vectors = ("NORM_VECTORS", Define::U32(self.vectors() as u32));
        flag.map(|flag| (flag, Define::Flag)).into_iter().chain([vectors]).collect()
    }

    /// Where the device is the CPU: a token in SoA, normed, in the order of its columns.
    pub(in crate::tensor::ops) fn on_cpu(self, x: &[f32], norm: &[f32]) -> Result<Vec<f32>> {
        let mut normed = vec![0.0; x.len()];
        let (weight, bias) = norm.split_at(x.len());
        match self {
            Self::None => normed.copy_from_slice(x),
            Self::Rms { epsilon } => fits(rms_norm(x, weight, epsilon, &mut normed))?,
            Self::Layer { epsilon } => fits(layer_norm(x, weight, Some(&bias[..x.len()]), epsilon, &mut normed))?,
        }
        Ok(from_soa(&normed))
    }

    /// What an RMS norm divides a token by, besides multiplying it with its weight: 1 for the others.
    pub(in crate::tensor::ops) fn divisor(self, x: &[f32]) -> f64 {
        let Self::Rms { epsilon } = self else { return 1.0 };
        let square = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
        (square + f64::from(epsilon)).sqrt()
    }

    /// The products of a normed token with the rows of a weight, in f64. `norm` and x are in the order of columns.
    pub(in crate::tensor::ops) fn products(self, x: &[f32], norm: &[Vec<f32>], weight: &[f32]) -> Vec<f64> {
        let columns = x.len() as f64;
        let mean = match self {
            Self::Layer { .. } => x.iter().map(|x| f64::from(*x)).sum::<f64>() / columns,
            _ => 0.0,
        };
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / columns;
        let normed = |column: usize| {
            let x = f64::from(x[column]) - mean;
            match self {
                Self::None => x,
                Self::Rms { epsilon } => x / (variance + f64::from(epsilon)).sqrt() * f64::from(norm[0][column]),
                Self::Layer { epsilon } => {
                    let scaled = x / (variance + f64::from(epsilon)).sqrt() * f64::from(norm[0][column]);
                    scaled + f64::from(norm[1][column])
                }
            }
        };
        let x: Vec<f64> = (0..x.len()).map(normed).collect();
        weight.chunks_exact(x.len()).map(|row| row.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
    }
}
