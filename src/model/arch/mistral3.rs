//! Ministral 3, and the text of Mistral 3's models of that kind: like Llama, with YaRN and queries scaled by their position.
//!
//! llama.cpp's converter permutes the rows of attn_q and attn_k so that rope rotates neighbours.

use super::{
    Arch, RopeKind,
    hugging_face::{DECODER_KEYS, HuggingFace, MISTRAL3_PARTS, RMS, SILU, WINDOW},
};

pub const MISTRAL3: Arch = Arch {
    name: "mistral3",
    rope: Some(RopeKind::Interleaved),
    hugging_face: Some(&HuggingFace {
        model_types: &["ministral3"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW],
        prefixes: &["language_model.", "model.language_model."],
        other_parts: MISTRAL3_PARTS,
        text_part_of: &["mistral3"],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
