//! What mixes the tokens of a layer by a recurrence, in place of attention or beside it: its weights, and its steps between two products.
//! One shape for all kinds: products of the normed tokens with `inputs`, then the kind's own ops, which read and write the layer's states,
//! then the product with `output`. The op sets differ in the first and the last products alone.
//!
//! A kind is a file here, with its sizes in `model/recurrence.rs` and its ops in `tensor/ops/recurrent`.

mod delta_net;
mod mamba;
mod mamba2;
mod short_conv;

use super::Weights;
use super::config::Config;
use super::linear::Linear;
use super::recurrence::Recurrence;
use super::state::RecurrentStates;
use crate::error::Result;
use crate::tensor::{Context, Tensor};
use delta_net::DeltaWeights;
use mamba::MambaWeights;
use mamba2::Mamba2Weights;
use short_conv::ShortConvWeights;

/// The weights of a recurrent layer.
pub(super) struct RecurrentMixer {
    /// The matrices that read the normed tokens, [rows, n_embd] each.
    pub inputs: Vec<Linear>,
    /// [n_embd, width]
    pub output: Linear,
    kind: Box<dyn Kind>,
    /// Its number among the recurrent layers.
    number: usize,
}

/// What a kind of recurrent layer does between its first and last products.
trait Kind {
    /// What the last matrix reads, [n, width]. There are as many states as `Recurrence::state_lens` says.
    fn run(&self, step: &Step, states: &[&Tensor]) -> Result<Tensor>;
}

/// What one pass gives to a recurrent layer.
pub(super) struct Step<'a> {
    pub context: &'a Context,
    pub config: &'a Config,
    /// The products with `inputs`, [n, rows] each.
    pub products: &'a [Tensor],
    /// [4] for consecutive tokens of one sequence, or [n, 4] for one token of each of n sequences.
    pub position: &'a Tensor,
    pub states: &'a RecurrentStates,
    /// Rows of the result are in SoA.
    pub soa: bool,
}

impl RecurrentMixer {
    /// Those of a layer, if it is recurrent.
    pub fn of(context: &Context, config: &Config, weights: &Weights, index: usize) -> Result<Option<Self>> {
        let Some(number) = config.layers[index].recurrent else { return Ok(None) };
        let Some(recurrence) = config.recurrence else { bail!(Internal, "a layer is recurrent and the model is not") };
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let (inputs, kind, output): (Vec<Linear>, Box<dyn Kind>, &str) = match recurrence {
            Recurrence::DeltaNet(net) => {
                let (inputs, delta) = DeltaWeights::new(context, net, weights, index)?;
                (inputs, Box::new(delta), "ssm_out")
            }
            Recurrence::ShortConvolution(conv) => {
                let inputs = vec![Linear::of(weights, &name("shortconv.in_proj"))?];
                (inputs, Box::new(ShortConvWeights::new(conv, weights, index)?), "shortconv.out_proj")
            }
            Recurrence::Mamba2(mamba) => {
                let inputs = vec![only_input(weights, &name("ssm_in"))?];
                (inputs, Box::new(Mamba2Weights::new(context, mamba, weights, index)?), "ssm_out")
            }
            Recurrence::Mamba(mamba) => {
                let inputs = vec![only_input(weights, &name("ssm_in"))?];
                (inputs, Box::new(MambaWeights::new(context, (mamba, config.norm_eps), weights, index)?), "ssm_out")
            }
        };
        Ok(Some(Self { inputs, output: Linear::of(weights, &name(output))?, kind, number }))
    }

    /// What `output` reads: [n, width].
    pub fn run(&self, step: &Step) -> Result<Tensor> {
        let per_layer = step.config.recurrence.map_or(0, |recurrence| recurrence.state_lens().len());
        let state = |which: usize| {
            let found = step.states.layer(per_layer * self.number + which);
            found.ok_or_else(|| err!(Internal, "the states have no recurrent layer {}", self.number))
        };
        self.kind.run(step, &(0..per_layer).map(state).collect::<Result<Vec<&Tensor>>>()?)
    }
}

/// The states of a kind that has this number of them.
fn states_of<'t, const N: usize>(states: &[&'t Tensor]) -> Result<[&'t Tensor; N]> {
    <[&Tensor; N]>::try_from(states).map_err(|_| err!(Internal, "{} states of a layer, wanted {N}", states.len()))
}

/// A vector of the model that the configuration was checked to have.
fn vector(weights: &Weights, name: &str) -> Result<Tensor> {
    weights.optional(name).cloned().ok_or_else(|| err!(MissingTensor, "the model has no vector {name:?}"))
}

/// A matrix that alone reads the normed tokens, by its stem.
fn only_input(weights: &Weights, stem: &str) -> Result<Linear> {
    match weights.joined(stem) {
        Some([run]) => Ok(Linear { weight: run.matrix.clone(), bias: None }),
        Some(runs) => bail!(Internal, "{stem} lies in {} matrices", runs.len()),
        None => Linear::of(weights, stem),
    }
}
