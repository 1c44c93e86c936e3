//! The metadata keys of one architecture, read and checked: `block_count` is `llama.block_count`. Names are those of the GGUF specification
//! and of llama.cpp's gguf-py (`constants.py`).

use super::arch::{Arch, RopeKind};
use super::buckets::Buckets;
use super::gguf::{Metadata, Value};
use super::rope::{Rope, RopeScaling};
use crate::error::{Error, Result};
use crate::tensor::ops::{Gating, ScaleByPosition};

/// The lengths of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadDims {
    /// In layers with full attention.
    pub full: usize,
    /// In layers with a window.
    pub windowed: usize,
}

impl HeadDims {
    /// The same length in all layers.
    pub fn of_all(length: usize) -> Self {
        Self { full: length, windowed: length }
    }
}

/// Far above any model; a file with more is damaged.
pub(super) const MAX_HEAD_DIM: usize = 4096;

pub(super) struct Keys<'m> {
    pub metadata: &'m Metadata,
    pub arch: &'static Arch,
}

impl Keys<'_> {
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch.name)
    }

    pub fn missing(&self, key: &str) -> Error {
        err!(InvalidMetadata, "the metadata has no key {:?}, which {} needs", self.name(key), self.arch.name)
    }

    pub(super) fn in_range(&self, key: &str, value: u32, least: usize, max: usize) -> Result<usize> {
        let value = value as usize;
        if value < least || value > max {
            bail!(InvalidMetadata, "{} is {value}, wanted {least} to {max}", self.name(key));
        }
        Ok(value)
    }

    /// A dimension: 1 or more.
    pub fn dim(&self, key: &str, max: usize) -> Result<usize> {
        let value = self.metadata.optional_u32(&self.name(key))?.ok_or_else(|| self.missing(key))?;
        self.in_range(key, value, 1, max)
    }

    pub(super) fn optional_dim(&self, key: &str, max: usize) -> Result<Option<usize>> {
        self.metadata.optional_u32(&self.name(key))?.map(|value| self.in_range(key, value, 1, max)).transpose()
    }

    /// The same for keys where converters write zero for "none"; returns zero then.
    pub fn dim_or_zero(&self, key: &str, max: usize) -> Result<Option<usize>> {
        self.metadata.optional_u32(&self.name(key))?.map(|value| self.in_range(key, value, 0, max)).transpose()
    }

    /// An integer or a float: writers differ.
    pub fn number(&self, key: &str) -> Result<Option<f32>> {
        let name = self.name(key);
        let value = match self.metadata.get(&name) {
            None => return Ok(None),
            Some(Value::F32(_) | Value::F64(_)) => self.metadata.f32(&name)?,
            Some(_) => self.metadata.i64(&name)? as f32,
        };
        if !value.is_finite() {
            bail!(InvalidMetadata, "{name} is {value}, wanted a number");
        }
        Ok(Some(value))
    }

    /// A number above zero.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f32>> {
        match self.number(key)? {
            Some(value) if value <= 0.0 => {
                bail!(InvalidMetadata, "{} is {value}, wanted a number above 0", self.name(key))
            }
            value => Ok(value),
        }
    }

    /// The same for keys where converters write zero for "none".
    pub fn positive_or_none(&self, key: &str) -> Result<Option<f32>> {
        if self.number(key)? == Some(0.0) { Ok(None) } else { self.positive(key) }
    }

    /// A factor of an architecture that has such. GGUF has no such keys; config.json has.
    pub fn multiplier(&self, name: &str) -> Result<f32> {
        if !self.arch.has_multipliers {
            return Ok(1.0);
        }
        Ok(self.number(&format!("multipliers.{name}"))?.unwrap_or(1.0))
    }

    /// The same of several factors.
    pub fn multipliers<const N: usize>(&self, name: &str) -> Result<[f32; N]> {
        let key = self.name(&format!("multipliers.{name}"));
        let Some(values) = self.metadata.optional_f32_array(&key)?.filter(|_| self.arch.has_multipliers) else {
            return Ok([1.0; N]);
        };
        match <[f32; N]>::try_from(values) {
            Ok(values) if values.iter().all(|value| value.is_finite()) => Ok(values),
            _ => bail!(InvalidMetadata, "{key} is {values:?}, wanted {N} numbers"),
        }
    }

    /// The lengths of heads, in layers with full attention and in layers with a window.
    pub fn head_dims(&self, n_embd: usize, n_heads: usize) -> Result<HeadDims> {
        let full = self.head_dim(n_embd, n_heads)?;
        let windowed = self.optional_dim("attention.key_length_swa", MAX_HEAD_DIM)?.unwrap_or(full);
        let values = self.optional_dim("attention.value_length_swa", MAX_HEAD_DIM)?.unwrap_or(windowed);
        if values != windowed || (windowed != full && !self.arch.needs_window) || !windowed.is_multiple_of(2) {
            bail!(
                UnsupportedArchitecture,
                "in layers with a window a key has {windowed} elements and a value {values} ({}), in others {full}: not supported for {}",
                self.name("attention.key_length_swa"),
                self.arch.name
            );
        }
        Ok(HeadDims { full, windowed })
    }

    fn head_dim(&self, n_embd: usize, n_heads: usize) -> Result<usize> {
        let key_length = self.optional_dim("attention.key_length", MAX_HEAD_DIM)?;
        let value_length = self.optional_dim("attention.value_length", MAX_HEAD_DIM)?;
        let from_embedding = n_embd.is_multiple_of(n_heads).then(|| n_embd / n_heads);
        let Some(head_dim) = key_length.or(from_embedding) else {
            bail!(
                InvalidMetadata,
                "{} is {n_embd}, wanted a multiple of {} {n_heads}, or a key {}",
                self.name("embedding_length"),
                self.name("attention.head_count"),
                self.name("attention.key_length")
            );
        };
        if let Some(value_dim) = value_length.or(from_embedding).filter(|&value_dim| value_dim != head_dim) {
            bail!(
                UnsupportedArchitecture,
                "a key has {head_dim} elements and a value {value_dim} ({}); only equal lengths are supported",
                self.name("attention.value_length")
            );
        }
        if !head_dim.is_multiple_of(2) || head_dim > MAX_HEAD_DIM {
            bail!(InvalidMetadata, "a head has {head_dim} elements, wanted an even number up to {MAX_HEAD_DIM}");
        }
        Ok(head_dim)
    }

    pub fn norm_epsilon(&self) -> Result<f32> {
        let key = match self.arch.norm {
            super::arch::Norm::Rms => "attention.layer_norm_rms_epsilon",
            super::arch::Norm::Layer => "attention.layer_norm_epsilon",
        };
        self.positive(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn attention_scale(&self, n_layers: usize, n_embd: usize, n_heads: usize, head_dim: usize) -> Result<f32> {
        if let Some(scale) = self.positive_or_none("attention.scale")? {
            return Ok(scale);
        }
        if let Some(scale) = self.arch.attention_scale {
            return Ok(scale);
        }
        let width = if self.arch.attention_by_width_at == Some(n_layers) { n_embd / n_heads } else { head_dim };
        Ok(1.0 / (width.max(1) as f32).sqrt())
    }

    /// The soft caps of attention scores and of logits.
    pub fn softcaps(&self) -> Result<[Option<f32>; 2]> {
        let default = |index: usize| self.arch.default_softcaps[index];
        let read = |key: &str, index: usize| match self.number(key)? {
            None => Ok::<_, Error>(default(index)),
            Some(_) => self.positive_or_none(key),
        };
        Ok([read("attn_logit_softcapping", 0)?, read("final_logit_softcapping", 1)?])
    }

    /// The factors of embedding, residuals and logits.
    pub fn scales(&self, n_embd: usize, n_layers: usize) -> Result<[f32; 3]> {
        if self.arch.has_multipliers {
            let read = |key: &str| Ok::<_, Error>(self.positive(key)?.unwrap_or(1.0));
            return Ok([read("embedding_scale")?, 1.0, read("logit_scale")?]);
        }
        if !self.arch.has_scales {
            let logits = if self.arch.multiplies_logits { self.positive_or_none("logit_scale")? } else { None };
            // GGUF has no such key; config.json has.
            let asked = self.metadata.optional_bool(&self.name("scale_embedding"))? == Some(true);
            let embedding = if self.arch.scales_embedding || asked { (n_embd as f32).sqrt() } else { 1.0 };
            return Ok([embedding, 1.0, logits.unwrap_or(1.0)]);
        }
        let [embedding, residual, logits] = match self.arch.default_scales {
            Some([embedding, depth, width]) => [embedding, depth / (n_layers as f32).sqrt(), n_embd as f32 / width],
            None => [1.0; 3],
        };
        let read = |key: &str, default: f32| Ok::<_, Error>(self.positive_or_none(key)?.unwrap_or(default));
        let logits = read("logit_scale", logits)?;
        Ok([read("embedding_scale", embedding)?, read("residual_scale", residual)?, 1.0 / logits])
    }

    /// How queries are scaled by their position. llama.cpp's files have both keys.
    pub fn attention_temperature(&self) -> Result<Option<ScaleByPosition>> {
        let Some(beta) = self.positive_or_none("attention.temperature_scale")? else { return Ok(None) };
        let original = self.dim("attention.temperature_length", super::config::MAX_CONTEXT)?;
        Ok(Some(ScaleByPosition { beta, original }))
    }

    /// Whether layers run the feed-forward beside the attention.
    pub fn is_parallel(&self) -> Result<bool> {
        let Some(default) = self.arch.parallel else { return Ok(false) };
        Ok(self.metadata.optional_bool(&self.name("use_parallel_residual"))?.unwrap_or(default))
    }

    /// Whether the inputs of products are rounded to 8 bits. GGUF has no such key (`hugging_face/ternary.rs`).
    pub fn rounds_activations(&self) -> Result<bool> {
        Ok(self.metadata.optional_bool(&self.name("rounds_activations"))?.unwrap_or(false))
    }

    /// α and limit of the gated unit of gpt-oss. GGUF has no such keys; config.json has.
    pub fn clamped_swiglu(&self) -> Result<Option<[f32; 2]>> {
        let Some([alpha, limit]) = self.arch.clamped_swiglu else { return Ok(None) };
        Ok(Some([self.number("swiglu_alpha")?.unwrap_or(alpha), self.positive("swiglu_limit")?.unwrap_or(limit)]))
    }

    /// What a router's logits become. In llama.cpp's files 0 is not set, 1 the softmax, 2 the sigmoid, and 3 the softmax over the chosen.
    pub fn gating(&self) -> Result<Gating> {
        match self.number("expert_gating_func")? {
            None | Some(0.0) => {}
            Some(1.0) if !matches!(self.arch.gating, Gating::Sigmoid) => {}
            Some(1.0) => return Ok(Gating::Softmax),
            Some(2.0) => return Ok(Gating::Sigmoid),
            Some(3.0) if self.arch.normalizes_experts && self.arch.gating == Gating::Softmax => {}
            Some(other) => bail!(
                UnsupportedArchitecture,
                "{} is {other}: another gate of experts is not supported",
                self.name("expert_gating_func")
            ),
        }
        match (self.arch.gating, self.number("router_jitter_noise")?) {
            (Gating::Sparse { .. }, Some(jitter)) => Ok(Gating::Sparse { jitter }),
            (gating, _) => Ok(gating),
        }
    }

    /// Whether layers with full attention have keys for values. GGUF has no such key; config.json has (`hugging_face/layer_kinds.rs`).
    pub fn values_are_keys(&self) -> Result<Option<bool>> {
        self.metadata.optional_bool(&self.name("attention.values_are_keys"))
    }

    /// The model's rope, then the rope of layers with a window if it differs.
    pub fn ropes(
        &self,
        head_dims: HeadDims,
        trained: usize,
        has_window: bool,
        has_tensor: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Rope>> {
        let Some(kind) = self.arch.rope.filter(|_| head_dims.full > 0) else { return Ok(Vec::new()) };
        let is_off =
            || Ok::<_, Error>(self.metadata.optional_bool(&self.name("rope.scaling.finetuned"))? == Some(false));
        if self.arch.rope_switch && is_off()? {
            return Ok(Vec::new());
        }
        // GGUF has no such key; folders may have other pairs than GGUF files (`hugging_face/mod.rs`).
        let kind = match self.metadata.optional_bool(&self.name("rope.interleaved"))? {
            Some(true) => RopeKind::Interleaved,
            Some(false) => RopeKind::Halves,
            None => kind,
        };
        let dim_of = |key: &str, default: usize, head_dim: usize| {
            let dim = self.optional_dim(key, MAX_HEAD_DIM)?.unwrap_or(default);
            if dim < 2 || dim > head_dim || !dim.is_multiple_of(2) {
                bail!(
                    InvalidMetadata,
                    "{} is {dim}, wanted an even number from 2 to the {head_dim} elements of a head",
                    self.name(key)
                );
            }
            Ok(dim)
        };
        let dim = dim_of("rope.dimension_count", head_dims.full, head_dims.full)?;
        let theta = self.positive("rope.freq_base")?.unwrap_or(10000.0);
        let mut ropes = vec![Rope { kind, dim, theta, scaling: self.rope_scaling(trained, has_tensor)? }];
        if let Some(window_rope) = self.arch.window_rope.filter(|_| has_window) {
            let default = window_rope.default_theta.unwrap_or(theta);
            let theta = self.positive("rope.freq_base_swa")?.unwrap_or(default);
            let default = if head_dims.windowed == head_dims.full { dim } else { head_dims.windowed };
            let dim = dim_of("rope.dimension_count_swa", default, head_dims.windowed)?;
            ropes.push(Rope { kind, dim, theta, scaling: RopeScaling::None });
        }
        Ok(ropes)
    }

    fn rope_scaling(&self, trained: usize, has_tensor: &dyn Fn(&str) -> bool) -> Result<RopeScaling> {
        const FACTORS: &str = "rope_freqs.weight";
        const LONG: &str = "rope_factors_long.weight";
        const SHORT: &str = "rope_factors_short.weight";
        let kind_name = self.name("rope.scaling.type");
        let kind = self.metadata.optional_str(&kind_name)?;
        let original = |default: usize| {
            let original = self.dim_or_zero("rope.scaling.original_context_length", super::config::MAX_CONTEXT)?;
            Ok::<_, Error>(original.filter(|&original| original > 0).unwrap_or(default))
        };
        let needed_factor =
            || self.positive_or_none("rope.scaling.factor")?.ok_or_else(|| self.missing("rope.scaling.factor"));
        let attention_factor = self.positive_or_none("rope.scaling.attn_factor")?;
        // llama.cpp looks at the tensors, not at the type.
        if has_tensor(LONG) && has_tensor(SHORT) {
            let original = original(trained)?;
            let stretch = (trained as f64 / original as f64).max(1.0);
            let by_stretch = (1.0 + stretch.ln() / (original.max(2) as f64).ln()).sqrt() as f32;
            let attention_factor = attention_factor.unwrap_or(by_stretch);
            return Ok(RopeScaling::Long {
                short: SHORT.to_owned(),
                long: LONG.to_owned(),
                original,
                attention_factor,
            });
        }
        let scaling = match kind {
            Some("none") => RopeScaling::None,
            // A factor without a type is linear scaling. 1 is no scaling; llama.cpp writes zero for "not set".
            None | Some("linear") => {
                let old = self.positive_or_none("rope.scale_linear")?;
                match self.positive_or_none("rope.scaling.factor")?.or(old).filter(|&factor| factor != 1.0) {
                    Some(factor) => RopeScaling::Linear { factor },
                    None => RopeScaling::None,
                }
            }
            Some("dynamic") => RopeScaling::Dynamic { factor: needed_factor()?, original: original(trained)? },
            Some("yarn") => {
                let log_multiplier = self.number("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
                if !self.arch.has_latents {
                    self.refuse_number("rope.scaling.yarn_log_multiplier", "YaRN with a multiplier of its own", |v| {
                        v != 0.0 && v != 1.0
                    })?;
                }
                // With a multiplier of one, the scales of all dimensions and of the scores cancel out (DeepSeek-V2, Ministral 3).
                let cancels = log_multiplier == 1.0 || (self.arch.has_latents && log_multiplier != 0.0);
                self.refuse_number("rope.scaling.yarn_ext_factor", "YaRN in part", |v| v != 1.0 && v != -1.0)?;
                let factor = needed_factor()?;
                let more = self.positive_or_none("rope.scaling.yarn_attn_factor")?.unwrap_or(1.0);
                RopeScaling::Yarn {
                    factor,
                    original: original(trained)?,
                    beta_fast: self.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: self.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    // GGUF has no such key; config.json has (`hugging_face/rope.rs`).
                    truncate: self
                        .metadata
                        .optional_bool(&self.name("rope.scaling.yarn_truncate"))?
                        .unwrap_or(self.arch.rounds_yarn),
                    attention_factor: attention_factor.unwrap_or(1.0)
                        * more
                        * if cancels { 1.0 } else { 1.0 + 0.1 * factor.ln() },
                }
            }
            Some(kind) => bail!(
                UnsupportedArchitecture,
                "{kind_name} is {kind:?}; supported are \"none\", \"linear\", \"dynamic\", \"yarn\", and \"longrope\" with \
                 the tensors {LONG:?} and {SHORT:?}"
            ),
        };
        let scales_attention = attention_factor.is_some_and(|factor| factor != 1.0);
        match scaling {
            RopeScaling::None if has_tensor(FACTORS) => Ok(RopeScaling::Factors { tensor: FACTORS.to_owned() }),
            scaling if has_tensor(FACTORS) => {
                bail!(
                    UnsupportedArchitecture,
                    "the file has the tensor {FACTORS:?} and {scaling:?} besides: not supported"
                )
            }
            scaling @ RopeScaling::Yarn { .. } => Ok(scaling),
            scaling if scales_attention => bail!(
                UnsupportedArchitecture,
                "{} is not 1, and the scaling of rope is {scaling:?}: not supported",
                self.name("rope.scaling.attn_factor")
            ),
            scaling => Ok(scaling),
        }
    }

    /// The buckets of distances, if attention compares content with them; a context of `trained` tokens bounds the distances.
    pub fn disentangled(&self, trained: usize) -> Result<Option<Buckets>> {
        let Some(count) = self.optional_dim("attention.position_buckets", super::config::MAX_CONTEXT)? else {
            return Ok(None);
        };
        let farthest = self.number("attention.max_relative_positions")?.filter(|&farthest| farthest >= 1.0);
        let farthest = farthest.map_or(trained, |farthest| farthest as usize);
        if count < 4 || farthest <= count / 2 + 1 {
            bail!(
                InvalidMetadata,
                "{} is {count} for distances up to {farthest}, wanted 4 or more and longer distances than half of it",
                self.name("attention.position_buckets")
            );
        }
        Ok(Some(Buckets { count, farthest }))
    }

    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<()> {
        let tokens = self.metadata.optional_array("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
        let (what, count) = match (tokens, self.metadata.optional_u32(&self.name("vocab_size"))?) {
            (Some(tokens), _) => ("the tokenizer has", tokens),
            (None, Some(size)) => ("the metadata has", size as usize),
            (None, None) => return Ok(()),
        };
        if count != vocab_size {
            bail!(ShapeMismatch, "{what} {count} tokens and the embedding {vocab_size} rows, wanted equal");
        }
        Ok(())
    }

    /// Refuses settings that change the computation and are not supported.
    pub fn refuse_unsupported(&self) -> Result<()> {
        if !self.arch.has_shared_expert() {
            self.refuse_number("expert_shared_count", "experts that all tokens use", |v| v != 0.0)?;
        }
        if !self.arch.groups_experts {
            self.refuse_number("expert_group_count", "experts in groups", |v| v != 0.0 && v != 1.0)?;
        }
        if self.arch.norms_heads_together {
            self.refuse_number("attention.clamp_kqv", "clamping after norms of heads", |v| v != 0.0)?;
        }
        if !self.arch.reuses_kv {
            self.refuse_number("attention.shared_kv_layers", "layers that share keys and values", |v| v != 0.0)?;
        }
        if self.arch.per_layer.is_none() {
            self.refuse_number("embedding_length_per_layer_input", "embeddings for each layer", |v| v != 0.0)?;
        }
        if let Some(wanted) = self.arch.names_activation {
            let name = self.name("hidden_activation");
            match self.metadata.optional_str(&name)? {
                Some(found) if found == wanted => {}
                Some(found) => bail!(UnsupportedArchitecture, "{name} is {found:?}; supported is {wanted:?}"),
                None => bail!(
                    UnsupportedArchitecture,
                    "the metadata has no {name:?}, so it is not known whether the feed-forward takes {wanted:?}, which is supported; use a \
                     file of a newer converter"
                ),
            }
        }
        self.refuse_number("swiglu_clamp_exp", "another clamped unit of experts", |v| v != 0.0)?;
        if !self.arch.has_scales && !self.arch.has_multipliers {
            if !self.arch.multiplies_logits {
                self.refuse_number("logit_scale", "scaled logits", |v| v != 0.0 && v != 1.0)?;
            }
            self.refuse_number("residual_scale", "scaled residuals", |v| v != 0.0 && v != 1.0)?;
            self.refuse_number("embedding_scale", "scaled embeddings", |v| v != 0.0 && v != 1.0)?;
        }
        let mut switches = if self.arch.is_encoder {
            vec![("attention.causal", true, "an encoder that does not look ahead")]
        } else {
            vec![("attention.causal", false, "attention that looks ahead")]
        };
        if !self.arch.parallel_without_norm && self.arch.parallel.is_none() {
            switches.push(("use_parallel_residual", true, "parallel residuals"));
        }
        if self.arch.has_scales && !self.arch.rope_switch {
            // llama.cpp uses it to switch rope on in the architecture with these scales.
            switches.push(("rope.scaling.finetuned", false, "a model without rope"));
        }
        for (key, refused, what) in switches {
            let name = self.name(key);
            if self.metadata.optional_bool(&name)? == Some(refused) {
                bail!(UnsupportedArchitecture, "{name} is {refused}: {what} is not supported");
            }
        }
        Ok(())
    }

    /// Refuses a number that switches something on.
    fn refuse_number(&self, key: &str, what: &str, refused: impl Fn(f32) -> bool) -> Result<()> {
        match self.number(key)? {
            Some(value) if refused(value) => {
                bail!(UnsupportedArchitecture, "{} is {value}: {what} is not supported", self.name(key))
            }
            _ => Ok(()),
        }
    }
}
