//! The hyperparameters of a model, read from its metadata and held against its tensors.
//!
//! A variant that the forward pass does not compute is refused by name here: a wrong answer is worse than an error. So
//! a `Config` is proof that the file holds what the architecture needs, in the right shapes, and nothing that changes
//! the computation besides. Knows no GPU; whether a kernel takes a tensor's type is decided where weights are loaded.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    arch::{Arch, RopeKind, expected_tensors},
    checkpoint::{Checkpoint, TensorInfo},
    gguf::{Metadata, Value},
};
use crate::error::Result;

/// What the forward pass needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub arch: &'static Arch,
    pub n_layers: usize,
    /// The length of the residual stream ("hidden size").
    pub n_embd: usize,
    pub n_ff: usize,
    pub n_heads: usize,
    /// Divides `n_heads`; each is shared by `n_heads / n_kv_heads` query heads (GQA).
    pub n_kv_heads: usize,
    /// The length of a head's query, key and value. `n_heads * head_dim` may differ from `n_embd`.
    pub head_dim: usize,
    /// How many elements of a head are turned by rope.
    pub rope_dim: usize,
    pub rope: RopeKind,
    pub rope_theta: f32,
    /// The tensor of factors that divide rope's frequencies (Llama 3.1 and later), one for each pair.
    pub rope_factors: Option<String>,
    pub rms_eps: f32,
    /// How many tokens the model was trained for.
    pub context_length: usize,
    pub vocab_size: usize,
    /// The embedding serves as output matrix too.
    pub tie_embeddings: bool,
}

const TOKEN_EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Beyond these a file is broken rather than large.
const MAX_LAYERS: usize = 4096;
const MAX_WIDTH: usize = 1 << 20;
const MAX_HEADS: usize = 4096;
const MAX_HEAD_DIM: usize = 4096;
const MAX_CONTEXT: usize = 1 << 28;
const MAX_VOCABULARY: usize = 1 << 24;

impl Config {
    /// The configuration of a model, checked against its tensors.
    pub fn of(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        let config = Self::from_metadata(&checkpoint.metadata, &checkpoint.tensors)?;
        Ok(Self { rope: config.arch.rope_in(checkpoint.origin), ..config })
    }

    /// The same of a GGUF file's metadata: rope turns what it does in such files.
    pub fn from_metadata(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self> {
        if let Some(kind @ ("adapter" | "mmproj" | "imatrix")) = metadata.optional_str("general.type")? {
            bail!(
                UnsupportedArchitecture,
                "the file is of the kind {kind:?} (general.type), wanted a whole model; choose the model's own file"
            );
        }
        let arch = Arch::find(metadata.str("general.architecture")?)?;
        let keys = Keys { metadata, arch: arch.name };
        keys.refuse_unsupported()?;

        let n_layers = keys.dim("block_count", MAX_LAYERS)?;
        let n_embd = keys.dim("embedding_length", MAX_WIDTH)?;
        let n_ff = keys.dim_of_all_layers("feed_forward_length", n_layers, MAX_WIDTH)?;
        let n_ff = n_ff.ok_or_else(|| keys.missing("feed_forward_length"))?;
        let n_heads = keys.dim_of_all_layers("attention.head_count", n_layers, MAX_HEADS)?;
        let n_heads = n_heads.ok_or_else(|| keys.missing("attention.head_count"))?;
        let n_kv_heads = keys.dim_of_all_layers("attention.head_count_kv", n_layers, MAX_HEADS)?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            bail!(
                InvalidMetadata,
                "{} is {n_heads} and {} is {n_kv_heads}, wanted a multiple of it",
                keys.name("attention.head_count"),
                keys.name("attention.head_count_kv")
            );
        }
        let head_dim = keys.head_dim(n_embd, n_heads)?;
        let rope_dim = keys.optional_dim("rope.dimension_count", MAX_HEAD_DIM)?.unwrap_or(head_dim);
        if rope_dim != head_dim {
            bail!(
                UnsupportedArchitecture,
                "{} is {rope_dim} and a head has {head_dim} elements; rope on a part of a head is not supported",
                keys.name("rope.dimension_count")
            );
        }

        let by_name: BTreeMap<&str, &TensorInfo> = tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let Some(embedding) = by_name.get(TOKEN_EMBEDDING) else {
            bail!(
                MissingTensor,
                "the file has no tensor {TOKEN_EMBEDDING:?}, which {} needs; it holds {} tensors",
                arch.name,
                tensors.len()
            );
        };
        // Taken from the tensor, since that is what tokens index; the tokenizer is held against it.
        let vocab_size = embedding.dims.get(1).map_or(1, |&rows| usize::try_from(rows).unwrap_or(usize::MAX));
        if vocab_size > MAX_VOCABULARY {
            bail!(InvalidFile, "{TOKEN_EMBEDDING} has {vocab_size} rows, wanted at most {MAX_VOCABULARY}");
        }
        keys.check_vocabulary(vocab_size)?;

        let config = Self {
            arch,
            n_layers,
            n_embd,
            n_ff,
            n_heads,
            n_kv_heads,
            head_dim,
            rope_dim,
            rope: arch.rope,
            rope_theta: keys.positive("rope.freq_base")?.unwrap_or(10000.0),
            rope_factors: by_name.contains_key(ROPE_FACTORS).then(|| ROPE_FACTORS.to_owned()),
            rms_eps: keys
                .positive("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| keys.missing("attention.layer_norm_rms_epsilon"))?,
            context_length: keys.dim("context_length", MAX_CONTEXT)?,
            vocab_size,
            tie_embeddings: !by_name.contains_key(OUTPUT),
        };
        config.check_tensors(tensors, &by_name)?;
        Ok(config)
    }

    /// What scores q·k are multiplied with.
    pub fn attention_scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Whether the forward pass reads this tensor of the file.
    pub fn uses(&self, tensor: &str) -> bool {
        !self.arch.ignores(tensor)
    }

    fn check_tensors(&self, tensors: &[TensorInfo], by_name: &BTreeMap<&str, &TensorInfo>) -> Result<()> {
        let expected = expected_tensors(self);
        for wanted in &expected {
            match by_name.get(wanted.name.as_str()) {
                Some(found) if found.dims != wanted.dims => bail!(
                    ShapeMismatch,
                    "the tensor {:?} has the dimensions {:?}, wanted {:?} by the metadata",
                    wanted.name,
                    found.dims,
                    wanted.dims
                ),
                None if !wanted.optional => bail!(
                    MissingTensor,
                    "the file has no tensor {:?} of dimensions {:?}, which {} of {} layers needs",
                    wanted.name,
                    wanted.dims,
                    self.arch.name,
                    self.n_layers
                ),
                _ => {}
            }
        }
        // A tensor that nothing reads (a bias, a norm of queries) would silently change nothing.
        let known: BTreeSet<&str> = expected.iter().map(|tensor| tensor.name.as_str()).collect();
        match tensors.iter().find(|t| !known.contains(t.name.as_str()) && !self.arch.ignores(&t.name)) {
            None => Ok(()),
            Some(tensor) => bail!(
                UnsupportedArchitecture,
                "the file has a tensor {:?} of dimensions {:?}, which {} as supported here does not use; it is a \
                 variant that is not supported",
                tensor.name,
                tensor.dims,
                self.arch.name
            ),
        }
    }
}

/// The metadata keys of one architecture: `block_count` is `llama.block_count`.
struct Keys<'m> {
    metadata: &'m Metadata,
    arch: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    fn missing(&self, key: &str) -> crate::error::Error {
        err!(InvalidMetadata, "the metadata has no key {:?}, which {} needs", self.name(key), self.arch)
    }

    fn in_range(&self, key: &str, value: u32, max: usize) -> Result<usize> {
        let value = value as usize;
        if value == 0 || value > max {
            bail!(InvalidMetadata, "{} is {value}, wanted 1 to {max}", self.name(key));
        }
        Ok(value)
    }

    fn dim(&self, key: &str, max: usize) -> Result<usize> {
        self.optional_dim(key, max)?.ok_or_else(|| self.missing(key))
    }

    fn optional_dim(&self, key: &str, max: usize) -> Result<Option<usize>> {
        self.metadata.optional_u32(&self.name(key))?.map(|value| self.in_range(key, value, max)).transpose()
    }

    fn dim_of_all_layers(&self, key: &str, n_layers: usize, max: usize) -> Result<Option<usize>> {
        let value = self.metadata.optional_u32_of_all_layers(&self.name(key), n_layers as u32)?;
        value.map(|value| self.in_range(key, value, max)).transpose()
    }

    /// A number above zero.
    fn positive(&self, key: &str) -> Result<Option<f32>> {
        let value = self.metadata.optional_f32(&self.name(key))?;
        match value {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                bail!(InvalidMetadata, "{} is {value}, wanted a number above 0", self.name(key))
            }
            value => Ok(value),
        }
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

    fn check_vocabulary(&self, vocab_size: usize) -> Result<()> {
        let tokens = self.metadata.optional_array("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
        let (what, count) = match (tokens, self.metadata.optional_u32(&self.name("vocab_size"))?) {
            (Some(tokens), _) => ("the tokenizer has", tokens),
            (None, Some(size)) => ("the metadata has", size as usize),
            (None, None) => return Ok(()),
        };
        if count != vocab_size {
            bail!(
                ShapeMismatch,
                "{what} {count} tokens and the tensor {TOKEN_EMBEDDING} {vocab_size} rows, wanted equal"
            );
        }
        Ok(())
    }

    /// Refuses what changes the computation and is not computed.
    fn refuse_unsupported(&self) -> Result<()> {
        let rope_scaling = self.name("rope.scaling.type");
        if let Some(kind) =
            self.metadata.optional_str(&rope_scaling)?.filter(|&kind| kind != "none" && kind != "linear")
        {
            bail!(UnsupportedArchitecture, "{rope_scaling} is {kind:?}; of rope scalings only \"none\" is supported");
        }
        // A factor without a kind is linear scaling. One is no scaling; zero is how llama.cpp writes "not set".
        let scaled = self.metadata.optional_str(&rope_scaling)? != Some("none");
        for key in ["rope.scaling.factor", "rope.scale_linear"] {
            self.refuse_number(key, "linear rope scaling", |v| scaled && v != 0.0 && v != 1.0)?;
        }
        self.refuse_number("rope.scaling.attn_factor", "scaled attention", |v| v != 1.0)?;
        self.refuse_number("expert_count", "a mixture of experts", |v| v != 0.0)?;
        self.refuse_number("attention.sliding_window", "attention in a sliding window", |v| v != 0.0)?;
        self.refuse_number("attention.max_alibi_bias", "ALiBi", |v| v != 0.0)?;
        self.refuse_number("attention.clamp_kqv", "clamped queries, keys and values", |v| v != 0.0)?;
        self.refuse_number("attention.scale", "attention of another scale", |v| v != 0.0)?;
        self.refuse_number("attn_logit_softcapping", "soft-capped attention", |v| v != 0.0)?;
        self.refuse_number("final_logit_softcapping", "soft-capped logits", |v| v != 0.0)?;
        self.refuse_number("logit_scale", "scaled logits", |v| v != 0.0 && v != 1.0)?;
        self.refuse_number("residual_scale", "scaled residuals", |v| v != 0.0 && v != 1.0)?;
        self.refuse_number("embedding_scale", "scaled embeddings", |v| v != 0.0 && v != 1.0)?;
        for (key, refused, what) in [
            ("attention.causal", false, "attention that looks ahead"),
            ("use_parallel_residual", true, "parallel residuals"),
        ] {
            let name = self.name(key);
            if self.metadata.optional_bool(&name)? == Some(refused) {
                bail!(UnsupportedArchitecture, "{name} is {refused}: {what} is not supported");
            }
        }
        Ok(())
    }

    /// Refuses a number (an integer or a float, writers differ) that switches something on.
    fn refuse_number(&self, key: &str, what: &str, refused: impl Fn(f64) -> bool) -> Result<()> {
        let name = self.name(key);
        let value = match self.metadata.get(&name) {
            None => return Ok(()),
            Some(Value::F32(_) | Value::F64(_)) => f64::from(self.metadata.f32(&name)?),
            Some(_) => self.metadata.i64(&name)? as f64,
        };
        if refused(value) {
            bail!(UnsupportedArchitecture, "{name} is {value}: {what} is not supported");
        }
        Ok(())
    }
}
