//! The normalizers of a tokenizer.json, checked before the crate reads them: what happens to a text before it is cut.
//!
//! Those that want Unicode's tables or expressions run here, on the browser's where there is one (`normal_form`, `pattern`).

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, normalizers as normalizer};

use super::charsmap;
use super::normal_form::NormalForm;
use super::steps::{Replacement, kind, parts, section};
use crate::error::Result;

/// Characters that BERT leaves out: control characters but for blanks, formats, those for private use and the replacement character.
const CONTROLS: &str = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\x{FFFD}\p{Cf}\p{Co}]";

/// BERT's own steps, as its section names them.
#[derive(Deserialize)]
struct BertSection {
    clean_text: bool,
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
    lowercase: bool,
}

/// The steps of a BertNormalizer, in the order in which they are taken.
struct Bert {
    controls: Option<Replacement>,
    spaces_ideographs: bool,
    accents: Option<Replacement>,
    lowercase: bool,
}

impl Bert {
    fn new(section: &BertSection) -> Result<Self> {
        let strips_accents = section.strip_accents.unwrap_or(section.lowercase);
        let removing = |wanted: bool, expression| wanted.then(|| Replacement::removing(expression)).transpose();
        Ok(Self {
            controls: removing(section.clean_text, CONTROLS)?,
            spaces_ideographs: section.handle_chinese_chars,
            accents: removing(strips_accents, r"\p{Mn}")?,
            lowercase: section.lowercase,
        })
    }

    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        if let Some(controls) = &self.controls {
            controls.apply(text)?;
            text.map(|character| if character.is_whitespace() { ' ' } else { character });
        }
        if self.spaces_ideographs {
            space_ideographs(text);
        }
        if let Some(accents) = &self.accents {
            write_as(NormalForm::Nfd, text);
            accents.apply(text)?;
        }
        if self.lowercase {
            normalizer::Lowercase.normalize(text)?;
        }
        Ok(())
    }
}

/// Writes a text in a normal form, and says of its first characters that they come of the first ones there. Only where a piece begins
/// matters afterwards: a Metaspace may want to know whether it is the first.
fn write_as(form: NormalForm, text: &mut NormalizedString) {
    let written = form.of(text.get());
    if written == text.get() {
        return;
    }
    let (n_old, n_new) = (text.get().chars().count(), written.chars().count());
    let missing = n_old.saturating_sub(n_new) as isize;
    let change = |at: usize| match at {
        at if at >= n_old => 1,
        at if at + 1 == n_new => -missing,
        _ => 0,
    };
    let characters: Vec<(char, isize)> =
        written.chars().enumerate().map(|(at, character)| (character, change(at))).collect();
    text.transform(characters, 0);
}

/// Puts a space before and after each ideograph.
fn space_ideographs(text: &mut NormalizedString) {
    let mut characters = Vec::with_capacity(text.len());
    for character in text.get().chars() {
        if is_ideograph(character) {
            characters.extend([(' ', 0), (character, 1), (' ', 1)]);
        } else {
            characters.push((character, 0));
        }
    }
    text.transform(characters, 0);
}

/// The blocks that the `tokenizers` crate takes for Chinese.
fn is_ideograph(character: char) -> bool {
    matches!(
        u32::from(character),
        0x3400..=0x4DBF
            | 0x4E00..=0x9FFF
            | 0xF900..=0xFAFF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0x2F800..=0x2FA1F
    )
}

/// Those of the crate, one by one: its own enum of them brings an engine for expressions.
enum NormalizerStep {
    Bert(Bert),
    ByteLevel(normalizer::ByteLevel),
    Lowercase(normalizer::Lowercase),
    NormalForm(NormalForm),
    Nmt(normalizer::Nmt),
    Precompiled(normalizer::Precompiled),
    Prepend(normalizer::Prepend),
    Replace(Replacement),
    Strip(normalizer::Strip),
}

impl NormalizerStep {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        match self {
            Self::Bert(step) => step.normalize(text),
            Self::ByteLevel(step) => step.normalize(text),
            Self::Lowercase(step) => step.normalize(text),
            Self::NormalForm(form) => {
                write_as(*form, text);
                Ok(())
            }
            Self::Nmt(step) => step.normalize(text),
            Self::Precompiled(step) => step.normalize(text),
            Self::Prepend(step) => step.normalize(text),
            Self::Replace(step) => step.apply(text),
            Self::Strip(step) => step.normalize(text),
        }
    }
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
        self.0.insert(0, NormalizerStep::Precompiled(charsmap::checked(bytes)?));
        Ok(self)
    }

    fn collect(value: &Value, steps: &mut Vec<NormalizerStep>) -> Result<()> {
        let what = "a normalizer";
        steps.push(match kind("normalizer", value)? {
            "Sequence" => {
                return parts("normalizer", value, "normalizers")?
                    .iter()
                    .try_for_each(|part| Self::collect(part, steps));
            }
            "Replace" => NormalizerStep::Replace(Replacement::new(value)?),
            "Precompiled" => {
                let text = value.get("precompiled_charsmap").and_then(Value::as_str).unwrap_or_default();
                let bytes = base64::decode(text)
                    .map_err(|cause| err!(UnsupportedTokenizer, "the precompiled charsmap is not base64: {cause}"))?;
                NormalizerStep::Precompiled(charsmap::checked(&bytes)?)
            }
            "BertNormalizer" => NormalizerStep::Bert(Bert::new(&section(what, value.clone())?)?),
            "ByteLevel" => NormalizerStep::ByteLevel(normalizer::ByteLevel),
            "Lowercase" => NormalizerStep::Lowercase(normalizer::Lowercase),
            "NFC" => NormalizerStep::NormalForm(NormalForm::Nfc),
            "NFD" => NormalizerStep::NormalForm(NormalForm::Nfd),
            "NFKC" => NormalizerStep::NormalForm(NormalForm::Nfkc),
            "NFKD" => NormalizerStep::NormalForm(NormalForm::Nfkd),
            "Nmt" => NormalizerStep::Nmt(normalizer::Nmt),
            "Prepend" => NormalizerStep::Prepend(section(what, value.clone())?),
            "Strip" => NormalizerStep::Strip(section(what, value.clone())?),
            "StripAccents" => NormalizerStep::Replace(Replacement::removing(r"\p{M}")?),
            other => {
                bail!(UnsupportedTokenizer, "the tokenizer has a normalizer {other:?}, wanted one of: {NORMALIZERS}")
            }
        });
        Ok(())
    }

    pub(super) fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        self.0.iter().try_for_each(|step| step.normalize(text))
    }
}
