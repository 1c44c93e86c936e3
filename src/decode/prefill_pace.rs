//! How many tokens of a prompt one pass takes. Long passes use the GPU well; short ones leave time for other sequences, for a cancellation, and
//! for frames of this page and other tabs. Where submits are cut (`Device::is_paced`), frames and cancellations need no short passes, but a
//! dispatch can't be cut, so the longest one counts.

use web_time::Duration;

/// The most tokens of a pass. More are no faster, and their activations need more memory.
pub const MAX_TOKENS: usize = 512;

/// Passes over fewer tokens waste the GPU.
const MIN_TOKENS: usize = 32;

/// The tokens of a pass before any was measured, on a GPU.
const FIRST_TOKENS: usize = 128;

/// How long a pass may take.
const PASS: Duration = Duration::from_millis(150);

/// The same where submits are cut.
const PASS_IN_PIECES: Duration = Duration::from_millis(600);

/// How long a dispatch may take there.
const DISPATCH: Duration = Duration::from_millis(6);

/// How long it may take while other sequences wait for their next tokens.
const PASS_AMONG_OTHERS: Duration = Duration::from_millis(40);

/// Measures passes and says how many tokens the next one takes.
#[derive(Clone, Debug)]
pub struct PrefillPace {
    per_token: Option<Duration>,
    first: usize,
    /// The most tokens with which no dispatch takes too long.
    most: usize,
    is_in_pieces: bool,
}

impl Default for PrefillPace {
    fn default() -> Self {
        Self { per_token: None, first: FIRST_TOKENS, most: MAX_TOKENS, is_in_pieces: false }
    }
}

impl PrefillPace {
    /// For an adapter in software, on which a token takes tens of milliseconds.
    pub fn slow() -> Self {
        Self { first: MIN_TOKENS, ..Self::default() }
    }

    /// A pass over `tokens` tokens took `time`. Short passes say little: most of their time is the wait.
    pub fn took(&mut self, tokens: usize, time: Duration) {
        if tokens >= MIN_TOKENS {
            let per_token = time / tokens as u32;
            // Any pass may have been delayed, so the faster of two is nearer the truth. But no pace is kept for ever.
            self.per_token = Some(self.per_token.map_or(per_token, |before| per_token.min(before * 2)));
        }
    }

    /// Whether passes are cut into submits.
    pub fn set_in_pieces(&mut self, is_in_pieces: bool) {
        self.is_in_pieces = is_in_pieces;
    }

    /// The longest dispatch of a pass over `tokens` tokens takes this long.
    pub fn took_dispatch(&mut self, tokens: usize, longest: Duration) {
        if tokens >= MIN_TOKENS && !longest.is_zero() {
            let most = (tokens as u128 * DISPATCH.as_nanos() / longest.as_nanos()) as usize;
            self.most = whole_tiles(most.min(2 * tokens));
        }
    }

    /// How many of a prompt's `rest` tokens the next pass takes. All passes take about the same number, since a short one costs nearly as
    /// much as a long one.
    pub fn part_of(&self, rest: usize, among_others: bool) -> usize {
        let alone = if self.is_in_pieces { PASS_IN_PIECES } else { PASS };
        let passes = rest.div_ceil(self.tokens(if among_others { PASS_AMONG_OTHERS } else { alone })).max(1);
        rest.div_ceil(passes).next_multiple_of(MIN_TOKENS).min(rest)
    }

    fn tokens(&self, pass: Duration) -> usize {
        let most = if self.is_in_pieces { self.most } else { MAX_TOKENS };
        let first = if self.is_in_pieces { MIN_TOKENS } else { self.first };
        let Some(per_token) = self.per_token else { return first };
        let tokens = pass.as_nanos() / per_token.as_nanos().max(1);
        whole_tiles(tokens.min(most as u128) as usize)
    }
}

/// Whole tiles of the matrix products.
fn whole_tiles(tokens: usize) -> usize {
    (tokens.min(MAX_TOKENS) / MIN_TOKENS * MIN_TOKENS).max(MIN_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_as_long_as_the_gpu_is_fast() {
        let after = |tokens: usize, ms: u64| {
            let mut pace = PrefillPace::default();
            pace.took(tokens, Duration::from_millis(ms));
            pace.tokens(PASS)
        };
        assert_eq!(PrefillPace::default().tokens(PASS), FIRST_TOKENS);
        assert_eq!(after(128, 5), MAX_TOKENS);
        assert_eq!(after(128, 0), MAX_TOKENS);
        assert_eq!(after(128, 150), 128);
        assert_eq!(after(128, 190), 96);
        assert_eq!(after(128, 60_000), MIN_TOKENS);
        let mut pace = PrefillPace::default();
        pace.took(128, Duration::from_millis(40));
        assert_eq!((pace.part_of(600, false), pace.part_of(600, true)), (320, 128), "shorter among others");
        assert_eq!(after(3, 60_000), FIRST_TOKENS, "three tokens say nothing");
    }

    #[test]
    fn passes_are_of_about_one_length() {
        let mut pace = PrefillPace::default();
        let parts = |pace: &PrefillPace, mut rest: usize| {
            let mut parts = Vec::new();
            while rest > 0 {
                parts.push(pace.part_of(rest, false));
                rest -= parts[parts.len() - 1];
            }
            parts
        };
        assert_eq!(parts(&pace, 1), [1]);
        assert_eq!(parts(&pace, 128), [128]);
        assert_eq!(parts(&pace, 129), [96, 33]);
        assert_eq!(parts(&pace, 300), [128, 96, 76]);
        pace.took(128, Duration::from_millis(40));
        assert_eq!(parts(&pace, 512), [256, 256], "480 fit in a pass");
    }

    #[test]
    fn where_submits_are_cut_passes_are_long_and_dispatches_short() {
        let mut pace = PrefillPace::default();
        pace.set_in_pieces(true);
        assert_eq!(pace.part_of(4000, false), MIN_TOKENS, "an unknown GPU");
        pace.took(32, Duration::from_millis(32));
        pace.took_dispatch(32, Duration::from_millis(1));
        assert_eq!(pace.part_of(4096, false), 64, "twice as many at most");
        pace.took_dispatch(64, Duration::from_micros(500));
        pace.took_dispatch(128, Duration::from_micros(1000));
        assert_eq!((pace.part_of(4096, false), pace.part_of(4096, true)), (256, 32), "other sequences wait for a pass");
        pace.took_dispatch(256, Duration::from_millis(48));
        assert_eq!(pace.part_of(4096, false), MIN_TOKENS);
        pace.set_in_pieces(false);
        assert_eq!(pace.part_of(4096, false), 128, "150 ms, whatever a dispatch takes");
        pace.took_dispatch(3, Duration::from_secs(9));
        pace.took_dispatch(64, Duration::ZERO);
    }

    #[test]
    fn one_slow_pass_halves_the_next_at_most() {
        let mut pace = PrefillPace::default();
        pace.took(256, Duration::from_millis(75));
        pace.took(256, Duration::from_millis(5000));
        assert_eq!(pace.tokens(PASS), 256);
    }
}
