//! The ops, in folders by family. One op is one `.rs` and its `.wgsl`; a new one is a line in this list, and the tests walk it.

use super::Op;

/// Declares the ops of a layer, in folders by family, and lists their test cases.
macro_rules! ops {
    ($($family:ident ($($shared:ident),*) { $($module:ident: $op:ident,)* })*) => {
        $(mod $family {
            $(pub(super) mod $shared;)*
            $(pub(super) mod $module;)*
        })*
        $($(pub use $family::$module::$op;)*)*

        /// The test cases of every op, by its name.
        pub const ALL: &[(&str, fn() -> Vec<$crate::tensor::Case>)] = &[
            $($((stringify!($module), $family::$module::cases),)*)*
        ];
    };
}

pub(crate) use ops;

// In parentheses: files of a family that are not ops but shared by its ops.
ops! {
    activations (activation) {
        gate_input: GateInput,
        gaussian_topk: GaussianTopk,
        swiglu: Swiglu,
        swiglu_clamped: SwigluClamped,
        swiglu_fused: SwigluFused,
        swiglu_int8: SwigluInt8,
        swiglu_soa: SwigluSoa,
        xielu: Xielu,
    }
    altup () {
        add_to_streams: AddToStreams,
        altup_correct: AltupCorrect,
        altup_predict: AltupPredict,
    }
    attention () {
        attention: Attention,
        attention_disentangled: AttentionDisentangled,
        attention_merge: AttentionMerge,
        attention_out: AttentionOut,
        attention_per_head: AttentionPerHead,
        attention_prefill: AttentionPrefill,
        attention_spans: AttentionSpans,
        attention_split: AttentionSplit,
        flash_attention: FlashAttention,
    }
    cache (cache_dtype, placement, qkv_parts) {
        copy_sequence: CopySequence,
        keep_rows: KeepRows,
        kv_append: KvAppend,
        kv_shift: KvShift,
        recall_row: RecallRow,
        rope_kv_append: RopeKvAppend,
    }
    convolution (sliding) {
        conv2d: Conv2d,
        conv_transpose2d: ConvTranspose2d,
    }
    elementwise () {
        add: Add,
        add_row: AddRow,
        binary: Binary,
        clamp: Clamp,
        fill: Fill,
        gate_rows: GateRows,
        random: Random,
        scale: Scale,
        scale_by_position: ScaleByPosition,
        sigmoid_gate: SigmoidGate,
        softcap: Softcap,
        unary: Unary,
    }
    embedding () {
        add_positions: AddPositions,
        cached_embedding: CachedEmbedding,
        embedding: Embedding,
        embedding_part: EmbeddingPart,
    }
    experts (stack) {
        combine_experts: CombineExperts,
        group_experts: GroupExperts,
        mat_mul_experts: MatMulExperts,
        mat_mul_experts_int8: MatMulExpertsInt8,
        mat_vec_experts: MatVecExperts,
        route_experts: RouteExperts,
    }
    indexing (indices) {
        gather: Gather,
        index_select: IndexSelect,
        scatter_add: ScatterAdd,
    }
    latent () {
        head_products: HeadProducts,
        latent_append: LatentAppend,
        latent_attention: LatentAttention,
    }
    norms (row_norm) {
        gated_norm: GatedNorm,
        layer_norm: LayerNorm,
        match_magnitude: MatchMagnitude,
        norm_add: NormAdd,
        norm_heads: NormHeads,
        norm_parts: NormParts,
        rms_norm: RmsNorm,
        rms_norm_int8: RmsNormInt8,
        rms_norm_soa: RmsNormSoa,
        round_rows: RoundRows,
        softmax: Softmax,
    }
    pooling (pooled) {
        avg_pool2d: AvgPool2d,
        max_pool2d: MaxPool2d,
    }
    products (epilogue, feed_forward, low_rank, residual) {
        low_rank_add: LowRankAdd,
        low_rank_down: LowRankDown,
        mat_mul: MatMul,
        mat_mul_backward: MatMulBackward,
        mat_mul_f32: MatMulF32,
        mat_mul_int8: MatMulInt8,
        mat_vec: MatVec,
        mat_vec_add: MatVecAdd,
        mat_vec_small_batch: MatVecSmallBatch,
        norm_gate_up: NormGateUp,
        norm_mat_vec: NormMatVec,
        norm_qkv: NormQkv,
        norm_up: NormUp,
        quantize: Quantize,
    }
    recurrent () {
        gated_delta: GatedDelta,
        selective_scan: SelectiveScan,
        short_convolution: ShortConvolution,
    }
    reductions () {
        argmax: Argmax,
        dot: Dot,
        max_rows: MaxRows,
        mean_rows: MeanRows,
    }
    rope () {
        rope: Rope,
        rope_positions: RopePositions,
    }
    scan (line_scan) {
        add_block_sums: AddBlockSums,
        cumsum: Cumsum,
        scan_blocks: ScanBlocks,
    }
    shape () {
        concat_columns: ConcatColumns,
        place_columns: PlaceColumns,
        slice_columns: SliceColumns,
        slice_rows: SliceRows,
    }
    sorting (sort_key) {
        merge_runs: MergeRuns,
        sort: Sort,
        sort_runs: SortRuns,
    }
    training () {
        adam_w: AdamW,
    }
}

pub use activations::activation::Activation;
pub(crate) use activations::activation::erfc;
pub use attention::attention_per_head::PerHead;
pub use attention::attention_prefill::AttentionTile;
pub use attention::attention_split::Splits;
pub use cache::cache_dtype::cache_columns;
pub use cache::qkv_parts::QkvParts;
pub use cache::rope_kv_append::HeadNorms;
pub use elementwise::binary::BinaryKind;
pub(crate) use elementwise::random::PCG3D;
pub use elementwise::random::pcg3d;
pub use elementwise::unary::UnaryKind;
pub use experts::route_experts::{ExpertGroups, Gating};
pub use indexing::scatter_add::ScatterKind;
pub use norms::row_norm::RowNorm;
pub use products::epilogue::Epilogue;
pub use products::feed_forward::FeedForward;
pub use products::low_rank::LowRankSegment;
pub use products::low_rank_down::LowRankInput;
pub use products::residual::Residual;
pub use recurrent::short_convolution::ConvolutionForm;
pub use sorting::sort_key::{SortKey, SortOrder};
pub use sorting::sort_runs::RunsOf;

/// The product of activations [tokens, columns] with a weight [rows, columns], transposed: [tokens, rows]. For small batches,
/// reading the weight takes most of the time; for more tokens, tiles in workgroup memory share the reads.
pub fn linear(tokens: usize) -> &'static dyn Op {
    match tokens {
        1 => &MatVec,
        tokens if MatVecSmallBatch::takes(tokens) => &MatVecSmallBatch { epilogue: Epilogue::NONE, soa: false },
        _ => &MatMul { epilogue: Epilogue::NONE },
    }
}
