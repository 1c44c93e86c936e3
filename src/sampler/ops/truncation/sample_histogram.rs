//! Second step of truncated sampling (`sampler/truncation.rs`): count and mass of the logits in bins of equal width, from the
//! largest down.

use super::sample_range::{KINDS, SampleRange, logits, several};
use crate::error::Result;
use crate::sampler::params::SamplingParams;
use crate::sampler::row::SamplerRow;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::{
    BINS, HISTOGRAM, Histogram, REST, TALLY, by_rows, defines, depth_of, groups, key_of, mass_bits, modules, weight_of,
};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, by_reference, expect, fits,
    on_cpu,
};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32, tally [rows, TALLY] u32 (changed: its histogram).
#[derive(Clone)]
pub struct SampleHistogram;

impl Op for SampleHistogram {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_histogram"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sample_histogram", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32)])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [inputs[1].shape.elements(), inputs[2].shape.elements()];
        if lengths != [rows * SamplerRow::WORDS, rows * TALLY] {
            bail!(ShapeMismatch, "sample_histogram: settings {}, tally {}", inputs[1].shape, inputs[2].shape);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("sample_histogram.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary)],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for SampleHistogram {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let mut tally = inputs[2].to_u32()?;
            let mut histogram = Histogram::of(&tally, row.octaves);
            for logit in &logits {
                let depth = depth_of(key_of(*logit), histogram.largest, row.octaves);
                if depth < REST {
                    let bin = &mut histogram.bins[(depth >> histogram.shift) as usize];
                    bin.count += 1;
                    bin.mass += weight_of(depth, mass_bits(logits.len()));
                }
            }
            for (index, bin) in histogram.bins.iter().enumerate() {
                for (part, word) in [bin.count, bin.mass as u32, (bin.mass >> 32) as u32].into_iter().enumerate() {
                    tally[HISTOGRAM + part * BINS + index] = word;
                }
            }
            inputs[2].set_u32(&tally);
            Ok(vec![])
        })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [logits, settings, tally] = &mut tensors.inputs[..] else {
            bail!(Internal, "sample_histogram without three inputs")
        };
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        let (logits, settings) = (logits.f32s()?, settings.u32s()?);
        for at in 0..rows {
            let row = SamplerRow::of_row(settings, rows, at)?;
            let tally = of_row_mut(tally.u32s_mut()?, rows, at);
            let Histogram { largest, shift, mut bins } = Histogram::of(tally, row.octaves);
            let Some(depths) = row.depths(largest) else { return by_reference(self, tensors) };
            let (mut counts, mut masses): (Vec<u32>, Vec<u64>) =
                bins.drain(..).map(|bin| (bin.count, bin.mass)).unzip();
            let into = (&mut counts, &mut masses);
            fits(depths.tally(of_row(logits, rows, at), [shift, mass_bits(vocabulary)], into.0, into.1))?;
            for (index, (count, mass)) in counts.into_iter().zip(masses).enumerate() {
                for (part, word) in [count, mass as u32, (mass >> 32) as u32].into_iter().enumerate() {
                    tally[HISTOGRAM + part * BINS + index] = word;
                }
            }
        }
        Ok(())
    }
}

/// Settings that cut in different ways.
pub(super) fn settings() -> Vec<SamplingParams> {
    let all = SamplingParams { seed: 5, ..SamplingParams::default() };
    vec![
        all,
        SamplingParams { top_k: 3, seed: 1 << 40, ..all },
        SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.05, temperature: 0.7, ..all },
        SamplingParams { top_p: 0.9, ..all },
        SamplingParams { top_k: 30_000, top_p: 0.5, temperature: 2.0, ..all },
        SamplingParams { top_p: 1e-6, ..all },
        SamplingParams { top_k: 5000, top_p: 0.999_999, temperature: 0.05, ..all },
        SamplingParams { min_p: 0.3, temperature: 1.5, ..all },
    ]
}

/// Logits, settings and the tally after the step before, for each pair of logits and settings; with large vocabularies only for some
/// pairs.
pub(super) fn inputs(rng: &mut Rng) -> Result<Vec<[HostTensor; 3]>> {
    let mut inputs = Vec::new();
    for kind in 0..KINDS {
        let logits = logits(rng, kind);
        let tally = SampleRange.reference(&mut [logits.clone()])?.remove(0);
        let is_large = logits.shape.elements() > 10_000;
        for (_, settings) in
            settings().into_iter().enumerate().filter(|(index, _)| !is_large || (index + kind) % 4 == 2)
        {
            let settings = SamplerRow::tensor(&[SamplerRow::new(&settings)]);
            inputs.push([logits.clone(), settings, tally.clone()]);
        }
    }
    // Three sequences with different settings.
    let logits = several(rng);
    let tally = SampleRange.reference(&mut [logits.clone()])?.remove(0);
    let rows: Vec<SamplerRow> = settings()[1..4].iter().map(SamplerRow::new).collect();
    inputs.push([logits, SamplerRow::tensor(&rows), tally]);
    Ok(inputs)
}

pub fn cases() -> Vec<Case> {
    let inputs = inputs(&mut Rng(42)).unwrap_or_default();
    inputs.into_iter().map(|inputs| Case::new(SampleHistogram, inputs.into(), 0.0)).collect()
}
