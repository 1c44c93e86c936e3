//! How tokens are chosen.

use web_time::SystemTime;

use super::group;
use crate::error::Result;
use crate::sampler::{Dry, Mirostat, Penalties, SamplerSettings};

group! {
    /// What is not OpenAI's is in vLLM's words: `top_k`, `min_p`; and where it has none in llama.cpp's.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct SamplingFields {
        pub temperature: Option<f32>,
        pub top_p: Option<f32>,
        pub top_k: Option<u32>,
        pub min_p: Option<f32>,
        pub typical_p: Option<f32>,
        pub xtc_probability: Option<f32>,
        pub xtc_threshold: Option<f32>,
        /// 0 is off, 2 the second version. There is no first.
        pub mirostat: Option<u32>,
        pub mirostat_tau: Option<f32>,
        pub mirostat_eta: Option<f32>,
        pub seed: Option<i64>,
    }
}

impl SamplingFields {
    /// With the penalties of the same request. Refuses what can't be sampled with.
    pub(in crate::engine::api) fn settings(&self, penalties: Penalties, dry: Dry) -> Result<SamplerSettings> {
        let default = SamplerSettings::default();
        let settings = SamplerSettings {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical_p: self.typical_p.unwrap_or(default.typical_p),
            xtc_probability: self.xtc_probability.unwrap_or(default.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(default.xtc_threshold),
            mirostat: self.mirostat()?,
            penalties,
            dry,
            // Without a seed every generation draws its own; two equal requests then differ, as users expect.
            seed: self.seed.map_or_else(fresh_seed, |seed| seed as u64),
        };
        settings.validate()?;
        Ok(settings)
    }

    fn mirostat(&self) -> Result<Option<Mirostat>> {
        let default = Mirostat::default();
        match self.mirostat {
            Some(2) => Ok(Some(Mirostat {
                tau: self.mirostat_tau.unwrap_or(default.tau),
                eta: self.mirostat_eta.unwrap_or(default.eta),
            })),
            None | Some(0) => match (self.mirostat_tau, self.mirostat_eta) {
                (None, None) => Ok(None),
                (Some(_), _) => bail!(InvalidRequest, "mirostat_tau is set, and mirostat is not: set it to 2"),
                (_, Some(_)) => bail!(InvalidRequest, "mirostat_eta is set, and mirostat is not: set it to 2"),
            },
            Some(other) => bail!(InvalidRequest, "mirostat is {other}, wanted 0 (off) or 2"),
        }
    }
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new()
        .hash_one(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos()))
}
