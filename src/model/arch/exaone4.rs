//! EXAONE 4: norms after attention and feed-forward, none before them, norms of each head's query and key. The larger models have a window
//! in all layers but every fourth, which has no rope.

use super::{
    Arch, WindowPattern,
    hugging_face::{COMMON_NAMES, DECODER_KEYS, HuggingFace, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES, RMS, SILU, WINDOW},
    tensors::{ATTENTION, HEAD_NORMS, POST_NORMS},
};

pub const EXAONE4: Arch = Arch {
    name: "exaone4",
    window: WindowPattern::AllButEvery(4),
    rope_with_window_only: true,
    layer_tensors: &[POST_NORMS, ATTENTION, HEAD_NORMS],
    hugging_face: Some(&HuggingFace {
        model_types: &["exaone4"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW],
        names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
