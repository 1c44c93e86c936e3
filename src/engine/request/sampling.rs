//! How tokens are chosen.

use web_time::SystemTime;

use super::group;
use crate::error::Result;
use crate::text::sampler::SamplerSettings;

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct SamplingFields {
        pub temperature: Option<f32>,
        pub top_p: Option<f32>,
        /// With `min_p` an extension, in vLLM's words.
        pub top_k: Option<u32>,
        pub min_p: Option<f32>,
        pub seed: Option<i64>,
    }
}

impl SamplingFields {
    pub(super) fn settings(&self) -> Result<SamplerSettings> {
        let default = SamplerSettings::default();
        let settings = SamplerSettings {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            // Without a seed every generation draws its own; two equal requests then differ, as users expect.
            seed: self.seed.map_or_else(fresh_seed, |seed| seed as u64),
        };
        settings.validate()?;
        Ok(settings)
    }
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new()
        .hash_one(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos()))
}
