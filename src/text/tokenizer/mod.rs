//! From text to token ids and from token ids to bytes, with the tokenizer that a GGUF file describes.
//!
//! `gpt2` is byte-level BPE (`byte_level`, words by `pre`), `llama` is sentencepiece BPE (`sentencepiece`). Special tokens
//! are cut out of the text first (`special`). The behaviour around them follows llama.cpp, which defined the metadata.
//! Must not know files, models or chats.

mod byte_level;
mod pre;
mod sentencepiece;
mod special;
mod vocabulary;

use std::collections::HashMap;

use self::byte_level::ByteLevelBpe;
use self::sentencepiece::SentencePieceBpe;
use self::special::{Fragment, SpecialTokens};
pub use self::vocabulary::Vocabulary;
use self::vocabulary::{TokenBytes, TokenType};
use super::detokenize::StreamDecoder;
use crate::error::{Error, Result};

enum Algorithm {
    ByteLevel(Box<ByteLevelBpe>),
    SentencePiece(Box<SentencePieceBpe>),
}

/// Values of `tokenizer.ggml.model` that are read.
const SUPPORTED_MODELS: &str = "\"gpt2\" (byte-level BPE), \"llama\" (sentencepiece BPE)";

pub struct Tokenizer {
    algorithm: Algorithm,
    special: SpecialTokens,
    /// Ids of control and unknown tokens, which the algorithm doesn't know, by their text.
    control_ids: HashMap<String, u32>,
    types: Vec<TokenType>,
    bytes: TokenBytes,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    end_of_generation: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata describes.
    pub fn new(vocabulary: Vocabulary) -> Result<Self> {
        let is_sentencepiece = match vocabulary.model.as_str() {
            "gpt2" => false,
            "llama" => true,
            model => {
                bail!(UnsupportedTokenizer, "tokenizer.ggml.model is {model:?}, wanted one of: {SUPPORTED_MODELS}")
            }
        };
        let mut types = vocabulary.types()?;
        // Where the file is silent: sentencepiece's own numbers, as far as these tokens are what they should be.
        let or_default = |id: Option<u32>, default: u32, kind: TokenType| {
            let fits = is_sentencepiece && types.get(default as usize) == Some(&kind);
            id.or(fits.then_some(default))
        };
        let bos = vocabulary.checked_id("BOS", or_default(vocabulary.bos, 1, TokenType::Control))?;
        let eos = vocabulary.checked_id("EOS", or_default(vocabulary.eos, 2, TokenType::Control))?;
        let unk = vocabulary.checked_id("unknown", or_default(vocabulary.unk, 0, TokenType::Unknown))?;
        let pad = vocabulary.checked_id("padding", vocabulary.pad)?;
        let end_of_generation = special::end_of_generation(&vocabulary, &mut types, eos);

        let (algorithm, default_add_bos) = if is_sentencepiece {
            (Algorithm::SentencePiece(Box::new(SentencePieceBpe::new(&vocabulary, &types, unk)?)), true)
        } else {
            let pre = pre::pre_tokenizer(vocabulary.pre.as_deref())?;
            (Algorithm::ByteLevel(Box::new(ByteLevelBpe::new(&vocabulary, &types, pre)?)), pre.add_bos)
        };
        let mut bytes = TokenBytes::with_capacity(types.len());
        let mut control_ids = HashMap::new();
        let mut token = Vec::new();
        for ((text, &kind), id) in vocabulary.tokens.iter().zip(&types).zip(0u32..) {
            match kind {
                TokenType::Control | TokenType::Unknown => {
                    control_ids.entry(text.clone()).or_insert(id);
                    bytes.push(text.as_bytes());
                }
                TokenType::UserDefined => bytes.push(text.as_bytes()),
                TokenType::Unused => bytes.push(b""),
                TokenType::Normal | TokenType::Byte => {
                    if is_sentencepiece {
                        sentencepiece::bytes_of_token(text, kind, &mut token);
                    } else {
                        byte_level::bytes_of_token(text, &mut token);
                    }
                    bytes.push(&token);
                }
            }
        }
        Ok(Self {
            algorithm,
            special: SpecialTokens::new(&vocabulary, &types)?,
            control_ids,
            types,
            bytes,
            bos,
            eos,
            pad,
            add_bos: vocabulary.add_bos.unwrap_or(default_add_bos),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            add_space_prefix: vocabulary.add_space_prefix.unwrap_or(is_sentencepiece),
            end_of_generation,
        })
    }

    /// The ids of `text`.
    ///
    /// `add_special` puts BOS in front and EOS behind where the model wants them. `parse_special` turns control tokens that
    /// are written in the text into their ids, which is what a rendered chat template needs; without it they are plain
    /// text, which is what a text of unknown origin needs.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.add_bos {
            ids.extend(self.bos);
        }
        for fragment in self.special.split(text, parse_special) {
            match (fragment, &self.algorithm) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Algorithm::ByteLevel(bpe)) => bpe.encode(text, &mut ids)?,
                // A stretch of text stands at the beginning or behind a special token: both get the space.
                (Fragment::Text(text), Algorithm::SentencePiece(bpe)) => {
                    bpe.encode(text, self.add_space_prefix, &mut ids)?;
                }
            }
        }
        if add_special && self.add_eos {
            ids.extend(self.eos);
        }
        Ok(ids)
    }

    /// The text of `ids` as `encode` with `parse_special` reads it: control tokens are written out.
    pub fn decode_with_control(&self, ids: &[u32]) -> Result<String> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes_with_control(id)?);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(match self.adds_space_prefix() {
            true => text.strip_prefix(' ').map(str::to_owned).unwrap_or(text),
            false => text,
        })
    }

    /// The text of `ids`. Control tokens have none; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut decoder = StreamDecoder::new(self);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&decoder.push(self, id)?);
        }
        text.push_str(&decoder.finish());
        Ok(text)
    }

    /// The bytes that a token adds to the text: none for a control token.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        match self.token_type(id)? {
            TokenType::Control | TokenType::Unknown => Ok(&[]),
            _ => self.written_bytes(id),
        }
    }

    /// Like [`Tokenizer::token_bytes`], but a control token is the text that it is written as: `<|im_end|>`.
    pub fn token_bytes_with_control(&self, id: u32) -> Result<&[u8]> {
        self.written_bytes(id)
    }

    pub fn vocab_size(&self) -> usize {
        self.types.len()
    }

    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Whether `encode` with `add_special` puts BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// The id of a token by its text as the vocabulary has it (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.control_ids.get(text).copied().or_else(|| match &self.algorithm {
            Algorithm::ByteLevel(bpe) => bpe.token_id(text),
            Algorithm::SentencePiece(bpe) => bpe.token_id(text),
        })
    }

    /// Whether a token is a control token, so has no text. False for an id that is no token.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.types.get(id as usize), Some(TokenType::Control | TokenType::Unknown))
    }

    /// Tokens after which nothing more is to be generated: EOS first, then the ends of a turn that the vocabulary has.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Whether encoding puts a space in front of a text, which decoding takes away again.
    pub(super) fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix && matches!(self.algorithm, Algorithm::SentencePiece(_))
    }

    fn token_type(&self, id: u32) -> Result<TokenType> {
        self.types.get(id as usize).copied().ok_or_else(|| self.not_in_vocabulary(id))
    }

    fn written_bytes(&self, id: u32) -> Result<&[u8]> {
        self.bytes.get(id).ok_or_else(|| self.not_in_vocabulary(id))
    }

    fn not_in_vocabulary(&self, id: u32) -> Error {
        err!(InvalidRequest, "token id {id} is not in the vocabulary, wanted one below {}", self.types.len())
    }
}
