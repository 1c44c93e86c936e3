//! First step of truncated sampling (`sampler/truncation.rs`): the largest and the smallest logit, and an empty histogram.

use rillm_cpu_kernels::extremes;

use crate::error::Result;
use crate::sampler::rows::{of_row, of_row_mut};
use crate::sampler::truncation::{
    MAX_GROUPS, READ_AT_ONCE, TALLY, by_rows, defines, group_of, groups, key_of, modules,
};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu,
};

/// Input: logits [rows, vocabulary]. Output: tally [rows, TALLY] u32, of which the histogram is zero.
#[derive(Clone)]
pub struct SampleRange;

impl Op for SampleRange {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sample_range"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sample_range", inputs, &[Some(DType::F32)])?;
        Ok(vec![Desc::u32(&[inputs[0].shape.matrix()?.0, TALLY])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("sample_range.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for SampleRange {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let mut tally = vec![0; TALLY];
            let logits = inputs[0].to_f32()?;
            for (token, logit) in logits.iter().enumerate() {
                let (group, key) = (group_of(token, logits.len()), key_of(*logit));
                tally[group] = tally[group].max(key);
                tally[MAX_GROUPS + group] = tally[MAX_GROUPS + group].max(!key);
            }
            Ok(vec![HostTensor::u32(&[1, TALLY], &tally)])
        })
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([logits], [tally]) = (&inputs[..], &mut outputs[..]) else { bail!(Internal, "sample_range of no logits") };
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        let (logits, tally) = (logits.f32s()?, tally.u32s_mut()?);
        for at in 0..rows {
            let tally = of_row_mut(tally, rows, at);
            tally.fill(0);
            for (chunk, logits) in of_row(logits, rows, at).chunks(READ_AT_ONCE).enumerate() {
                let group = group_of(chunk * READ_AT_ONCE, vocabulary);
                let mut count = |logit: f32| {
                    let key = key_of(logit);
                    tally[group] = tally[group].max(key);
                    tally[MAX_GROUPS + group] = tally[MAX_GROUPS + group].max(!key);
                };
                match extremes(logits) {
                    Some(both) => both.into_iter().for_each(&mut count),
                    None => logits.iter().copied().for_each(&mut count),
                }
            }
        }
        Ok(())
    }
}

/// Logits that are hard to truncate: near and far from each other, equal, infinite, NaN.
pub(super) fn logits(rng: &mut Rng, kind: usize) -> HostTensor {
    let mut make = |n: usize, logit: &dyn Fn(f32) -> f32| {
        let data: Vec<f32> = (0..n).map(|_| logit(rng.signed())).collect();
        HostTensor::f32(&[1, n], &data)
    };
    match kind {
        0 => make(1, &|x| x),
        1 => make(257, &|x| 8.0 * x),
        // Flat: the border is as wide as anywhere.
        2 => make(262_208, &|x| x),
        // A few that lead and a long tail.
        3 => make(128_256, &|x| 30.0 * x * x * x),
        // Many equal ones at the border, more than the list holds.
        4 => make(40_000, &|x| (2.0 * x).round()),
        5 => make(20_000, &|_| -3.5),
        // Nearly equal: all in one bin until the last bits.
        6 => make(30_011, &|x| 100.0 + 1e-4 * x),
        7 => make(5_003, &|x| {
            if x < -0.5 {
                f32::NEG_INFINITY
            } else if x.abs() < 0.1 {
                -0.0
            } else {
                20.0 * x
            }
        }),
        8 => make(5_003, &|x| if x > 0.999 { f32::INFINITY } else { x }),
        _ => make(3_001, &|x| if x > 0.999 { f32::NAN } else { x }),
    }
}

/// Three rows of logits.
pub(super) fn several(rng: &mut Rng) -> HostTensor {
    let data: Vec<f32> = (0..3 * 5_003).map(|i| (8 + i / 5_003) as f32 * rng.signed()).collect();
    HostTensor::f32(&[3, 5_003], &data)
}

pub(super) const KINDS: usize = 10;

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(41);
    let mut cases: Vec<Case> =
        (0..KINDS).map(|kind| Case::new(SampleRange, vec![logits(&mut rng, kind)], 0.0)).collect();
    cases.push(Case::new(SampleRange, vec![several(&mut rng)], 0.0));
    cases
}
