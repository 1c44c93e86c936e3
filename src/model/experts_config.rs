//! The mixture of experts of a model: its sizes and how tokens find their experts, read from its metadata and checked.

use std::collections::BTreeMap;

use super::checkpoint::TensorInfo;
use super::keys::Keys;
use super::layer_config::MAX_EXPERTS;
use super::tensor_sizes::{MAX_WIDTH, shared_n_ff};
use crate::error::Result;
use crate::tensor::ops::{ExpertGroups, Gating};

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token uses.
    pub used: usize,
    /// The length of an expert's inner vector.
    pub n_ff: usize,
    /// The length of the inner vector of the expert that every token uses; 0 if there is none.
    pub shared_n_ff: usize,
    /// What the router's logits become.
    pub gating: Gating,
    /// The weights are shares of the chosen experts, not of all.
    pub normalize: bool,
    /// The factor of the weights.
    pub scale: f32,
    /// Some if experts are in groups, of which not all are open to a token.
    pub groups: Option<ExpertGroups>,
}

/// The mixture of experts of layers that have one.
pub(super) fn experts(keys: &Keys, n_ff: usize, tensors: &BTreeMap<&str, &TensorInfo>) -> Result<Option<Experts>> {
    let count = keys.dim_or_zero("expert_count", MAX_EXPERTS)?.unwrap_or(0);
    if count == 0 {
        return Ok(None);
    }
    if keys.arch.experts.is_empty() {
        bail!(
            UnsupportedArchitecture,
            "{} is {count}: {} with a mixture of experts is not supported",
            keys.name("expert_count"),
            keys.arch.name
        );
    }
    // That a configuration counts experts says nothing of the layers, if these may do without.
    let may_lack = !keys.arch.feed_forward.is_empty() && !keys.arch.has_dense_beside_experts();
    if may_lack && !tensors.keys().any(|name| name.ends_with(".ffn_gate_inp.weight")) {
        return Ok(None);
    }
    let used = keys.dim("expert_used_count", MAX_EXPERTS)?;
    if used == 0 || used > count {
        bail!(InvalidMetadata, "{} is {used}, wanted 1 to {count}", keys.name("expert_used_count"));
    }
    let has_correction = tensors.keys().any(|name| name.ends_with(".exp_probs_b.bias"));
    let gating = match keys.number("expert_gating_func")? {
        // Files of such models that don't say it: only those whose scores go through a sigmoid have a correction.
        None | Some(0.0) if keys.arch.groups_experts && has_correction => Gating::Sigmoid,
        _ => keys.gating()?,
    };
    Ok(Some(Experts {
        count,
        used,
        groups: expert_groups(keys, count, used, gating)?,
        n_ff: keys.dim_or_zero("expert_feed_forward_length", MAX_WIDTH)?.filter(|&n_ff| n_ff > 0).unwrap_or(n_ff),
        shared_n_ff: shared_n_ff(keys, tensors)?,
        gating,
        normalize: keys
            .metadata
            .optional_bool(&keys.name("expert_weights_norm"))?
            .unwrap_or(keys.arch.normalizes_experts),
        scale: keys.number("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0),
    }))
}

/// The groups of experts, if a token does not find all of them open.
fn expert_groups(keys: &Keys, experts: usize, used: usize, gating: Gating) -> Result<Option<ExpertGroups>> {
    let [count, open] = ["expert_group_count", "expert_group_used_count"];
    let Some(groups) = keys.dim_or_zero(count, MAX_EXPERTS)?.filter(|groups| *groups > 1) else { return Ok(None) };
    let Some(used_groups) = keys.dim_or_zero(open, MAX_EXPERTS)? else { return Err(keys.missing(open)) };
    if used_groups == groups {
        return Ok(None);
    }
    let found = ExpertGroups { count: groups, used: used_groups, by_two: gating == Gating::Sigmoid };
    if !found.fits(experts, used) {
        bail!(
            InvalidMetadata,
            "{} is {groups} and {} is {used_groups}, of {experts} experts of which a token uses {used}; wanted groups of equal size, \
             where scores go through a sigmoid of two or more, and as many of them open as hold a token's experts",
            keys.name(count),
            keys.name(open)
        );
    }
    Ok(Some(found))
}
