//! The sampling fields that go from a request to the kernels as they are. One list gives the fields of requests (`SamplingFields`), of
//! `SamplingParams` with their defaults and ranges, and of a kernel's row (`SamplerRow`). A new field is a line here, and an op with its line
//! in `stages.rs`.

/// Hands the list to a macro: of each field its docs for callers, name, type, default, which values are valid, and how an error says that.
macro_rules! sampling_fields {
    ($to:ident) => {
        $to! {
            /// Choose only from the most likely tokens that together reach this probability (above 0; 1 keeps all).
            top_p: f32 = 1.0, |value: f32| value > 0.0 && value <= 1.0, "a number above 0 and at most 1 (keeps all)";
            /// Choose only from this number of the most likely tokens; 0 keeps all, 1 is greedy. An extension.
            top_k: u32 = 0, |_: u32| true, "a number";
            /// A temperature for each token, in place of `temperature`: between that less this and that plus this, low if the model is sure
            /// of what comes and high if not. 0 (the default) to 2; 0 is off. Not with temperature 0. An extension, in llama.cpp's words.
            dynatemp_range: f32 = 0.0, |value: f32| (0.0..=2.0).contains(&value), "a number from 0 (off) to 2";
            /// How the temperature follows the entropy: its power. Above 0. Default: 1.
            dynatemp_exponent: f32 = 1.0, |value: f32| (0.0..=100.0).contains(&value), "a number from 0 to 100";
            /// Choose only from tokens whose logit is at most this many standard deviations below the largest, before temperature; 0 to
            /// 100, where 0 (the default) keeps all and 1 is usual. Not with mirostat. An extension, in llama.cpp's words.
            top_n_sigma: f32 = 0.0, |value: f32| (0.0..=100.0).contains(&value), "a number from 0 (keeps all) to 100";
            /// Choose only from the tokens whose surprise is nearest to the entropy, as many as reach this probability together (locally
            /// typical sampling; above 0, 1 keeps all). An extension.
            typical_p: f32 = 1.0, |value: f32| value > 0.0 && value <= 1.0, "a number above 0 and at most 1 (keeps all)";
            /// XTC: with this probability, 0 to 1, at each token, all that reach `xtc_threshold` except the least likely of them are left
            /// out. Not with temperature 0. An extension.
            xtc_probability: f32 = 0.0, |value: f32| (0.0..=1.0).contains(&value), "a number from 0 to 1";
            /// 0 to 1; above 0.5 XTC has no effect. Default: 0.1. An extension.
            xtc_threshold: f32 = 0.1, |value: f32| (0.0..=1.0).contains(&value), "a number from 0 to 1";
        }
    };
}
pub(crate) use sampling_fields;
