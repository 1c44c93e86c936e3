//! Llama: RMS norms before attention and feed-forward, rotary positions, grouped-query attention, SwiGLU, no biases.
//! Models of Llama 1 to 3.3 and what shares their form (Mistral without a window, TinyLlama, SmolLM).
//!
//! Tensor names as in llama.cpp's files, whose converter permutes the rows of attn_q and attn_k so that rope turns
//! neighbours.

use super::{
    Arch,
    Dim::{Embedding, FeedForward, KeyValue, Query, RopePairs, Vocabulary},
    RopeKind, TensorSpec,
    hugging_face::{DECODER_KEYS, HuggingFace, LLAMA_NAMES, Meaning, ROPE_FREQUENCIES, SILU, optional},
};

pub const LLAMA: Arch = Arch {
    name: "llama",
    rope: RopeKind::Interleaved,
    model_tensors: &[
        TensorSpec { name: "token_embd.weight", dims: &[Embedding, Vocabulary], optional: false },
        TensorSpec { name: "output_norm.weight", dims: &[Embedding], optional: false },
        // Without it the embedding is used again.
        TensorSpec { name: "output.weight", dims: &[Embedding, Vocabulary], optional: true },
        // Llama 3.1 and later: the frequency of each pair is divided by its factor.
        TensorSpec { name: "rope_freqs.weight", dims: &[RopePairs], optional: true },
    ],
    layer_tensors: &[
        TensorSpec { name: "blk.{}.attn_norm.weight", dims: &[Embedding], optional: false },
        TensorSpec { name: "blk.{}.attn_q.weight", dims: &[Embedding, Query], optional: false },
        TensorSpec { name: "blk.{}.attn_k.weight", dims: &[Embedding, KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_v.weight", dims: &[Embedding, KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_output.weight", dims: &[Query, Embedding], optional: false },
        TensorSpec { name: "blk.{}.ffn_norm.weight", dims: &[Embedding], optional: false },
        TensorSpec { name: "blk.{}.ffn_gate.weight", dims: &[Embedding, FeedForward], optional: false },
        TensorSpec { name: "blk.{}.ffn_up.weight", dims: &[Embedding, FeedForward], optional: false },
        TensorSpec { name: "blk.{}.ffn_down.weight", dims: &[FeedForward, Embedding], optional: false },
    ],
    ignored_layer_tensors: &["attn_rot_embd"],
    hugging_face: Some(&HuggingFace {
        model_types: &["llama", "mistral"],
        rope: RopeKind::Halves,
        keys: &[DECODER_KEYS, &[SILU, optional("sliding_window", Meaning::Integer("attention.sliding_window"))]],
        names: &[LLAMA_NAMES],
        prefixes: &[],
        ignored: ROPE_FREQUENCIES,
        changes: &[],
    }),
};
