//! A sequence's sampling parameters in the form that kernels read: a row of a tensor. One list below makes the Rust struct, its words and
//! the struct of the shaders (the module "sampler_row"), so that they cannot differ.
//!
//! Most of it is from the request. The rest is computed once for each request, in `SamplerRow::of`.

use super::features::Features;
use super::fields::sampling_fields;
use super::params::SamplingParams;
use super::path::SamplerPath;
use super::rows::of_row;
use super::rules::TokenRules;
use super::target::Ending;
use crate::error::Result;
use crate::tensor::HostTensor;

/// A word of a row.
trait Word: Copy {
    fn word(self) -> u32;
    fn of_word(word: u32) -> Self;
}

impl Word for u32 {
    fn word(self) -> u32 {
        self
    }

    fn of_word(word: u32) -> Self {
        word
    }
}

impl Word for f32 {
    fn word(self) -> u32 {
        self.to_bits()
    }

    fn of_word(word: u32) -> Self {
        Self::from_bits(word)
    }
}

macro_rules! row {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: $kind:ident,)*
        }
        stops: $most:literal
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $kind,)*
            /// Tokens that stop the sequence on the GPU; unused ones are u32::MAX.
            pub stops: [u32; $most],
        }

        impl $name {
            /// The most tokens that stop a sequence on the GPU.
            pub const MAX_STOPS: usize = $most;

            /// Words of a row.
            pub const WORDS: usize = [$(stringify!($field)),*].len() + $most;

            /// The same as a struct in WGSL.
            pub const WGSL: &str = concat!(
                "struct ", stringify!($name), " {\n",
                $("    ", stringify!($field), ": ", stringify!($kind), ",\n",)*
                "    stops: array<u32, ", $most, ">,\n}\nconst MAX_STOPS: u32 = ", $most, "u;\n",
            );

            /// The words of the row, in the order of `WGSL`; floats as their bits.
            pub fn words(&self) -> Vec<u32> {
                let mut words = vec![$(Word::word(self.$field)),*];
                words.extend(self.stops);
                words
            }

            fn of_words(words: &[u32]) -> Option<Self> {
                let mut words = words.iter().copied();
                Some(Self {
                    $($field: Word::of_word(words.next()?),)*
                    stops: {
                        let mut stops = [0; $most];
                        for stop in &mut stops {
                            *stop = words.next()?;
                        }
                        stops
                    },
                })
            }
        }
    };
}

macro_rules! row_with_fields {
    ($($(#[$doc:meta])* $name:ident: $type:ident = $default:expr, $valid:expr, $wanted:literal;)*) => {
        row! {
            /// A row, in the order of its words.
            pub struct SamplerRow {
                /// 1 / temperature; 0 is greedy.
                pub inverse_temperature: f32,
                /// Octaves of probability per unit of a logit.
                pub octaves: f32,
                /// The lower half of the mixed seed.
                pub seed_low: u32,
                /// Its upper half.
                pub seed_high: u32,
                /// The largest depth below the largest logit that min-p keeps (`truncation.rs`).
                pub min_p_depth: u32,
                $($(#[$doc])* pub $name: $type,)*
                /// Mirostat's target surprise in bits; 0 is off.
                pub mirostat_tau: f32,
                /// Mirostat's learning rate.
                pub mirostat_eta: f32,
                /// Position of the answer's first token.
                pub answer_start: u32,
                /// The number of tokens at the end of the text that the three penalties count; u32::MAX: all, 0: none.
                pub penalty_window: u32,
                /// 1 is off.
                pub repetition_penalty: f32,
                /// 0 is off.
                pub frequency_penalty: f32,
                /// 0 is off.
                pub presence_penalty: f32,
                /// While the answer is shorter, tokens that would end it are never chosen.
                pub min_tokens: u32,
                /// 0 is off.
                pub dry_multiplier: f32,
                /// `Dry::base`.
                pub dry_base: f32,
                /// `Dry::allowed_length`.
                pub dry_allowed_length: u32,
                /// As `penalty_window`.
                pub dry_window: u32,
                /// `Dry::longest`.
                pub dry_longest: u32,
                /// The sequence stops after this number of tokens.
                pub last_step: u32,
                /// The `SamplerPath` whose kernels take effect.
                pub path: u32,
            }
            stops: 15
        }

        impl SamplerRow {
            /// Without rules about tokens, without an end, and for whichever kernels run.
            pub fn new(settings: &SamplingParams) -> Self {
                // Below 1e-20 products would overflow; the noise has vanished long before.
                let inverse_temperature = if settings.is_greedy() { 0.0 } else { (1.0 / settings.temperature).min(1e20) };
                let seed = mixed(settings.seed);
                let (penalties, dry) = (&settings.penalties, &settings.dry);
                Self {
                    inverse_temperature,
                    octaves: (f64::from(inverse_temperature) * std::f64::consts::LOG2_E) as f32,
                    seed_low: seed as u32,
                    seed_high: (seed >> 32) as u32,
                    // A cast of infinity is the largest number.
                    min_p_depth: (-f64::from(settings.min_p).log2() * f64::from(1 << 24)) as u32,
                    mirostat_tau: settings.mirostat.map_or(0.0, |mirostat| mirostat.tau),
                    mirostat_eta: settings.mirostat.map_or(0.0, |mirostat| mirostat.eta),
                    penalty_window: if penalties.are_on() { penalties.window } else { 0 },
                    repetition_penalty: penalties.repetition,
                    frequency_penalty: penalties.frequency,
                    presence_penalty: penalties.presence,
                    dry_multiplier: dry.multiplier,
                    dry_base: dry.base,
                    dry_allowed_length: dry.allowed_length,
                    dry_window: dry.window,
                    dry_longest: dry.longest(),
                    answer_start: 0,
                    min_tokens: 0,
                    last_step: u32::MAX,
                    path: SamplerPath::Any as u32,
                    stops: [NONE; Self::MAX_STOPS],
                    $($name: settings.$name,)*
                }
            }
        }
    };
}
sampling_fields!(row_with_fields);

/// An unused entry of a list of tokens.
const NONE: u32 = u32::MAX;

/// Mixes a seed. Kernels XOR the seed with a token's id: without mixing, neighbouring seeds, such as those of a request's choices, would
/// share their noise between different tokens. The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl SamplerRow {
    /// For a request. The sequence stops at its end, until the CPU has seen it.
    pub(super) fn of(settings: &SamplingParams, rules: &TokenRules, ending: &Ending) -> Self {
        Self {
            answer_start: u32::try_from(rules.answer_start).unwrap_or(u32::MAX),
            min_tokens: rules.min_tokens,
            ..Self::new(settings).ending(
                u32::try_from(ending.steps).unwrap_or(u32::MAX),
                &ending.stops,
                Features::of(settings, rules).path(),
            )
        }
    }

    /// The same for a sequence that stops after `steps` tokens or at one of `stops`, of which the first `MAX_STOPS` count. Only kernels
    /// of `path` take effect.
    pub(super) fn ending(self, steps: u32, stops: &[u32], path: SamplerPath) -> Self {
        let mut row = Self { last_step: steps, path: path as u32, ..self };
        for (word, stop) in row.stops.iter_mut().zip(stops) {
            *word = *stop;
        }
        row
    }

    /// The row in the input of a reference of one row.
    pub(super) fn read(rows: &HostTensor) -> Result<Self> {
        Self::of_words(&rows.to_u32()?)
            .ok_or_else(|| err!(ShapeMismatch, "a sampler row is {}, wanted {} words", rows.shape, Self::WORDS))
    }

    /// One of several rows.
    pub(super) fn of_row(words: &[u32], rows: usize, row: usize) -> Result<Self> {
        Self::of_words(of_row(words, rows, row))
            .ok_or_else(|| err!(ShapeMismatch, "{rows} sampler rows of {} words", words.len()))
    }

    /// A tensor of rows.
    pub fn tensor(rows: &[Self]) -> HostTensor {
        let words: Vec<u32> = rows.iter().flat_map(Self::words).collect();
        HostTensor::u32(&[rows.len(), Self::WORDS], &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::params::Dry;

    #[test]
    fn words_give_the_row_back() {
        let settings = SamplingParams { temperature: 0.7, top_k: 5, min_p: 0.25, seed: 9, ..Default::default() };
        let row = SamplerRow::new(&settings).ending(7, &[1, 2], SamplerPath::Banded);
        assert_eq!(row.words().len(), SamplerRow::WORDS);
        assert_eq!(SamplerRow::read(&SamplerRow::tensor(&[row])).unwrap(), row);
        assert_eq!((row.min_p_depth, row.last_step, row.stops[..3].to_vec()), (2 << 24, 7, vec![1, 2, NONE]));
        assert!(SamplerRow::read(&HostTensor::u32(&[3], &[0; 3])).is_err());
        assert!(SamplerRow::WGSL.starts_with("struct SamplerRow {\n    inverse_temperature: f32,\n"));
        assert!(
            SamplerRow::WGSL.ends_with("    path: u32,\n    stops: array<u32, 15>,\n}\nconst MAX_STOPS: u32 = 15u;\n")
        );
    }

    #[test]
    fn repetitions_are_followed_until_they_cost_a_million() {
        let longest = |multiplier, base| {
            let dry = Dry { multiplier, base, allowed_length: 2, ..Dry::default() };
            SamplerRow::new(&SamplingParams { dry, ..Default::default() }).dry_longest
        };
        assert_eq!(longest(0.0, 1.75), 0);
        // 1.75^25 = 1.19e6, 1.75^24 = 6.8e5
        assert_eq!(longest(1.0, 1.75), 2 + 24);
        assert_eq!(longest(0.8, 1.0), 2, "the penalty does not grow");
        assert_eq!(longest(0.8, 1.000_1), 1002);
        assert_eq!(longest(1e7, 2.0), 2);
    }
}
