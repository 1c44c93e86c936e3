//! What decides how the next token is chosen from the logits, as plain data. The choosing itself is not done here.

use crate::error::Result;

/// Settings of one generation.
///
/// The defaults are those of OpenAI's API where it documents one: `temperature` 1.0 takes the model's distribution as it
/// is. Truncation is off. `seed` 0 is a fixed seed: the same request gives the same text unless the caller draws a seed.
///
/// What is set applies in this order: temperature, top-k, top-p, min-p, each on what the one before it kept. That is the order
/// of Hugging Face transformers and of vLLM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerSettings {
    /// The logits are divided by it before softmax. 0 means greedy: always the most probable token.
    pub temperature: f32,
    /// Only the `top_k` most probable tokens are chosen from; 0 means all. Tokens as probable as the last of them stay too.
    pub top_k: u32,
    /// Nucleus sampling (Holtzman et al. 2019): only the most probable tokens that together reach this probability are chosen
    /// from, of what `top_k` keeps. 1 means all. Tokens as probable as the last of them stay too.
    pub top_p: f32,
    /// Only tokens at least this times as probable as the most probable one are chosen from (Nguyen et al. 2024). 0 means all.
    pub min_p: f32,
    /// Start of the random sequence. Without effect at temperature 0.
    pub seed: u64,
}

/// Above this the distribution is noise; OpenAI's API draws the line at the same place.
pub const MAX_TEMPERATURE: f32 = 2.0;

impl Default for SamplerSettings {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl SamplerSettings {
    /// Settings that always take the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether always the most probable token is taken, the first among equals.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Whether some tokens are never chosen.
    pub fn is_truncated(&self) -> bool {
        !self.is_greedy() && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }

    /// Refuses what can't be sampled with.
    pub fn validate(&self) -> Result<()> {
        // Not written as `<` and `>`: NaN must be refused as well.
        if !(0.0..=MAX_TEMPERATURE).contains(&self.temperature) {
            bail!(
                InvalidRequest,
                "temperature is {}, wanted a number from 0 (greedy) to {MAX_TEMPERATURE}",
                self.temperature
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            bail!(InvalidRequest, "top_p is {}, wanted a number above 0 and at most 1 (keeps all)", self.top_p);
        }
        if !(0.0..1.0).contains(&self.min_p) {
            bail!(InvalidRequest, "min_p is {}, wanted a number from 0 (keeps all) to below 1", self.min_p);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn default_and_greedy_settings_are_valid() {
        assert!(SamplerSettings::default().validate().is_ok());
        assert!(SamplerSettings::greedy().validate().is_ok());
        assert!(SamplerSettings::greedy().is_greedy());
        assert!(!SamplerSettings::default().is_greedy());
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let default = SamplerSettings::default();
        let refused = |settings: SamplerSettings, name: &str| {
            let error = settings.validate().unwrap_err();
            assert_eq!(error.code(), Code::InvalidRequest, "{settings:?}");
            assert!(error.message().starts_with(name), "{error}");
        };
        for temperature in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
            refused(SamplerSettings { temperature, ..default }, "temperature");
        }
        for top_p in [0.0, -0.5, 1.1, f32::NAN] {
            refused(SamplerSettings { top_p, ..default }, "top_p");
        }
        for min_p in [-0.1, 1.0, f32::NAN] {
            refused(SamplerSettings { min_p, ..default }, "min_p");
        }
        assert!(SamplerSettings { top_k: 40, top_p: 1e-9, min_p: 0.99, ..default }.validate().is_ok());
    }

    #[test]
    fn truncation_is_on_when_something_can_be_cut() {
        let default = SamplerSettings::default();
        assert!(!default.is_truncated());
        for settings in [
            SamplerSettings { top_k: 2, ..default },
            SamplerSettings { top_p: 0.9, ..default },
            SamplerSettings { min_p: 0.1, ..default },
        ] {
            assert!(settings.is_truncated() && !settings.is_greedy());
            assert!(!SamplerSettings { temperature: 0.0, ..settings }.is_truncated());
        }
        assert!(SamplerSettings { top_k: 1, ..default }.is_greedy());
    }
}
