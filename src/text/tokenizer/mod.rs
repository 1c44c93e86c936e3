//! From text to token ids and from token ids to bytes, with the tokenizer that a GGUF file or a Hugging Face folder describes.
//!
//! GGUF: `gpt2` is byte-level BPE (`byte_level`, words by `pre`), `llama` is sentencepiece BPE (`sentencepiece`); special tokens are cut
//! out of the text first (`special`). The other behaviour follows llama.cpp, which defined the metadata. A tokenizer.json (`hugging_face`)
//! is a `pipeline` of the `tokenizers` crate, and so are GGUF's other kinds (`gguf`) and Marian's folders (`marian`). Must not know files, models or chats.

mod added;
mod byte_level;
mod charsmap;
mod decoding;
mod gguf;
mod hugging_face;
mod json_model;
mod marian;
mod normal_form;
mod normalizers;
mod pair;
mod parts;
mod pattern;
mod piece_ids;
mod pipeline;
mod pre;
mod pre_tokenizers;
mod sentencepiece;
mod sentencepiece_model;
mod special;
mod steps;
mod token_finder;
mod vocabulary;

use std::borrow::Cow;
use std::collections::HashMap;

use self::byte_level::ByteLevelBpe;
use self::decoding::{Decoding, Place};
pub use self::hugging_face::TokenizerFiles;
pub use self::marian::MarianFiles;
use self::pair::{Ends, PairForm};
pub use self::pair::{TypedIds, longest_first};
use self::parts::Parts;
use self::pipeline::Pipeline;
use self::sentencepiece::SentencePieceBpe;
use self::special::{Fragment, SpecialTokens};
pub use self::vocabulary::Vocabulary;
use self::vocabulary::{TokenBytes, TokenType};
use crate::error::{Error, Result};

pub(super) use self::decoding::Joining;

enum Algorithm {
    ByteLevel(Box<ByteLevelBpe>, SpecialTokens),
    SentencePiece(Box<SentencePieceBpe>, SpecialTokens),
    Pipeline(Box<Pipeline>),
}

/// The values of `tokenizer.ggml.model` that are supported.
const SUPPORTED_MODELS: &str = "\"gpt2\" (byte-level BPE), \"llama\" (sentencepiece BPE), \"bert\" (WordPiece), \
                                \"t5\" (unigram), \"gemma4\" (BPE of characters)";

/// The tokenizer of a model.
pub struct Tokenizer {
    algorithm: Algorithm,
    /// Ids of control and unknown tokens by their text; the GGUF algorithms don't know them.
    control_ids: HashMap<String, u32>,
    types: Vec<TokenType>,
    bytes: TokenBytes,
    decoding: Option<Placed>,
    joining: Joining,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    /// The tokens before and after a text, such as BOS and EOS.
    before: Vec<u32>,
    after: Vec<u32>,
    /// The form of two texts, if there is one.
    pair: Option<PairForm>,
    add_space_prefix: bool,
    end_of_generation: Vec<u32>,
}

/// For tokens whose bytes depend on their place: the decoders, and the tokens' texts.
struct Placed {
    decoding: Decoding,
    texts: TokenBytes,
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata of a GGUF file describes.
    pub fn new(vocabulary: Vocabulary) -> Result<Self> {
        let is_sentencepiece = match vocabulary.model.as_str() {
            "gpt2" if pre::writes_characters(vocabulary.pre.as_deref()) => {
                return Self::of(gguf::characters(vocabulary)?);
            }
            "gemma4" => return Self::of(gguf::characters(vocabulary)?),
            "bert" => return Self::of(gguf::word_piece(vocabulary)?),
            "t5" => return Self::of(gguf::unigram(vocabulary)?),
            "gpt2" => false,
            "llama" => true,
            model => {
                bail!(UnsupportedTokenizer, "tokenizer.ggml.model is {model:?}, wanted one of: {SUPPORTED_MODELS}")
            }
        };
        let mut types = vocabulary.types()?;
        // If the file has no entry: sentencepiece's default id, if its token has the right type.
        let or_default = |id: Option<u32>, default: u32, kind: TokenType| {
            let fits = is_sentencepiece && types.get(default as usize) == Some(&kind);
            id.or(fits.then_some(default))
        };
        let bos = vocabulary.checked_id("BOS", or_default(vocabulary.bos, 1, TokenType::Control))?;
        let eos = vocabulary.checked_id("EOS", or_default(vocabulary.eos, 2, TokenType::Control))?;
        let unk = vocabulary.checked_id("unknown", or_default(vocabulary.unk, 0, TokenType::Unknown))?;
        let pad = vocabulary.checked_id("padding", vocabulary.pad)?;
        let sep = vocabulary.checked_id("separator", vocabulary.sep)?;
        let end_of_generation = vocabulary.end_of_generation(&mut types, eos)?;

        let special = SpecialTokens::new(&vocabulary, &types)?;
        let (algorithm, default_add_bos, default_add_sep) = if is_sentencepiece {
            let bpe = SentencePieceBpe::new(&vocabulary, &types, unk)?;
            (Algorithm::SentencePiece(Box::new(bpe), special), true, false)
        } else {
            let pre = pre::pre_tokenizer(vocabulary.pre.as_deref())?;
            let bpe = ByteLevelBpe::new(&vocabulary, &types, pre)?;
            (Algorithm::ByteLevel(Box::new(bpe), special), pre.add_bos, pre.add_sep)
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
        let add_space_prefix = is_sentencepiece && vocabulary.add_space_prefix.unwrap_or(true);
        let asked = |asked: Option<bool>, default: bool, id: Option<u32>| id.filter(|_| asked.unwrap_or(default));
        let before: Vec<u32> = asked(vocabulary.add_bos, default_add_bos, bos).into_iter().collect();
        let ends =
            Ends { eos: asked(vocabulary.add_eos, false, eos), sep: asked(vocabulary.add_sep, default_add_sep, sep) };
        Ok(Self {
            algorithm,
            control_ids,
            types,
            bytes,
            decoding: None,
            joining: if add_space_prefix { Joining::STRIP_SPACE } else { Joining::PLAIN },
            bos,
            eos,
            pad,
            after: ends.of_text(),
            pair: Some(ends.of_pair(&before, [0, 0])),
            before,
            add_space_prefix,
            end_of_generation,
        })
    }

    /// Builds the tokenizer that the files of a Hugging Face folder describe.
    pub fn from_files(files: &TokenizerFiles) -> Result<Self> {
        Self::of(hugging_face::parts_of(files)?)
    }

    /// Builds the tokenizer of a Marian folder, which has no tokenizer.json.
    pub fn from_marian(files: &MarianFiles) -> Result<Self> {
        Self::of(marian::parts_of(files)?)
    }

    fn of(parts: Parts) -> Result<Self> {
        let Parts { pipeline, decoding, tokens, types, added, .. } = parts;
        let mut is_added = vec![false; types.len()];
        for added in &added {
            is_added[added.id as usize] = true;
        }
        let joining = decoding.joining;
        let mut bytes = TokenBytes::with_capacity(types.len());
        let mut texts = TokenBytes::with_capacity(0);
        for ((token, &kind), is_added) in tokens.iter().zip(&types).zip(is_added) {
            let text = token.as_deref().unwrap_or("");
            match kind {
                TokenType::Control | TokenType::Unknown => bytes.push(text.as_bytes()),
                TokenType::Unused => bytes.push(b""),
                // Such a token has no bytes of its own.
                _ if joining == Joining::Whole => bytes.push(text.as_bytes()),
                _ => bytes.push(&decoding.token(text, is_added, Place::Middle)?),
            }
            if !matches!(joining, Joining::Plain { .. }) {
                texts.push(text.as_bytes());
            }
        }
        let decoding = (!matches!(joining, Joining::Plain { .. })).then_some(Placed { decoding, texts });
        Ok(Self {
            algorithm: Algorithm::Pipeline(Box::new(pipeline)),
            control_ids: HashMap::new(),
            types,
            bytes,
            decoding,
            joining,
            bos: parts.bos,
            eos: parts.eos,
            pad: parts.pad,
            before: parts.before,
            after: parts.after,
            pair: parts.pair,
            add_space_prefix: false,
            end_of_generation: parts.end_of_generation,
        })
    }

    /// The ids of `text`.
    ///
    /// `add_special` puts the model's special tokens around it: BOS, EOS, or `[CLS]` and `[SEP]`. `parse_special` turns control tokens that
    /// are written in the text into their ids: use it for rendered chat templates. Without it they are plain text: use that for text of
    /// unknown origin.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        let (before, after) = if add_special { (&self.before[..], &self.after[..]) } else { (&[][..], &[][..]) };
        self.encode_between(before, text, parse_special, after)
    }

    /// The ids of a text between the model's special tokens, of which one says its language, as in NLLB and mBART: `language` takes its place.
    /// Control tokens in the text become their ids.
    pub fn encode_from_language(&self, text: &str, language: &str) -> Result<Vec<u32>> {
        let is_language = |id: u32| {
            let is_code = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            self.is_control(id) && self.written_bytes(id).is_ok_and(is_code)
        };
        let mut written = self.before.iter().chain(&self.after).filter(|id| is_language(**id));
        let (Some(&default), None) = (written.next(), written.next()) else {
            bail!(InvalidRequest, "this model's tokenizer writes no language beside a text; leave it out");
        };
        let Some(id) = self.token_id(language).filter(|id| is_language(*id)) else {
            let default = String::from_utf8_lossy(self.written_bytes(default)?);
            bail!(InvalidRequest, "the model has no such language, wanted one that is written like {default:?}");
        };
        let around = |ids: &[u32]| ids.iter().map(|old| if *old == default { id } else { *old }).collect::<Vec<u32>>();
        self.encode_between(&around(&self.before), text, true, &around(&self.after))
    }

    fn encode_between(&self, before: &[u32], text: &str, parse_special: bool, after: &[u32]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        ids.extend_from_slice(before);
        match &self.algorithm {
            Algorithm::ByteLevel(bpe, special) => {
                for fragment in special.split(text, parse_special) {
                    match fragment {
                        Fragment::Token(id) => ids.push(id),
                        Fragment::Text(text) => bpe.encode(text, &mut ids)?,
                    }
                }
            }
            Algorithm::SentencePiece(bpe, special) => {
                for fragment in special.split(text, parse_special) {
                    match fragment {
                        Fragment::Token(id) => ids.push(id),
                        // A piece of text is at the beginning or after a special token, and gets the space in both cases.
                        Fragment::Text(text) => bpe.encode(text, self.add_space_prefix, &mut ids)?,
                    }
                }
            }
            Algorithm::Pipeline(pipeline) => pipeline.encode(text, parse_special, &mut ids)?,
        }
        ids.extend_from_slice(after);
        Ok(ids)
    }

    /// The input of two texts, of their ids without special tokens.
    pub fn pair(&self, first: &[u32], second: &[u32]) -> Result<TypedIds> {
        self.pair_form().map(|form| form.join(first, second))
    }

    /// The number of ids that `pair` puts around and between its texts.
    pub fn added_ids_of_pair(&self) -> Result<usize> {
        self.pair_form().map(|form| form.tokens().count())
    }

    fn pair_form(&self) -> Result<&PairForm> {
        self.pair.as_ref().ok_or_else(|| {
            err!(
                UnsupportedTokenizer,
                "the post-processor of the tokenizer has no form for two texts that has each of them once"
            )
        })
    }

    /// The ids of text inside other text: no special tokens are added, and control tokens in it are plain text. Empty if the tokenizer has
    /// no such ids.
    pub fn encode_inside(&self, text: &str) -> Vec<u32> {
        let has_text = |ids: &[u32]| {
            let pieces: Vec<u8> =
                ids.iter().flat_map(|id| self.token_bytes(*id).unwrap_or_default()).copied().collect();
            pieces == text.as_bytes()
        };
        let ids = self.encode(text, false, false).unwrap_or_default();
        if has_text(&ids) {
            return ids;
        }
        // Some tokenizers put a space before a text, but not before a later line. So a line is added in front, and removed again.
        let (line, both) = (self.encode("\n", false, false), self.encode(&format!("\n{text}"), false, false));
        match (line, both) {
            (Ok(line), Ok(both)) if both.starts_with(&line) && has_text(&both[line.len()..]) => {
                both[line.len()..].to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// The ids of a word at the beginning of a text, after a space, and after anything else. In a byte-level vocabulary the first and the
    /// last are the same; in sentencepiece's the first and the second.
    pub fn encode_word(&self, word: &str) -> Result<Vec<Vec<u32>>> {
        let spaced = format!(" {word}");
        let begins = [self.encode(word, false, true)?, self.encode(&spaced, false, true)?];
        let mut all: Vec<Vec<u32>> = Vec::new();
        for ids in begins.into_iter().chain([self.encode_inside(word), self.encode_inside(&spaced)]) {
            if !ids.is_empty() && !all.contains(&ids) {
                all.push(ids);
            }
        }
        Ok(all)
    }

    /// Whether the bytes of a text, except at its beginning, are those of its tokens in order.
    pub fn tokens_have_bytes(&self) -> bool {
        matches!(self.joining, Joining::Plain { .. } | Joining::First)
    }

    /// The bytes that a token adds to the text; none for a control token. Some tokenizers (WordPiece, Metaspace) omit the space in these
    /// bytes for the first token of a text.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        match self.token_type(id)? {
            TokenType::Control | TokenType::Unknown => Ok(&[]),
            _ => self.written_bytes(id),
        }
    }

    /// Like [`Tokenizer::token_bytes`], but a control token has the bytes of its name: `<|im_end|>`.
    pub fn token_bytes_with_control(&self, id: u32) -> Result<&[u8]> {
        self.written_bytes(id)
    }

    /// The number of ids. All ids are smaller.
    pub fn vocab_size(&self) -> usize {
        self.types.len()
    }

    /// The token at the beginning of a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token at the end of a text, if the model has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token for padding batches, if the model has one.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Whether `encode` with `add_special` puts BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.bos.is_some() && self.before.first() == self.bos.as_ref()
    }

    /// The number of ids that `encode` with `add_special` puts around a text.
    pub fn added_ids(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The ids that `encode` with `add_special` puts after a text.
    pub fn ids_after(&self) -> &[u32] {
        &self.after
    }

    /// The id of a token by its text in the vocabulary (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.control_ids.get(text).copied().or_else(|| match &self.algorithm {
            Algorithm::ByteLevel(bpe, _) => bpe.token_id(text),
            Algorithm::SentencePiece(bpe, _) => bpe.token_id(text),
            Algorithm::Pipeline(pipeline) => pipeline.token_id(text),
        })
    }

    /// Whether a token is a control token, which has no text. False for an id without a token.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.types.get(id as usize), Some(TokenType::Control | TokenType::Unknown))
    }

    /// Tokens that end a generation: EOS first, then the vocabulary's others.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// How the bytes of a token depend on its neighbours.
    pub(super) fn joining(&self) -> Joining {
        self.joining
    }

    /// The bytes of a token that is the first or the last one of a text.
    pub(super) fn bytes_at(&self, id: u32, first: bool) -> Result<Cow<'_, [u8]>> {
        let place = if first { Place::First } else { Place::Last };
        match (&self.decoding, self.token_type(id)?) {
            (Some(Placed { decoding, texts }), TokenType::Normal | TokenType::UserDefined | TokenType::Byte) => {
                let text = String::from_utf8_lossy(texts.get(id).unwrap_or_default());
                Ok(Cow::Owned(decoding.token(&text, false, place)?))
            }
            _ => Ok(Cow::Borrowed(self.written_bytes(id)?)),
        }
    }

    /// The text of all `ids` together.
    pub(super) fn whole(&self, ids: &[u32]) -> Result<String> {
        let Some(Placed { decoding, texts }) = &self.decoding else {
            bail!(Internal, "a tokenizer without decoders was asked to decode as a whole");
        };
        let text = |&id: &u32| String::from_utf8_lossy(texts.get(id).unwrap_or_default()).into_owned();
        decoding.whole(ids.iter().map(text).collect())
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
