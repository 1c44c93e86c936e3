//! The settings in which the layers of a model may differ, read from its metadata: sizes of heads and of the feed-forward, windows, ropes,
//! experts, and whose state a layer has.

use super::arch::{LayerParts, ROUTER};
use super::keys::{HeadDims, Keys};
use super::tensor_sizes::MAX_WIDTH;
use crate::error::Result;

/// A file beyond these limits is broken rather than large.
pub(super) const MAX_HEADS: usize = 4096;
pub(super) const MAX_EXPERTS: usize = 1024;

/// The settings of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// The length of a head's query, key and value. `n_heads * head_dim` may differ from `n_embd`.
    pub head_dim: usize,
    /// Divides `n_heads`; `n_heads / n_kv_heads` query heads share each (GQA).
    pub n_kv_heads: usize,
    /// The length of the feed-forward's inner vector ("intermediate_size"); that of the experts is in `Config::experts`.
    pub n_ff: usize,
    /// The number of positions that a token sees, itself included as the last (sliding window); of an encoder's, half of them are on either
    /// side. `None`: all.
    pub window: Option<usize>,
    /// The index in `Config::ropes`; `None` for a layer without rope.
    pub rope: Option<usize>,
    /// For a layer with attention, which keys and values it has: its number among those that keep any, or that of an earlier one.
    pub attention: Option<usize>,
    /// For a recurrent layer, its number among those: which states it has.
    pub recurrent: Option<usize>,
    /// Whether it has a feed-forward.
    pub has_feed_forward: bool,
    /// The feed-forward is a mixture of experts.
    pub has_experts: bool,
    /// It has no keys and values of its own and reads those of an earlier layer, which `attention` names.
    pub reuses_kv: bool,
    /// Its values are its keys before their norm, so that it has no projection of values.
    pub values_are_keys: bool,
}

impl LayerConfig {
    /// The length of all keys of a token, and of all its values.
    pub fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Whether the layer has no use for a tensor, named without its layer and its suffix.
    pub fn lacks(&self, stem: &str) -> bool {
        match stem {
            "attn_k" | "attn_k_norm" => self.reuses_kv,
            "attn_v" => self.reuses_kv || self.values_are_keys,
            _ => false,
        }
    }
}

/// The settings of all layers; `has_tensor` tells which tensors the file has.
pub(super) fn layers(
    keys: &Keys,
    n_layers: usize,
    n_heads: usize,
    head_dims: HeadDims,
    window: Option<usize>,
    ropes: usize,
    has_tensor: &dyn Fn(&str) -> bool,
) -> Result<Vec<LayerConfig>> {
    let parts = keys.layer_parts(n_layers)?;
    let n_ff = match keys.dim_of_each_layer("feed_forward_length", n_layers, MAX_WIDTH)? {
        Some(n_ff) => n_ff,
        None if parts.iter().all(|layer| !layer.feed_forward) => vec![0; n_layers],
        // Where all layers have experts, nothing else uses it.
        None if keys.arch.feed_forward.is_empty() => {
            vec![keys.dim("expert_feed_forward_length", MAX_WIDTH)?; n_layers]
        }
        None => return Err(keys.missing("feed_forward_length")),
    };
    let n_kv_heads = keys.dim_of_each_layer("attention.head_count_kv", n_layers, MAX_HEADS)?;
    // Of latents files tell one, since all heads read the same.
    let n_kv_heads = n_kv_heads.filter(|_| !keys.arch.has_latents).unwrap_or_else(|| vec![n_heads; n_layers]);
    let with_attention = || n_kv_heads.iter().zip(&parts).filter(|(_, layer)| layer.attention);
    if let Some((kv_heads, _)) = with_attention().find(|(kv_heads, _)| !n_heads.is_multiple_of(**kv_heads)) {
        bail!(
            InvalidMetadata,
            "{} is {n_heads} and {} is {kv_heads}, wanted a multiple of it",
            keys.name("attention.head_count"),
            keys.name("attention.head_count_kv")
        );
    }
    let has_experts = keys.dim_or_zero("expert_count", MAX_EXPERTS)?.unwrap_or(0) > 0;
    let has_window = window.is_some();
    let windowed = keys.windowed_layers(n_layers)?;
    let is_windowed = |layer: usize| match &windowed {
        Some(windowed) => windowed[layer],
        None => keys.arch.window.is_windowed(layer),
    };
    if keys.arch.needs_window && !has_window {
        return Err(keys.missing("attention.sliding_window"));
    }
    let has_window_of = |layer: usize| has_window && is_windowed(layer);
    let with_rope = keys.layers_with_rope(n_layers)?;
    let values_are_keys = keys.values_are_keys()?;
    // The layers from this one on reuse keys and values.
    let own = n_layers - reusing_layers(keys, n_layers)?;
    let layer = |layer: usize| {
        let source = if layer < own {
            layer
        } else {
            let mut earlier = (0..own).rev();
            earlier.find(|&source| has_window_of(source) == has_window_of(layer)).ok_or_else(|| {
                err!(
                    InvalidMetadata,
                    "{} is {}, and no layer before those is of the kind of layer {layer}, whose keys and values it could reuse",
                    keys.name(SHARED_KV_LAYERS),
                    n_layers - own
                )
            })?
        };
        if n_kv_heads[source] != n_kv_heads[layer] {
            bail!(
                InvalidMetadata,
                "layer {layer} has {} heads of keys and values and reuses those of layer {source}, which has {}",
                n_kv_heads[layer],
                n_kv_heads[source]
            );
        }
        let window = window.filter(|_| is_windowed(layer));
        let has_rope = ropes > 0
            && match &with_rope {
                Some(with_rope) => with_rope[layer],
                None if keys.arch.rope_with_window_only && has_window => window.is_some(),
                None => keys.arch.no_rope_every.is_none_or(|every| !(layer + 1).is_multiple_of(every)),
            };
        // If there is a second rope, layers with a window use it.
        let rope = if window.is_some() { ropes.saturating_sub(1) } else { 0 };
        // Where all layers have experts, one without a router lacks it.
        let has_router = || has_tensor(&ROUTER.replace("{}", &layer.to_string()));
        let always = keys.arch.feed_forward.is_empty() || keys.arch.has_dense_beside_experts();
        let LayerParts { attention, recurrent, feed_forward: has_feed_forward } = parts[layer];
        let has_experts = has_experts && has_feed_forward && (always || has_router());
        let number = |has: fn(&LayerParts) -> bool| parts[..source].iter().filter(|layer| has(layer)).count();
        let values = format!("blk.{layer}.attn_v.weight");
        let values_are_keys = keys.arch.values_may_be_keys
            && window.is_none()
            && layer < own
            && values_are_keys.unwrap_or_else(|| !has_tensor(&values));
        if keys.arch.values_may_be_keys && layer < own && !values_are_keys && !has_tensor(&values) {
            bail!(MissingTensor, "the file has no tensor {values:?}, which layer {layer} of {} needs", keys.arch.name);
        }
        Ok(LayerConfig {
            head_dim: if window.is_some() { head_dims.windowed } else { head_dims.full },
            n_kv_heads: n_kv_heads[layer],
            n_ff: n_ff[layer],
            window,
            rope: has_rope.then_some(rope),
            attention: attention.then(|| number(|layer| layer.attention)),
            recurrent: recurrent.then(|| number(|layer| layer.recurrent)),
            has_feed_forward,
            has_experts,
            reuses_kv: layer >= own,
            values_are_keys,
        })
    };
    (0..n_layers).map(layer).collect()
}

/// The length of a token's vector for each layer, besides its embedding; 0 if there is none.
pub(super) fn per_layer_embedding(keys: &Keys) -> Result<usize> {
    if keys.arch.per_layer.is_none() {
        return Ok(0);
    }
    // Those of all layers together are one row of a table.
    Ok(keys.dim_or_zero("embedding_length_per_layer_input", MAX_WIDTH >> 4)?.unwrap_or(0))
}

const SHARED_KV_LAYERS: &str = "attention.shared_kv_layers";

/// How many of the last layers have no keys and values of their own.
fn reusing_layers(keys: &Keys, n_layers: usize) -> Result<usize> {
    if !keys.arch.reuses_kv {
        return Ok(0);
    }
    let reusing = keys.dim_or_zero(SHARED_KV_LAYERS, n_layers)?.unwrap_or(0);
    if reusing == n_layers {
        bail!(
            UnsupportedArchitecture,
            "{} is {reusing} of {n_layers} layers: a model that reads the keys and values of another one is not supported",
            keys.name(SHARED_KV_LAYERS)
        );
    }
    Ok(reusing)
}
