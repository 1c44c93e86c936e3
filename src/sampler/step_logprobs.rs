//! Log probabilities of a step's tokens on the CPU, like the kernels `logprobs_partial` and `logprobs_merge`. The references of these
//! kernels use it, and so do the log probabilities of logits that are read back anyway.
//!
//! Logits are compared as words with the same order (`wgsl/logit_order.wgsl`), so that kernels can find the largest with atomic
//! operations. Sums are of exp(logit - largest), so that they don't overflow.

use rillm_cpu_kernels::{extremes, sum_exp};

use super::truncation::{READ_AT_ONCE, logit_of};
use crate::tensor::Define;

/// The most tokens to report besides the chosen one.
pub const MOST: usize = 20;

/// The logarithm of 0, as in OpenAI's API; JSON has no infinity.
pub const LEAST: f32 = -9999.0;

/// Workgroups that may share a vocabulary: as many as `logprobs_merge` has invocations.
const MAX_GROUPS: usize = 64;
pub(super) const NAN_KEY: u32 = u32::MAX;
pub(super) const NONE: u32 = u32::MAX;

pub(super) fn modules() -> &'static [(&'static str, &'static str)] {
    &[("logit_order", crate::shader!("wgsl/logit_order.wgsl"))]
}

pub(super) fn defines(vocabulary: usize) -> Vec<(&'static str, Define)> {
    let number = |n: usize| Define::U32(n as u32);
    let groups = groups(vocabulary);
    vec![
        ("GROUPS", number(groups)),
        ("MOST", number(MOST)),
        ("BEST", number(Best::words(groups))),
        ("LEAST", Define::F32(LEAST)),
    ]
}

/// Workgroups that share a vocabulary, so that each invocation has at least eight logits.
pub(super) fn groups(vocabulary: usize) -> usize {
    vocabulary.div_ceil(2048).clamp(1, MAX_GROUPS)
}

/// A word with the order of the logits; -0 is 0.
pub(super) fn key_of(logit: f32) -> u32 {
    let bits = logit.to_bits();
    match logit {
        logit if logit.is_nan() => NAN_KEY,
        logit if bits >> 31 == 0 || logit == 0.0 => bits | 1 << 31,
        _ => !bits,
    }
}

/// The result of a workgroup for its share.
pub(super) struct Best {
    largest: u32,
    /// The sum of exp(logit - largest).
    pub sum: f64,
    /// Keys and tokens, the best first.
    entries: Vec<(u32, u32)>,
}

impl Best {
    /// Words of a row: step, stopped, and the largest key, the best keys and their tokens of each group.
    pub const fn words(groups: usize) -> usize {
        2 + groups * (1 + 2 * MOST)
    }

    pub fn of(share: &[(u32, f32)], wanted: u32) -> Self {
        let largest = share.iter().map(|(_, logit)| key_of(*logit)).max().unwrap_or(0);
        let mut entries: Vec<(u32, u32)> = share.iter().map(|(token, logit)| (key_of(*logit), *token)).collect();
        entries.retain(|(key, _)| *key != NAN_KEY);
        entries.sort_by_key(|(key, token)| (!key, *token));
        entries.truncate((wanted as usize).min(MOST));
        let of_largest = share.iter().map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
        let sum = match largest {
            NAN_KEY => 0.0,
            _ => share.iter().map(|(_, logit)| below(*logit, of_largest).exp()).sum(),
        };
        Self { largest, sum, entries }
    }

    /// The same by loops of the CPU, of the logits of a whole vocabulary. `None` if one of the group's is none or +∞.
    pub fn of_group(logits: &[f32], group: usize, groups: usize, wanted: u32) -> Option<Self> {
        let wanted = (wanted as usize).min(MOST);
        let chunks = || {
            let chunks = logits.chunks(READ_AT_ONCE).enumerate().skip(group).step_by(groups);
            chunks.map(|(chunk, logits)| (chunk * READ_AT_ONCE, logits))
        };
        let mut largest = f32::NEG_INFINITY;
        let mut entries: Vec<(u32, u32)> = Vec::with_capacity(MOST + 1);
        for (first, logits) in chunks() {
            largest = extremes(logits)?[1].max(largest);
            for (token, logit) in (first as u32..).zip(logits) {
                // The first among equals, as they come in their order.
                let key = key_of(*logit);
                if entries.len() < wanted || entries.last().is_some_and(|(least, _)| key > *least) {
                    let place = entries.partition_point(|(better, _)| *better >= key);
                    entries.insert(place, (key, token));
                    entries.truncate(wanted);
                }
            }
        }
        let sum_of = |logits: &[f32]| match largest {
            f32::NEG_INFINITY => logits.len() as f64,
            _ => sum_exp(logits, largest),
        };
        let largest = key_of(largest);
        Some(Self { largest, sum: chunks().map(|(_, logits)| sum_of(logits)).sum(), entries })
    }

    /// Its words.
    pub fn list(&self) -> Vec<u32> {
        let mut words = vec![0; 1 + 2 * MOST];
        words[0] = self.largest;
        words[1 + MOST..].fill(NONE);
        for (place, (key, token)) in self.entries.iter().enumerate() {
            (words[1 + place], words[1 + MOST + place]) = (*key, *token);
        }
        words
    }
}

/// A logit minus the largest; 0 for the largest itself, even if it is infinite.
fn below(logit: f32, largest: f32) -> f64 {
    if logit == largest { 0.0 } else { f64::from(logit) - f64::from(largest) }
}

/// The log probabilities of one step: natural logarithms of softmax(logits).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepLogprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// Of the most probable tokens, the most probable first and among equals the lower id.
    pub top: Vec<(u32, f32)>,
}

impl StepLogprobs {
    /// From the logits of a whole vocabulary, in f64.
    pub fn of(logits: &[f32], chosen: u32, wanted: usize) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let log_sum = logits.iter().map(|logit| below(*logit, largest).exp()).sum::<f64>().ln();
        let is_broken = logits.iter().any(|logit| logit.is_nan());
        let logprob = |logit: f32| if is_broken { 0.0 } else { ((below(logit, largest) - log_sum) as f32).max(LEAST) };
        let mut order: Vec<u32> = (0..logits.len() as u32).filter(|token| !logits[*token as usize].is_nan()).collect();
        let wanted = wanted.min(order.len());
        let by_key = |token: &u32| (!key_of(logits[*token as usize]), *token);
        if wanted > 0 && wanted < order.len() {
            order.select_nth_unstable_by_key(wanted - 1, by_key);
        }
        order.truncate(wanted);
        order.sort_by_key(by_key);
        let chosen = logits.get(chosen as usize).or(logits.last()).map_or(0.0, |logit| logprob(*logit));
        Self { chosen, top: order.into_iter().map(|token| (token, logprob(logits[token as usize]))).collect() }
    }

    /// From the sums and the best of each group, as `Best::list` gives them, with the logit of the chosen token. `None` if there is a NaN.
    pub fn of_groups(sums: &[f32], best: &[u32], chosen: f32, wanted: usize) -> Option<Self> {
        let of_group = || best.chunks_exact(1 + 2 * MOST);
        let key = of_group().map(|words| words[0]).max()?;
        if key == NAN_KEY {
            return None;
        }
        let largest = logit_of(key);
        let scaled = |(words, sum): (&[u32], &f32)| f64::from(*sum) * below(logit_of(words[0]), largest).exp();
        let log_sum = of_group().zip(sums).map(scaled).sum::<f64>().ln();
        let logprob = |logit: f32| ((below(logit, largest) - log_sum) as f32).max(LEAST);
        let entries = of_group().flat_map(|words| words[1..=MOST].iter().zip(&words[1 + MOST..]));
        let mut top: Vec<(u32, u32)> =
            entries.map(|(key, token)| (*key, *token)).filter(|(_, token)| *token != NONE).collect();
        top.sort_unstable_by_key(|(key, token)| (!key, *token));
        top.truncate(wanted);
        let top = top.into_iter().map(|(key, token)| (token, logprob(logit_of(key)))).collect();
        Some(Self { chosen: logprob(chosen), top })
    }

    /// From consecutive slots of the rings of `logprobs_merge`, with the first `wanted` of the most probable tokens.
    pub fn of_slots(values: &[f32], tokens: &[u32], wanted: usize) -> impl Iterator<Item = Self> {
        values.chunks_exact(1 + MOST).zip(tokens.chunks_exact(MOST)).map(move |(values, tokens)| {
            let top = tokens.iter().copied().zip(values[1..].iter().copied());
            Self { chosen: values[0], top: top.take(wanted).filter(|(token, _)| *token != NONE).collect() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_logits_do() {
        let ascending = [f32::NEG_INFINITY, -3e38, -1.5, -1e-40, 0.0, 1e-40, 2.0, 3e38, f32::INFINITY];
        assert!(ascending.windows(2).all(|pair| key_of(pair[0]) < key_of(pair[1])));
        assert!(key_of(f32::NEG_INFINITY) > 0 && key_of(f32::INFINITY) < NAN_KEY);
        assert_eq!((key_of(-0.0), key_of(f32::NAN), key_of(-f32::NAN)), (key_of(0.0), NAN_KEY, NAN_KEY));
    }

    #[test]
    fn logprobs_are_logarithms_of_a_softmax() {
        let logits = [0.0, 2f32.ln(), 0.0, f32::NEG_INFINITY];
        let step = StepLogprobs::of(&logits, 0, 3);
        assert!((step.chosen - 0.25f32.ln()).abs() < 1e-6);
        let tokens: Vec<u32> = step.top.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 0, 2]);
        assert!((step.top[0].1 - 0.5f32.ln()).abs() < 1e-6);
        assert_eq!(StepLogprobs::of(&logits, 3, 0), StepLogprobs { chosen: LEAST, top: vec![] });
        assert_eq!(StepLogprobs::of(&logits, 1, 9).top.len(), 4);
    }
}
