//! Third step of truncated sampling (`sampler/truncation.rs`): finds the bins of the thresholds, takes the best of the surely kept
//! tokens, and lists the tokens on the border.

use rillm_cpu_kernels::{Depths, NoiseKey, noise};

use super::sample_histogram::{SampleHistogram, inputs};
use crate::error::Result;
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::{
    BORDER, Border, Histogram, MAX_GROUPS, NAN_KEY, NONE, READ_AT_ONCE, REST, TALLY, by_rows, defines, depth_of,
    group_of, groups, key_of, list, mass_bits, modules,
};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, by_reference, expect, fits,
    on_cpu,
};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32, state [rows, 4] u32 (a row's second word is its step), tally
/// [rows, TALLY] u32. Outputs: values [rows, MAX_GROUPS] f32 and tokens [rows, MAX_GROUPS] u32, each workgroup's best of
/// the surely kept tokens (u32::MAX: none); border [rows, BORDER] u32.
#[derive(Clone)]
pub struct SampleSplit;

impl Op for SampleSplit {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_split"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let u32 = Some(DType::U32);
        expect("sample_split", inputs, &[Some(DType::F32), u32, u32, u32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3].map(|input| inputs[input].shape.elements());
        if lengths != [rows * SamplerRow::WORDS, rows * 4, rows * TALLY] {
            bail!(ShapeMismatch, "sample_split: settings, state and tally of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![Desc::f32(&[rows, MAX_GROUPS]), Desc::u32(&[rows, MAX_GROUPS]), Desc::u32(&[rows, BORDER])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("sample_split.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary)],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for SampleSplit {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, one_row)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([logits, settings, state, tally], [values, tokens, words]) = (&inputs[..], &mut outputs[..]) else {
            bail!(Internal, "sample_split with {} inputs", inputs.len())
        };
        let (rows, _) = logits.desc.shape.matrix()?;
        for at in 0..rows {
            let row = SamplerRow::of_row(settings.u32s()?, rows, at)?;
            let border = Border::find(&Histogram::of(of_row(tally.u32s()?, rows, at), row.octaves), &row);
            let Some(depths) = row.depths(border.largest) else { return by_reference(self, tensors) };
            let key = row.noise_key(of_row(state.u32s()?, rows, at)[1]);
            let split = split(of_row(logits.f32s()?, rows, at), &row, &border, depths, key)?;
            of_row_mut(values.f32s_mut()?, rows, at).copy_from_slice(&split.values);
            of_row_mut(tokens.u32s_mut()?, rows, at).copy_from_slice(&split.tokens);
            of_row_mut(words.u32s_mut()?, rows, at).copy_from_slice(&split.words);
        }
        Ok(())
    }
}

struct Split {
    values: [f32; MAX_GROUPS],
    tokens: [u32; MAX_GROUPS],
    words: Vec<u32>,
}

/// What `one_row` gives, from the tokens alone that can be kept.
fn split(logits: &[f32], row: &SamplerRow, border: &Border, depths: Depths, key: NoiseKey) -> Result<Split> {
    let (mut sure, mut listed) = (Vec::new(), Vec::new());
    for [token, depth] in fits(depths.within(logits, border.most_depth(row.min_p_depth)))? {
        let bin = depth >> border.shift;
        if bin < border.kept() {
            sure.extend((depth <= row.min_p_depth).then_some(token));
        } else if border.is_on_border(bin) {
            listed.push(token as usize);
        }
    }
    let (mut values, mut tokens) = ([0.0; MAX_GROUPS], [NONE; MAX_GROUPS]);
    for (token, noise) in sure.iter().zip(fits(noise(&sure, key))?) {
        let value = (logits[*token as usize] - depths.largest) * row.inverse_temperature + noise;
        let group = group_of(*token as usize, logits.len());
        // The first among equals, as they come in their order.
        if tokens[group] == NONE || value > values[group] {
            (values[group], tokens[group]) = (value, *token);
        }
    }
    listed.sort_unstable_by_key(|token| (token % READ_AT_ONCE, *token));
    let mut words = border.with_list();
    for token in listed {
        list(&mut words, logits.len(), token, key_of(logits[token]));
    }
    Ok(Split { values, tokens, words })
}

fn one_row(inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
    let logits = inputs[0].to_f32()?;
    let row = SamplerRow::read(&inputs[1])?;
    let step = inputs[2].to_u32()?[1];
    let border = Border::find(&Histogram::of(&inputs[3].to_u32()?, row.octaves), &row);
    let mut best = vec![(0.0, NONE); MAX_GROUPS];
    let mut words = border.with_list();
    // As the kernel's invocations list them: those of the first invocation first.
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    tokens.sort_by_key(|token| (token % READ_AT_ONCE, *token));
    for token in tokens {
        let key = key_of(logits[token]);
        let depth = depth_of(key, border.largest, row.octaves);
        let bin = depth >> border.shift;
        if depth >= REST || key == NAN_KEY {
            continue;
        }
        if bin < border.kept() {
            let value = row.value(key, border.largest, token as u32, step);
            let best = &mut best[group_of(token, logits.len())];
            let is_better = best.1 == NONE || value > best.0 || (value == best.0 && (token as u32) < best.1);
            if is_better && depth <= row.min_p_depth {
                *best = (value, token as u32);
            }
        } else if border.is_on_border(bin) {
            list(&mut words, logits.len(), token, key);
        }
    }
    let (values, tokens): (Vec<f32>, Vec<u32>) = best.into_iter().unzip();
    Ok(vec![
        HostTensor::f32(&[1, MAX_GROUPS], &values),
        HostTensor::u32(&[1, MAX_GROUPS], &tokens),
        HostTensor::u32(&[1, BORDER], &words),
    ])
}

/// Logits, settings, state, and the tally after the step before.
pub(super) fn split_inputs(rng: &mut Rng) -> Result<Vec<[HostTensor; 4]>> {
    inputs(rng)?
        .into_iter()
        .enumerate()
        .map(|(index, mut inputs)| {
            SampleHistogram.reference(&mut inputs)?;
            let [logits, settings, tally] = inputs;
            let rows = logits.shape.matrix()?.0;
            let state: Vec<u32> = (0..rows).flat_map(|row| [7, (index + row) as u32, 0, row as u32]).collect();
            Ok([logits, settings, HostTensor::u32(&[rows, 4], &state), tally])
        })
        .collect()
}

pub fn cases() -> Vec<Case> {
    let inputs = split_inputs(&mut Rng(43)).unwrap_or_default();
    inputs.into_iter().map(|inputs| Case::new(SampleSplit, inputs.into(), 1e-5)).collect()
}
