//! The hyperparameters of a model, read from its metadata and checked against its tensors.
//!
//! Variants that the forward pass does not support are refused here by name: a wrong answer is worse than an error. So a `Config` proves
//! that the file holds everything that the architecture needs, in the right shapes, and nothing else that would change the computation.
//! Knows no GPU; `weights.rs` decides whether kernels support a tensor's type.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    altup_config::{self, AltUp},
    arch::{Arch, FIRST_GATE, LayerPattern, Need, expected_tensors},
    buckets::{Buckets, Distances},
    checkpoint::{Checkpoint, Origin, TensorInfo, TensorValues},
    encoder_part,
    experts_config::{Experts, experts},
    gguf::Metadata,
    keys::{HeadDims, Keys},
    latent_config::{self, Latent, latent},
    layer_config::{self, LayerConfig, MAX_HEADS},
    mtp_part,
    recurrence::Recurrence,
    rope::{Rope, RopeScaling},
    table_on_disk,
    tensor_sizes::{MAX_WIDTH, dense},
};
use crate::error::Result;
use crate::tensor::ops::{Activation, ScaleByPosition};

/// The configuration of a forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture.
    pub arch: &'static Arch,
    /// Number of layers ("num_hidden_layers").
    pub n_layers: usize,
    /// Layers of the file after these, which predict further tokens. They are not read unless `mtp` is there.
    pub further_layers: usize,
    /// The length of the residual stream ("hidden size").
    pub n_embd: usize,
    /// The length of a token's input for each layer, besides its embedding (per-layer embeddings); 0 if there is none.
    pub n_embd_per_layer: usize,
    /// The rows of the table of per-layer embeddings. Tokens from this number on have its first.
    pub per_layer_vocabulary: usize,
    /// If the table stays in the model's files: how many of its rows the device holds.
    pub per_layer_cache_rows: Option<usize>,
    /// The residual streams, if there are several.
    pub altup: Option<AltUp>,
    /// The length between the factors of the learned residual of a layer; 0 if there is none.
    pub laurel_rank: usize,
    /// Of each layer, how many standard deviations above the mean of a token's gates one must be to count; `None`: all count.
    pub activation_sparsity: Vec<Option<f32>>,
    /// Query heads of a layer.
    pub n_heads: usize,
    /// The model's rope, then the rope of layers with a window if it differs. Empty with learned positions.
    pub ropes: Vec<Rope>,
    /// The settings that differ from layer to layer.
    pub layers: Vec<LayerConfig>,
    /// The factor of the scores q·k.
    pub attention_scale: f32,
    /// Scores become softcap · tanh(score / softcap).
    pub attention_softcap: Option<f32>,
    /// The same for logits.
    pub logit_softcap: Option<f32>,
    /// The factor of the embedding.
    pub embedding_scale: f32,
    /// The factors of what is added to the residual stream.
    pub residual_scales: ResidualScales,
    /// The function of the feed-forward's gate, or of its only projection.
    pub activation: Activation,
    /// The factor of the logits.
    pub logit_scale: f32,
    /// Queries, keys and values are held between −limit and limit.
    pub attention_clamp: Option<f32>,
    /// Queries are scaled by their position.
    pub attention_temperature: Option<ScaleByPosition>,
    /// Positions further back count less, by a slope for each head (ALiBi); the number is the largest bias of llama.cpp's files.
    pub alibi: Option<f32>,
    /// Layers run the feed-forward beside the attention, on the layer's input.
    pub is_parallel: bool,
    /// α and limit of the experts' gated unit, if it is that of gpt-oss.
    pub clamped_swiglu: Option<[f32; 2]>,
    /// The mixture of experts of layers that have one; `None` for dense models.
    pub experts: Option<Experts>,
    /// What recurrent layers compute.
    pub recurrence: Option<Recurrence>,
    /// The sizes of attention over latents. Then `head_dim` is the length of a query, and every head has a key of its own.
    pub latent: Option<Latent>,
    /// What norms in layers give is rounded to 8 bits, row by row.
    pub rounds_activations: bool,
    /// ε of all norms.
    pub norm_eps: f32,
    /// The longest context of training, in tokens. A dynamic rope scaling multiplies it by its factor.
    pub context_length: usize,
    /// The length of text for which ropes that depend on it are made; `None`: that of the context.
    pub rope_context: Option<usize>,
    /// Rows of the embedding, which may be more than the tokenizer's tokens.
    pub vocab_size: usize,
    /// The length of the rows of the embedding, which a matrix may bring to `n_embd`.
    pub embedding_width: usize,
    /// What is added to the scores of attention is learned for these distances; `None` if nothing is added by distance.
    pub distances: Option<Distances>,
    /// The encoder whose output the layers attend to besides.
    pub encoder: Option<Box<Config>>,
    /// The head that drafts further tokens, as a model of one layer (`mtp_config.rs`), if it is loaded.
    pub mtp: Option<Box<Config>>,
    /// The token with which the decoder of an encoder-decoder begins.
    pub decoder_start: Option<u32>,
    /// Feed-forwards have gates, if the architecture leaves it open.
    pub is_gated: bool,
    /// Content and distance are compared in attention (DeBERTa), with distances in these buckets.
    pub disentangled: Option<Buckets>,
    /// The number of token types of an encoder; 0 if it has none.
    pub token_types: usize,
    /// Inputs and outputs of each layer after the pooling of an embedding model.
    pub dense: Vec<[usize; 2]>,
    /// The number of labels of the head that scores or labels texts; 0 if there is none.
    pub labels: usize,
    /// The embedding serves as output matrix too.
    pub tie_embeddings: bool,
}

/// The factors of what the parts of a layer add to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualScales {
    /// That of attention.
    pub attention: f32,
    /// That of a recurrent mixer.
    pub recurrent: f32,
    /// That of the feed-forward.
    pub feed_forward: f32,
}

impl ResidualScales {
    /// Whether nothing is scaled.
    pub fn are_one(&self) -> bool {
        [self.attention, self.recurrent, self.feed_forward] == [1.0; 3]
    }
}

const TOKEN_EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// A file beyond these limits is broken rather than large.
const MAX_LAYERS: usize = 4096;
pub(super) const MAX_CONTEXT: usize = 1 << 28;
const MAX_VOCABULARY: usize = 1 << 24;

impl Config {
    /// The configuration of a model, checked against its tensors.
    pub fn of(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        let mut config = Self::from_metadata(&checkpoint.metadata, &checkpoint.tensors)?;
        if let Some(Recurrence::DeltaNet(net)) = &mut config.recurrence {
            net.tiled &= checkpoint.origin == Origin::Gguf;
        }
        Ok(config)
    }

    /// The same of metadata and tensors.
    pub fn from_metadata(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self> {
        if let Some(kind @ ("adapter" | "mmproj" | "imatrix")) = metadata.optional_str("general.type")? {
            bail!(
                UnsupportedArchitecture,
                "the file is of the kind {kind:?} (general.type), wanted a whole model; choose the model's own file"
            );
        }
        Self::of_arch(Arch::find(metadata.str("general.architecture")?)?, metadata, tensors)
    }

    fn of_arch(arch: &'static Arch, metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Self> {
        let (of_encoder, of_decoder) = match arch.encoder {
            Some(_) => encoder_part::divided(tensors),
            None => (Vec::new(), Vec::new()),
        };
        let encoder = arch.encoder.map(|encoder| {
            Self::of_arch(encoder, &encoder_part::metadata(metadata, arch, encoder), &of_encoder).map(Box::new)
        });
        let (encoder, tensors) = (encoder.transpose()?, if arch.encoder.is_some() { &of_decoder } else { tensors });
        let keys = Keys { metadata, arch };
        keys.refuse_unsupported()?;

        let n_layers = keys.layers(MAX_LAYERS)?;
        let n_embd = keys.dim("embedding_length", MAX_WIDTH)?;
        let has_attention = arch.layers != LayerPattern::Recurrent;
        let n_heads = match keys.dim_of_some_layers("attention.head_count", n_layers, MAX_HEADS)? {
            _ if !has_attention => 0,
            Some(n_heads) => n_heads,
            None => return Err(keys.missing("attention.head_count")),
        };
        let latent = latent(&keys, n_embd, n_heads)?;
        let head_dims = match latent {
            Some(latent) => HeadDims::of_all(latent.key()),
            None if has_attention => keys.head_dims(n_embd, n_heads)?,
            None => HeadDims::of_all(0),
        };
        let by_name: BTreeMap<&str, &TensorInfo> = tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let Some(embedding) = by_name.get(TOKEN_EMBEDDING) else {
            bail!(
                MissingTensor,
                "the file has no tensor {TOKEN_EMBEDDING:?}, which {} needs; it holds {} tensors",
                arch.name,
                tensors.len()
            );
        };
        // Taken from the tensor, because tokens are indices into it. The tokenizer is checked against it.
        let rows_of =
            |tensor: &TensorInfo| tensor.dims.get(1).map_or(1, |&rows| usize::try_from(rows).unwrap_or(usize::MAX));
        let vocab_size = rows_of(embedding);
        if vocab_size > MAX_VOCABULARY {
            bail!(InvalidFile, "{TOKEN_EMBEDDING} has {vocab_size} rows, wanted at most {MAX_VOCABULARY}");
        }
        keys.check_vocabulary(vocab_size)?;

        let trained = keys.dim("context_length", MAX_CONTEXT)?;
        let window = keys.dim_or_zero("attention.sliding_window", MAX_CONTEXT)?;
        // Some converters write zero for "no window".
        let window = if window == Some(0) { None } else { window.or(arch.default_window) };
        let ropes = keys.ropes(head_dims, trained, window.is_some(), &|name| by_name.contains_key(name))?;
        let [attention_softcap, logit_softcap] = keys.softcaps()?;
        let [embedding_scale, residual_scale, logit_scale] = keys.scales(n_embd, n_layers)?;
        let layers = layer_config::layers(&keys, n_layers, n_heads, head_dims, window, ropes.len(), &|name| {
            by_name.contains_key(name)
        })?;
        let (attention_in, attention_out) = (keys.multiplier("attention_in")?, keys.multiplier("attention_out")?);
        let scale_of_scores = keys.multiplier("key")? * attention_in * attention_in;
        let [gate, down] = keys.multipliers("feed_forward")?;
        let is_gated = keys.is_gated(by_name.contains_key(FIRST_GATE))?;
        let tie_embeddings = !by_name.contains_key(OUTPUT);
        let config = Self {
            arch,
            n_layers,
            further_layers: keys.further_layers(MAX_LAYERS)?,
            n_embd,
            n_embd_per_layer: layer_config::per_layer_embedding(&keys)?,
            per_layer_vocabulary: by_name.get("per_layer_token_embd.weight").map_or(0, |table| rows_of(table)),
            per_layer_cache_rows: None,
            altup: altup_config::altup(&keys)?,
            laurel_rank: by_name.get("blk.0.laurel_l.weight").map_or(0, |left| rows_of(left)),
            activation_sparsity: altup_config::activation_sparsity(&keys, n_layers)?,
            n_heads,
            attention_scale: match (keys.disentangled(trained)?, &latent) {
                // Three scores are added.
                (Some(_), _) => 1.0 / (3.0 * head_dims.full as f32).sqrt(),
                (None, Some(latent)) => latent_config::attention_scale(&keys, latent)?,
                (None, None) => keys.attention_scale(n_layers, n_embd, n_heads, head_dims.full)? * scale_of_scores,
            },
            attention_softcap,
            logit_softcap,
            embedding_scale,
            // Values are scaled as the inputs of attention are.
            residual_scales: ResidualScales {
                attention: residual_scale * attention_in * attention_out,
                recurrent: residual_scale * keys.multiplier("ssm_out")?,
                feed_forward: residual_scale * down,
            },
            activation: match (keys.named_activation()?, arch.activation) {
                (Some(named), _) => named,
                _ if !is_gated => arch.ungated.unwrap_or_default(),
                (None, Activation::Silu) if gate != 1.0 => Activation::ScaledSilu(gate),
                (None, activation) => activation,
            },
            logit_scale: logit_scale
                * if keys.scales_tied_logits(tie_embeddings)? { 1.0 / (n_embd as f32).sqrt() } else { 1.0 },
            attention_clamp: keys.positive_or_none("attention.clamp_kqv")?,
            attention_temperature: keys.attention_temperature()?,
            alibi: keys.positive_or_none("attention.max_alibi_bias")?.or(arch.default_alibi),
            is_parallel: keys.is_parallel()?,
            clamped_swiglu: keys.clamped_swiglu()?,
            experts: experts(&keys, layers[0].n_ff, &by_name)?,
            recurrence: Recurrence::read(&keys)?,
            latent,
            rounds_activations: keys.rounds_activations()?,
            norm_eps: keys.norm_epsilon()?,
            context_length: match ropes.first().map(|rope| &rope.scaling) {
                // The stretched context.
                Some(RopeScaling::Dynamic { factor, original }) => trained.max((*original as f32 * factor) as usize),
                _ => trained,
            },
            ropes,
            rope_context: None,
            vocab_size,
            embedding_width: match by_name.get("token_embd_proj.weight") {
                Some(projection) => projection.dims.first().map_or(0, |&n| usize::try_from(n).unwrap_or(usize::MAX)),
                None => n_embd,
            },
            distances: match by_name.get("attn_rel_b.weight") {
                Some(table) => Some(keys.distances(rows_of(table))?),
                None => None,
            },
            encoder,
            mtp: None,
            decoder_start: keys.decoder_start(vocab_size)?,
            is_gated,
            disentangled: keys.disentangled(trained)?,
            token_types: by_name.get("token_types.weight").map_or(0, |types| rows_of(types)),
            dense: dense(n_embd, &by_name)?,
            labels: by_name.get("cls.output.weight").map_or(0, |output| rows_of(output)),
            layers,
            tie_embeddings,
        };
        if config.per_layer_vocabulary > config.vocab_size {
            bail!(
                ShapeMismatch,
                "per_layer_token_embd.weight has {} rows and the embedding {}, wanted at most as many",
                config.per_layer_vocabulary,
                config.vocab_size
            );
        }
        config.check_latents()?;
        config.check_tensors(tensors, &by_name)?;
        Ok(config)
    }

    /// How many f32 each state of a recurrent layer has, of one layer after the other.
    pub fn recurrent_state_lens(&self) -> impl Iterator<Item = usize> {
        let lens = self.recurrence.map(|recurrence| recurrence.state_lens()).unwrap_or_default();
        let layers = self.layers.iter().filter(|layer| layer.recurrent.is_some()).count();
        (0..layers).flat_map(move |_| lens.clone())
    }

    /// The layers that keep something of each position, in the order of `LayerConfig::attention`.
    pub fn layers_with_cache(&self) -> impl Iterator<Item = &LayerConfig> {
        self.layers.iter().filter(|layer| layer.attention.is_some() && !layer.reuses_kv)
    }

    /// Those that keep keys and values.
    pub fn layers_with_kv(&self) -> impl Iterator<Item = &LayerConfig> {
        self.layers_with_cache().filter(|_| self.latent.is_none())
    }

    /// Those that keep latents.
    pub fn layers_with_latents(&self) -> impl Iterator<Item = &LayerConfig> {
        self.layers_with_cache().filter(|_| self.latent.is_some())
    }

    /// The length of all queries of a token.
    pub fn q_dim(&self, layer: usize) -> usize {
        self.n_heads * self.layers[layer].head_dim
    }

    /// The length of an embedding.
    pub fn embedding_length(&self) -> usize {
        self.dense.last().map_or(self.n_embd, |[_, outputs]| *outputs)
    }

    /// The same, but the table of per-layer embeddings stays in the files, and the device holds `rows` of its rows. `None` stands for the usual number.
    pub fn with_row_cache(self, checkpoint: &Checkpoint<'_>, rows: Option<usize>) -> Result<Self> {
        if self.n_embd_per_layer == 0 {
            bail!(InvalidRequest, "perLayerEmbeddings: the model ({}) has none; leave the option out", self.arch.name);
        }
        let stored = table_on_disk::stored(checkpoint)?;
        let rows = rows.unwrap_or_else(|| table_on_disk::rows_of_cache(stored.vocabulary, stored.columns));
        Ok(Self { per_layer_cache_rows: Some(rows.clamp(1, stored.vocabulary)), ..self })
    }

    /// Bytes of a checkpoint that stay in its files.
    pub fn bytes_on_disk(&self, checkpoint: &Checkpoint<'_>) -> Result<u64> {
        if self.per_layer_cache_rows.is_none() {
            return Ok(0);
        }
        Ok(table_on_disk::stored(checkpoint)?.bytes())
    }

    /// Whether the forward pass reads this tensor of the file as a whole.
    pub fn uses(&self, tensor: &str) -> bool {
        let unused = || {
            let (layer, rest) = tensor.strip_prefix("blk.")?.split_once('.')?;
            let layer = self.layers.get(layer.parse::<usize>().ok()?)?;
            // Files hold these although nothing reads them.
            Some(layer.reuses_kv && layer.lacks(rest.split('.').next().unwrap_or(rest)))
        };
        let is_of_head = tensor.starts_with(mtp_part::PREFIX);
        let is_on_disk = self.per_layer_cache_rows.is_some() && tensor == table_on_disk::TABLE;
        (self.mtp.is_some() || !is_of_head) && !is_on_disk && !self.arch.ignores(tensor) && unused() != Some(true)
    }

    /// Refuses ropes that give no frequencies, as far as that can be told before factors are read from the files.
    pub fn check_ropes(&self, checkpoint: &Checkpoint<'_>, capacity: usize) -> Result<()> {
        let ones = vec![1.0; self.ropes.iter().map(|rope| rope.dim).max().unwrap_or(0)];
        let factors = |name: &str| {
            Ok(match checkpoint.tensor(name).map(|tensor| &tensor.values) {
                Some(TensorValues::Computed(values)) => values.as_slice(),
                _ => ones.as_slice(),
            })
        };
        for rope in &self.ropes {
            rope.table(capacity, factors)?;
        }
        Ok(())
    }

    /// Refuses what attention over latents does not compute.
    fn check_latents(&self) -> Result<()> {
        if self.latent.is_none() {
            return Ok(());
        }
        let switched_on = [
            ("layers without rope", self.layers.iter().any(|layer| layer.rope != Some(0))),
            ("a soft cap of attention", self.attention_softcap.is_some()),
            ("a clamp of attention", self.attention_clamp.is_some()),
            ("queries that are scaled by their position", self.attention_temperature.is_some()),
            ("ALiBi", self.alibi.is_some()),
        ];
        match switched_on.iter().find(|(_, is_on)| *is_on) {
            Some((what, _)) => bail!(
                UnsupportedArchitecture,
                "{} with {what}: not supported together with attention over latents",
                self.arch.name
            ),
            None => Ok(()),
        }
    }

    pub(super) fn check_tensors(&self, tensors: &[TensorInfo], by_name: &BTreeMap<&str, &TensorInfo>) -> Result<()> {
        let expected = expected_tensors(self);
        for wanted in &expected {
            let found = by_name.get(wanted.name.as_str());
            if let Some(found) = found.filter(|found| found.dims != wanted.dims) {
                bail!(
                    ShapeMismatch,
                    "the tensor {:?} has the dimensions {:?}, wanted {:?} by the metadata",
                    wanted.name,
                    found.dims,
                    wanted.dims
                );
            }
            let is_needed = match wanted.need {
                Need::Required => true,
                Need::Optional => false,
                Need::Unless(other) => !by_name.contains_key(wanted.beside(other).as_str()),
                Need::Beside(other) => by_name.contains_key(wanted.beside(other).as_str()),
            };
            if is_needed && found.is_none() {
                bail!(
                    MissingTensor,
                    "the file has no tensor {:?} of dimensions {:?}, which {} of {} layers needs",
                    wanted.name,
                    wanted.dims,
                    self.arch.name,
                    self.n_layers
                );
            }
            if let (Need::Beside(other), false, Some(_)) = (wanted.need, is_needed, found) {
                bail!(MissingTensor, "the file has {:?} and no {:?}", wanted.name, wanted.beside(other));
            }
            if let (Need::Unless(other), false, Some(_)) = (wanted.need, is_needed, found) {
                bail!(
                    InvalidFile,
                    "the file has both {:?} and {:?}, which holds it",
                    wanted.name,
                    wanted.beside(other)
                );
            }
        }
        // A tensor that nothing reads (a bias, a norm of queries) would be ignored silently.
        let known: BTreeSet<&str> = expected.iter().map(|tensor| tensor.name.as_str()).collect();
        match tensors.iter().find(|t| !known.contains(t.name.as_str()) && self.uses(&t.name)) {
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
