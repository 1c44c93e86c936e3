//! OLMo 2: norms after attention and feed-forward, none before them, and norms over all of the queries and all of the keys. OLMo 3: the
//! same with a window in all layers but every fourth; layers with a window have a rope without scaling.

use super::{
    Arch, WindowPattern, WindowRope,
    hugging_face::{COMMON_NAMES, DECODER_KEYS, HuggingFace, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES, RMS, SILU, WINDOW},
    tensors::{ATTENTION, POST_NORMS, QUERY_KEY_NORMS},
};

pub const OLMO2: Arch = Arch {
    name: "olmo2",
    window: WindowPattern::AllButEvery(4),
    window_rope: Some(WindowRope { default_theta: None }),
    norms_heads_together: true,
    layer_tensors: &[POST_NORMS, ATTENTION, QUERY_KEY_NORMS],
    hugging_face: Some(&HuggingFace {
        model_types: &["olmo2", "olmo3"],
        keys: &[DECODER_KEYS, RMS, &[SILU], WINDOW],
        names: &[COMMON_NAMES, POST_NORM_NAMES, QUERY_KEY_NORM_NAMES],
        ..HuggingFace::DECODER
    }),
    ..Arch::DECODER
};
