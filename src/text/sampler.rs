//! What decides how the next token is chosen from the logits, as plain data. The choosing itself is not done here.

use crate::error::Result;

/// Settings of one generation.
///
/// The defaults are those of OpenAI's API where it documents one: `temperature` 1.0 takes the model's distribution as it
/// is. `seed` 0 is a fixed seed: the same request gives the same text unless the caller draws a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerSettings {
    /// The logits are divided by it before softmax. 0 means greedy: always the most probable token.
    pub temperature: f32,
    /// Start of the random sequence. Without effect at temperature 0.
    pub seed: u64,
}

/// Above this the distribution is noise; OpenAI's API draws the line at the same place.
pub const MAX_TEMPERATURE: f32 = 2.0;

impl Default for SamplerSettings {
    fn default() -> Self {
        Self { temperature: 1.0, seed: 0 }
    }
}

impl SamplerSettings {
    /// Settings that always take the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
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
    fn a_temperature_outside_of_the_range_is_refused() {
        for temperature in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
            let refused = SamplerSettings { temperature, seed: 0 }.validate().unwrap_err();
            assert_eq!(refused.code(), Code::InvalidRequest, "{temperature}");
        }
    }
}
