//! What a model has besides its layers if their matrices are joined and their ops are fused, and the steps that `decode.rs` and
//! `prefill.rs` share.

use super::adapters::{ActiveAdapters, Beside};
use super::arch::{self, RopeKind};
use super::attention::Attention;
use super::config::Config;
use super::norm::Norm;
use super::rope::RopeTable;
use super::state::RecurrentStates;
use super::{KvCache, Weights};
use crate::error::Result;
use crate::tensor::ops::{AttentionSplit, HeadNorms, NormHeads, QkvParts, RopeKvAppend, SliceColumns, Splits};
use crate::tensor::{Context, HostTensor, Tensor};

pub(super) struct Fused {
    pub layers: Vec<LayerVectors>,
}

/// The vectors of one layer, in the form that fused ops take.
pub(super) struct LayerVectors {
    /// The norm before attention in SoA, then rope's frequencies, then the biases: one token's kernel reads these.
    pub all: Tensor,
    pub bias: Option<Tensor>, // [(n_heads + 2 · n_kv_heads) · head_dim]
    /// For each head: first queries, then keys if the layer has own ones, [2 · head_dim]; or for all heads together, [(n_heads + n_kv_heads) · head_dim].
    pub head_norms: Option<Tensor>,
    pub rope: LayerRope,
}

/// How rope turns the heads of a layer. Without rope the frequencies are zero, which turns nothing.
pub(super) struct LayerRope {
    pub frequencies: Tensor, // [pairs]
    pub pairs: usize,
    pub interleaved: bool,
    /// The factor of sine and cosine.
    pub scale: f32,
}

/// What the fused ops of one pass share.
#[derive(Clone, Copy)]
pub(super) struct FusedPass<'a> {
    pub context: &'a Context,
    pub config: &'a Config,
    pub fused: &'a Fused,
    pub cache: &'a KvCache,
    pub recurrent: &'a RecurrentStates,
    pub state: &'a Tensor,
    pub adapters: Option<&'a ActiveAdapters>,
}

impl Fused {
    /// Whether the fused ops can compute a model with this configuration; `has` tells which tensors it has.
    pub fn takes(config: &Config, has: &dyn Fn(&str) -> bool) -> bool {
        let has_one = |stem: &str| has(&format!("blk.0.{stem}"));
        let is_rms = config.arch.norm == arch::Norm::Rms;
        let is_gated = !config.arch.has_ungated_feed_forward();
        let has_feed_forward_norm = has_one("ffn_norm.weight");
        let is_post_normed = has_one("post_attention_norm.weight");
        let is_serial = !config.is_parallel && (has_feed_forward_norm || !config.arch.parallel_without_norm);
        let biases_fit = !(has_one("ffn_gate.bias") || (is_gated && has_one("ffn_up.bias")));
        // Biases would have to be added before the norm.
        let has_head_norms = has_one("attn_q_norm.weight");
        let head_norms_fit = !has_head_norms || (is_rms && !has_one("attn_q.bias") && !has_one("attn_qkv.bias"));
        let post_norms_fit = !is_post_normed || is_rms;
        let scale_fits = config.residual_scales.are_one() || !is_post_normed;
        let first_router = config.layers.iter().position(|layer| layer.has_experts);
        let of_experts = |stem: &str| first_router.is_some_and(|layer| has(&format!("blk.{layer}.{stem}")));
        let experts_fit =
            config.experts.is_none() || (is_rms && has_feed_forward_norm && !of_experts("ffn_down_shexp.weight"));
        let attention_fits = config.latent.is_none()
            && config.attention_clamp.is_none()
            && config.attention_temperature.is_none()
            && config.alibi.is_none()
            && config.distances.is_none()
            && config.encoder.is_none()
            && !has_one("attn_sub_norm.weight")
            && !config.rounds_activations
            && !(has_head_norms && config.arch.norms_heads_after_rope);
        let activation_fits = !has_one("xielu_beta.weight");
        let stream_is_kept = !(has("token_embd_norm.weight")
            || has_one("attn_output_norm.weight")
            || has_one("layer_output_norm.weight"));
        let feed_forward_fits = biases_fit && experts_fit && activation_fits;
        let norms_fit = head_norms_fit && post_norms_fit && scale_fits && stream_is_kept;
        // Streams are mixed by ops of their own, and gates of which some count are no part of a fused op.
        let is_one_stream = config.altup.is_none() && config.activation_sparsity.iter().all(Option::is_none);
        is_serial && is_one_stream && attention_fits && feed_forward_fits && norms_fit
    }

    pub fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable]) -> Result<Self> {
        let layers = (0..config.n_layers).map(|layer| LayerVectors::new(context, config, weights, ropes, layer));
        Ok(Self { layers: layers.collect::<Result<_>>()? })
    }
}

impl LayerVectors {
    fn new(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable], layer: usize) -> Result<Self> {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let numbers = |stem: &str| weights.vector(&name(stem));
        let has = |stem: &str| weights.optional(&name(stem)).is_some();
        let mut biases = Vec::new();
        for stem in ["attn_qkv.bias", "attn_q.bias", "attn_k.bias", "attn_v.bias"] {
            if has(stem) {
                biases.extend_from_slice(numbers(stem)?);
            }
        }
        let (frequencies, scale) = match config.layers[layer].rope {
            Some(rope) => (ropes[rope].frequencies.clone(), ropes[rope].scale),
            None => (vec![0.0; config.layers[layer].head_dim / 2], 1.0),
        };
        let attention_norm = Norm::soa_values(config, weights, &name("attn_norm"))?;
        let mut all = [&attention_norm[..], &frequencies, &biases].concat();
        all.resize(all.len().next_multiple_of(4), 0.0);
        let of_keys = if has("attn_k_norm.weight") { numbers("attn_k_norm.weight")? } else { &[] };
        let head_norms =
            if has("attn_q_norm.weight") { Some([numbers("attn_q_norm.weight")?, of_keys].concat()) } else { None };
        let vector = |values: &[f32]| context.tensor(&HostTensor::f32(&[values.len()], values));
        Ok(Self {
            all: vector(&all)?,
            bias: if biases.is_empty() { None } else { Some(vector(&biases)?) },
            head_norms: head_norms.map(|norms| vector(&norms)).transpose()?,
            rope: LayerRope {
                frequencies: vector(&frequencies)?,
                pairs: frequencies.len(),
                interleaved: config.ropes.first().is_some_and(|rope| rope.kind == RopeKind::Interleaved),
                scale,
            },
        })
    }
}

impl FusedPass<'_> {
    /// What adapters add to products.
    pub fn beside(&self) -> Beside<'_> {
        Beside { context: self.context, adapters: self.adapters, state: self.state }
    }

    pub fn vectors(&self, layer: &Attention) -> &LayerVectors {
        &self.fused.layers[layer.index]
    }

    /// Takes the product with a part of the projections, [n, rows]. Returns its queries [n, n_heads · head_dim] if it has any; its keys and
    /// values go to the caches.
    pub fn rope_and_append(&self, layer: &Attention, parts: QkvParts, product: &Tensor) -> Result<Option<Tensor>> {
        let Self { context, config, state, .. } = *self;
        let vectors = self.vectors(layer);
        let of_layer = &config.layers[layer.index];
        if of_layer.values_are_keys && parts.k {
            // A copy, before the keys are normed.
            let first = if parts.q { config.q_dim(layer.index) } else { 0 };
            let values = context.run1(&SliceColumns { first, count: of_layer.kv_dim() }, &[product])?;
            self.rope_and_append(layer, QkvParts::of(2, 1), &values)?;
        }
        let norms_values = config.arch.norms_values && parts.v;
        let head_norms = vectors.head_norms.as_ref().filter(|_| parts.q || parts.k || norms_values);
        // A workgroup for each head would cost a software adapter more than one pass more.
        let are_fused = !config.arch.norms_heads_together && !context.device().capabilities().software;
        if let Some(norms) = head_norms.filter(|_| !are_fused) {
            // One norm for the queries of all heads together, and one for the keys.
            let heads = [config.n_heads, of_layer.n_kv_heads];
            let (counts, lengths) = if config.arch.norms_heads_together {
                ([1, 1], heads.map(|heads| heads * of_layer.head_dim))
            } else {
                (heads, [of_layer.head_dim; 2])
            };
            let norm = NormHeads {
                epsilon: config.norm_eps,
                queries: if parts.q { counts[0] } else { 0 },
                keys: if parts.k { counts[1] } else { 0 },
                values: if norms_values { counts[1] } else { 0 },
                query_length: lengths[0],
                key_length: if of_layer.reuses_kv { 0 } else { lengths[1] },
            };
            context.run(&norm, &[product, norms])?;
        }
        let rope = RopeKvAppend {
            parts,
            heads: config.n_heads,
            kv_heads: of_layer.n_kv_heads,
            head_dim: of_layer.head_dim,
            interleaved: vectors.rope.interleaved,
            scale: vectors.rope.scale,
            bias: vectors.bias.is_some(),
            norms: head_norms
                .filter(|_| are_fused)
                .map(|_| HeadNorms { epsilon: config.norm_eps, values: norms_values }),
        };
        let mut inputs = vec![product, &vectors.rope.frequencies, state];
        inputs.extend(self.caches(layer, parts));
        inputs.extend(&vectors.bias);
        inputs.extend(head_norms.filter(|_| are_fused));
        Ok(context.run(&rope, &inputs)?.pop())
    }

    /// How attention of one or a few tokens splits the positions.
    pub fn splits(&self, layer: &Attention) -> Splits {
        Splits::choose(self.config.layers[layer.index].head_dim, self.context.device().capabilities())
    }

    /// The scores of the heads' sinks, if they have any. Fused ops take no other numbers of heads.
    pub fn sinks<'l>(&self, layer: &'l Attention) -> Option<&'l Tensor> {
        layer.per_head.as_ref()
    }

    /// The caches for the keys and values of these projections.
    pub fn caches(&self, layer: &Attention, parts: QkvParts) -> impl Iterator<Item = &Tensor> {
        let (k_cache, v_cache) = self.cache.layer(layer.state);
        parts.k.then_some(k_cache).into_iter().chain(parts.v.then_some(v_cache))
    }

    /// Attention of one or a few tokens with the positions split, not merged yet: sums and totals of each split.
    pub fn attention_split(&self, layer: &Attention, q: &Tensor) -> Result<[Tensor; 2]> {
        let Self { context, config, .. } = *self;
        let of_layer = &config.layers[layer.index];
        let split = AttentionSplit {
            heads: config.n_heads,
            kv_heads: of_layer.n_kv_heads,
            head_dim: of_layer.head_dim,
            scale: config.attention_scale,
            window: of_layer.window,
            softcap: config.attention_softcap,
            splits: self.splits(layer),
        };
        let (k_cache, v_cache) = self.cache.layer(layer.state);
        let parts = context.run(&split, &[q, k_cache, v_cache, self.state])?;
        <[Tensor; 2]>::try_from(parts).map_err(|_| err!(Internal, "attention_split has two outputs"))
    }

    /// The most positions that a token of a layer sees in this cache.
    pub fn seen(&self, layer: &Attention) -> usize {
        let capacity = self.cache.capacity();
        self.config.layers[layer.index].window.map_or(capacity, |window| window.min(capacity))
    }
}
