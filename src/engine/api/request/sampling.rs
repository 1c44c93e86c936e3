//! How tokens are chosen.

use web_time::SystemTime;

use super::group;
use crate::error::Result;
use crate::sampler::fields::sampling_fields;
use crate::sampler::{Dry, Mirostat, Penalties, SamplingParams};

macro_rules! request {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr, $valid:expr, $wanted:literal;)*) => {
        group! {
            /// How a token is chosen. These fields apply in the order `top_n_sigma`, `temperature` (or `dynatemp_range`), `top_k`, `top_p`,
            /// `min_p`, `typical_p`, XTC, each to the tokens that the one before kept; in llama.cpp temperature is last. Tokens exactly as
            /// likely as the last one kept stay too. At temperature 0 none of them has an effect.
            #[derive(Clone, Copy, Debug, Default)]
            pub struct SamplingFields {
                /// 0 to 2; 0 always takes the most likely token. Default: 1.
                pub temperature: Option<f32>,
                /// Choose only from tokens at least this times as likely as the most likely one; 0 (the default) keeps all. An extension.
                pub min_p: Option<f32>,
                $($(#[$doc])* pub $name: Option<$type>,)*
                /// 2: cut tokens off so that their surprise stays near `mirostat_tau`. It replaces all cuts above, which may not be set
                /// then. 0 (the default) is off; the first version is not offered. Tokens that a grammar forces don't move the threshold.
                /// An extension.
                #[cfg_attr(test, ts(type = "0 | 2 | null"))]
                pub mirostat: Option<u32>,
                /// Mirostat's target, in bits. Above 0, at most 100. Default: 5.
                pub mirostat_tau: Option<f32>,
                /// How fast mirostat follows the surprise of the tokens that came. Above 0, at most 1. Default: 0.1.
                pub mirostat_eta: Option<f32>,
                /// The same seed, prompt and settings give the same text on the same adapter. A request with a seed takes from the KV cache
                /// only what other prompts left there, and no answers, because single tokens are rounded differently. If other requests run
                /// beside it (`maxSequences`), its text can still differ where two tokens are almost equally likely. Default: random.
                pub seed: Option<i64>,
            }
        }

        impl SamplingFields {
            /// `params` with the fields that go to the kernels unchanged.
            fn over(&self, params: SamplingParams) -> SamplingParams {
                SamplingParams { $($name: self.$name.unwrap_or(params.$name),)* ..params }
            }
        }
    };
}
sampling_fields!(request);

impl SamplingFields {
    /// The checked settings, with the penalties of the same request.
    pub(in crate::engine::api) fn settings(&self, penalties: Penalties, dry: Dry) -> Result<SamplingParams> {
        let default = SamplingParams::default();
        let settings = self.over(SamplingParams {
            temperature: self.temperature.unwrap_or(default.temperature),
            min_p: self.min_p.unwrap_or(default.min_p),
            mirostat: self.mirostat()?,
            penalties,
            dry,
            // Without a seed every generation draws its own, so two equal requests differ, as users expect.
            seed: self.seed.map_or_else(fresh_seed, |seed| seed as u64),
            ..default
        });
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
