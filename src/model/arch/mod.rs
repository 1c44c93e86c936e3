//! The architectures as data: which tensors a model has and how they are used. Each family has a file; this one has the list and the types.
//!
//! Knows no buffers and no kernels. The forward pass branches on the fields and never on the name. The tensors tell much that is not stated
//! here: a layer has a norm or a bias if the file has its tensor.

mod apertus;
mod arcee;
mod bart;
mod bert;
mod bitnet;
mod bloom;
mod cohere;
mod deberta;
mod deepseek;
mod dots1;
mod ernie;
mod exaone4;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm4;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod granite_hybrid;
mod hugging_face;
mod hunyuan;
mod jina_bert_v2;
mod lfm2;
mod lfm3;
mod llama;
mod mamba;
mod mamba2;
mod minicpm3;
mod mistral3;
mod modern_bert;
mod nemotron;
mod nemotron_h;
mod nomic_bert;
mod olmo;
mod olmo2;
mod opt;
mod phi2;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen_delta;
mod rope_bert;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod t5;
mod tensors;

pub(crate) use hugging_face::{
    ByKind, ClassifierForm, ConfigKey, ConstValue, DECODER_SWITCHES, HuggingFace, KeyMapping, Sines, WeightTransform,
};
pub use tensors::{ExpectedTensor, Need, expected_tensors};
pub(in crate::model) use tensors::{FIRST_DENSE, FIRST_GATE};
pub(crate) use tensors::{ROUTER, TensorSpec};

use crate::error::Result;
use crate::tensor::ops::{Activation, Gating};

/// Every architecture that runs. A new one is a constant in a file of this folder and a line here.
pub const ARCHS: &[&Arch] = &[
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen3::QWEN3_MOE,
    &qwen_delta::QWEN3_NEXT,
    &qwen_delta::QWEN35,
    &qwen_delta::QWEN35_MOE,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &gemma3n::GEMMA3N,
    &gemma4::GEMMA4,
    &phi3::PHI3,
    &smollm3::SMOLLM3,
    &olmo2::OLMO2,
    &granite::GRANITE,
    &stablelm::STABLELM,
    &gpt2::GPT2,
    &gpt_oss::GPT_OSS,
    &mistral3::MISTRAL3,
    &gemma::GEMMA,
    &qwen2_moe::QWEN2_MOE,
    &olmo::OLMOE,
    &olmo::OLMO,
    &phi2::PHI2,
    &phimoe::PHIMOE,
    &seed_oss::SEED_OSS,
    &starcoder2::STARCODER2,
    &hunyuan::HUNYUAN_DENSE,
    &hunyuan::HUNYUAN_MOE,
    &ernie::ERNIE4_5,
    &ernie::ERNIE4_5_MOE,
    &exaone4::EXAONE4,
    &glm4::GLM4,
    &glm4::GLM4_MOE,
    &cohere::COHERE,
    &cohere::COHERE2,
    &apertus::APERTUS,
    &arcee::ARCEE,
    &nemotron::NEMOTRON,
    &gptneox::GPTNEOX,
    &opt::OPT,
    &bloom::BLOOM,
    &falcon::FALCON,
    &deepseek::DEEPSEEK2,
    &minicpm3::MINICPM3,
    &dots1::DOTS1,
    &bitnet::BITNET,
    &granite::GRANITE_MOE,
    &lfm2::LFM2,
    &lfm2::LFM2_MOE,
    &lfm3::LFM3,
    &granite_hybrid::GRANITE_HYBRID,
    &falcon_h1::FALCON_H1,
    &nemotron_h::NEMOTRON_H,
    &nemotron_h::NEMOTRON_H_MOE,
    &mamba2::MAMBA2,
    &mamba::MAMBA,
    &mamba::JAMBA,
    &bert::BERT,
    &nomic_bert::NOMIC_BERT,
    &modern_bert::MODERN_BERT,
    &gemma::GEMMA_EMBEDDING,
    &jina_bert_v2::JINA_BERT_V2,
    &rope_bert::JINA_BERT_V3,
    &rope_bert::GTE,
    &bert::MPNET,
    &deberta::DEBERTA_V2,
    &t5::T5_ENCODER,
    &t5::T5,
    &bart::BART,
    &bart::MBART,
    &bart::M2M_100,
    &bart::MARIAN,
];

/// An architecture.
#[derive(Debug, PartialEq)]
pub struct Arch {
    /// The value of `general.architecture`, which is also the prefix of its metadata keys.
    pub name: &'static str,
    /// Which elements rope rotates together in GGUF files; `None` for learned positions.
    pub rope: Option<RopeKind>,
    /// The kind of every norm, in the layers and after them.
    pub norm: Norm,
    /// Every token attends to its whole text, or to as much on either side as half a window has, and there are no logits of tokens: texts
    /// become vectors (`model/encoder.rs`).
    pub is_encoder: bool,
    /// The other half of an encoder-decoder: its encoder, whose output the decoder's layers attend to besides. In files that hold both, its
    /// tensors have names of their own (`model/source.rs`).
    pub encoder: Option<&'static Arch>,
    /// The function of the feed-forward's gate, or of its only projection.
    pub activation: Activation,
    /// Models may have feed-forwards without a gate instead, with this function.
    pub ungated: Option<Activation>,
    /// Logits are divided by √n_embd if the embedding is the output matrix too and the metadata does not say it.
    pub scales_tied_logits: bool,
    /// The metadata must say that this is the activation (`hidden_activation`), since files of other models don't differ else.
    pub names_activation: Option<&'static str>,
    /// Which layers have a sliding window, if the metadata has one.
    pub window: WindowPattern,
    /// The window if the file does not give one.
    pub default_window: Option<usize>,
    /// The rope of layers with a window, if it differs from that of the others.
    pub window_rope: Option<WindowRope>,
    /// Every n-th layer has no rope.
    pub no_rope_every: Option<usize>,
    /// Models with this number of layers scale attention by 1/√(n_embd / n_heads) instead of 1/√head_dim. Their files don't say it.
    pub attention_by_width_at: Option<usize>,
    /// What scores are multiplied by, if the metadata does not say it; `None`: 1/√head_dim.
    pub attention_scale: Option<f32>,
    /// Each head's values are normed too, by a norm without weights.
    pub norms_values: bool,
    /// The last layers may reuse the keys and values of the last layer of their kind that has own ones.
    pub reuses_kv: bool,
    /// Layers with full attention may have keys for values.
    pub values_may_be_keys: bool,
    /// Layers with a window differ in more than that, so that files must tell its length.
    pub needs_window: bool,
    /// The embedding is multiplied with √n_embd.
    pub scales_embedding: bool,
    /// The metadata has factors for embedding, residuals and logits. Logits are divided by theirs.
    pub has_scales: bool,
    /// Configurations have factors for many parts, which the weights of GGUF files hold (Falcon-H1).
    pub has_multipliers: bool,
    /// The metadata says whether there is rope (`rope.scaling.finetuned`, as llama.cpp has it).
    pub rope_switch: bool,
    /// In models without experts, what would be the expert of all tokens is the feed-forward; folders name both alike.
    pub shared_is_dense: bool,
    /// What these follow from if the metadata has none: the factor of the embedding, a number that √layers divides, and the width by which
    /// logits are not divided.
    pub default_scales: Option<[f32; 3]>,
    /// Soft caps of attention scores and of logits, if the file does not give them.
    pub default_softcaps: [Option<f32>; 2],
    /// Queries are normed over all heads together, and keys too, instead of each head by itself.
    pub norms_heads_together: bool,
    /// The heads' queries and keys are normed after rope instead of before.
    pub norms_heads_after_rope: bool,
    /// A layer without a norm before its feed-forward runs it beside the attention, on the same input.
    pub parallel_without_norm: bool,
    /// Attention is over latents (`model/latent.rs`).
    pub has_latents: bool,
    /// Experts may be in groups, of which few are open to a token.
    pub groups_experts: bool,
    /// Whether all layers run the feed-forward beside the attention, if the metadata does not say it (`use_parallel_residual`); `None` if it can't.
    pub parallel: Option<bool>,
    /// If some layers have a window, those without one have no rope.
    pub rope_with_window_only: bool,
    /// Logits are multiplied by `logit_scale`.
    pub multiplies_logits: bool,
    /// YaRN's limits are rounded to whole pairs, if the metadata does not say it.
    pub rounds_yarn: bool,
    /// What a router's logits become, if the metadata does not say it.
    pub gating: Gating,
    /// The weights of a token's experts are shares of the chosen ones, if the metadata does not say it.
    pub normalizes_experts: bool,
    /// Experts take the gated unit of gpt-oss with this α and this limit.
    pub clamped_swiglu: Option<[f32; 2]>,
    /// Files may hold a layer after the last one that drafts (`model/mtp.rs`).
    pub predicts_further: bool,
    /// Tensors that llama.cpp's files name otherwise.
    pub gguf_names: &'static [GgufName],
    /// ALiBi's largest bias, if the metadata does not have it.
    pub default_alibi: Option<f32>,
    /// Stems of norms that multiply by one, whose tensors files lack.
    pub unit_norms: &'static [&'static str],
    /// The model's tensors outside of its layers, in tables that architectures share.
    pub model_tensors: &'static [&'static [TensorSpec]],
    /// What layers have, if the metadata does not say it.
    pub layers: LayerPattern,
    /// What recurrent layers compute; `None` if there are none.
    pub recurrence: Option<RecurrenceKind>,
    /// Every layer's tensors without its feed-forward; `{}` in a name is the layer's number.
    pub layer_tensors: &'static [&'static [TensorSpec]],
    /// Further ones of layers with attention, where others have none.
    pub attention_tensors: &'static [&'static [TensorSpec]],
    /// Further ones of recurrent layers.
    pub recurrent_tensors: &'static [&'static [TensorSpec]],
    /// The tensors of a dense feed-forward; empty if all layers are mixtures of experts. Layers with a router have experts instead.
    pub feed_forward: &'static [TensorSpec],
    /// The tensors of a mixture of experts; empty if there is none.
    pub experts: &'static [&'static [TensorSpec]],
    /// The tensors of embeddings for each layer, which models may have besides; `None` if there are none.
    pub per_layer: Option<PerLayerTensors>,
    /// The tensors of alternating updates (AltUp) outside of the layers; `{}` in a name is the number of a stream but the first. Empty if the
    /// model has one residual stream.
    pub altup: &'static [TensorSpec],
    /// Tensors of a layer whose rows belong to several of ours.
    pub row_splits: &'static [RowSplit],
    /// A layer's tensors, without their suffix, that old files hold and that may be ignored: the frequencies of rope, which follow from
    /// `rope_theta`.
    pub ignored_layer_tensors: &'static [&'static str],
    /// The head that scores or labels texts, as llama.cpp computes it; `None` if there can be none.
    pub classifier: Option<ClassifierHead>,
    /// How models that rank by the tokens yes and no are asked, with places for `{query}` and `{document}`.
    pub rerank_prompt: Option<&'static str>,
    /// How transformers writes such models; `None` if only GGUF files are supported.
    pub hugging_face: Option<&'static HuggingFace>,
}

/// Which two elements of a head rotary position embedding rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeKind {
    /// Neighbours: 2i and 2i + 1. ggml calls it "norm".
    Interleaved,
    /// An element of the first half and one of the second: i and i + head_dim / 2. ggml calls it "neox".
    Halves,
}

/// The norm of an architecture's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Root mean square (`rms_norm`).
    Rms,
    /// Mean and variance (`layer_norm`).
    Layer,
}

/// What layers have, if the metadata does not say it of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerPattern {
    /// All have attention, and a feed-forward.
    Attention,
    /// All but every n-th (`full_attention_interval`, or 4) are recurrent instead; all have a feed-forward.
    Interval,
    /// Those without heads of keys and values (`attention.head_count_kv`) are recurrent instead; all have a feed-forward.
    ByHeads,
    /// Each has one part: attention, if it has heads of keys and values (`attention.head_count_kv`), a feed-forward, if that has a length
    /// (`feed_forward_length`), or else a recurrence.
    OnePart,
    /// All have attention, a recurrence beside it, and a feed-forward.
    Both,
    /// All are recurrent, without attention and without a feed-forward.
    Recurrent,
}

/// What recurrent layers compute. Their sizes are in `model/recurrence.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrenceKind {
    /// A gated delta net.
    DeltaNet {
        /// In GGUF files the heads of values have their keys in turns, instead of neighbours sharing one.
        tiled: bool,
    },
    /// A short convolution between two gates.
    ShortConvolution,
    /// The second form of Mamba.
    Mamba2,
    /// The first form of Mamba.
    Mamba,
}

/// What a layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerParts {
    /// Attention.
    pub attention: bool,
    /// A recurrent mixer, in place of attention or beside it.
    pub recurrent: bool,
    /// A feed-forward, dense or of experts.
    pub feed_forward: bool,
}

/// What a configuration says of a layer. In the metadata it is its number in `ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// It has attention.
    Attention,
    /// It is recurrent.
    Recurrent,
    /// It has a feed-forward alone.
    FeedForward,
}

impl LayerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Attention, Self::Recurrent, Self::FeedForward];
}

/// Which layers have a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPattern {
    /// Every layer.
    All,
    /// Of every n layers, all but the last.
    AllButEvery(usize),
    /// Of every n layers, all but the first.
    AllButFirstOfEvery(usize),
}

impl WindowPattern {
    /// Whether a layer has a window.
    pub fn is_windowed(self, layer: usize) -> bool {
        match self {
            Self::All => true,
            Self::AllButEvery(every) => !(layer + 1).is_multiple_of(every),
            Self::AllButFirstOfEvery(every) => !layer.is_multiple_of(every),
        }
    }

    /// The same for another n; 0 is none of these layers.
    pub fn with(self, every: usize) -> Self {
        match (self, every) {
            (_, 0) => Self::All,
            (Self::AllButFirstOfEvery(_), every) => Self::AllButFirstOfEvery(every),
            (_, every) => Self::AllButEvery(every),
        }
    }
}

/// The rope of layers with a window. The scaling of the model's rope does not apply to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRope {
    /// The base if the metadata does not give one; `None`: that of the other layers.
    pub default_theta: Option<f32>,
}

/// A head that scores or labels texts: the tensors `cls`, `cls.norm` and `cls.output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifierHead {
    /// The vector that it takes: `cls`, `mean` or `last`.
    pub pooling: &'static str,
    /// The function after `cls`, by transformers' name.
    pub activation: &'static str,
    /// Models without `cls` are incomplete.
    pub has_dense: bool,
}

/// A tensor, in the layers or outside of them, that llama.cpp's files name otherwise.
#[derive(Debug, PartialEq)]
pub struct GgufName {
    /// The stem in the files.
    pub theirs: &'static str,
    /// Our stem.
    pub ours: &'static str,
    /// Only in layers that have this tensor, by its stem in the files.
    pub beside: Option<&'static str>,
}

/// The norm before the feed-forward, which some files name by its place in transformers.
pub(super) const NORM_AFTER_ATTENTION: &[GgufName] =
    &[GgufName { theirs: "post_attention_norm", ours: "ffn_norm", beside: None }];

/// The tensors of embeddings for each layer.
#[derive(Debug, PartialEq)]
pub struct PerLayerTensors {
    /// Outside of the layers.
    pub model: &'static [TensorSpec],
    /// Of each layer.
    pub layer: &'static [TensorSpec],
}

/// A tensor of a layer whose rows belong to several of ours: groups of rows, each with the same pieces.
#[derive(Debug, PartialEq)]
pub struct RowSplit {
    /// Its name within a layer, without the suffix.
    pub whole: &'static str,
    /// The metadata key, without the architecture, of the number of groups; `None` for one.
    pub groups: Option<&'static str>,
    /// The pieces of a group, in order, each with the tensor that it belongs to. There the first pieces of all groups come first.
    pub pieces: &'static [(&'static str, PieceRows)],
    /// The rows of a group are a matrix of a stack.
    pub stacks: bool,
}

/// The number of rows of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceRows {
    /// The value of a metadata key.
    Key(&'static str),
    /// The value of a metadata key less that of another.
    Difference(&'static str, &'static str),
    /// An equal share of what the others leave.
    Share,
}

/// Matrices of a layer that kernels read as one: the rows of each part come after those of the previous part.
#[derive(Debug)]
pub(crate) struct JoinedMatrices {
    /// The name of the joined matrix within a layer.
    pub name: &'static str,
    /// The names of the parts, in the order of their rows. One alone is read as if it were joined.
    pub parts: &'static [&'static str],
    /// The name in files that already hold it as one matrix.
    pub whole: Option<&'static str>,
}

/// All matrices that may be joined.
pub(crate) const JOINED: &[JoinedMatrices] = &[
    JoinedMatrices { name: "attn_qkv", parts: &["attn_q", "attn_k", "attn_v"], whole: Some("attn_qkv") },
    JoinedMatrices { name: "ffn_gate_up", parts: &["ffn_gate", "ffn_up"], whole: Some("ffn_up") },
    JoinedMatrices { name: "delta_in", parts: DELTA_INPUTS, whole: None },
    JoinedMatrices { name: "ssm_in", parts: &["ssm_in"], whole: None },
];

/// The projections of a gated delta net: query, key and value, the gate, β and α.
pub(crate) const DELTA_INPUTS: &[&str] = &["ssm_qkv", "ssm_gate", "ssm_beta", "ssm_alpha"];

impl Arch {
    /// Llama, the base of the others.
    const DECODER: Arch = Arch {
        name: "",
        rope: Some(RopeKind::Halves),
        norm: Norm::Rms,
        is_encoder: false,
        encoder: None,
        activation: Activation::Silu,
        ungated: None,
        scales_tied_logits: false,
        names_activation: None,
        window: WindowPattern::All,
        default_window: None,
        window_rope: None,
        no_rope_every: None,
        attention_by_width_at: None,
        attention_scale: None,
        norms_values: false,
        reuses_kv: false,
        values_may_be_keys: false,
        needs_window: false,
        scales_embedding: false,
        has_scales: false,
        has_multipliers: false,
        rope_switch: false,
        shared_is_dense: false,
        default_scales: None,
        default_softcaps: [None, None],
        norms_heads_together: false,
        norms_heads_after_rope: false,
        parallel_without_norm: false,
        has_latents: false,
        groups_experts: false,
        parallel: None,
        rope_with_window_only: false,
        multiplies_logits: false,
        rounds_yarn: true,
        gating: Gating::Softmax,
        normalizes_experts: true,
        clamped_swiglu: None,
        predicts_further: false,
        gguf_names: &[],
        default_alibi: None,
        unit_norms: &[],
        model_tensors: &[tensors::MODEL, tensors::ROPE_FACTORS],
        layers: LayerPattern::Attention,
        recurrence: None,
        layer_tensors: &[tensors::NORMS, tensors::ATTENTION],
        attention_tensors: &[],
        recurrent_tensors: &[],
        feed_forward: tensors::GATED,
        experts: &[],
        per_layer: None,
        altup: &[],
        row_splits: &[],
        ignored_layer_tensors: &["attn_rot_embd"],
        classifier: Some(ClassifierHead { pooling: "last", activation: "", has_dense: false }),
        rerank_prompt: None,
        hugging_face: None,
    };

    /// Whether the feed-forward has no gate, so only one projection into it.
    pub(super) fn has_ungated_feed_forward(&self) -> bool {
        self.feed_forward == tensors::UNGATED
    }

    /// Whether layers of experts have one besides that every token uses.
    pub(super) fn has_shared_expert(&self) -> bool {
        [tensors::SHARED_EXPERT, tensors::UNGATED_SHARED_EXPERT].iter().any(|table| self.experts.contains(table))
    }

    /// Whether layers of experts have a dense feed-forward too, with norms of its own.
    pub(super) fn has_dense_beside_experts(&self) -> bool {
        self.experts.contains(&tensors::GATED)
    }

    /// What all encoders share.
    const ENCODER: Arch = Arch { norm: Norm::Layer, is_encoder: true, classifier: None, ..Self::DECODER };

    /// The architecture of a `general.architecture`, or `Code::UnsupportedArchitecture` with the list of all.
    pub fn find(name: &str) -> Result<&'static Arch> {
        ARCHS.iter().find(|arch| arch.name == name).copied().ok_or_else(|| {
            let supported: Vec<_> = ARCHS.iter().map(|arch| arch.name).collect();
            err!(
                UnsupportedArchitecture,
                "the model's architecture is {name:?}, supported: {}; choose a model of one of these",
                supported.join(", ")
            )
        })
    }

    /// Whether the model runs without reading this tensor of the file.
    pub(super) fn ignores(&self, tensor: &str) -> bool {
        let Some((layer, rest)) = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            return false;
        };
        let stem = rest.split('.').next().unwrap_or(rest);
        layer.parse::<u32>().is_ok() && self.ignored_layer_tensors.contains(&stem)
    }
}
