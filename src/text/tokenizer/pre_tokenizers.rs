//! The pre-tokenizers of a tokenizer.json, checked before the crate reads them: how a text is cut into words.
//!
//! What takes expressions runs here (`pattern`) and not in the crate, whose own engine the package would have to hold. If an expression
//! gives up, the crate would also end the search silently and leave the rest of the text uncut. It panics on some values, and with
//! `panic = "abort"` a panic ends the page.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::normalizers::ByteLevel;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::delimiter::CharDelimiterSplit;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::fixed_length::FixedLength;
use tokenizers::pre_tokenizers::metaspace::Metaspace;
use tokenizers::pre_tokenizers::unicode_scripts::UnicodeScripts;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{Normalizer, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use super::pattern::Pattern;
use super::pre::GPT2;
use super::steps::{compile, kind, of_step, parts, section};
use crate::error::{Error, Result};

/// What BERT takes for punctuation: that of Unicode, and all of ASCII's characters that are neither letters, digits nor blanks.
const PUNCTUATION: &str = r"[\p{P}!-/:-@\[-`{-~]";

/// Those of the crate one by one: its own enum of them brings an engine for expressions.
enum SplitStep {
    Pattern {
        pattern: Pattern,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    /// Puts a space first.
    Space,
    /// Writes bytes as characters.
    Bytes,
    Delimiter(CharDelimiterSplit),
    Digits(Digits),
    FixedLength(FixedLength),
    Metaspace(Metaspace),
    Scripts(UnicodeScripts),
    WhitespaceSplit(WhitespaceSplit),
}

impl SplitStep {
    fn apply(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Self::Pattern { pattern, behavior, invert: false } => {
                text.split(|_, piece| piece.split(pattern, *behavior))
            }
            Self::Pattern { pattern, behavior, invert: true } => {
                text.split(|_, piece| piece.split(Invert(pattern), *behavior))
            }
            Self::Space => text.normalize(|piece| {
                if !piece.get().starts_with(' ') {
                    piece.prepend(" ");
                }
                Ok(())
            }),
            Self::Bytes => text.normalize(|piece| ByteLevel.normalize(piece)),
            Self::Delimiter(step) => step.pre_tokenize(text),
            Self::Digits(step) => step.pre_tokenize(text),
            Self::FixedLength(step) => step.pre_tokenize(text),
            Self::Metaspace(step) => step.pre_tokenize(text),
            Self::Scripts(step) => step.pre_tokenize(text),
            Self::WhitespaceSplit(step) => step.pre_tokenize(text),
        }
    }
}

/// The fields of a ByteLevel that matter before encoding.
#[derive(Deserialize)]
struct ByteLevelSection {
    add_prefix_space: bool,
    #[serde(rename = "trim_offsets")]
    _trim_offsets: bool,
    use_regex: Option<bool>,
}

/// The fields of a Punctuation.
#[derive(Deserialize)]
struct PunctuationSection {
    #[serde(default = "isolated")]
    behavior: SplitDelimiterBehavior,
}

fn isolated() -> SplitDelimiterBehavior {
    SplitDelimiterBehavior::Isolated
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
        let what = "a pre-tokenizer";
        let isolated = |expression: &str, invert: bool| {
            let behavior = if invert { SplitDelimiterBehavior::Removed } else { SplitDelimiterBehavior::Isolated };
            Ok::<_, Error>(SplitStep::Pattern { pattern: Pattern::new(expression)?, behavior, invert })
        };
        let step = match kind("pre-tokenizer", value)? {
            "Sequence" => {
                let parts = parts("pre-tokenizer", value, "pretokenizers")?;
                return parts.iter().try_for_each(|part| Self::collect(part, steps));
            }
            "Split" => {
                let Some(pattern) = value.get("pattern") else {
                    bail!(UnsupportedTokenizer, "a Split of the tokenizer has no pattern");
                };
                SplitStep::Pattern {
                    pattern: compile(pattern)?,
                    behavior: section("a behavior", value.get("behavior").cloned().unwrap_or_default())?,
                    invert: value.get("invert").and_then(Value::as_bool).unwrap_or(false),
                }
            }
            "ByteLevel" => {
                let ByteLevelSection { add_prefix_space, use_regex, .. } = section(what, value.clone())?;
                if add_prefix_space {
                    steps.push(SplitStep::Space);
                }
                if use_regex.unwrap_or(true) {
                    steps.push(isolated(GPT2, false)?);
                }
                SplitStep::Bytes
            }
            "Whitespace" => isolated(r"\w+|[^\w\s]+", true)?,
            "FixedLength" if value.get("length").is_some_and(|length| length.as_u64() == Some(0)) => {
                bail!(UnsupportedTokenizer, "the tokenizer cuts words of length 0, wanted at least 1")
            }
            "BertPreTokenizer" => {
                steps.push(SplitStep::WhitespaceSplit(WhitespaceSplit));
                isolated(PUNCTUATION, false)?
            }
            "CharDelimiterSplit" => SplitStep::Delimiter(section(what, value.clone())?),
            "Digits" => SplitStep::Digits(section(what, value.clone())?),
            "FixedLength" => SplitStep::FixedLength(section(what, value.clone())?),
            "Metaspace" => SplitStep::Metaspace(section(what, value.clone())?),
            "Punctuation" => {
                let PunctuationSection { behavior } = section(what, value.clone())?;
                SplitStep::Pattern { pattern: Pattern::new(PUNCTUATION)?, behavior, invert: false }
            }
            "UnicodeScripts" => SplitStep::Scripts(UnicodeScripts::new()),
            "WhitespaceSplit" => SplitStep::WhitespaceSplit(WhitespaceSplit),
            other => {
                bail!(
                    UnsupportedTokenizer,
                    "the tokenizer has a pre-tokenizer {other:?}, wanted one of: {PRE_TOKENIZERS}"
                )
            }
        };
        steps.push(step);
        Ok(())
    }

    pub(super) fn apply(&self, text: &mut PreTokenizedString) -> Result<()> {
        self.0.iter().try_for_each(|step| step.apply(text)).map_err(of_step)
    }
}
