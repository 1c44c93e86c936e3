//! The ops. One op is one `.rs` and its `.wgsl`; a new one is a line in this list, and the tests walk it.

use super::{Case, Op};

mod activation;
mod cache_dtype;
mod epilogue;
mod placement;
mod qkv_parts;
mod residual;
mod row_norm;

macro_rules! ops {
    ($($module:ident: $op:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$op;)*

        /// The test cases of every op, by its name.
        pub const ALL: &[(&str, fn() -> Vec<Case>)] = &[$((stringify!($module), $module::cases),)*];
    };
}

ops! {
    add: Add,
    add_positions: AddPositions,
    add_row: AddRow,
    adjust_logits: AdjustLogits,
    adjust_marks: AdjustMarks,
    argmax: Argmax,
    attention: Attention,
    attention_merge: AttentionMerge,
    attention_out: AttentionOut,
    attention_prefill: AttentionPrefill,
    attention_spans: AttentionSpans,
    attention_split: AttentionSplit,
    band_mass: BandMass,
    band_partial: BandPartial,
    binary: Binary,
    combine_experts: CombineExperts,
    concat_columns: ConcatColumns,
    copy_sequence: CopySequence,
    dot: Dot,
    dry_marks: DryMarks,
    embedding: Embedding,
    embedding_part: EmbeddingPart,
    fill: Fill,
    group_experts: GroupExperts,
    kv_append: KvAppend,
    kv_shift: KvShift,
    layer_norm: LayerNorm,
    logprobs_merge: LogprobsMerge,
    logprobs_partial: LogprobsPartial,
    mask_logits: MaskLogits,
    mat_mul: MatMul,
    mat_mul_experts: MatMulExperts,
    mat_mul_f32: MatMulF32,
    mat_mul_int8: MatMulInt8,
    mat_vec: MatVec,
    mat_vec_add: MatVecAdd,
    mat_vec_experts: MatVecExperts,
    mat_vec_few: MatVecFew,
    mean_rows: MeanRows,
    mirostat_update: MirostatUpdate,
    norm_add: NormAdd,
    norm_gate_up: NormGateUp,
    norm_heads: NormHeads,
    norm_mat_vec: NormMatVec,
    norm_qkv: NormQkv,
    norm_up: NormUp,
    place_columns: PlaceColumns,
    quantize: Quantize,
    random: Random,
    rms_norm: RmsNorm,
    rms_norm_int8: RmsNormInt8,
    rms_norm_planes: RmsNormPlanes,
    rope: Rope,
    rope_kv_append: RopeKvAppend,
    rope_positions: RopePositions,
    route_experts: RouteExperts,
    sample_band: SampleBand,
    sample_histogram: SampleHistogram,
    sample_merge: SampleMerge,
    sample_partial: SamplePartial,
    sample_range: SampleRange,
    sample_resolve: SampleResolve,
    sample_split: SampleSplit,
    scale: Scale,
    slice_columns: SliceColumns,
    slice_rows: SliceRows,
    softcap: Softcap,
    swiglu: Swiglu,
    swiglu_fused: SwigluFused,
    swiglu_int8: SwigluInt8,
    swiglu_planes: SwigluPlanes,
    typical_band: TypicalBand,
    typical_histogram: TypicalHistogram,
    typical_moments: TypicalMoments,
    unary: Unary,
    xtc: Xtc,
}

pub use activation::Activation;
pub use attention_prefill::AttentionTile;
pub use attention_split::Splits;
pub use binary::BinaryKind;
pub use cache_dtype::cache_columns;
pub use epilogue::Epilogue;
pub use qkv_parts::QkvParts;
pub(super) use random::pcg3d;
pub use residual::Residual;
pub use row_norm::RowNorm;
pub use unary::UnaryKind;

/// The product of activations [tokens, columns] with a weight [rows, columns], transposed: [tokens, rows]. Up to a few tokens
/// it is limited by reading the weight; more share what was read in workgroup memory.
pub fn linear(tokens: usize) -> &'static dyn Op {
    match tokens {
        1 => &MatVec,
        tokens if MatVecFew::takes(tokens) => &MatVecFew { epilogue: Epilogue::NONE, planar: false },
        _ => &MatMul { epilogue: Epilogue::NONE },
    }
}
