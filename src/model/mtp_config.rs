//! The configuration of the head that predicts further tokens (multi-token prediction), which is a model of one layer.

use std::collections::BTreeMap;

use super::checkpoint::{Checkpoint, TensorInfo};
use super::config::Config;
use super::layer_config::LayerConfig;
use super::mtp_part::{PREFIX, SHARED};
use crate::error::Result;
use crate::tensor::quant::BLOCK;

/// What it has besides a layer and a norm of its result, without `.weight`: the norms of the token's embedding and of the hidden state, and
/// the matrix that joins them.
const OWN: [&str; 3] = ["enorm", "hnorm", "eh_proj"];

impl Config {
    /// The same with the head that drafts further tokens. An error if the model has none, or one that is not supported.
    pub fn with_mtp(self, checkpoint: &Checkpoint<'_>) -> Result<Self> {
        let mtp = head_of(&self, &checkpoint.tensors)?;
        Ok(Self { mtp: Some(Box::new(mtp)), ..self })
    }
}

/// The configuration of the head of a model, checked against its tensors.
fn head_of(config: &Config, tensors: &[TensorInfo]) -> Result<Config> {
    let name = config.arch.name;
    let mut own: Vec<TensorInfo> = tensors
        .iter()
        .filter_map(|tensor| Some(TensorInfo { name: tensor.name.strip_prefix(PREFIX)?.to_owned(), ..tensor.clone() }))
        .collect();
    if config.further_layers == 0 {
        bail!(
            InvalidRequest,
            "multiTokenPrediction: the model ({name}) has no head for multi-token prediction; leave the option out, or choose files \
             that have it"
        );
    }
    if !config.arch.predicts_further || config.further_layers > 1 || own.is_empty() {
        bail!(
            UnsupportedArchitecture,
            "multiTokenPrediction: the {} layers of {name} that predict further tokens are not supported; leave the option out",
            config.further_layers
        );
    }
    if let Some(shared) = own.iter().find(|tensor| SHARED.contains(&tensor.name.as_str())) {
        bail!(
            UnsupportedArchitecture,
            "multiTokenPrediction: a head with a tensor {:?} of its own is not supported; leave the option out",
            shared.name
        );
    }
    if !config.n_embd.is_multiple_of(BLOCK) || config.latent.is_some() || config.n_embd_per_layer > 0 {
        bail!(
            UnsupportedArchitecture,
            "multiTokenPrediction: the head of a model ({name}) whose hidden states have {} numbers is not supported",
            config.n_embd
        );
    }
    let Some(attention) = config.layers.iter().find(|layer| layer.attention.is_some()).copied() else {
        bail!(
            UnsupportedArchitecture,
            "multiTokenPrediction: {name} has no layer with attention, as its head must have"
        );
    };
    let layer = LayerConfig {
        attention: Some(0),
        recurrent: None,
        window: None,
        reuses_kv: false,
        has_experts: config.layers.iter().any(|layer| layer.has_experts),
        ..attention
    };
    let head = Config {
        n_layers: 1,
        further_layers: 0,
        layers: vec![layer],
        recurrence: None,
        activation_sparsity: vec![None],
        encoder: None,
        mtp: None,
        labels: 0,
        dense: Vec::new(),
        ..config.clone()
    };
    let n_embd = config.n_embd as u64;
    for stem in OWN {
        let wanted = if stem == "eh_proj" { vec![2 * n_embd, n_embd] } else { vec![n_embd] };
        let name = format!("{stem}.weight");
        let Some(at) = own.iter().position(|tensor| tensor.name == name) else {
            bail!(MissingTensor, "multiTokenPrediction: the head has no tensor {PREFIX}{name}, which it needs");
        };
        let found = own.swap_remove(at);
        if found.dims != wanted {
            bail!(
                ShapeMismatch,
                "the tensor {PREFIX}{name} has the dimensions {:?}, wanted {wanted:?} by the metadata",
                found.dims
            );
        }
    }
    own.extend(tensors.iter().filter(|tensor| SHARED.contains(&tensor.name.as_str())).cloned());
    let by_name: BTreeMap<&str, &TensorInfo> = own.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    head.check_tensors(&own, &by_name).map_err(|error| error.context("the head for multi-token prediction"))?;
    Ok(head)
}
