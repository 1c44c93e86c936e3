//! The tokenizer of Marian's folders (OPUS-MT): source.spm cuts a text into pieces, and vocab.json has the ids of the pieces of both languages.
//!
//! The rules are those of transformers' `MarianTokenizer`. A piece that vocab.json lacks is the unknown token, and text that source.spm does not
//! know is still a token if vocab.json has it as a whole. A text may begin with the code of a language to translate to: `>>deu<<`.

use std::collections::HashMap;

use serde_json::json;
use tokenizers::AddedToken;

use super::added::Added;
use super::decoding::Decoding;
use super::hugging_face::{self, EndSection, Special, SpecialSection};
use super::json_model::{self, VocabSection, put};
use super::normalizers::Normalizers;
use super::pair::Ends;
use super::parts::Parts;
use super::piece_ids::PieceIds;
use super::pipeline::Pipeline;
use super::pre_tokenizers::PreTokenizers;
use super::sentencepiece_model::{SentencePieceModel, UNIGRAM};
use super::special;
use super::vocabulary::TokenType;
use crate::error::Result;
use crate::json;

/// Sentencepiece's character for a space.
const SPACE_SYMBOL: &str = "▁";
/// The bytes of the largest vocab.json, and how many entries it may have.
const LARGEST_VOCABULARY: usize = 64 << 20;
const MOST_VALUES: usize = 1 << 22;

/// The files of a Marian folder for its tokenizer, as bytes; `None` for a file that the folder doesn't have.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarianFiles<'f> {
    /// source.spm: the sentencepiece model of the language that is read; at most 64 MiB.
    pub source: &'f [u8],
    /// vocab.json: ids of the pieces of both languages.
    pub vocabulary: &'f [u8],
    /// tokenizer_config.json: special tokens, and whether the languages have a vocabulary each.
    pub tokenizer_config: Option<&'f [u8]>,
    /// special_tokens_map.json: special tokens.
    pub special_tokens_map: Option<&'f [u8]>,
    /// generation_config.json: tokens that end an answer.
    pub generation_config: Option<&'f [u8]>,
    /// config.json: tokens that end an answer.
    pub config: Option<&'f [u8]>,
}

/// The settings of all files together.
pub(super) fn parts_of(files: &MarianFiles) -> Result<Parts> {
    let config: SpecialSection = hugging_face::read_or_default("tokenizer_config.json", files.tokenizer_config)?;
    let map: SpecialSection = hugging_face::read_or_default("special_tokens_map.json", files.special_tokens_map)?;
    let ends: [EndSection; 2] = [
        hugging_face::read_or_default("generation_config.json", files.generation_config)?,
        hugging_face::read_or_default("config.json", files.config)?,
    ];
    if config.separate_vocabs == Some(true) {
        bail!(
            UnsupportedTokenizer,
            "tokenizer_config.json has separate_vocabs: true; only one vocabulary for both languages is supported"
        );
    }
    let entries = vocabulary(files.vocabulary)?;
    let mut tokens = Vec::with_capacity(entries.len());
    for (token, id) in &entries {
        put(&mut tokens, entries.len(), *id, token)?;
    }
    let ids: HashMap<String, u32> = entries.into_iter().collect();
    let named = Special::of(&config, &map);
    let id_of = |name: Option<&str>, default: &str| ids.get(name.unwrap_or(default)).copied();
    let Some(unk) = id_of(named.unk.as_deref(), "<unk>") else {
        bail!(UnsupportedTokenizer, "vocab.json has no unknown token (\"<unk>\")");
    };
    let (eos, pad) = (id_of(named.eos.as_deref(), "</s>"), id_of(named.pad.as_deref(), "<pad>"));
    let mut types: Vec<TokenType> =
        tokens.iter().map(|token| if token.is_some() { TokenType::Normal } else { TokenType::Unused }).collect();
    let others = named.others.iter().filter_map(|text| ids.get(text).copied());
    let mut added: Vec<Added> = Vec::new();
    for id in [Some(unk), eos, pad].into_iter().flatten().chain(others) {
        let text = tokens[id as usize].clone().unwrap_or_default();
        if !text.is_empty() && !added.iter().any(|other| other.id == id) {
            types[id as usize] = if id == unk { TokenType::Unknown } else { TokenType::Control };
            added.push(Added { id, token: AddedToken::from(text, true).normalized(false) });
        }
    }

    let pipeline = pipeline(files.source, &added)?.renumbered(PieceIds { ids, unk });
    let listed = ends.into_iter().find_map(EndSection::ids).unwrap_or_default();
    let named: Vec<u32> = eos.into_iter().chain(listed).filter(|&id| (id as usize) < types.len()).collect();
    let texts = tokens.iter().map(|token| token.as_deref().unwrap_or(""));
    let end_of_generation = special::end_of_generation(texts, &mut types, &named);
    let metaspace =
        json!({"type": "Metaspace", "replacement": SPACE_SYMBOL, "prepend_scheme": "always", "split": false});
    let around = Ends { eos, sep: None };
    Ok(Parts {
        pipeline,
        decoding: Decoding::new(Some(&metaspace))?,
        tokens,
        types,
        added,
        bos: None,
        eos: eos.or(named.first().copied()),
        pad,
        before: Vec::new(),
        after: around.of_text(),
        pair: Some(around.of_pair(&[], [0, 0])),
        end_of_generation,
    })
}

/// vocab.json: tokens and their ids, in the order of the file.
fn vocabulary(bytes: &[u8]) -> Result<Vec<(String, u32)>> {
    if bytes.len() > LARGEST_VOCABULARY {
        bail!(UnsupportedTokenizer, "vocab.json has {} bytes, wanted at most {LARGEST_VOCABULARY}", bytes.len());
    }
    let section: VocabSection = json::check_values(bytes, MOST_VALUES)
        .and_then(|()| serde_json::from_slice(bytes))
        .map_err(|cause| err!(UnsupportedTokenizer, "vocab.json: {cause}"))?;
    let VocabSection::Ids(entries) = section else {
        bail!(UnsupportedTokenizer, "vocab.json is a list, wanted an object of tokens and ids");
    };
    Ok(entries)
}

/// What cuts texts: sentencepiece's unigram model, with its normalisation and its spaces. `added` are cut out before.
fn pipeline(source: &[u8], added: &[Added]) -> Result<Pipeline> {
    let in_file = |error: crate::Error| error.context("source.spm");
    let model = SentencePieceModel::read(source).map_err(in_file)?;
    let only = |what: &str| err!(UnsupportedTokenizer, "source.spm: {what} is not supported");
    if model.algorithm != UNIGRAM {
        return Err(only("a model of another type than unigram"));
    }
    if !model.escape_whitespaces || model.treat_whitespace_as_suffix {
        return Err(only("a space that is no mark before a word"));
    }
    let kinds = |kind: u64| model.pieces.iter().filter(move |piece| piece.kind == kind);
    if kinds(6).next().is_some() {
        return Err(only("a piece for a byte"));
    }
    let Some(unk) = model.pieces.iter().position(|piece| piece.kind == 2) else {
        return Err(only("a model without an unknown piece"));
    };
    // As sentencepiece scores what its users defined, so that it wins wherever it stands.
    let largest = kinds(1).map(|piece| piece.score).fold(f32::MIN, f32::max);
    let score = |text: &str, kind: u64, score: f32| {
        f64::from(if kind == 4 { text.len() as f32 * largest - 0.1 } else { score })
    };
    let pieces = model.pieces.iter().map(|piece| (piece.text.to_owned(), score(piece.text, piece.kind, piece.score)));
    let unigram =
        json_model::unigram(pieces.collect(), Some(unk), false, |id, _| !matches!(model.pieces[id].kind, 1 | 4))?;
    let mut steps = Vec::new();
    if model.remove_extra_whitespaces {
        steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
        steps.push(json!({"type": "Replace", "pattern": {"Regex": "^ | $"}, "content": ""}));
    }
    // Also before a text that begins with the symbol itself, which a Metaspace would leave as it is.
    if model.add_dummy_prefix {
        steps.push(json!({"type": "Prepend", "prepend": SPACE_SYMBOL}));
    }
    steps.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SYMBOL}));
    let mut normalizers = Normalizers::new(Some(&json!({"type": "Sequence", "normalizers": steps})))?;
    if !model.charsmap.is_empty() {
        normalizers = normalizers.with_charsmap(model.charsmap)?;
    }
    Pipeline::new(unigram, normalizers, PreTokenizers::default(), added)
}
