//! A short convolution between two gates (LFM2): one op between its two products.

use super::{Kind, Step, states_of, vector};
use crate::error::Result;
use crate::model::Weights;
use crate::model::recurrence::ShortConv;
use crate::tensor::Tensor;
use crate::tensor::ops::{ConvolutionForm, ShortConvolution};

/// The weights of a short convolution but for its first and last matrices.
pub(super) struct ShortConvWeights {
    conv: ShortConv,
    taps: Tensor, // [channels, taps]
}

impl ShortConvWeights {
    pub fn new(conv: ShortConv, weights: &Weights, index: usize) -> Result<Self> {
        Ok(Self { conv, taps: vector(weights, &format!("blk.{index}.shortconv.conv.weight"))? })
    }
}

impl Kind for ShortConvWeights {
    /// [n, channels]
    fn run(&self, step: &Step, states: &[&Tensor]) -> Result<Tensor> {
        let [state] = states_of(states)?;
        let ShortConv { channels, taps } = self.conv;
        let form = ConvolutionForm::Gated { soa: step.soa };
        let op = ShortConvolution { first: 0, channels, taps, bias: false, form };
        match step.products {
            [product] => step.context.run1(&op, &[product, &self.taps, step.position, state]),
            products => bail!(Internal, "a short convolution of {} products", products.len()),
        }
    }
}
