//! The settings of sampling, as plain data. Kernels do the sampling.

use super::fields::sampling_fields;
use crate::error::Result;

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr, $valid:expr, $wanted:literal;)*) => {
        /// Settings of one generation.
        ///
        /// The defaults are those of OpenAI's API, if it documents one: `temperature` 1.0 is the model's own distribution. All else is off.
        /// `seed` 0 is a fixed seed: the same request gives the same text unless the caller draws a seed.
        ///
        /// Settings apply in this order, each to the result of the one before:
        ///
        /// 1. On the logits: biases (`TokenRules`), repetition penalty, frequency and presence penalty, DRY, bans. That is the order of llama.cpp's
        ///    server, and of the settings that transformers and vLLM have. Then the mask of a grammar, and top-n-sigma.
        /// 2. Temperature (or dynamic temperature), top-k, top-p, min-p, typical-p: the order of Hugging Face transformers.
        /// 3. XTC, the last truncation, as in llama.cpp and text-generation-webui.
        ///
        /// llama.cpp's own chain is: penalties, DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature. So temperature is last
        /// there, and truncations use the distribution at temperature 1; at that temperature the two chains differ only in the place of
        /// typical-p.
        ///
        /// Mirostat replaces all truncations, after temperature, as in llama.cpp. At temperature 0 no truncation has an effect.
        ///
        /// Sources: dynamic temperature (Zhu et al. 2023), top-n-sigma (Tang et al. 2024), nucleus sampling (Holtzman et al. 2019), min-p (Nguyen
        /// et al. 2024), locally typical sampling (Meister et al. 2022), XTC, "exclude top choices" (p-e-w 2024). Tokens as probable as the last
        /// one that a truncation keeps stay too.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct SamplingParams {
            /// The logits are divided by it before softmax. 0 means greedy: always the most probable token.
            pub temperature: f32,
            /// Keeps only tokens with at least this share of the probability of the most probable one. 0 keeps all.
            pub min_p: f32,
            $($(#[$doc])* pub $name: $type,)*
            /// The second version of mirostat (Basu et al. 2020).
            pub mirostat: Option<Mirostat>,
            /// Penalties for tokens that occurred before.
            pub penalties: Penalties,
            /// DRY, a penalty for repeated sequences.
            pub dry: Dry,
            /// The seed of the random numbers. No effect at temperature 0.
            pub seed: u64,
        }

        impl Default for SamplingParams {
            fn default() -> Self {
                Self {
                    temperature: 1.0,
                    min_p: 0.0,
                    $($name: $default,)*
                    mirostat: None,
                    penalties: Penalties::default(),
                    dry: Dry::default(),
                    seed: 0,
                }
            }
        }

        impl SamplingParams {
            /// Refuses a field of the list that is out of its range. What is no number is in none.
            fn validate_fields(&self) -> Result<()> {
                $(if !($valid)(self.$name) {
                    bail!(InvalidRequest, "{} is {}, wanted {}", stringify!($name), self.$name, $wanted);
                })*
                Ok(())
            }
        }
    };
}
sampling_fields!(params);

/// Keeps the surprise of the tokens near a target: tokens above an allowed surprise are cut off. It starts at twice the target and
/// changes after each token by `eta` times the difference between target and surprise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// The target, in bits.
    pub tau: f32,
    /// The learning rate: the allowed surprise moves by this part of the error.
    pub eta: f32,
}

/// Penalties for tokens that occurred before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Logits of tokens in the prompt or the answer are divided by it if they are positive, and multiplied by it otherwise (Keskar et al.
    /// 2019, CTRL). The prompt counts, as in transformers, vLLM and llama.cpp. 1 is off; below 1 encourages repetition.
    pub repetition: f32,
    /// Subtracted from a token's logit for each occurrence in the answer. The prompt does not count, as in OpenAI's API.
    pub frequency: f32,
    /// Subtracted once if the answer holds the token.
    pub presence: f32,
    /// The number of tokens at the end of the text that count; `WHOLE_TEXT` for all, 0 for none.
    pub window: u32,
}

/// A window as long as the text.
pub const WHOLE_TEXT: u32 = u32::MAX;

/// DRY, "don't repeat yourself" (p-e-w 2024): a token that would continue a repetition of n tokens, n ≥ `allowed_length`, loses
/// `multiplier` · `base`^(n - `allowed_length`). Prompt and answer count. `TokenRules::dry_breakers` end repetitions. The penalty
/// grows up to a million, or up to a thousand tokens beyond `allowed_length`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dry {
    /// 0 is off.
    pub multiplier: f32,
    /// The base of the exponential growth, at least 1.
    pub base: f32,
    /// The shortest repetition that costs, in tokens: 1 to 1024.
    pub allowed_length: u32,
    /// As `Penalties::window`.
    pub window: u32,
}

/// The distribution is noise above this; OpenAI's API has the same limit.
pub const MAX_TEMPERATURE: f32 = 2.0;
/// As in OpenAI's API.
const MAX_PENALTY: f32 = 2.0;
/// Far more than is useful: 1.0 to 1.5 is usual.
const MAX_REPETITION: f32 = 100.0;
/// The largest `Dry::allowed_length`.
pub const MAX_ALLOWED_LENGTH: u32 = 1024;

impl Default for Mirostat {
    /// llama.cpp's.
    fn default() -> Self {
        Self { tau: 5.0, eta: 0.1 }
    }
}

impl Default for Penalties {
    fn default() -> Self {
        Self { repetition: 1.0, frequency: 0.0, presence: 0.0, window: WHOLE_TEXT }
    }
}

impl Default for Dry {
    /// llama.cpp's.
    fn default() -> Self {
        Self { multiplier: 0.0, base: 1.75, allowed_length: 2, window: WHOLE_TEXT }
    }
}

impl Penalties {
    /// Whether they can change a logit.
    pub fn are_on(&self) -> bool {
        self.window > 0 && (self.repetition != 1.0 || self.frequency != 0.0 || self.presence != 0.0)
    }
}

impl Dry {
    /// Whether it can change a logit.
    pub fn is_on(&self) -> bool {
        self.window > 0 && self.multiplier > 0.0
    }

    /// Repetitions are followed back for this number of tokens: until the penalty is a million, or a thousand tokens beyond
    /// `allowed_length`. Longer ones count as this long.
    pub(super) fn longest(&self) -> u32 {
        if self.multiplier <= 0.0 {
            return 0;
        }
        let growth = f64::from(self.base).ln();
        let steps = if growth > 0.0 { (1e6 / f64::from(self.multiplier)).ln() / growth } else { 0.0 };
        // A cast of a negative number gives 0.
        self.allowed_length + (steps as u32).min(1000)
    }
}

impl SamplingParams {
    /// Settings that always take the most probable token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether the most probable token is always chosen, the first among equals.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Whether a threshold on the probability excludes tokens.
    pub fn is_truncated(&self) -> bool {
        !self.is_greedy() && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }

    /// Whether another truncation than such a threshold excludes tokens.
    pub fn is_banded(&self) -> bool {
        !self.is_greedy() && (self.typical_p < 1.0 || self.xtc_probability > 0.0 || self.mirostat.is_some())
    }

    /// Refuses settings out of their ranges. Errors name the fields of a request.
    pub fn validate(&self) -> Result<()> {
        // Not with `<` and `>`, because NaN must be refused as well.
        if !(0.0..=MAX_TEMPERATURE).contains(&self.temperature) {
            bail!(
                InvalidRequest,
                "temperature is {}, wanted a number from 0 (greedy) to {MAX_TEMPERATURE}",
                self.temperature
            );
        }
        self.validate_fields()?;
        if !(0.0..1.0).contains(&self.min_p) {
            bail!(InvalidRequest, "min_p is {}, wanted a number from 0 (keeps all) to below 1", self.min_p);
        }
        if self.dynatemp_range > 0.0 && self.temperature == 0.0 {
            bail!(
                InvalidRequest,
                "dynatemp_range is {} and temperature 0, which chooses without chance; set one of them otherwise",
                self.dynatemp_range
            );
        }
        if self.xtc_probability > 0.0 && self.temperature == 0.0 {
            bail!(
                InvalidRequest,
                "xtc_probability is {} and temperature 0: greedy takes the top choice that XTC excludes; set one of them otherwise",
                self.xtc_probability
            );
        }
        self.validate_mirostat()?;
        self.penalties.validate()?;
        self.dry.validate()
    }

    fn validate_mirostat(&self) -> Result<()> {
        let Some(Mirostat { tau, eta }) = self.mirostat else { return Ok(()) };
        if !(tau > 0.0 && tau <= 100.0) {
            bail!(InvalidRequest, "mirostat_tau is {tau}, wanted a number above 0 and at most 100, in bits");
        }
        if !(eta > 0.0 && eta <= 1.0) {
            bail!(InvalidRequest, "mirostat_eta is {eta}, wanted a number above 0 and at most 1");
        }
        let others = [
            ("temperature", self.temperature == 0.0),
            ("top_n_sigma", self.top_n_sigma > 0.0),
            ("top_k", self.top_k > 0),
            ("top_p", self.top_p < 1.0),
            ("min_p", self.min_p > 0.0),
            ("typical_p", self.typical_p < 1.0),
            ("xtc_probability", self.xtc_probability > 0.0),
        ];
        match others.iter().find(|(_, is_set)| *is_set) {
            Some(("temperature", _)) => {
                bail!(
                    InvalidRequest,
                    "mirostat is 2 and temperature 0, which chooses without chance; set one of them otherwise"
                )
            }
            Some((name, _)) => {
                bail!(InvalidRequest, "mirostat and {name} both say which tokens are cut off; set one of them alone")
            }
            None => Ok(()),
        }
    }
}

impl Penalties {
    fn validate(&self) -> Result<()> {
        if !(self.repetition > 0.0 && self.repetition <= MAX_REPETITION) {
            bail!(
                InvalidRequest,
                "repetition_penalty is {}, wanted a number above 0 and at most {MAX_REPETITION}; 1 is none",
                self.repetition
            );
        }
        for (name, value) in [("frequency_penalty", self.frequency), ("presence_penalty", self.presence)] {
            if !(-MAX_PENALTY..=MAX_PENALTY).contains(&value) {
                bail!(InvalidRequest, "{name} is {value}, wanted a number from -{MAX_PENALTY} to {MAX_PENALTY}");
            }
        }
        Ok(())
    }
}

impl Dry {
    fn validate(&self) -> Result<()> {
        if !(0.0..=MAX_REPETITION).contains(&self.multiplier) {
            bail!(
                InvalidRequest,
                "dry_multiplier is {}, wanted a number from 0 (off) to {MAX_REPETITION}",
                self.multiplier
            );
        }
        if !(1.0..=MAX_REPETITION).contains(&self.base) {
            bail!(InvalidRequest, "dry_base is {}, wanted a number from 1 to {MAX_REPETITION}", self.base);
        }
        if !(1..=MAX_ALLOWED_LENGTH).contains(&self.allowed_length) {
            bail!(InvalidRequest, "dry_allowed_length is {}, wanted 1 to {MAX_ALLOWED_LENGTH}", self.allowed_length);
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
        assert!(SamplingParams::default().validate().is_ok());
        assert!(SamplingParams::greedy().validate().is_ok());
        assert!(SamplingParams::greedy().is_greedy());
        assert!(!SamplingParams::default().is_greedy());
    }

    fn refused(settings: SamplingParams, names: &[&str]) {
        let error = settings.validate().unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{settings:?}");
        assert!(error.message().starts_with(names[0]), "{error}");
        assert!(names.iter().all(|name| error.message().contains(name)), "{error}");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let default = SamplingParams::default();
        for temperature in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
            refused(SamplingParams { temperature, ..default }, &["temperature"]);
        }
        for value in [0.0, -0.5, 1.1, f32::NAN] {
            refused(SamplingParams { top_p: value, ..default }, &["top_p"]);
            refused(SamplingParams { typical_p: value, ..default }, &["typical_p"]);
        }
        for value in [-0.1, 100.5, f32::NAN] {
            refused(SamplingParams { dynatemp_range: value, ..default }, &["dynatemp_range"]);
            refused(SamplingParams { dynatemp_exponent: value, ..default }, &["dynatemp_exponent"]);
        }
        for top_n_sigma in [-0.1, 100.5, f32::NAN, f32::INFINITY] {
            refused(SamplingParams { top_n_sigma, ..default }, &["top_n_sigma"]);
        }
        for min_p in [-0.1, 1.0, f32::NAN] {
            refused(SamplingParams { min_p, ..default }, &["min_p"]);
        }
        for value in [-0.1, 1.1, f32::NAN] {
            refused(SamplingParams { xtc_probability: value, ..default }, &["xtc_probability"]);
            refused(SamplingParams { xtc_threshold: value, ..default }, &["xtc_threshold"]);
        }
        let penalties = |penalties| SamplingParams { penalties, ..default };
        let none = Penalties::default();
        for repetition in [0.0, -1.0, 101.0, f32::NAN] {
            refused(penalties(Penalties { repetition, ..none }), &["repetition_penalty"]);
        }
        for value in [-2.1, 2.1, f32::NAN] {
            refused(penalties(Penalties { frequency: value, ..none }), &["frequency_penalty"]);
            refused(penalties(Penalties { presence: value, ..none }), &["presence_penalty"]);
        }
        let dry = |dry| SamplingParams { dry, ..default };
        let none = Dry::default();
        refused(dry(Dry { multiplier: -1.0, ..none }), &["dry_multiplier"]);
        refused(dry(Dry { multiplier: f32::NAN, ..none }), &["dry_multiplier"]);
        refused(dry(Dry { base: 0.9, ..none }), &["dry_base"]);
        refused(dry(Dry { base: f32::NAN, ..none }), &["dry_base"]);
        refused(dry(Dry { allowed_length: 0, ..none }), &["dry_allowed_length"]);
        refused(dry(Dry { allowed_length: 1025, ..none }), &["dry_allowed_length"]);
        assert!(SamplingParams { top_k: 40, top_p: 1e-9, min_p: 0.99, ..default }.validate().is_ok());
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_by_both_names() {
        let mirostat = SamplingParams { mirostat: Some(Mirostat::default()), ..SamplingParams::default() };
        assert!(mirostat.validate().is_ok() && mirostat.is_banded());
        refused(SamplingParams { temperature: 0.0, ..mirostat }, &["mirostat", "temperature"]);
        refused(SamplingParams { top_n_sigma: 1.0, ..mirostat }, &["mirostat", "top_n_sigma"]);
        refused(SamplingParams { top_k: 1, ..mirostat }, &["mirostat", "top_k"]);
        refused(SamplingParams { top_p: 0.9, ..mirostat }, &["mirostat", "top_p"]);
        refused(SamplingParams { min_p: 0.1, ..mirostat }, &["mirostat", "min_p"]);
        refused(SamplingParams { typical_p: 0.9, ..mirostat }, &["mirostat", "typical_p"]);
        refused(SamplingParams { xtc_probability: 0.5, ..mirostat }, &["mirostat", "xtc_probability"]);
        for (tau, eta, name) in [(0.0, 0.1, "tau"), (f32::NAN, 0.1, "tau"), (5.0, 0.0, "eta"), (5.0, f32::NAN, "eta")] {
            refused(SamplingParams { mirostat: Some(Mirostat { tau, eta }), ..mirostat }, &["mirostat_", name]);
        }
        let greedy = SamplingParams { dynatemp_range: 0.5, ..SamplingParams::greedy() };
        refused(greedy, &["dynatemp_range", "temperature"]);
        let greedy = SamplingParams { xtc_probability: 0.5, ..SamplingParams::greedy() };
        refused(greedy, &["xtc_probability", "temperature"]);
    }

    #[test]
    fn truncation_is_on_when_something_can_be_cut() {
        let default = SamplingParams::default();
        assert!(!default.is_truncated() && !default.is_banded());
        for settings in [
            SamplingParams { top_k: 2, ..default },
            SamplingParams { top_p: 0.9, ..default },
            SamplingParams { min_p: 0.1, ..default },
        ] {
            assert!(settings.is_truncated() && !settings.is_greedy() && !settings.is_banded());
            assert!(!SamplingParams { temperature: 0.0, ..settings }.is_truncated());
        }
        for settings in
            [SamplingParams { typical_p: 0.9, ..default }, SamplingParams { xtc_probability: 0.1, ..default }]
        {
            assert!(settings.is_banded());
            assert!(!SamplingParams { temperature: 0.0, ..settings }.is_banded());
        }
        assert!(SamplingParams { top_k: 1, ..default }.is_greedy());
    }

    #[test]
    fn a_window_of_nothing_turns_penalties_off() {
        let penalties = Penalties { repetition: 1.1, ..Penalties::default() };
        assert!(penalties.are_on() && !Penalties { window: 0, ..penalties }.are_on());
        let dry = Dry { multiplier: 0.8, ..Dry::default() };
        assert!(dry.is_on() && !Dry { window: 0, ..dry }.is_on());
    }
}
