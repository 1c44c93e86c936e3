//! A Mamba-2 mixer: two ops between its products, and one more for its norm (Dao, Gu 2024, "Transformers are SSMs").

use super::{Kind, Step, states_of, vector};
use crate::error::Result;
use crate::model::Weights;
use crate::model::recurrence::Mamba2;
use crate::tensor::ops::{ConvolutionForm, GatedNorm, SelectiveScan, ShortConvolution};
use crate::tensor::{Context, HostTensor, Tensor};

/// The weights of a Mamba-2 mixer but for its first and last matrices.
pub(super) struct Mamba2Weights {
    mamba: Mamba2,
    /// The taps of each channel of the convolution, then their biases.
    convolution: Tensor, // [channels · taps + channels]
    /// A of each head, the bias of its step, and what it passes on of its input.
    vectors: Tensor, // [3 · heads]
    norm: Option<Tensor>, // [inner]
}

impl Mamba2Weights {
    pub fn new(context: &Context, mamba: Mamba2, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let numbers = |stem: &str| weights.vector(&name(stem));
        let [_, of_inputs, of_b, of_c, _] = mamba.scales;
        // The convolution is linear up to its bias, so its taps take the factors of its inputs.
        let scale = |channel: usize| match channel.checked_sub(mamba.inner()) {
            None => of_inputs,
            Some(channel) if channel < mamba.groups * mamba.state => of_b,
            Some(_) => of_c,
        };
        let taps = numbers("ssm_conv1d.weight")?.iter().enumerate().map(|(at, tap)| tap * scale(at / mamba.taps));
        let convolution: Vec<f32> = taps.chain(numbers("ssm_conv1d.bias")?.iter().copied()).collect();
        let vectors = [numbers("ssm_a")?, numbers("ssm_dt.bias")?, numbers("ssm_d")?].concat();
        let norm = name("ssm_norm.weight");
        Ok(Self {
            mamba,
            convolution: context.tensor(&HostTensor::f32(&[convolution.len()], &convolution))?,
            vectors: context.tensor(&HostTensor::f32(&[vectors.len()], &vectors))?,
            norm: weights.optional(&norm).map(|_| vector(weights, &norm)).transpose()?,
        })
    }
}

impl Kind for Mamba2Weights {
    /// [n, inner]; the states are those of the convolution and of the recurrence.
    fn run(&self, step: &Step, states: &[&Tensor]) -> Result<Tensor> {
        let [of_convolution, of_scan] = states_of(states)?;
        let Step { context, config, products, position, soa, .. } = *step;
        let Self { mamba, convolution, vectors, norm } = self;
        // The gate, the inputs, B, C and the steps.
        let [product] = products else { bail!(Internal, "Mamba-2 of {} products", products.len()) };
        let (inner, channels) = (mamba.inner(), mamba.channels());
        let op = ShortConvolution { first: inner, channels, taps: mamba.taps, bias: true, form: ConvolutionForm::Silu };
        let x = context.run1(&op, &[product, convolution, position, of_convolution])?; // [n, channels]
        let [gate_scale, _, _, _, dt_scale] = mamba.scales;
        let scan = SelectiveScan {
            heads: mamba.heads,
            head_dim: mamba.head_dim,
            groups: mamba.groups,
            state: mamba.state,
            matrix: false,
            first: [inner, inner + mamba.groups * mamba.state, inner + channels],
            dt_scale,
            gate: norm.is_none().then_some((0, gate_scale)),
            soa: soa && norm.is_none(),
        };
        let inputs = [&x, &x, product, vectors, position, of_scan];
        let Some(norm) = norm else { return context.run1(&scan, &[&inputs[..], &[product]].concat()) };
        let y = context.run1(&scan, &inputs)?; // [n, inner]
        let op = GatedNorm {
            groups: mamba.groups,
            first: mamba.norm_first,
            gate_first: 0,
            gate_scale,
            epsilon: config.norm_eps,
            soa,
        };
        context.run1(&op, &[&y, product, norm])
    }
}
