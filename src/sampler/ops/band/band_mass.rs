//! The mass of a band (`sampler/band.rs`), by workgroups.

use super::sample_band::{Inputs, inputs};
use crate::error::Result;
use crate::sampler::band::{Band, by_groups, defines, modules, rows_of, weight};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{MAX_GROUPS, by_rows, group_of, groups, mass_bits};
use crate::tensor::{Capabilities, Case, Desc, HostTensor, Kernel, Op, Reference, Rng, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), band [rows, 4] u32. Output: masses
/// [rows, 2 · MAX_GROUPS] u32, low and high words.
#[derive(Clone)]
pub struct BandMass;

impl Op for BandMass {
    on_cpu!();

    fn name(&self) -> &'static str {
        "band_mass"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let rows = rows_of("band_mass", inputs)?;
        Ok(vec![Desc::u32(&[rows, 2 * MAX_GROUPS])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("band_mass.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary)],
            grid: [groups(vocabulary) as u32, rows as u32, 1],
        })
    }
}

impl Reference for BandMass {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let octaves = SamplerRow::read(&inputs[1])?.octaves;
            let band = Band::of(&inputs[2].to_u32()?);
            let mut sums = vec![0u64; groups(logits.len())];
            for (token, _, depth) in band.kept(&logits, octaves) {
                sums[group_of(token, logits.len())] += weight(depth, logits.len());
            }
            let sums: Vec<Vec<u32>> = sums.iter().map(|sum| vec![*sum as u32, (*sum >> 32) as u32]).collect();
            Ok(vec![by_groups(&sums, 2)])
        })
    }
}

/// The inputs of a band with its mass.
pub(super) fn with_masses(rng: &mut Rng) -> Result<Vec<(Inputs, HostTensor)>> {
    let with_mass = |inputs: Inputs| {
        let Inputs { logits, settings, band, .. } = &inputs;
        let mass = BandMass.reference(&mut [logits.clone(), settings.clone(), band.clone()])?.remove(0);
        Ok((inputs, mass))
    };
    inputs(rng)?.into_iter().map(with_mass).collect()
}

pub fn cases() -> Vec<Case> {
    let inputs = inputs(&mut Rng(96)).unwrap_or_default();
    let cases = inputs.into_iter().map(|inputs| {
        let Inputs { logits, settings, band, .. } = inputs;
        Case::new(BandMass, vec![logits, settings, band], 0.0)
    });
    cases.collect()
}
