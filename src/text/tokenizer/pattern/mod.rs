//! What a tokenizer searches texts for: a fixed text, or an expression in the syntax of fancy-regex.
//!
//! In a page the browser's own `RegExp` runs expressions, so that the package needs no engine of its own; natively it is fancy-regex. A
//! translator (`parse`, `javascript`) reads the one syntax and writes the other. Both targets take what it translates and nothing else,
//! with the same matches; `tests/golden/text/expressions.json` holds the engines to one another. Which letters there are is a matter of
//! Unicode's version, and so of the browser.
//!
//! Either engine tries alternatives one after the other. Natively an expression that takes very many steps on a text gives up, and that is
//! an error. A browser sets no such limit: there an expression that is written to take forever does, on the thread of the tokenizer. What
//! exhausts its stack is an error as natively.

#[cfg(target_arch = "wasm32")]
mod browser;
mod class;
mod escape;
mod javascript;
#[cfg(not(target_arch = "wasm32"))]
mod native;
mod parse;
mod properties;
mod scan;
mod syntax;
#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;

use std::ops::Range;

use tokenizers::Offsets;

#[cfg(target_arch = "wasm32")]
use self::browser::Engine;
use self::javascript::JavaScript;
#[cfg(not(target_arch = "wasm32"))]
use self::native::Engine;
use crate::error::Result;

/// No tokenizer has longer expressions. Compiling one takes memory in proportion to its length.
const LONGEST_EXPRESSION: usize = 1 << 16;

/// Finds all places of something in a text, from left to right and none within another.
pub(super) enum Pattern {
    Text(String),
    Expression(Engine),
}

impl Pattern {
    /// Finds what an expression matches.
    pub(super) fn new(expression: &str) -> Result<Self> {
        Ok(Self::Expression(Engine::new(expression, &translated(expression)?)?))
    }

    /// The places in a text, in bytes. An empty one that begins where another ends is left out.
    pub(super) fn find_all(&self, text: &str) -> Result<Vec<Range<usize>>> {
        match self {
            Self::Text(wanted) => Ok(text.match_indices(wanted).map(|(at, found)| at..at + found.len()).collect()),
            Self::Expression(engine) => engine.find_all(text),
        }
    }
}

/// The expression for `RegExp`.
fn translated(expression: &str) -> Result<JavaScript> {
    if expression.len() > LONGEST_EXPRESSION {
        bail!(
            UnsupportedTokenizer,
            "an expression of the tokenizer has {} bytes, wanted at most {LONGEST_EXPRESSION}",
            expression.len()
        );
    }
    let node = parse::parse(expression).map_err(|refusal| {
        let syntax::Refusal { what, at } = refusal;
        err!(UnsupportedTokenizer, "expression {expression:?} has at byte {at} {what}, which can't be used")
    })?;
    javascript::write(&node)
        .map_err(|what| err!(UnsupportedTokenizer, "expression {expression:?} has {what}, which can't be used"))
}

impl tokenizers::pattern::Pattern for &Pattern {
    /// The places and what is between them, in order.
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let found = self.find_all(inside)?;
        let mut parts = Vec::with_capacity(found.len() * 2 + 1);
        let mut done = 0;
        for Range { start, end } in found {
            if done < start {
                parts.push(((done, start), false));
            }
            parts.push(((start, end), true));
            done = end;
        }
        if done < inside.len() {
            parts.push(((done, inside.len()), false));
        }
        Ok(parts)
    }
}
