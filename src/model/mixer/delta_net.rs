//! A gated delta net: its weights, and its two ops (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule").

use super::{Kind, Step, states_of};
use crate::error::Result;
use crate::model::arch::DELTA_INPUTS;
use crate::model::linear::Linear;
use crate::model::recurrence::DeltaNet;
use crate::model::{Run, Weights};
use crate::tensor::ops::{ConvolutionForm, GatedDelta, GatedNorm, ShortConvolution};
use crate::tensor::{Context, HostTensor, Tensor};

/// From this number of tokens on, a workgroup for each head takes longer than several, and a dispatch for the norm.
const LONG: usize = 9;

/// The weights of a gated delta net but for its first and last matrices.
pub(super) struct DeltaWeights {
    net: DeltaNet,
    /// In which of the input matrices query, key and value, the gate, β and α are, and their first rows.
    places: [(usize, usize); 4],
    convolution: Tensor, // [channels, taps]
    /// For each head a factor and a bias of its decay, then the weights of the norm.
    vectors: Tensor, // [2 · heads + value_dim]
    norm: Tensor,        // [value_dim]
}

impl DeltaWeights {
    /// With the input matrices: query, key and value, the gate, β and α, together [channels + values + 2 · heads, n_embd], in one matrix or
    /// several.
    pub fn new(context: &Context, net: DeltaNet, weights: &Weights, index: usize) -> Result<(Vec<Linear>, Self)> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let rows = [net.channels(), net.values(), net.heads, net.heads];
        let (mut inputs, mut places) = (Vec::new(), [(0, 0); 4]);
        match weights.joined(&name("delta_in")) {
            Some(runs) => {
                for Run { first, count, matrix } in runs {
                    let mut row = 0;
                    for (input, place) in places.iter_mut().enumerate().skip(*first).take(*count) {
                        *place = (inputs.len(), row);
                        row += rows[input];
                    }
                    inputs.push(Linear { weight: matrix.clone(), bias: None });
                }
            }
            None => {
                for (input, stem) in DELTA_INPUTS.iter().enumerate() {
                    places[input] = (input, 0);
                    inputs.push(Linear::of(weights, &name(stem))?);
                }
            }
        }
        let vector = |name: &str| weights.vector(name);
        let norm = super::vector(weights, &name("ssm_norm.weight"))?;
        let vectors =
            [vector(&name("ssm_a"))?, vector(&name("ssm_dt.bias"))?, vector(&name("ssm_norm.weight"))?].concat();
        let convolution = super::vector(weights, &name("ssm_conv1d.weight"))?;
        let vectors = context.tensor(&HostTensor::f32(&[vectors.len()], &vectors))?;
        Ok((inputs, Self { net, places, convolution, vectors, norm }))
    }
}

impl Kind for DeltaWeights {
    /// The heads' gated results [n, heads · value_dim]; the states are those of the convolution and of the recurrence.
    fn run(&self, step: &Step, states: &[&Tensor]) -> Result<Tensor> {
        let [of_convolution, of_net] = states_of(states)?;
        let Step { context, config, products, position, soa, .. } = *step;
        let Self { net, places, .. } = self;
        let [(qkv, first), gate, beta, alpha] = *places;
        let convolution = ShortConvolution {
            first,
            channels: net.channels(),
            taps: net.taps,
            bias: false,
            form: ConvolutionForm::Keys { heads: net.key_heads, dim: net.key_dim },
        };
        let qkv = context.run1(&convolution, &[&products[qkv], &self.convolution, position, of_convolution])?; // [n, channels]
        let delta = GatedDelta {
            key_heads: net.key_heads,
            heads: net.heads,
            key_dim: net.key_dim,
            value_dim: net.value_dim,
            tiled: net.tiled,
            first: [gate.1, beta.1, alpha.1],
            normed: true,
            epsilon: config.norm_eps,
            soa,
        };
        let gate_first = gate.1;
        let [gate, beta, alpha] = [gate, beta, alpha].map(|(product, _)| &products[product]);
        let inputs = [&qkv, gate, beta, alpha, &self.vectors, position, of_net];
        let is_short = qkv.shape().dims()[0] < LONG || position.shape().dims().len() > 1;
        if is_short || !delta.shares_heads(context.device().capabilities()) {
            return context.run1(&delta, &inputs);
        }
        let y = context.run1(&GatedDelta { normed: false, soa: false, ..delta }, &inputs)?;
        let norm =
            GatedNorm { groups: net.heads, first: true, gate_first, gate_scale: 1.0, epsilon: config.norm_eps, soa };
        context.run1(&norm, &[&y, gate, &self.norm])
    }
}
