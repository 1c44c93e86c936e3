//! The paths of sampling, in Rust and in WGSL.

macro_rules! sampler_paths {
    ($($(#[$meta:meta])* $name:ident, $in_wgsl:ident: $number:literal;)*) => {
        /// Which kernels choose the tokens of a sequence, if kernels of several kinds run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SamplerPath { $($(#[$meta])* $name = $number,)* }

        impl SamplerPath {
            /// The same as constants in WGSL.
            pub const WGSL: &str = concat!($("const ", stringify!($in_wgsl), ": u32 = ", $number, "u;\n",)*);
        }
    };
}

sampler_paths! {
    /// Those that run.
    Any, ANY: 0;
    /// `sample_merge`, from the whole vocabulary.
    Whole, WHOLE: 1;
    /// `sample_resolve`, from the tokens that thresholds keep.
    Truncated, TRUNCATED: 2;
    /// `sample_merge` after `band_partial`, from a band (`band.rs`).
    Banded, BANDED: 3;
}
