//! From tokens back to bytes, as the decoder section of a tokenizer.json says.
//!
//! The crate decodes whole lists of tokens to text, but a stream needs each token's bytes at once. So a chain of decoders is analysed. In
//! most chains every token has its own bytes, which differ at most for the first token of a text (WordPiece, Metaspace) or for the last
//! (BPEDecoder). If later tokens change earlier text (CTC, a Replace after Fuse), the whole text is decoded at its end.
//!
//! Bytes stay bytes until they form characters (`text/detokenize.rs`). The crate's ByteFallback would turn a whole run into U+FFFD if one
//! byte is wrong.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::Decoder as _;
use tokenizers::decoders::{bpe::BPEDecoder, ctc::CTC, wordpiece::WordPiece};
use tokenizers::pre_tokenizers::metaspace::Metaspace;

use super::byte_level;
use super::steps::{Replacement, kind, parts, section};
use super::vocabulary::byte_of_token;
use crate::error::{Error, Result};

#[derive(Deserialize)]
struct StripSection {
    content: char,
    start: usize,
    stop: usize,
}

enum Stage {
    ByteLevel,
    ByteFallback,
    Fuse,
    Strip { content: char, start: usize, stop: usize },
    Replace(Replacement),
    // These four are the crate's. All but CTC make one text for each token.
    WordPiece(WordPiece),
    Metaspace(Metaspace),
    Bpe(BPEDecoder),
    Ctc(CTC),
}

const DECODERS: &str = "BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece";

/// How tokens become text.
pub(super) struct Decoding {
    stages: Vec<Stage>,
    /// Without a decoder, tokens are words with spaces between them.
    join_with_spaces: bool,
    pub joining: Joining,
}

/// How the bytes of a token depend on its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::text) enum Joining {
    /// They don't. At the beginning of a text, `content` is removed up to `n` times.
    Plain { content: char, n: usize },
    /// They depend on whether it is the first one of a text.
    First,
    /// They depend on whether it is the last one.
    Last,
    /// They depend on all others.
    Whole,
}

impl Joining {
    pub(super) const PLAIN: Joining = Joining::Plain { content: ' ', n: 0 };
    /// For sentencepiece, which puts a space before the text.
    pub(super) const STRIP_SPACE: Joining = Joining::Plain { content: ' ', n: 1 };
}

/// The place of a token in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Middle,
    Last,
}

impl Decoding {
    pub(super) fn new(value: Option<&Value>) -> Result<Self> {
        let mut stages = Vec::new();
        if let Some(value) = value {
            collect(value, &mut stages)?;
        }
        let join_with_spaces = value.is_none();
        let joining = if join_with_spaces { Joining::First } else { joining(&stages) };
        Ok(Self { stages, join_with_spaces, joining })
    }

    /// The bytes of one token. `added` tokens are not in the model's vocabulary and don't use its alphabet.
    pub(super) fn token(&self, text: &str, added: bool, place: Place) -> Result<Vec<u8>> {
        if self.join_with_spaces {
            return Ok(if place == Place::First { text.to_owned() } else { format!(" {text}") }.into_bytes());
        }
        // Decoders recognise the first and the last token by their index in the list.
        let (mut row, index) = match place {
            Place::First => (vec![text.to_owned(), String::new()], 0),
            Place::Middle => (vec![String::new(), text.to_owned(), String::new()], 1),
            Place::Last => (vec![String::new(), text.to_owned()], 1),
        };
        for stage in &self.stages {
            match stage {
                Stage::Fuse => break,
                Stage::ByteLevel if added => break,
                Stage::ByteLevel => {
                    let mut bytes = Vec::new();
                    byte_level::bytes_of_token(&row[index], &mut bytes);
                    return Ok(bytes);
                }
                Stage::ByteFallback => {
                    if let Some(byte) = byte_of_token(&row[index]) {
                        return Ok(vec![byte]);
                    }
                }
                other => row = other.apply(row)?,
            }
        }
        Ok(row.get(index).map(|text| text.clone().into_bytes()).unwrap_or_default())
    }

    /// The text of a whole list of tokens.
    pub(super) fn whole(&self, tokens: Vec<String>) -> Result<String> {
        let mut row = tokens;
        for stage in &self.stages {
            if row.is_empty() {
                break;
            }
            row = stage.apply(row)?;
        }
        Ok(row.concat())
    }
}

impl Stage {
    /// Applies this stage to a list that is not empty.
    fn apply(&self, row: Vec<String>) -> Result<Vec<String>> {
        match self {
            Stage::Fuse => Ok(vec![row.concat()]),
            Stage::ByteLevel => {
                let (mut all, mut bytes) = (Vec::new(), Vec::new());
                for text in &row {
                    byte_level::bytes_of_token(text, &mut bytes);
                    all.extend_from_slice(&bytes);
                }
                Ok(vec![String::from_utf8_lossy(&all).into_owned()])
            }
            Stage::ByteFallback => {
                let (mut texts, mut run) = (Vec::with_capacity(row.len()), Vec::new());
                for text in row {
                    match byte_of_token(&text) {
                        Some(byte) => run.push(byte),
                        None => {
                            texts.push(String::from_utf8_lossy(&std::mem::take(&mut run)).into_owned());
                            texts.push(text);
                        }
                    }
                }
                texts.push(String::from_utf8_lossy(&run).into_owned());
                Ok(texts)
            }
            Stage::Strip { content, start, stop } => {
                Ok(row.into_iter().map(|text| strip(&text, *content, *start, *stop).to_owned()).collect())
            }
            Stage::Replace(replacement) => row.iter().map(|text| replacement.replace(text)).collect(),
            Stage::WordPiece(decoder) => decoder.decode_chain(row).map_err(|cause| failed(&*cause)),
            Stage::Metaspace(decoder) => decoder.decode_chain(row).map_err(|cause| failed(&*cause)),
            Stage::Bpe(decoder) => decoder.decode_chain(row).map_err(|cause| failed(&*cause)),
            Stage::Ctc(decoder) => decoder.decode_chain(row).map_err(|cause| failed(&*cause)),
        }
    }
}

fn failed(cause: &dyn std::error::Error) -> Error {
    err!(Internal, "decoding failed: {cause}")
}

fn strip(text: &str, content: char, start: usize, stop: usize) -> &str {
    let mut text = text;
    for _ in 0..start {
        match text.strip_prefix(content) {
            Some(rest) => text = rest,
            None => break,
        }
    }
    for _ in 0..stop {
        match text.strip_suffix(content) {
            Some(rest) => text = rest,
            None => break,
        }
    }
    text
}

fn collect(value: &Value, stages: &mut Vec<Stage>) -> Result<()> {
    stages.push(match kind("decoder", value)? {
        "Sequence" => {
            for part in parts("decoder", value, "decoders")? {
                collect(part, stages)?;
            }
            return Ok(());
        }
        "ByteLevel" => Stage::ByteLevel,
        "ByteFallback" => Stage::ByteFallback,
        "Fuse" => Stage::Fuse,
        "Strip" => {
            let StripSection { content, start, stop } = section("a Strip", value.clone())?;
            Stage::Strip { content, start, stop }
        }
        "Replace" => Stage::Replace(Replacement::new(value)?),
        "WordPiece" => Stage::WordPiece(section("a decoder", value.clone())?),
        "Metaspace" => Stage::Metaspace(section("a decoder", value.clone())?),
        "BPEDecoder" => Stage::Bpe(section("a decoder", value.clone())?),
        "CTC" => Stage::Ctc(section("a decoder", value.clone())?),
        other => bail!(UnsupportedTokenizer, "the tokenizer has a decoder {other:?}, wanted one of: {DECODERS}"),
    });
    Ok(())
}

fn joining(stages: &[Stage]) -> Joining {
    let mut joining = Joining::PLAIN;
    let mut fused = false;
    // Bytes may not be whole characters yet, so only joining may follow.
    let mut bytes = false;
    for stage in stages {
        let next = match stage {
            Stage::Fuse => {
                fused = true;
                joining
            }
            Stage::Strip { content, start, stop: 0 } if fused && joining == Joining::PLAIN => {
                Joining::Plain { content: *content, n: *start }
            }
            _ if fused || bytes => Joining::Whole,
            Stage::ByteLevel => {
                fused = true;
                joining
            }
            Stage::ByteFallback => {
                bytes = true;
                joining
            }
            Stage::Strip { .. } | Stage::Replace(_) => joining,
            Stage::Bpe(_) if joining == Joining::PLAIN => Joining::Last,
            Stage::WordPiece(_) | Stage::Metaspace(_) if joining == Joining::PLAIN => Joining::First,
            Stage::Bpe(_) | Stage::WordPiece(_) | Stage::Metaspace(_) | Stage::Ctc(_) => Joining::Whole,
        };
        if next == Joining::Whole {
            return next;
        }
        joining = next;
    }
    joining
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn joining_of(decoder: Value) -> Joining {
        Decoding::new(Some(&decoder)).unwrap().joining
    }

    #[test]
    fn chains_are_taken_apart_where_tokens_are_independent() {
        let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let sequence = |decoders: &[&Value]| joining_of(json!({"type": "Sequence", "decoders": decoders}));
        assert_eq!(sequence(&[&replace, &fallback, &fuse, &strip]), Joining::STRIP_SPACE);
        assert_eq!(sequence(&[&replace, &fallback, &fuse]), Joining::PLAIN);
        assert_eq!(sequence(&[&fuse, &replace]), Joining::Whole);
        assert_eq!(sequence(&[&fallback, &replace]), Joining::Whole);
        assert_eq!(joining_of(json!({"type": "WordPiece", "prefix": "##", "cleanup": true})), Joining::First);
        assert_eq!(joining_of(json!({"type": "BPEDecoder", "suffix": "</w>"})), Joining::Last);
        let level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        assert_eq!(joining_of(level), Joining::PLAIN);
        let ctc = json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true});
        assert_eq!(joining_of(ctc), Joining::Whole);
        assert_eq!(Decoding::new(None).unwrap().joining, Joining::First);
    }

    #[test]
    fn stripping_never_takes_more_than_there_is() {
        assert_eq!(strip("  a ", ' ', 1, 3), " a");
        assert_eq!(strip(" ", ' ', 1, 1), "");
        assert_eq!(strip("", ' ', usize::MAX, usize::MAX), "");
    }
}
