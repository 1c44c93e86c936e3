//! The state of a text in a grammar.

use llguidance::Matcher;
use toktrie::SimpleVob;

use crate::compile::reason;

/// A grammar, and its state after the tokens so far.
#[derive(Clone)]
pub struct Matching {
    matcher: Matcher,
    ends: Vec<u32>,
    vocab_size: usize,
    /// The text has ended, by a token that ends texts.
    is_ended: bool,
    /// The next forced tokens, and the mask, if they were computed for this state.
    forced: Option<Vec<u32>>,
    allowed: Option<SimpleVob>,
}

/// The result of `advance`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// The number of tokens that were allowed and are now part of the text.
    pub taken: usize,
    /// The tokens that must follow in order, as far as the grammar leaves no choice. They are not part of the text yet.
    pub forced: Vec<u32>,
    /// The text is complete: only its end may follow.
    pub is_complete: bool,
}

impl Matching {
    pub(crate) fn new(matcher: Matcher, ends: Vec<u32>, vocab_size: usize) -> Self {
        Self { matcher, ends, vocab_size, is_ended: false, forced: None, allowed: None }
    }

    /// Appends tokens while they are allowed: if some are forced, only these; if the text may end, also those that end it.
    pub fn advance(&mut self, tokens: &[u32]) -> Result<Advance, String> {
        let mut taken = 0;
        loop {
            if self.is_ended || self.matcher.is_stopped() {
                self.check()?;
                return Ok(Advance { taken, forced: Vec::new(), is_complete: true });
            }
            let forced = match self.forced.take() {
                Some(forced) => forced,
                None => self.matcher.compute_ff_tokens(),
            };
            self.check()?;
            let Some(&token) = tokens.get(taken) else {
                self.forced = Some(forced.clone());
                return Ok(Advance { taken, forced, is_complete: false });
            };
            let is_allowed = match forced.first() {
                Some(&first) => token == first,
                None if self.ends.contains(&token) => {
                    let may_end = self.matcher.is_accepting().map_err(|error| reason(&error.to_string()))?;
                    self.is_ended = may_end;
                    taken += usize::from(may_end);
                    if may_end {
                        continue;
                    }
                    false
                }
                None if token as usize >= self.vocab_size => false,
                None => match &self.allowed {
                    Some(allowed) => allowed.is_allowed(token),
                    None => self.matcher.validate_tokens(&[token]).map_err(|error| reason(&error.to_string()))? == 1,
                },
            };
            if !is_allowed {
                self.forced = Some(forced.clone());
                return Ok(Advance { taken, forced, is_complete: false });
            }
            self.matcher.consume_token(token).map_err(|error| reason(&error.to_string()))?;
            self.allowed = None;
            // Text that is forced as a whole is tokenized as a whole.
            self.forced = forced.get(1..).filter(|rest| !rest.is_empty()).map(<[u32]>::to_vec);
            taken += 1;
        }
    }

    /// The tokens that may follow, a bit for each, from the lowest bit of the first word; ids beyond the vocabulary have 0.
    pub fn mask(&mut self, bits: &mut [u32]) -> Result<(), String> {
        bits.fill(0);
        let set = match self.allowed.take() {
            Some(set) => set,
            None => self.matcher.compute_mask_or_eos().map_err(|error| reason(&error.to_string()))?,
        };
        // The set may have more bits than the vocabulary.
        for (at, (word, allowed)) in bits.iter_mut().zip(set.as_slice()).enumerate() {
            let inside = self.vocab_size.saturating_sub(32 * at);
            *word = if inside >= 32 { *allowed } else { allowed & ((1u32 << inside) - 1) };
        }
        self.allowed = Some(set);
        Ok(())
    }

    /// A matcher reports refusals as errors, and keeps them.
    fn check(&self) -> Result<(), String> {
        match self.matcher.get_error() {
            Some(error) => Err(reason(&error)),
            None if self.matcher.is_stopped() && !self.matcher.stop_reason().is_ok() => {
                Err(self.matcher.stop_reason().to_string())
            }
            None => Ok(()),
        }
    }
}
