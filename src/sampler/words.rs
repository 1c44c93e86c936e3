//! A request's settings as the kernels that choose read them.

use super::{
    AdjustLists, AdjustSettings, BandSettings, DryBreakerWords, DryBreakers, Ending, Features, SampleSettings,
    SamplerSettings, TokenRules,
};
use crate::error::Result;

/// Bad words of more than one token: the others are banned as the suppressed tokens are.
pub(super) fn several(rules: &TokenRules) -> Vec<Vec<u32>> {
    rules.bad_words.iter().filter(|word| word.len() > 1).cloned().collect()
}

/// DRY's sequence breakers as kernels read them, if they fit.
pub fn breaker_words(breakers: &DryBreakers, vocab_size: usize) -> Result<Vec<u32>> {
    let DryBreakers { tokens, heads, lists, rests } = breakers;
    DryBreakerWords::words(vocab_size, tokens, heads, lists, rests)
}

/// Kernels combine the seed with a token's id by exclusive or: without this, neighbouring seeds, which the choices of a request have,
/// would share their noise among other tokens. The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Refuses rules that kernels have no room for.
pub fn check_room(rules: &TokenRules) -> Result<()> {
    AdjustLists::words(&rules.ends, &several(rules)).map(|_| ()).map_err(|error| error.context("bad_words"))
}

/// The settings as kernels read them.
pub(super) fn sample_settings(
    settings: &SamplerSettings,
    rules: &TokenRules,
    ending: &Ending,
) -> [u32; SampleSettings::WORDS] {
    let words = SampleSettings {
        temperature: if settings.is_greedy() { 0.0 } else { settings.temperature },
        top_k: settings.top_k,
        top_p: settings.top_p,
        min_p: settings.min_p,
        seed: mixed(settings.seed),
    };
    let steps = u32::try_from(ending.steps).unwrap_or(u32::MAX);
    words.ending(steps, &ending.stops, Features::of(settings, rules).chooser())
}

pub(super) fn adjust_settings(settings: &SamplerSettings, rules: &TokenRules) -> AdjustSettings {
    let (penalties, dry) = (&settings.penalties, &settings.dry);
    AdjustSettings {
        answer_start: u32::try_from(rules.answer_start).unwrap_or(u32::MAX),
        window: penalties.window,
        repetition: penalties.repetition,
        frequency: penalties.frequency,
        presence: penalties.presence,
        min_tokens: rules.min_tokens,
        dry_multiplier: dry.multiplier,
        dry_base: dry.base,
        dry_allowed_length: dry.allowed_length,
        dry_window: dry.window,
    }
}

pub(super) fn band_settings(settings: &SamplerSettings) -> BandSettings {
    let (tau, eta) = settings.mirostat.map_or((0.0, 0.0), |mirostat| (mirostat.tau, mirostat.eta));
    let SamplerSettings { typical_p, xtc_probability, xtc_threshold, .. } = *settings;
    BandSettings { typical_p, xtc_probability, xtc_threshold, tau, eta }
}
