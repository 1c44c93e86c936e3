//! A gated delta net in place of attention: its weights, and its steps between the products (Yang et al. 2024, "Gated Delta Networks:
//! Improving Mamba2 with Delta Rule"). The op sets differ in the products alone.

use super::arch::DELTA_INPUTS;
use super::config::Config;
use super::linear::Linear;
use super::state::RecurrentStates;
use super::{Run, Weights};
use crate::error::Result;
use crate::tensor::ops::{GatedDelta, ShortConvolution};
use crate::tensor::{Context, HostTensor, Tensor};

/// The weights of a gated delta net but for its output.
pub(super) struct DeltaLayer {
    /// Query, key and value, the gate, β and α: together [channels + values + 2 · heads, n_embd], in one matrix or several.
    pub inputs: Vec<Linear>,
    /// In which matrix each of the four is, and its first row.
    places: [(usize, usize); 4],
    convolution: Tensor, // [channels, taps]
    /// For each head a factor and a bias of its decay, then the weights of the norm.
    vectors: Tensor, // [2 · heads + value_dim]
    /// Its number among the recurrent layers.
    state: usize,
}

/// How many states a layer has: that of the convolution, and that of the recurrence.
pub(super) const STATES: usize = 2;

impl DeltaLayer {
    pub fn new(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let (mut inputs, mut places) = (Vec::new(), [(0, 0); 4]);
        match weights.joined(&name("ssm_in")) {
            Some(runs) => {
                for Run { first, count, matrix } in runs {
                    let mut row = 0;
                    for (input, place) in places.iter_mut().enumerate().skip(*first).take(*count) {
                        *place = (inputs.len(), row);
                        row += Self::rows(config, input)?;
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
        let vectors =
            [vector(&name("ssm_a"))?, vector(&name("ssm_dt.bias"))?, vector(&name("ssm_norm.weight"))?].concat();
        let convolution = format!("blk.{index}.ssm_conv1d.weight");
        let Some(convolution) = weights.optional(&convolution).cloned() else {
            bail!(MissingTensor, "the model has no vector {convolution:?}")
        };
        Ok(Self {
            inputs,
            places,
            convolution,
            vectors: context.tensor(&HostTensor::f32(&[vectors.len()], &vectors))?,
            state: config.layers[index].state,
        })
    }

    /// The rows of one of the four inputs.
    fn rows(config: &Config, input: usize) -> Result<usize> {
        let Some(net) = config.delta_net else {
            bail!(Internal, "a layer is a gated delta net and the model has none")
        };
        Ok([net.channels(), net.values(), net.heads, net.heads][input])
    }

    /// From the products with `inputs`, [n, rows] each: the heads' gated results [n, heads · value_dim]; with `soa`, each row in SoA.
    /// `position` is [4] for consecutive tokens of one sequence, or [n, 4] for one token of each of n sequences.
    pub fn run(
        &self,
        context: &Context,
        config: &Config,
        products: &[Tensor],
        position: &Tensor,
        states: &RecurrentStates,
        soa: bool,
    ) -> Result<Tensor> {
        let Some(net) = config.delta_net else {
            bail!(Internal, "a layer is a gated delta net and the model has none")
        };
        let state = |number: usize| {
            let found = states.layer(STATES * self.state + number);
            found.ok_or_else(|| err!(Internal, "the states have no recurrent layer {}", self.state))
        };
        let [(qkv, first), gate, beta, alpha] = self.places;
        let convolution = ShortConvolution {
            first,
            key_heads: net.key_heads,
            key_dim: net.key_dim,
            channels: net.channels(),
            taps: net.taps,
        };
        let qkv = context.run1(&convolution, &[&products[qkv], &self.convolution, position, state(0)?])?; // [n, channels]
        let delta = GatedDelta {
            key_heads: net.key_heads,
            heads: net.heads,
            key_dim: net.key_dim,
            value_dim: net.value_dim,
            tiled: net.tiled,
            first: [gate.1, beta.1, alpha.1],
            epsilon: config.norm_eps,
            soa,
        };
        let [gate, beta, alpha] = [gate, beta, alpha].map(|(product, _)| &products[product]);
        context.run1(&delta, &[&qkv, gate, beta, alpha, &self.vectors, position, state(1)?])
    }
}
