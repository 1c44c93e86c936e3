//! The normalizers and pre-tokenizers of a tokenizer.json, checked before the crate reads them.
//!
//! Expressions run here and not in the crate. If an expression gives up, the crate ends the search silently and leaves the rest of the text
//! uncut. It also panics on some values, and with `panic = "abort"` a panic ends the page.

use std::sync::OnceLock;

use fancy_regex::Regex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{NormalizedString, Normalizer, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use super::charsmap;
use crate::error::{Error, Result};

/// No tokenizer has longer expressions. Compiling one takes memory in proportion to its length.
const LONGEST_EXPRESSION: usize = 1 << 16;

#[derive(Deserialize)]
enum PatternSection {
    String(String),
    Regex(String),
}

/// What to search a text for: a string or an expression.
fn compile(pattern: &Value) -> Result<Regex> {
    let pattern: PatternSection = section("a pattern", pattern.clone())?;
    let expression = match pattern {
        PatternSection::String(text) => fancy_regex::escape(&text).into_owned(),
        PatternSection::Regex(expression) => expression,
    };
    if expression.len() > LONGEST_EXPRESSION {
        bail!(
            UnsupportedTokenizer,
            "an expression of the tokenizer has {} bytes, wanted at most {LONGEST_EXPRESSION}",
            expression.len()
        );
    }
    Regex::new(&expression).map_err(|cause| err!(UnsupportedTokenizer, "expression {expression:?}: {cause}"))
}

/// Reads a section of the file as the crate's own type.
pub(super) fn section<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|cause| err!(UnsupportedTokenizer, "{what} of the tokenizer: {cause}"))
}

/// The type of a section.
pub(super) fn kind<'v>(what: &str, value: &'v Value) -> Result<&'v str> {
    match value.get("type").and_then(Value::as_str) {
        Some(kind) => Ok(kind),
        None => bail!(UnsupportedTokenizer, "a {what} of the tokenizer has no type, wanted an object with one"),
    }
}

/// The parts of a section of type Sequence.
pub(super) fn parts<'v>(what: &str, value: &'v Value, field: &str) -> Result<&'v [Value]> {
    match value.get(field).and_then(Value::as_array) {
        Some(parts) => Ok(parts),
        None => bail!(UnsupportedTokenizer, "a sequence of {what}s of the tokenizer has no list {field:?}"),
    }
}

/// Replaces the matches of an expression by a fixed text.
pub(super) struct Replacement {
    pattern: Regex,
    content: String,
}

impl Replacement {
    pub(super) fn new(value: &Value) -> Result<Self> {
        let content = value.get("content").and_then(Value::as_str);
        match (value.get("pattern"), content) {
            (Some(pattern), Some(content)) => Ok(Self { pattern: compile(pattern)?, content: content.to_owned() }),
            _ => bail!(UnsupportedTokenizer, "a Replace of the tokenizer wants a pattern and a content"),
        }
    }

    /// `text` with all matches replaced.
    pub(super) fn replace(&self, text: &str) -> Result<String> {
        let mut replaced = String::with_capacity(text.len());
        let mut done = 0;
        for found in self.pattern.find_iter(text) {
            let found = found.map_err(|cause| gave_up(&cause))?;
            replaced.push_str(&text[done..found.start()]);
            replaced.push_str(&self.content);
            done = found.end();
        }
        replaced.push_str(&text[done..]);
        Ok(replaced)
    }
}

fn gave_up(cause: &dyn std::fmt::Display) -> Error {
    err!(InvalidRequest, "an expression of the tokenizer gave up on the text ({cause}); break up very long runs")
}

enum NormalizerStep {
    Replace(Replacement),
    Crate(NormalizerWrapper),
}

const NORMALIZERS: &str = "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, \
                           Sequence, Strip, StripAccents";

/// What happens to a text before it is cut.
#[derive(Default)]
pub(super) struct Normalizers(Vec<NormalizerStep>);

impl Normalizers {
    pub(super) fn new(value: Option<&Value>) -> Result<Self> {
        let mut steps = Vec::new();
        if let Some(value) = value {
            Self::collect(value, &mut steps)?;
        }
        Ok(Self(steps))
    }

    /// With sentencepiece's charsmap first.
    pub(super) fn with_charsmap(mut self, bytes: &[u8]) -> Result<Self> {
        self.0.insert(0, NormalizerStep::Crate(NormalizerWrapper::Precompiled(charsmap::checked(bytes)?)));
        Ok(self)
    }

    fn collect(value: &Value, steps: &mut Vec<NormalizerStep>) -> Result<()> {
        match kind("normalizer", value)? {
            "Sequence" => {
                for part in parts("normalizer", value, "normalizers")? {
                    Self::collect(part, steps)?;
                }
            }
            "Replace" => steps.push(NormalizerStep::Replace(Replacement::new(value)?)),
            "Precompiled" => {
                let text = value.get("precompiled_charsmap").and_then(Value::as_str).unwrap_or_default();
                let bytes = base64::decode(text)
                    .map_err(|cause| err!(UnsupportedTokenizer, "the precompiled charsmap is not base64: {cause}"))?;
                steps.push(NormalizerStep::Crate(NormalizerWrapper::Precompiled(charsmap::checked(&bytes)?)));
            }
            "BertNormalizer" | "ByteLevel" | "Lowercase" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Nmt" | "Prepend"
            | "Strip" | "StripAccents" => steps.push(NormalizerStep::Crate(section("a normalizer", value.clone())?)),
            other => {
                bail!(UnsupportedTokenizer, "the tokenizer has a normalizer {other:?}, wanted one of: {NORMALIZERS}")
            }
        }
        Ok(())
    }
}

/// The normalizers in the form for the crate's added vocabulary. The crate drops their errors, so they are kept here.
pub(super) struct Normalizing<'s> {
    pub steps: &'s Normalizers,
    pub failure: OnceLock<Error>,
}

impl Normalizer for Normalizing<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        for step in &self.steps.0 {
            let done = match step {
                NormalizerStep::Replace(Replacement { pattern, content }) => text.replace(pattern, content),
                NormalizerStep::Crate(normalizer) => normalizer.normalize(text),
            };
            if let Err(cause) = done {
                let _ = self.failure.set(gave_up(&cause)); // the first one counts
                return Err(cause);
            }
        }
        Ok(())
    }
}

enum SplitStep {
    Pattern { pattern: Regex, behavior: SplitDelimiterBehavior, invert: bool },
    Crate(PreTokenizerWrapper),
}

const PRE_TOKENIZERS: &str = "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation, \
                              Sequence, Split, UnicodeScripts, Whitespace, WhitespaceSplit";

/// How a text is cut into words.
#[derive(Default)]
pub(super) struct PreTokenizers(Vec<SplitStep>);

impl PreTokenizers {
    pub(super) fn new(value: Option<&Value>) -> Result<Self> {
        let mut steps = Vec::new();
        if let Some(value) = value {
            Self::collect(value, &mut steps)?;
        }
        Ok(Self(steps))
    }

    fn collect(value: &Value, steps: &mut Vec<SplitStep>) -> Result<()> {
        match kind("pre-tokenizer", value)? {
            "Sequence" => {
                for part in parts("pre-tokenizer", value, "pretokenizers")? {
                    Self::collect(part, steps)?;
                }
            }
            "Split" => {
                let Some(pattern) = value.get("pattern") else {
                    bail!(UnsupportedTokenizer, "a Split of the tokenizer has no pattern");
                };
                steps.push(SplitStep::Pattern {
                    pattern: compile(pattern)?,
                    behavior: section("a behavior", value.get("behavior").cloned().unwrap_or_default())?,
                    invert: value.get("invert").and_then(Value::as_bool).unwrap_or(false),
                });
            }
            "FixedLength" if value.get("length").is_some_and(|length| length.as_u64() == Some(0)) => {
                bail!(UnsupportedTokenizer, "the tokenizer cuts words of length 0, wanted at least 1")
            }
            "BertPreTokenizer" | "ByteLevel" | "CharDelimiterSplit" | "Digits" | "FixedLength" | "Metaspace"
            | "Punctuation" | "UnicodeScripts" | "Whitespace" | "WhitespaceSplit" => {
                steps.push(SplitStep::Crate(section("a pre-tokenizer", value.clone())?));
            }
            other => {
                bail!(
                    UnsupportedTokenizer,
                    "the tokenizer has a pre-tokenizer {other:?}, wanted one of: {PRE_TOKENIZERS}"
                )
            }
        }
        Ok(())
    }

    pub(super) fn apply(&self, text: &mut PreTokenizedString) -> Result<()> {
        for step in &self.0 {
            let done = match step {
                SplitStep::Pattern { pattern, behavior, invert: false } => {
                    text.split(|_, piece| piece.split(pattern, *behavior))
                }
                SplitStep::Pattern { pattern, behavior, invert: true } => {
                    text.split(|_, piece| piece.split(Invert(pattern), *behavior))
                }
                SplitStep::Crate(pre_tokenizer) => pre_tokenizer.pre_tokenize(text),
            };
            done.map_err(|cause| gave_up(&cause))?;
        }
        Ok(())
    }
}
