//! Sizes that a model's tensors tell and its metadata need not: of layers after a pooling, and of the expert that every token uses.

use std::collections::BTreeMap;

use super::arch::FIRST_DENSE;
use super::checkpoint::TensorInfo;
use super::keys::Keys;
use crate::error::Result;

/// A file with longer vectors is broken rather than large.
pub(super) const MAX_WIDTH: usize = 1 << 20;

/// The layers after the pooling, each of which takes what the one before gives.
pub(super) fn dense(n_embd: usize, tensors: &BTreeMap<&str, &TensorInfo>) -> Result<Vec<[usize; 2]>> {
    let mut layers = Vec::new();
    let mut width = n_embd;
    while let Some(tensor) = tensors.get(format!("dense_{}.weight", layers.len() + FIRST_DENSE).as_str()) {
        let outputs = tensor.dims.get(1).map_or(1, |&rows| usize::try_from(rows).unwrap_or(usize::MAX));
        if tensor.dims.first() != Some(&(width as u64)) || outputs == 0 || outputs > MAX_WIDTH {
            bail!(
                ShapeMismatch,
                "the tensor {:?} has the dimensions {:?}, wanted {width} inputs and at most {MAX_WIDTH} outputs",
                tensor.name,
                tensor.dims
            );
        }
        layers.push([width, outputs]);
        width = outputs;
    }
    Ok(layers)
}

/// The inner length of the expert that every token uses. Many files don't say it, so it is the number of rows of its tensor.
pub(super) fn shared_n_ff(keys: &Keys, tensors: &BTreeMap<&str, &TensorInfo>) -> Result<usize> {
    if let Some(n_ff) = keys.dim_or_zero("expert_shared_feed_forward_length", MAX_WIDTH)?.filter(|&n_ff| n_ff > 0) {
        return Ok(n_ff);
    }
    let is_up = |name: &str| name.ends_with(".ffn_up_shexp.weight") || name.ends_with(".ffn_gate_shexp.weight");
    let ups = tensors.iter().find(|(name, _)| is_up(name));
    let rows = ups.and_then(|(_, up)| up.dims.get(1)).map_or(0, |&rows| usize::try_from(rows).unwrap_or(usize::MAX));
    if rows > MAX_WIDTH {
        bail!(InvalidFile, "the expert of all tokens has an inner vector of {rows}, wanted at most {MAX_WIDTH}");
    }
    Ok(rows)
}
