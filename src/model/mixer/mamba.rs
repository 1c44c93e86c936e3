//! A Mamba mixer: between its first and last products a convolution, the products with the matrices of step, B and C, and the recurrence (Gu,
//! Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces").

use super::{Kind, Step, states_of};
use crate::error::Result;
use crate::model::Weights;
use crate::model::linear::Linear;
use crate::model::recurrence::Mamba;
use crate::tensor::ops::{self, ConvolutionForm, NormParts, SelectiveScan, ShortConvolution, SliceColumns};
use crate::tensor::{Context, HostTensor, Shape, Tensor};

/// The weights of a Mamba mixer but for its first and last matrices.
pub(super) struct MambaWeights {
    mamba: Mamba,
    /// The taps of each channel of the convolution, then their biases.
    convolution: Tensor, // [channels · taps + channels]
    /// What makes the step in short form, B and C of the channels.
    parts: Linear, // [rank + 2 · state, channels]
    /// The norms of these three, side by side, and their ε.
    norms: Option<(Tensor, f32)>, // [rank + 2 · state]
    /// What makes each channel's step of the short form. Its bias is among the vectors.
    step: Linear, // [channels, rank]
    /// A of each number of a channel's state, the bias of its step, and what it passes on of its input.
    vectors: Tensor, // [channels · state + 2 · channels]
}

impl MambaWeights {
    pub fn new(context: &Context, (mamba, norm_eps): (Mamba, f32), weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let tensor = |stems: &[&str]| {
            let parts = stems.iter().map(|stem| weights.vector(&name(stem))).collect::<Result<Vec<&[f32]>>>()?;
            let numbers = parts.concat();
            context.tensor(&HostTensor::f32(&[numbers.len()], &numbers))
        };
        let norms = ["ssm_dt_norm.weight", "ssm_b_norm.weight", "ssm_c_norm.weight"];
        let norms = match mamba.weightless_norm_eps {
            Some(epsilon) => {
                let ones = vec![1.0; mamba.rank + 2 * mamba.state];
                Some((context.tensor(&HostTensor::f32(&[ones.len()], &ones))?, epsilon))
            }
            None if weights.optional(&name(norms[0])).is_some() => Some((tensor(&norms)?, norm_eps)),
            None => None,
        };
        Ok(Self {
            mamba,
            convolution: tensor(&["ssm_conv1d.weight", "ssm_conv1d.bias"])?,
            parts: Linear { weight: weights.matrix(&name("ssm_x.weight"))?, bias: None },
            norms,
            step: Linear { weight: weights.matrix(&name("ssm_dt.weight"))?, bias: None },
            vectors: tensor(&["ssm_a", "ssm_dt.bias", "ssm_d"])?,
        })
    }
}

impl Kind for MambaWeights {
    /// [n, channels]; the states are those of the convolution and of the recurrence.
    fn run(&self, step: &Step, states: &[&Tensor]) -> Result<Tensor> {
        let [of_convolution, of_scan] = states_of(states)?;
        let Step { context, products, position, soa, .. } = *step;
        let Mamba { channels, state, rank, taps, .. } = self.mamba;
        // The inputs, then the gate.
        let [product] = products else { bail!(Internal, "Mamba of {} products", products.len()) };
        let tokens = product.shape().dims()[0];
        let linear = ops::linear(tokens);
        let op = ShortConvolution { first: 0, channels, taps, bias: true, form: ConvolutionForm::Silu };
        let x = context.run1(&op, &[product, &self.convolution, position, of_convolution])?; // [n, channels]
        let parts = self.parts.run(context, linear, &[&x])?; // [n, rank + 2 · state]
        if let Some((norms, epsilon)) = &self.norms {
            context.run(&NormParts { lengths: [rank, state, state], epsilon: *epsilon }, &[&parts, norms])?;
        }
        let short = match tokens {
            1 => parts.part(0, Shape::from([1, rank]))?,
            _ => context.run1(&SliceColumns { first: 0, count: rank }, &[&parts])?,
        };
        let steps = self.step.run(context, linear, &[&short])?; // [n, channels]
        let scan = SelectiveScan {
            heads: channels,
            head_dim: 1,
            groups: 1,
            state,
            matrix: true,
            first: [rank, rank + state, 0],
            dt_scale: 1.0,
            gate: Some((channels, 1.0)),
            soa,
        };
        context.run1(&scan, &[&x, &parts, &steps, &self.vectors, position, of_scan, product])
    }
}
