//! What the metadata says of several residual streams, and of gates of which only the largest count (Gemma 3n).

use super::keys::Keys;
use crate::error::Result;
use crate::tensor::ops::AltupPredict;

/// The residual streams of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltUp {
    /// How many there are.
    pub streams: usize,
    /// The one that layers read.
    pub active: usize,
}

/// The residual streams of alternating updates.
pub(super) fn altup(keys: &Keys) -> Result<Option<AltUp>> {
    if keys.arch.altup.is_empty() {
        return Ok(None);
    }
    let streams = keys.dim("altup.num_inputs", AltupPredict::MAX_STREAMS)?;
    if streams < 2 {
        bail!(InvalidMetadata, "{} is {streams}, wanted at least 2", keys.name("altup.num_inputs"));
    }
    let active = "altup.active_idx";
    let active = keys.dim_or_zero(active, streams - 1)?.ok_or_else(|| keys.missing(active))?;
    Ok(Some(AltUp { streams, active }))
}

/// For each layer how many standard deviations above the mean a gate must be, if it has such a limit. Without the key the first ten of more
/// than ten layers keep a twentieth, as transformers and llama.cpp have it.
pub(super) fn activation_sparsity(keys: &Keys, n_layers: usize) -> Result<Vec<Option<f32>>> {
    const TWENTIETH: f32 = 1.644_853_6;
    if keys.arch.altup.is_empty() {
        return Ok(vec![None; n_layers]);
    }
    let name = keys.name("activation_sparsity_scale");
    match keys.metadata.optional_f32_array(&name)? {
        Some(of_layers) if of_layers.len() == n_layers => {
            if let Some(wrong) = of_layers.iter().find(|of| of.is_nan() || **of == f32::INFINITY) {
                bail!(InvalidMetadata, "{name} has {wrong} for a layer, wanted a number, or -inf for none");
            }
            Ok(of_layers.iter().map(|of| Some(*of).filter(|of| of.is_finite())).collect())
        }
        Some(of_layers) => bail!(InvalidMetadata, "{name} has {} numbers for {n_layers} layers", of_layers.len()),
        None => Ok((0..n_layers).map(|layer| (n_layers > 10 && layer < 10).then_some(TWENTIETH)).collect()),
    }
}
