//! A request's rules about tokens in the form that kernels read.

use super::adjustment::{AdjustLists, DryBreakerWords};
use super::rules::{DryBreakers, TokenRules};
use crate::error::Result;

/// Bad words of more than one token; the others are banned like suppressed tokens.
pub(super) fn several(rules: &TokenRules) -> Vec<Vec<u32>> {
    rules.bad_words.iter().filter(|word| word.len() > 1).cloned().collect()
}

/// DRY's sequence breakers in the form that kernels read, if they fit.
pub fn breaker_words(breakers: &DryBreakers, vocab_size: usize) -> Result<Vec<u32>> {
    let DryBreakers { tokens, heads, lists, rests } = breakers;
    DryBreakerWords::words(vocab_size, tokens, heads, lists, rests)
}

/// Refuses rules that don't fit the kernels' tensors.
pub fn check_room(rules: &TokenRules) -> Result<()> {
    AdjustLists::words(&rules.ends, &several(rules)).map(|_| ()).map_err(|error| error.context("bad_words"))
}
