//! First half of the log probabilities of a step, before its token is chosen: each of a few workgroups sums exp(logit) over its share
//! of the vocabulary, less the largest of it so that nothing overflows, and finds the best logits in it.

use crate::error::Result;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::step_logprobs::{Best, MOST, defines, groups, key_of, modules};
use crate::sampler::truncation::READ_AT_ONCE;
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, by_reference, expect, on_cpu,
};

/// Inputs: logits [rows, vocabulary], wanted [rows] u32 (how many of the best, at most `MOST`), state [rows, 4] u32 (step and whether
/// the sequence has stopped are a row's second and third word). Outputs: sums [rows, groups] f32, of exp(logit - the largest of
/// the group); best [rows, n] u32: step, stopped, and for each group its largest key and its best ones as keys and as tokens
/// (`logprobs.rs` says what keys are). Among equals the lower token comes first. A group that holds a NaN has `NAN_KEY` for
/// its largest, and 0 for its sum.
#[derive(Clone)]
pub struct LogprobsPartial;

impl Op for LogprobsPartial {
    on_cpu!();

    fn name(&self) -> &'static str {
        "logprobs_partial"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("logprobs_partial", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32)])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let lengths = [inputs[1].shape.elements(), inputs[2].shape.elements()];
        if vocabulary == 0 || lengths != [rows, 4 * rows] {
            bail!(ShapeMismatch, "logprobs_partial: wanted and state of {rows} rows have {lengths:?} elements");
        }
        let groups = groups(vocabulary);
        Ok(vec![Desc::f32(&[rows, groups]), Desc::u32(&[rows, Best::words(groups)])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("logprobs_partial.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for LogprobsPartial {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let (logits, wanted, state) = (inputs[0].to_f32()?, inputs[1].to_u32()?, inputs[2].to_u32()?);
        let groups = groups(vocabulary);
        let (mut sums, mut best) = (Vec::new(), Vec::new());
        for (row, logits) in logits.chunks_exact(vocabulary).enumerate() {
            best.extend([state[row * 4 + 1], state[row * 4 + 2]]);
            for group in 0..groups {
                let tokens = (0..vocabulary).filter(|token| token / READ_AT_ONCE % groups == group);
                let share: Vec<(u32, f32)> = tokens.map(|token| (token as u32, logits[token])).collect();
                let of_group = Best::of(&share, wanted[row]);
                sums.push(of_group.sum as f32);
                best.extend(of_group.list());
            }
        }
        Ok(vec![HostTensor::f32(&[rows, groups], &sums), HostTensor::u32(&[rows, Best::words(groups)], &best)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([logits, wanted, state], [sums, best]) = (&inputs[..], &mut outputs[..]) else {
            bail!(Internal, "logprobs_partial with {} inputs", inputs.len())
        };
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        let (logits, wanted, state) = (logits.f32s()?, wanted.u32s()?, state.u32s()?);
        let (sums, best) = (sums.f32s_mut()?, best.u32s_mut()?);
        let groups = groups(vocabulary);
        for (row, wanted) in wanted.iter().enumerate() {
            let best = of_row_mut(best, rows, row);
            best[..2].copy_from_slice(&of_row(state, rows, row)[1..3]);
            let of_groups = best[2..].chunks_exact_mut((Best::words(groups) - 2) / groups);
            for (group, (best, sum)) in of_groups.zip(of_row_mut(sums, rows, row)).enumerate() {
                let Some(of_group) = Best::of_group(of_row(logits, rows, row), group, groups, *wanted) else {
                    return by_reference(self, tensors);
                };
                best.copy_from_slice(&of_group.list());
                *sum = of_group.sum as f32;
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(71);
    let mut cases = Vec::new();
    let mut case = |logits: HostTensor, wanted: &[u32]| {
        let rows = wanted.len();
        let state: Vec<u32> = (0..rows as u32).flat_map(|row| [9 + row, 70 * row, row % 2, row]).collect();
        let inputs = vec![logits, HostTensor::u32(&[rows], wanted), HostTensor::u32(&[rows, 4], &state)];
        cases.push(Case::new(LogprobsPartial, inputs, 2e-5));
    };
    for (vocabulary, wanted) in [(1, 1), (7, 20), (257, 0), (2049, 5), (5003, 20), (128_256, 3), (262_147, 20)] {
        let wide: Vec<f32> = (0..vocabulary).map(|_| rng.signed() * 15.0).collect();
        case(HostTensor::f32(&[1, vocabulary], &wide), &[wanted]);
    }
    // Several sequences, each with another number.
    case(rng.tensor(&[4, 5003]), &[20, 0, 1, 7]);
    // Equal ones, in one group and across groups; numbers without a softmax; more than there may be.
    let vocabulary = 4099;
    let mut rows = Vec::new();
    for kind in 0..6 {
        rows.extend((0..vocabulary).map(|token| match (kind, token) {
            (0, _) => 1.5,
            (1, _) => (token % 3) as f32,
            (2, 77 | 3000) => f32::INFINITY,
            (3, token) if token % 1000 != 1 => f32::NEG_INFINITY,
            (4, 2900) => f32::NAN,
            (5, 4098) => -0.0,
            (5, 4000) => 0.0,
            (_, token) => -1.0 - (token % 11) as f32,
        }));
    }
    case(HostTensor::f32(&[6, vocabulary], &rows), &[20, 20, MOST as u32, 20, 20, 100]);
    case(HostTensor::f32(&[1, 300], &[f32::NEG_INFINITY; 300]), &[4]);
    assert_eq!(key_of(-0.0), key_of(0.0));
    cases
}
