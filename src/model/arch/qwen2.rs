//! Qwen2: as Llama, with biases on queries, keys and values. Dense models of Qwen2 and Qwen2.5, and what is distilled into
//! them.
//!
//! Tensor names as in llama.cpp's files, whose converter leaves the rows of attn_q and attn_k as they are in transformers:
//! rope turns the halves of a head.

use super::{
    Arch,
    Dim::{Embedding, FeedForward, KeyValue, Query, Vocabulary},
    RopeKind, TensorSpec,
    hugging_face::{DECODER_KEYS, Fixed, HuggingFace, LLAMA_NAMES, Meaning, ROPE_FREQUENCIES, SILU, optional},
};

pub const QWEN2: Arch = Arch {
    name: "qwen2",
    rope: RopeKind::Halves,
    model_tensors: &[
        TensorSpec { name: "token_embd.weight", dims: &[Embedding, Vocabulary], optional: false },
        TensorSpec { name: "output_norm.weight", dims: &[Embedding], optional: false },
        // Without it the embedding is used again.
        TensorSpec { name: "output.weight", dims: &[Embedding, Vocabulary], optional: true },
    ],
    layer_tensors: &[
        TensorSpec { name: "blk.{}.attn_norm.weight", dims: &[Embedding], optional: false },
        TensorSpec { name: "blk.{}.attn_q.weight", dims: &[Embedding, Query], optional: false },
        TensorSpec { name: "blk.{}.attn_q.bias", dims: &[Query], optional: false },
        TensorSpec { name: "blk.{}.attn_k.weight", dims: &[Embedding, KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_k.bias", dims: &[KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_v.weight", dims: &[Embedding, KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_v.bias", dims: &[KeyValue], optional: false },
        TensorSpec { name: "blk.{}.attn_output.weight", dims: &[Query, Embedding], optional: false },
        TensorSpec { name: "blk.{}.ffn_norm.weight", dims: &[Embedding], optional: false },
        TensorSpec { name: "blk.{}.ffn_gate.weight", dims: &[Embedding, FeedForward], optional: false },
        TensorSpec { name: "blk.{}.ffn_up.weight", dims: &[Embedding, FeedForward], optional: false },
        TensorSpec { name: "blk.{}.ffn_down.weight", dims: &[FeedForward, Embedding], optional: false },
    ],
    ignored_layer_tensors: &["attn_rot_embd"],
    hugging_face: Some(&HuggingFace {
        model_types: &["qwen2"],
        rope: RopeKind::Halves,
        keys: &[DECODER_KEYS, &[SILU, optional("use_sliding_window", Meaning::OneOf(&[Fixed::Bool(false)]))]],
        names: &[LLAMA_NAMES],
        prefixes: &[],
        ignored: ROPE_FREQUENCIES,
        changes: &[],
    }),
};
