//! Mirostat 2 (`sampler/band.rs`): updates the allowed surprise by the surprise of the chosen token.

use super::band_mass::with_masses;
use super::sample_band::Inputs;
use crate::error::Result;
use crate::sampler::band::{BAND, defines, log2_mass, mass_of, modules};
use crate::sampler::row::SamplerRow;
use crate::sampler::truncation::{MAX_GROUPS, by_rows, depth_of, key_of, mass_bits};
use crate::tensor::{Capabilities, Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, on_cpu};

/// Inputs: logits [rows, vocabulary], settings [rows, WORDS] u32 (`SamplerRow`), band [rows, 4] u32, masses [rows, 2 · MAX_GROUPS]
/// u32, token [rows] u32, mu [rows] (changed, if a row has a target): the allowed surprise, in bits.
#[derive(Clone)]
pub struct MirostatUpdate;

impl Op for MirostatUpdate {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mirostat_update"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        expect("mirostat_update", inputs, &[f32, u32, u32, u32, u32, f32])?;
        let (rows, _) = inputs[0].shape.matrix()?;
        let lengths = [1, 2, 3, 4, 5].map(|input| inputs[input].shape.elements());
        let wanted = [SamplerRow::WORDS, BAND, 2 * MAX_GROUPS, 1, 1];
        if lengths != wanted.map(|words| words * rows) {
            bail!(ShapeMismatch, "mirostat_update: inputs of {rows} rows have {lengths:?} elements");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("mirostat_update.wgsl"),
            modules: modules(),
            defines: defines(vocabulary),
            params: vec![vocabulary as u32, mass_bits(vocabulary)],
            grid: [rows as u32, 1, 1],
        })
    }
}

impl Reference for MirostatUpdate {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        by_rows(inputs[0].shape.matrix()?.0, inputs, |inputs| {
            let logits = inputs[0].to_f32()?;
            let row = SamplerRow::read(&inputs[1])?;
            let largest = inputs[2].to_u32()?[0];
            let mass = mass_of(&inputs[3].to_u32()?);
            let token = inputs[4].to_u32()?[0] as usize;
            let mut mu = inputs[5].to_f32()?;
            if let Some(logit) = logits.get(token).filter(|_| row.mirostat_tau > 0.0) {
                let depth = depth_of(key_of(*logit), largest, row.octaves);
                let surprise = depth as f32 / 16_777_216.0 + log2_mass(mass, mass_bits(logits.len()));
                mu[0] -= row.mirostat_eta * (surprise - row.mirostat_tau);
            }
            inputs[5].set_f32(&mu);
            Ok(vec![])
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(99);
    let inputs = with_masses(&mut rng).unwrap_or_default();
    let cases = inputs.into_iter().flat_map(|(inputs, mass)| {
        let Inputs { logits, settings, mu, band, .. } = inputs;
        let (rows, vocabulary) = logits.shape.matrix().unwrap_or((1, 1));
        // The last is the token for "nothing to choose from".
        [rng.below(vocabulary) as u32, rng.below(vocabulary) as u32, u32::MAX].map(|token| {
            let token = HostTensor::u32(&[rows], &vec![token; rows]);
            let [logits, settings] = [&logits, &settings].map(HostTensor::clone);
            let [band, mass, mu] = [&band, &mass, &mu].map(HostTensor::clone);
            Case::new(MirostatUpdate, vec![logits, settings, band, mass, token, mu], 1e-6)
        })
    });
    cases.collect()
}
