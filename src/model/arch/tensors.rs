//! Which tensors an architecture has: their types, and the tables that architectures share. Names are those of llama.cpp's files (gguf-py's
//! `constants.py`).

use super::super::config::Config;
use super::super::layer_config::LayerConfig;
use super::super::recurrence::Recurrence;
use Dim::{
    Buckets, Context, ConvChannels, ConvTaps, DistanceRows, Embedding, EmbeddingWidth, ExpertFeedForward, Experts,
    FeedForward, HeadSize, Heads, KeyValue, KeyValueHeads, Labels, One, Query, QueryKeyValue, RecurrentHeads,
    RecurrentInputs, RecurrentNorm, RecurrentWidth, RopePairs, SharedFeedForward, SourceEmbedding, StateSize, TimeRank,
    TimeRankAndStates, TokenTypes, TwiceExpertFeedForward, TwiceFeedForward, Vocabulary,
};
use Need::{Beside, Optional, Required, Unless};

/// The number of the first layer after a pooling, as llama.cpp counts the steps of a model.
pub(in crate::model) const FIRST_DENSE: usize = 2;

/// A tensor that the architecture has.
#[derive(Debug, PartialEq)]
pub struct TensorSpec {
    /// `{}` is the layer's number.
    pub name: &'static str,
    /// In the order of the file: the first is the length of a row.
    pub dims: &'static [Dim],
    pub need: Need,
}

/// Whether a model must have a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it the model is refused.
    Required,
    /// The model may lack it.
    Optional,
    /// Required unless the file has this other tensor, which contains it.
    Unless(&'static str),
    /// Required if the file has this other tensor, and refused if not.
    Beside(&'static str),
}

/// A dimension of a tensor, as the configuration of the model gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// n_embd
    Embedding,
    /// n_embd of the encoder
    SourceEmbedding,
    /// embedding_width
    EmbeddingWidth,
    /// The buckets of distances.
    Buckets,
    /// The buckets of distances to either side.
    DistanceRows,
    /// n_ff
    FeedForward,
    /// 2 × n_ff: gate, then up
    TwiceFeedForward,
    /// n_heads × head_dim
    Query,
    /// n_kv_heads × head_dim
    KeyValue,
    /// (n_heads + 2 × n_kv_heads) × head_dim: queries, then keys, then values
    QueryKeyValue,
    /// head_dim
    HeadSize,
    /// n_heads
    Heads,
    /// n_kv_heads
    KeyValueHeads,
    /// vocab_size
    Vocabulary,
    /// context_length
    Context,
    /// The number of token types of an encoder.
    TokenTypes,
    /// rope_dim / 2: one for each pair that is rotated together
    RopePairs,
    /// The number of labels of a head.
    Labels,
    /// The number of experts.
    Experts,
    /// The n_ff of an expert.
    ExpertFeedForward,
    /// 2 × the n_ff of an expert: gate and up
    TwiceExpertFeedForward,
    /// The n_ff of the expert that every token uses.
    SharedFeedForward,
    /// A token's input for a layer, besides its embedding.
    PerLayer,
    /// Those for all layers.
    PerLayers,
    /// What the convolution of a recurrent layer sees of a token.
    ConvChannels,
    /// The tokens that it sees.
    ConvTaps,
    /// What a recurrent layer gives to its output matrix.
    RecurrentWidth,
    /// The rows of the matrix that reads its tokens, where it is one.
    RecurrentInputs,
    /// Its heads with rates of their own.
    RecurrentHeads,
    /// The length of its norm.
    RecurrentNorm,
    /// The numbers of a channel's state.
    StateSize,
    /// The length of the short form of a Mamba mixer's steps.
    TimeRank,
    /// That, and B and C.
    TimeRankAndStates,
    /// The rows of their table.
    PerLayerVocabulary,
    /// Residual streams.
    Streams,
    /// The square of their number.
    StreamsSquared,
    /// Between the factors of a learned residual.
    LaurelRank,
    /// The length of a latent.
    LatentRank,
    /// A latent, and the part of the key for rope.
    LatentRow,
    /// The part of a head's key that follows from the latent.
    LatentKey,
    /// A head's value.
    LatentValue,
    /// The values of all heads.
    LatentValues,
    /// The numbers by way of which queries are made.
    QueryRank,
    One,
}

impl Dim {
    /// The dimension in a layer; a tensor outside of the layers has none that layers differ in.
    fn of(self, config: &Config, layer: &LayerConfig) -> u64 {
        let (q, kv) = (config.n_heads * layer.head_dim, layer.kv_dim());
        let recurrence = |of: fn(&Recurrence) -> usize| config.recurrence.as_ref().map_or(0, of);
        let dim = match self {
            Self::Embedding => config.n_embd,
            Self::SourceEmbedding => config.encoder.as_ref().map_or(0, |encoder| encoder.n_embd),
            Self::EmbeddingWidth => config.embedding_width,
            Self::Buckets => config.distances.map_or(0, |distances| distances.buckets),
            Self::DistanceRows => config.disentangled.map_or(0, |buckets| 2 * buckets.count),
            Self::FeedForward => layer.n_ff,
            Self::TwiceFeedForward => 2 * layer.n_ff,
            Self::Query => q,
            Self::KeyValue => kv,
            Self::QueryKeyValue => q + 2 * kv,
            Self::HeadSize => layer.head_dim,
            Self::Heads => config.n_heads,
            Self::KeyValueHeads => layer.n_kv_heads,
            Self::Vocabulary => config.vocab_size,
            Self::Context => config.context_length,
            Self::TokenTypes => config.token_types,
            Self::RopePairs => config.ropes.first().map_or(0, |rope| rope.dim / 2),
            Self::Labels => config.labels,
            Self::Experts => config.experts.as_ref().map_or(0, |experts| experts.count),
            Self::ExpertFeedForward => config.experts.as_ref().map_or(0, |experts| experts.n_ff),
            Self::TwiceExpertFeedForward => config.experts.as_ref().map_or(0, |experts| 2 * experts.n_ff),
            Self::SharedFeedForward => config.experts.as_ref().map_or(0, |experts| experts.shared_n_ff),
            Self::PerLayer => config.n_embd_per_layer,
            Self::PerLayerVocabulary => config.per_layer_vocabulary,
            Self::Streams => config.altup.map_or(0, |altup| altup.streams),
            Self::StreamsSquared => config.altup.map_or(0, |altup| altup.streams.pow(2)),
            Self::LaurelRank => config.laurel_rank,
            Self::PerLayers => config.n_layers * config.n_embd_per_layer,
            Self::ConvChannels => recurrence(Recurrence::channels),
            Self::ConvTaps => recurrence(Recurrence::taps),
            Self::RecurrentWidth => recurrence(Recurrence::width),
            Self::RecurrentInputs => recurrence(Recurrence::inputs),
            Self::RecurrentHeads => recurrence(Recurrence::heads),
            Self::RecurrentNorm => recurrence(Recurrence::norm_len),
            Self::StateSize => recurrence(Recurrence::state),
            Self::TimeRank => recurrence(Recurrence::rank),
            Self::TimeRankAndStates => recurrence(|recurrence| recurrence.rank() + 2 * recurrence.state()),
            Self::LatentRank => config.latent.map_or(0, |latent| latent.rank),
            Self::LatentRow => config.latent.map_or(0, |latent| latent.rank + latent.turned),
            Self::LatentKey => config.latent.map_or(0, |latent| latent.plain),
            Self::LatentValue => config.latent.map_or(0, |latent| latent.value),
            Self::LatentValues => config.latent.map_or(0, |latent| config.n_heads * latent.value),
            Self::QueryRank => config.latent.and_then(|latent| latent.query_rank).unwrap_or(0),
            Self::One => 1,
        };
        dim as u64
    }
}

pub(super) const fn required(name: &'static str, dims: &'static [Dim]) -> TensorSpec {
    TensorSpec { name, dims, need: Required }
}

pub(super) const fn optional(name: &'static str, dims: &'static [Dim]) -> TensorSpec {
    TensorSpec { name, dims, need: Optional }
}

pub(super) const fn beside(other: &'static str, name: &'static str, dims: &'static [Dim]) -> TensorSpec {
    TensorSpec { name, dims, need: Beside(other) }
}

pub(super) const fn unless(other: &'static str, name: &'static str, dims: &'static [Dim]) -> TensorSpec {
    TensorSpec { name, dims, need: Unless(other) }
}

pub(super) const MODEL: &[TensorSpec] = &[
    required("token_embd.weight", &[Embedding, Vocabulary]),
    required("output_norm.weight", &[Embedding]),
    // Without it, the embedding is the output matrix.
    optional("output.weight", &[Embedding, Vocabulary]),
];

/// The tensors of an encoder, which has no head.
pub(super) const ENCODER_MODEL: &[TensorSpec] = &[
    required("token_embd.weight", &[EmbeddingWidth, Vocabulary]),
    optional("token_types.weight", &[EmbeddingWidth, TokenTypes]),
    required("token_embd_norm.weight", &[EmbeddingWidth]),
    required("token_embd_norm.bias", &[EmbeddingWidth]),
    // From the length of the embedding's rows to that of the residual stream.
    optional("token_embd_proj.weight", &[EmbeddingWidth, Embedding]),
    optional("token_embd_proj.bias", &[Embedding]),
];

/// Without it, the embedding is the output matrix.
pub(super) const OUTPUT: &[TensorSpec] = &[optional("output.weight", &[Embedding, Vocabulary])];

/// The embedding alone.
pub(super) const TOKENS: &[TensorSpec] = &[required("token_embd.weight", &[Embedding, Vocabulary])];

pub(super) const FINAL_NORM: &[TensorSpec] = &[required("output_norm.weight", &[Embedding])];

/// A norm of the embedding without a bias.
pub(super) const UNBIASED_EMBEDDING_NORM: &[TensorSpec] = &[required("token_embd_norm.weight", &[Embedding])];

/// Norms before attention, which the first layer may lack, and before the feed-forward.
pub(super) const OPTIONAL_NORM_OF_ATTENTION: &[TensorSpec] =
    &[optional("blk.{}.attn_norm.weight", &[Embedding]), required("blk.{}.ffn_norm.weight", &[Embedding])];

/// The embedding of distances, and its norm.
pub(super) const RELATIVE_EMBEDDING: &[TensorSpec] = &[
    required("rel_embd.weight", &[Embedding, DistanceRows]),
    required("rel_embd_norm.weight", &[Embedding]),
    required("rel_embd_norm.bias", &[Embedding]),
];

/// What the distance of two tokens adds to their score, by buckets of distances, for each head.
pub(super) const DISTANCES: &[TensorSpec] = &[required("attn_rel_b.weight", &[Heads, Buckets])];

/// The norms after attention and feed-forward of an encoder.
pub(super) const ENCODER_NORMS: &[TensorSpec] = &[
    required("blk.{}.attn_output_norm.weight", &[Embedding]),
    required("blk.{}.layer_output_norm.weight", &[Embedding]),
];

pub(super) const ENCODER_NORM_BIASES: &[TensorSpec] =
    &[required("blk.{}.attn_output_norm.bias", &[Embedding]), required("blk.{}.layer_output_norm.bias", &[Embedding])];

pub(super) const MODEL_NORM_BIAS: &[TensorSpec] = &[required("output_norm.bias", &[Embedding])];

pub(super) const POSITIONS: &[TensorSpec] = &[required("position_embd.weight", &[EmbeddingWidth, Context])];

/// The frequency of each pair is divided by its factor: one table (Llama 3.1 and later), or two for short and long contexts (longrope).
pub(super) const ROPE_FACTORS: &[TensorSpec] = &[
    optional("rope_freqs.weight", &[RopePairs]),
    optional("rope_factors_long.weight", &[RopePairs]),
    optional("rope_factors_short.weight", &[RopePairs]),
];

pub(super) const NORMS: &[TensorSpec] =
    &[required("blk.{}.attn_norm.weight", &[Embedding]), required("blk.{}.ffn_norm.weight", &[Embedding])];

pub(super) const NORM_BIASES: &[TensorSpec] =
    &[required("blk.{}.attn_norm.bias", &[Embedding]), required("blk.{}.ffn_norm.bias", &[Embedding])];

pub(super) const NORM_OF_ATTENTION: &[TensorSpec] =
    &[required("blk.{}.attn_norm.weight", &[Embedding]), required("blk.{}.attn_norm.bias", &[Embedding])];

/// The norm before attention, if it has no bias and there is no norm before the feed-forward.
pub(super) const ATTENTION_NORM: &[TensorSpec] = &[required("blk.{}.attn_norm.weight", &[Embedding])];

pub(super) const OPTIONAL_NORM_OF_FEED_FORWARD: &[TensorSpec] =
    &[optional("blk.{}.ffn_norm.weight", &[Embedding]), optional("blk.{}.ffn_norm.bias", &[Embedding])];

/// Norms of the outputs of attention and feed-forward, before these are added to the residual stream.
pub(super) const POST_NORMS: &[TensorSpec] = &[
    required("blk.{}.post_attention_norm.weight", &[Embedding]),
    required("blk.{}.post_ffw_norm.weight", &[Embedding]),
];

/// A norm of attention's result before its product.
pub(super) const SUB_NORM_OF_ATTENTION: &[TensorSpec] = &[required("blk.{}.attn_sub_norm.weight", &[Query])];

/// A norm of the feed-forward's inner vector.
pub(super) const SUB_NORM_OF_FEED_FORWARD: &[TensorSpec] = &[required("blk.{}.ffn_sub_norm.weight", &[FeedForward])];

const QKV: &str = "blk.{}.attn_qkv.weight";
const QKV_BIAS: &str = "blk.{}.attn_qkv.bias";

/// Queries, keys and values in one matrix or in three, with or without biases.
pub(super) const ATTENTION: &[TensorSpec] = &[
    optional(QKV, &[Embedding, QueryKeyValue]),
    optional(QKV_BIAS, &[QueryKeyValue]),
    unless(QKV, "blk.{}.attn_q.weight", &[Embedding, Query]),
    optional("blk.{}.attn_q.bias", &[Query]),
    unless(QKV, "blk.{}.attn_k.weight", &[Embedding, KeyValue]),
    optional("blk.{}.attn_k.bias", &[KeyValue]),
    unless(QKV, "blk.{}.attn_v.weight", &[Embedding, KeyValue]),
    optional("blk.{}.attn_v.bias", &[KeyValue]),
    required("blk.{}.attn_output.weight", &[Query, Embedding]),
    optional("blk.{}.attn_output.bias", &[Embedding]),
];

/// The same, with required biases on queries, keys and values.
pub(super) const ATTENTION_WITH_BIASES: &[TensorSpec] = &[
    optional(QKV, &[Embedding, QueryKeyValue]),
    optional(QKV_BIAS, &[QueryKeyValue]),
    unless(QKV, "blk.{}.attn_q.weight", &[Embedding, Query]),
    unless(QKV_BIAS, "blk.{}.attn_q.bias", &[Query]),
    unless(QKV, "blk.{}.attn_k.weight", &[Embedding, KeyValue]),
    unless(QKV_BIAS, "blk.{}.attn_k.bias", &[KeyValue]),
    unless(QKV, "blk.{}.attn_v.weight", &[Embedding, KeyValue]),
    unless(QKV_BIAS, "blk.{}.attn_v.bias", &[KeyValue]),
    required("blk.{}.attn_output.weight", &[Query, Embedding]),
    optional("blk.{}.attn_output.bias", &[Embedding]),
];

/// One norm for all heads of the queries, and one for all heads of the keys.
pub(super) const HEAD_NORMS: &[TensorSpec] =
    &[required("blk.{}.attn_q_norm.weight", &[HeadSize]), required("blk.{}.attn_k_norm.weight", &[HeadSize])];

/// The same, which a model may lack.
pub(super) const OPTIONAL_HEAD_NORMS: &[TensorSpec] =
    &[optional("blk.{}.attn_q_norm.weight", &[HeadSize]), optional("blk.{}.attn_k_norm.weight", &[HeadSize])];

/// Norms over all heads of the queries together, and over those of the keys.
pub(super) const QUERY_KEY_NORMS: &[TensorSpec] =
    &[required("blk.{}.attn_q_norm.weight", &[Query]), required("blk.{}.attn_k_norm.weight", &[KeyValue])];

/// A norm for each head.
pub(super) const NORMS_OF_EACH_HEAD: &[TensorSpec] = &[
    optional("blk.{}.attn_q_norm.weight", &[HeadSize, Heads]),
    optional("blk.{}.attn_k_norm.weight", &[HeadSize, KeyValueHeads]),
];

/// The norm before the attention of a decoder to the output of its encoder.
pub(super) const CROSS_NORM: &[TensorSpec] = &[required("blk.{}.cross_attn_norm.weight", &[Embedding])];

pub(super) const CROSS_NORM_BIAS: &[TensorSpec] = &[required("blk.{}.cross_attn_norm.bias", &[Embedding])];

/// The norm of the residual stream after that.
pub(super) const CROSS_OUTPUT_NORM: &[TensorSpec] = &[
    required("blk.{}.cross_attn_output_norm.weight", &[Embedding]),
    required("blk.{}.cross_attn_output_norm.bias", &[Embedding]),
];

pub(super) const CROSS_BIASES: &[TensorSpec] = &[
    required("blk.{}.cross_attn_q.bias", &[Query]),
    required("blk.{}.cross_attn_k.bias", &[KeyValue]),
    required("blk.{}.cross_attn_v.bias", &[KeyValue]),
    required("blk.{}.cross_attn_output.bias", &[Embedding]),
];

/// Attention of a decoder to the output of its encoder.
pub(super) const CROSS_ATTENTION: &[TensorSpec] = &[
    required("blk.{}.cross_attn_q.weight", &[Embedding, Query]),
    required("blk.{}.cross_attn_k.weight", &[SourceEmbedding, KeyValue]),
    required("blk.{}.cross_attn_v.weight", &[SourceEmbedding, KeyValue]),
    required("blk.{}.cross_attn_output.weight", &[Query, Embedding]),
];

/// The tensor of a gate, by which models that may have one are told apart.
pub(in crate::model) const FIRST_GATE: &str = "blk.0.ffn_gate.weight";

pub(super) const GATED: &[TensorSpec] = &[
    required("blk.{}.ffn_gate.weight", &[Embedding, FeedForward]),
    optional("blk.{}.ffn_gate.bias", &[FeedForward]),
    required("blk.{}.ffn_up.weight", &[Embedding, FeedForward]),
    optional("blk.{}.ffn_up.bias", &[FeedForward]),
    required("blk.{}.ffn_down.weight", &[FeedForward, Embedding]),
    optional("blk.{}.ffn_down.bias", &[Embedding]),
];

/// Gate and up in one matrix, which files name `ffn_up`.
pub(super) const GATED_IN_ONE: &[TensorSpec] = &[
    required("blk.{}.ffn_up.weight", &[Embedding, TwiceFeedForward]),
    required("blk.{}.ffn_down.weight", &[FeedForward, Embedding]),
];

pub(super) const GATED_IN_ONE_WITH_BIAS: &[TensorSpec] = &[
    required("blk.{}.ffn_up.weight", &[Embedding, TwiceFeedForward]),
    required("blk.{}.ffn_down.weight", &[FeedForward, Embedding]),
    optional("blk.{}.ffn_down.bias", &[Embedding]),
];

pub(super) const UNGATED: &[TensorSpec] = &[
    required("blk.{}.ffn_up.weight", &[Embedding, FeedForward]),
    optional("blk.{}.ffn_up.bias", &[FeedForward]),
    required("blk.{}.ffn_down.weight", &[FeedForward, Embedding]),
    optional("blk.{}.ffn_down.bias", &[Embedding]),
];

/// A layer with this tensor has experts.
pub(crate) const ROUTER: &str = "blk.{}.ffn_gate_inp.weight";

/// A router, and the stacked matrices of all experts.
pub(super) const MIXTURE: &[TensorSpec] = &[
    required(ROUTER, &[Embedding, Experts]),
    required("blk.{}.ffn_gate_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    required("blk.{}.ffn_up_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    required("blk.{}.ffn_down_exps.weight", &[ExpertFeedForward, Embedding, Experts]),
];

const GATE_UP_EXPERTS: &str = "blk.{}.ffn_gate_up_exps.weight";
const GATE_UP_EXPERTS_BIAS: &str = "blk.{}.ffn_gate_up_exps.bias";

/// The same, if files may have gate and up of the experts as one stack.
pub(super) const MIXTURE_IN_ONE: &[TensorSpec] = &[
    required(ROUTER, &[Embedding, Experts]),
    optional(GATE_UP_EXPERTS, &[Embedding, TwiceExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS, "blk.{}.ffn_gate_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS, "blk.{}.ffn_up_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    required("blk.{}.ffn_down_exps.weight", &[ExpertFeedForward, Embedding, Experts]),
];

/// The same with biases of the router and of all experts.
pub(super) const MIXTURE_WITH_BIASES: &[TensorSpec] = &[
    required(ROUTER, &[Embedding, Experts]),
    required("blk.{}.ffn_gate_inp.bias", &[Experts]),
    optional(GATE_UP_EXPERTS, &[Embedding, TwiceExpertFeedForward, Experts]),
    optional(GATE_UP_EXPERTS_BIAS, &[TwiceExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS, "blk.{}.ffn_gate_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS_BIAS, "blk.{}.ffn_gate_exps.bias", &[ExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS, "blk.{}.ffn_up_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    unless(GATE_UP_EXPERTS_BIAS, "blk.{}.ffn_up_exps.bias", &[ExpertFeedForward, Experts]),
    required("blk.{}.ffn_down_exps.weight", &[ExpertFeedForward, Embedding, Experts]),
    required("blk.{}.ffn_down_exps.bias", &[Embedding, Experts]),
];

/// An expert that every token uses, besides those of the router.
pub(super) const SHARED_EXPERT: &[TensorSpec] = &[
    required("blk.{}.ffn_gate_shexp.weight", &[Embedding, SharedFeedForward]),
    required("blk.{}.ffn_up_shexp.weight", &[Embedding, SharedFeedForward]),
    required("blk.{}.ffn_down_shexp.weight", &[SharedFeedForward, Embedding]),
];

/// Experts without gates.
pub(super) const UNGATED_MIXTURE: &[TensorSpec] = &[
    required(ROUTER, &[Embedding, Experts]),
    required("blk.{}.ffn_up_exps.weight", &[Embedding, ExpertFeedForward, Experts]),
    required("blk.{}.ffn_down_exps.weight", &[ExpertFeedForward, Embedding, Experts]),
];

/// One of that kind that every token uses.
pub(super) const UNGATED_SHARED_EXPERT: &[TensorSpec] = &[
    required("blk.{}.ffn_up_shexp.weight", &[Embedding, SharedFeedForward]),
    required("blk.{}.ffn_down_shexp.weight", &[SharedFeedForward, Embedding]),
];

/// What its result is multiplied by, through a sigmoid.
pub(super) const SHARED_EXPERT_GATE: &[TensorSpec] = &[required("blk.{}.ffn_gate_inp_shexp.weight", &[Embedding, One])];

/// What is added to a router's scores before experts are chosen by them.
pub(super) const ROUTER_CORRECTION: &[TensorSpec] = &[required("blk.{}.exp_probs_b.bias", &[Experts])];

/// The same, which a model may lack.
pub(super) const OPTIONAL_ROUTER_CORRECTION: &[TensorSpec] = &[optional("blk.{}.exp_probs_b.bias", &[Experts])];

/// A score of each head that takes its part of the softmax and has no value.
pub(super) const SINKS: &[TensorSpec] = &[required("blk.{}.attn_sinks.weight", &[Heads])];

/// The numbers of xIELU, as files hold them.
pub(super) const XIELU: &[TensorSpec] = &[
    required("blk.{}.xielu_alpha_p.weight", &[One]),
    required("blk.{}.xielu_alpha_n.weight", &[One]),
    required("blk.{}.xielu_beta.weight", &[One]),
    required("blk.{}.xielu_eps.weight", &[One]),
];

pub(super) const OUTPUT_BIAS: &[TensorSpec] = &[optional("output.bias", &[Vocabulary])];

/// A norm of the embedding.
pub(super) const EMBEDDING_NORM: &[TensorSpec] =
    &[required("token_embd_norm.weight", &[Embedding]), required("token_embd_norm.bias", &[Embedding])];

/// Attention whose output goes through a gate. Files hold the gate's rows among those of the queries (`Arch::row_splits`).
pub(super) const GATED_ATTENTION: &[TensorSpec] = &[
    required("blk.{}.attn_q.weight", &[Embedding, Query]),
    required("blk.{}.attn_k.weight", &[Embedding, KeyValue]),
    required("blk.{}.attn_v.weight", &[Embedding, KeyValue]),
    required("blk.{}.attn_gate.weight", &[Embedding, Query]),
    required("blk.{}.attn_output.weight", &[Query, Embedding]),
];

/// A gate of each head's result.
pub(super) const HEAD_GATES: &[TensorSpec] = &[required("blk.{}.attn_gate.weight", &[Embedding, Heads])];

/// A gated delta net. `ssm_a` is a factor of each head's decay, `ssm_dt` its bias.
pub(super) const DELTA_NET: &[TensorSpec] = &[
    required("blk.{}.ssm_qkv.weight", &[Embedding, ConvChannels]),
    required("blk.{}.ssm_gate.weight", &[Embedding, RecurrentWidth]),
    required("blk.{}.ssm_beta.weight", &[Embedding, RecurrentHeads]),
    required("blk.{}.ssm_alpha.weight", &[Embedding, RecurrentHeads]),
    required("blk.{}.ssm_conv1d.weight", &[ConvTaps, ConvChannels]),
    required("blk.{}.ssm_dt.bias", &[RecurrentHeads]),
    required("blk.{}.ssm_a", &[RecurrentHeads]),
    required("blk.{}.ssm_norm.weight", &[RecurrentNorm]),
    required("blk.{}.ssm_out.weight", &[RecurrentWidth, Embedding]),
];

/// A short convolution between two gates: the first matrix has the rows of the first gate, the second gate, and the inputs.
pub(super) const SHORT_CONVOLUTION: &[TensorSpec] = &[
    required("blk.{}.shortconv.in_proj.weight", &[Embedding, RecurrentInputs]),
    required("blk.{}.shortconv.conv.weight", &[ConvTaps, ConvChannels]),
    required("blk.{}.shortconv.out_proj.weight", &[RecurrentWidth, Embedding]),
];

/// A Mamba-2 mixer. The first matrix has the rows of the gate, the inputs, B, C and the steps; `ssm_a`, `ssm_dt` and `ssm_d` have a number for
/// each head.
pub(super) const MAMBA2: &[TensorSpec] = &[
    required("blk.{}.ssm_in.weight", &[Embedding, RecurrentInputs]),
    required("blk.{}.ssm_conv1d.weight", &[ConvTaps, ConvChannels]),
    required("blk.{}.ssm_conv1d.bias", &[ConvChannels]),
    required("blk.{}.ssm_dt.bias", &[RecurrentHeads]),
    required("blk.{}.ssm_a", &[RecurrentHeads]),
    required("blk.{}.ssm_d", &[RecurrentHeads]),
    required("blk.{}.ssm_out.weight", &[RecurrentWidth, Embedding]),
];

/// A Mamba mixer. The first matrix has the rows of the inputs and the gate, `ssm_x` those of the short form of the steps, B and C.
pub(super) const MAMBA: &[TensorSpec] = &[
    required("blk.{}.ssm_in.weight", &[Embedding, RecurrentInputs]),
    required("blk.{}.ssm_conv1d.weight", &[ConvTaps, ConvChannels]),
    required("blk.{}.ssm_conv1d.bias", &[ConvChannels]),
    required("blk.{}.ssm_x.weight", &[RecurrentWidth, TimeRankAndStates]),
    required("blk.{}.ssm_dt.weight", &[TimeRank, RecurrentWidth]),
    required("blk.{}.ssm_dt.bias", &[RecurrentWidth]),
    required("blk.{}.ssm_a", &[StateSize, RecurrentWidth]),
    required("blk.{}.ssm_d", &[RecurrentWidth]),
    required("blk.{}.ssm_out.weight", &[RecurrentWidth, Embedding]),
];

/// The norms of the short form of its steps, of B and of C.
pub(super) const MAMBA_PART_NORMS: &[TensorSpec] = &[
    required("blk.{}.ssm_dt_norm.weight", &[TimeRank]),
    required("blk.{}.ssm_b_norm.weight", &[StateSize]),
    required("blk.{}.ssm_c_norm.weight", &[StateSize]),
];

/// The norm of a state space model's result beside its gate.
pub(super) const MAMBA_NORM: &[TensorSpec] = &[required("blk.{}.ssm_norm.weight", &[RecurrentNorm])];

/// The same, which a model may lack.
pub(super) const OPTIONAL_MAMBA_NORM: &[TensorSpec] = &[optional("blk.{}.ssm_norm.weight", &[RecurrentNorm])];

/// The head of a model that scores or labels texts.
const CLASSIFIER: &[TensorSpec] = &[
    optional("cls.weight", &[Embedding, Embedding]),
    optional("cls.bias", &[Embedding]),
    optional("cls.norm.weight", &[Embedding]),
    optional("cls.norm.bias", &[Embedding]),
    optional("cls.output.weight", &[Embedding, Labels]),
    optional("cls.output.bias", &[Labels]),
];

/// A tensor that a model with this configuration has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// The name in llama.cpp's files, with the layer's number.
    pub name: String,
    /// In the order of the file: the first is the length of a row.
    pub dims: Vec<u64>,
    /// Whether the model must have it.
    pub need: Need,
    /// Its layer, if it is in one.
    pub layer: Option<usize>,
}

impl ExpectedTensor {
    /// The name of another tensor of the same layer.
    pub fn beside(&self, name: &str) -> String {
        match self.layer {
            Some(layer) => name.replace("{}", &layer.to_string()),
            None => name.to_owned(),
        }
    }
}

/// All tensors that a model with this configuration has; those outside of the layers come first.
pub fn expected_tensors(config: &Config) -> Vec<ExpectedTensor> {
    let expected = |spec: &TensorSpec, layer: Option<usize>| ExpectedTensor {
        name: layer.map_or(spec.name.to_owned(), |layer| spec.name.replace("{}", &layer.to_string())),
        dims: spec.dims.iter().map(|dim| dim.of(config, &config.layers[layer.unwrap_or(0)])).collect(),
        need: spec.need,
        layer,
    };
    let arch = config.arch;
    let per_layer = arch.per_layer.as_ref().filter(|_| config.n_embd_per_layer > 0);
    let head = if arch.classifier.is_some() { CLASSIFIER } else { &[] };
    let of_model = arch.model_tensors.iter().copied().flatten().chain(per_layer.map_or(&[][..], |of| of.model));
    let of_streams = (1..config.altup.map_or(1, |altup| altup.streams)).flat_map(|stream| {
        arch.altup.iter().map(move |spec| {
            let of_model = expected(spec, None);
            ExpectedTensor { name: of_model.name.replace("{}", &(stream - 1).to_string()), ..of_model }
        })
    });
    let model = of_model.chain(head).map(|spec| expected(spec, None)).chain(of_streams);
    let layers = (0..config.n_layers).flat_map(|layer| {
        let of_layer = config.layers[layer];
        let feed_forward = match (of_layer.has_feed_forward, of_layer.has_experts) {
            (false, _) => &[],
            (true, true) => arch.experts,
            (true, false) if !config.is_gated => &[UNGATED],
            (true, false) => std::slice::from_ref(&arch.feed_forward),
        };
        let attention = if of_layer.attention.is_some() { arch.attention_tensors } else { &[] };
        let recurrent = if of_layer.recurrent.is_some() { arch.recurrent_tensors } else { &[] };
        let specs = [arch.layer_tensors, attention, recurrent, feed_forward].into_iter().flatten().copied().flatten();
        let specs = specs.chain(per_layer.map_or(&[][..], |of| of.layer));
        let stem = |spec: &TensorSpec| spec.name.split('.').nth(2).unwrap_or(spec.name);
        let specs = specs.filter(move |spec| !of_layer.lacks(stem(spec)));
        specs.map(move |spec| expected(spec, Some(layer)))
    });
    let dense = config.dense.iter().enumerate().flat_map(|(number, &[inputs, outputs])| {
        let name = format!("dense_{}", number + FIRST_DENSE);
        let tensor = |end: &str, dims: &[usize], need| ExpectedTensor {
            name: format!("{name}.{end}"),
            dims: dims.iter().map(|dim| *dim as u64).collect(),
            need,
            layer: None,
        };
        [tensor("weight", &[inputs, outputs], Required), tensor("bias", &[outputs], Optional)]
    });
    model.chain(dense).chain(layers).collect()
}
