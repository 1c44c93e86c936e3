//! Second half of the log probabilities of a step, after its token was chosen: merges the groups and writes the results to rings,
//! which are read with the ring of tokens.

use crate::error::Result;
use crate::sampler::rows::of_row;
use crate::sampler::step_logprobs::{Best, LEAST, MOST, NAN_KEY, NONE, StepLogprobs, defines, groups, modules};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, by_reference, expect, on_cpu,
};

/// Inputs: logits [rows, vocabulary], wanted [rows] u32, and the outputs of `logprobs_partial` for both: sums, best; the chosen tokens
/// [rows] u32; values [rows, slots, 1 + MOST] f32 and tokens [rows, slots, MOST] u32 (changed at the step mod slots). A slot
/// holds the natural logarithm of the chosen token's probability (softmax of the logits, at least `LEAST`) and those of
/// the best ones with their tokens, the most probable first; the others are 0 and `NONE`. A row of a sequence that had
/// stopped before the step is not changed. A NaN among the logits makes all of them 0.
#[derive(Clone)]
pub struct LogprobsMerge;

impl Op for LogprobsMerge {
    on_cpu!();

    fn name(&self) -> &'static str {
        "logprobs_merge"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5, 6]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("logprobs_merge", inputs, &[f32, u32, f32, u32, u32, f32, u32])?;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let groups = groups(vocabulary);
        let lengths = [1, 2, 3, 4].map(|input| inputs[input].shape.elements());
        let (values, tokens) = (inputs[5].shape.elements(), inputs[6].shape.elements());
        let are_rings = tokens.is_multiple_of(rows * MOST) && values * MOST == tokens * (1 + MOST);
        if vocabulary == 0 || lengths != [1, groups, Best::words(groups), 1].map(|n| n * rows) || !are_rings {
            bail!(
                ShapeMismatch,
                "logprobs_merge: {rows} rows of {vocabulary} with {lengths:?} elements and rings of {values} and {tokens}"
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("logprobs_merge.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, (inputs[6].shape.elements() / rows / MOST) as u32],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for LogprobsMerge {
    /// From the logits themselves, in f64; of the outputs of `logprobs_partial` only step and stop are used.
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let logits = inputs[0].to_f32()?;
        let [wanted, best, chosen] = [1, 3, 4].map(|input| inputs[input].to_u32().unwrap_or_default());
        let (mut values, mut tokens) = (inputs[5].to_f32()?, inputs[6].to_u32()?);
        let slots = tokens.len() / rows / MOST;
        for (row, logits) in logits.chunks_exact(vocabulary).enumerate() {
            let [step, stopped] = [0, 1].map(|word| best[row * (best.len() / rows) + word]);
            if stopped != 0 {
                continue;
            }
            let slot = row * slots + step as usize % slots;
            let of_step = StepLogprobs::of(logits, chosen[row], (wanted[row] as usize).min(MOST));
            write(&of_step, slot, &mut values, &mut tokens);
        }
        inputs[5].set_f32(&values);
        inputs[6].set_u32(&tokens);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [logits, wanted, sums, best, chosen, values, tokens] = &mut tensors.inputs[..] else {
            bail!(Internal, "logprobs_merge without seven inputs")
        };
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        let (logits, sums) = (logits.f32s()?, sums.f32s()?);
        let [wanted, best, chosen] = [wanted.u32s()?, best.u32s()?, chosen.u32s()?];
        let (values, tokens) = (values.f32s_mut()?, tokens.u32s_mut()?);
        let slots = tokens.len() / rows / MOST;
        for row in 0..rows {
            let [step, stopped, best @ ..] = of_row(best, rows, row) else { continue };
            if *stopped != 0 {
                continue;
            }
            let slot = row * slots + *step as usize % slots;
            // Where there was none, a reference gives that of the last token.
            let chosen = (chosen[row] as usize).min(vocabulary - 1);
            let (sums, chosen) = (of_row(sums, rows, row), of_row(logits, rows, row)[chosen]);
            let of_step = StepLogprobs::of_groups(sums, best, chosen, (wanted[row] as usize).min(MOST));
            match of_step {
                Some(of_step) => write(&of_step, slot, values, tokens),
                None => return by_reference(self, tensors),
            }
        }
        Ok(())
    }
}

/// Writes a step to its slot of the rings.
fn write(of_step: &StepLogprobs, slot: usize, values: &mut [f32], tokens: &mut [u32]) {
    let values = &mut values[slot * (1 + MOST)..][..1 + MOST];
    let tokens = &mut tokens[slot * MOST..][..MOST];
    values.fill(0.0);
    tokens.fill(NONE);
    values[0] = of_step.chosen;
    for (place, (token, logprob)) in of_step.top.iter().enumerate() {
        (values[1 + place], tokens[place]) = (*logprob, *token);
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(72);
    let mut cases = Vec::new();
    let mut case = |logits: Vec<f32>, wanted: &[u32], chosen: &[u32], steps: &[u32], stopped: &[u32]| {
        let rows = wanted.len();
        let vocabulary = logits.len() / rows;
        let logits = HostTensor::f32(&[rows, vocabulary], &logits);
        let wanted = HostTensor::u32(&[rows], wanted);
        let state: Vec<u32> = (0..rows).flat_map(|row| [5, steps[row], stopped[row], 0]).collect();
        let mut partial = vec![logits.clone(), wanted.clone(), HostTensor::u32(&[rows, 4], &state)];
        let slots = 5;
        let partial = super::logprobs_partial::LogprobsPartial.reference(&mut partial).unwrap_or_default();
        let rings = [
            HostTensor::f32(&[rows, slots, 1 + MOST], &vec![0.5; rows * slots * (1 + MOST)]),
            HostTensor::u32(&[rows, slots, MOST], &vec![7; rows * slots * MOST]),
        ];
        let mut inputs = vec![logits, wanted];
        inputs.extend(partial);
        inputs.push(HostTensor::u32(&[rows], chosen));
        inputs.extend(rings);
        // The numbers are logarithms of 1e-7 and more.
        cases.push(Case::new(LogprobsMerge, inputs, 2e-6));
    };
    for (vocabulary, wanted) in [(1usize, 1u32), (7, 20), (257, 0), (2049, 5), (5003, 20), (128_256, 3), (262_147, 20)]
    {
        let logits: Vec<f32> = (0..vocabulary).map(|_| rng.signed() * 15.0).collect();
        case(logits, &[wanted], &[vocabulary as u32 / 2], &[wanted], &[0]);
    }
    // A vocabulary where one token has nearly all probability, and one of equal tokens.
    case((0..5003).map(|token| if token == 4001 { 30.0 } else { 0.0 }).collect(), &[3], &[4001], &[0], &[0]);
    case(vec![1.5; 151_937], &[20], &[9], &[3], &[0]);
    // Several sequences; the third had stopped.
    let logits: Vec<f32> = (0..4 * 5003).map(|_| rng.signed() * 9.0).collect();
    case(logits, &[20, 0, 1, 7], &[0, 5002, 17, 4444], &[0, 71, 3, 9], &[0, 0, 1, 0]);
    // Without a softmax: infinities, one of them chosen although it can't be; a NaN; no possible choice.
    let vocabulary = 4099;
    let mut rows = Vec::new();
    for kind in 0..5 {
        rows.extend((0..vocabulary).map(|token| match (kind, token) {
            (0, 77 | 3000) => f32::INFINITY,
            (1 | 2, token) if token % 1000 != 1 => f32::NEG_INFINITY,
            (3, 2900) => f32::NAN,
            (4, _) => f32::NEG_INFINITY,
            (_, token) => -1.0 - (token % 11) as f32,
        }));
    }
    case(rows, &[4, 20, 3, 20, 2], &[77, 1001, 5, u32::MAX, 0], &[0, 1, 2, 3, 4], &[0; 5]);
    const { assert!(NAN_KEY == NONE && LEAST < 0.0) };
    cases
}
