//! Expressions on fancy-regex.

use std::ops::Range;

use fancy_regex::Regex;

use super::javascript::JavaScript;
use crate::error::Result;

pub(in crate::text::tokenizer) struct Engine(Regex);

impl Engine {
    pub(super) fn new(expression: &str, _: &JavaScript) -> Result<Self> {
        let regex = Regex::new(expression);
        regex.map(Self).map_err(|cause| err!(UnsupportedTokenizer, "expression {expression:?}: {cause}"))
    }

    pub(super) fn find_all(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let all = self.0.find_iter(text).map(|found| {
            found.map(|found| found.range()).map_err(|cause| {
                err!(
                    InvalidRequest,
                    "an expression of the tokenizer gave up on the text ({cause}); break up very long runs"
                )
            })
        });
        all.collect()
    }
}
