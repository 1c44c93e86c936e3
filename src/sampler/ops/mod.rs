//! The ops of sampling. As in `tensor/ops`, one op is one `.rs` and its `.wgsl`, a new one is a line in this list, and the tests walk it.

crate::tensor::ops::ops! {
    adjust () {
        adjust_logits: AdjustLogits,
        adjust_marks: AdjustMarks,
        dry_marks: DryMarks,
        dynatemp: Dynatemp,
        top_n_sigma: TopNSigma,
    }
    band () {
        band_mass: BandMass,
        band_partial: BandPartial,
        mirostat_update: MirostatUpdate,
        sample_band: SampleBand,
        typical_band: TypicalBand,
        typical_histogram: TypicalHistogram,
        typical_moments: TypicalMoments,
        xtc: Xtc,
    }
    choice () {
        sample_merge: SampleMerge,
        sample_partial: SamplePartial,
    }
    logprobs () {
        logprobs_merge: LogprobsMerge,
        logprobs_partial: LogprobsPartial,
    }
    masks () {
        mask_logits: MaskLogits,
    }
    truncation () {
        sample_histogram: SampleHistogram,
        sample_range: SampleRange,
        sample_resolve: SampleResolve,
        sample_split: SampleSplit,
    }
}
