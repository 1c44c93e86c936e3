//! GGUF's tokenizers that are built from the crate's parts: `bert` (WordPiece), `t5` (unigram), and BPE of characters instead of
//! bytes (Gemma 4 and similar ones).
//!
//! What the metadata leaves out comes from the original models: BERT's normalizer and words, the steps of T5 and XLM-RoBERTa. Tokens are
//! written as llama.cpp's converter writes them.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, ModelWrapper};

use super::added::Added;
use super::decoding::Decoding;
use super::json_model::{self, BuiltModel};
use super::normalizers::Normalizers;
use super::pair::Ends;
use super::parts::Parts;
use super::pipeline::Pipeline;
use super::pre_tokenizers::PreTokenizers;
use super::vocabulary::{TokenType, Vocabulary};
use crate::error::Result;

/// Sentencepiece's character for a space; in GGUF's WordPiece it begins a word.
const SPACE_SYMBOL: &str = "▁";

/// The steps before and after a tokenizer's model.
struct Steps {
    normalizers: Normalizers,
    pre_tokenizers: PreTokenizers,
    decoding: Decoding,
}

impl Steps {
    fn new(normalizer: Option<Value>, pre_tokenizer: Option<Value>, decoder: Value) -> Result<Self> {
        Ok(Self {
            normalizers: Normalizers::new(normalizer.as_ref())?,
            pre_tokenizers: PreTokenizers::new(pre_tokenizer.as_ref())?,
            decoding: Decoding::new(Some(&decoder))?,
        })
    }
}

/// Ids of special tokens, from the file or else the family's defaults.
struct Specials {
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    before: Option<u32>,
    ends: Ends,
    /// Of the tokens of the first text, and of those of the second.
    types: [u32; 2],
}

/// `[CLS] words [SEP]`. In this vocabulary `▁` begins a word, and the later parts of a word have no mark.
pub(super) fn word_piece(vocabulary: Vocabulary) -> Result<Parts> {
    let mut types = vocabulary.types()?;
    let default = |id: Option<u32>, default: u32, text: &str| {
        id.or_else(|| vocabulary.tokens.get(default as usize).is_some_and(|token| token == text).then_some(default))
    };
    let cls = vocabulary.checked_id("BOS", default(vocabulary.bos, 101, "[CLS]"))?;
    let sep = vocabulary.checked_id("separator", default(vocabulary.sep, 102, "[SEP]"))?;
    let Some(unk) = vocabulary.checked_id("unknown", default(vocabulary.unk, 100, "[UNK]"))? else {
        bail!(UnsupportedTokenizer, "the WordPiece vocabulary has no unknown token (tokenizer.ggml.unknown_token_id)");
    };
    let pad = vocabulary.checked_id("padding", default(vocabulary.pad, 0, "[PAD]"))?;
    // Special tokens are written literally, even if older files give them other types.
    let is_special = |text: &str, id: u32| {
        [cls, sep, Some(unk), pad].contains(&Some(id)) || text == "[MASK]" || types[id as usize] == TokenType::Control
    };
    let mut tokens = Vec::with_capacity(vocabulary.tokens.len());
    let mut added = Vec::new();
    for (text, id) in vocabulary.tokens.iter().zip(0u32..) {
        let text = match text.strip_prefix(SPACE_SYMBOL) {
            _ if is_special(text, id) => {
                added.push(Added { id, token: AddedToken::from(text.as_str(), true) });
                text.clone()
            }
            Some(word) if !word.is_empty() => word.to_owned(),
            _ => format!("##{text}"),
        };
        tokens.push(Some(text));
    }
    let model = {
        let mut vocab: Vocab = tokens.iter().flatten().cloned().zip(0u32..).collect();
        if vocab.len() != tokens.len() {
            bail!(UnsupportedTokenizer, "{} tokens are written like another one", tokens.len() - vocab.len());
        }
        // Ordinary text must not become a control token.
        for Added { token, .. } in added.iter().filter(|added| added.id != unk) {
            vocab.remove(&token.content);
        }
        json_model::word_piece(
            vocab,
            Vec::new(),
            tokens[unk as usize].clone().unwrap_or_default(),
            "##".to_owned(),
            100,
        )?
    };
    let lowercase = vocabulary.lowercase.unwrap_or(true);
    let steps = Steps::new(
        Some(json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": vocabulary.strip_accents.unwrap_or(lowercase), "lowercase": lowercase,
        })),
        Some(json!({"type": "BertPreTokenizer"})),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    )?;
    for added in &added {
        types[added.id as usize] = TokenType::Control;
    }
    let specials = Specials {
        bos: cls,
        eos: vocabulary.checked_id("EOS", vocabulary.eos)?,
        pad,
        before: cls.filter(|_| vocabulary.add_bos.unwrap_or(true)),
        ends: Ends { eos: sep.filter(|_| vocabulary.add_sep.or(vocabulary.add_eos).unwrap_or(true)), sep: None },
        types: [0, 1],
    };
    assemble(&vocabulary, model, steps, tokens, types, added, specials)
}

/// `text </s>`, for T5's and XLM-RoBERTa's unigram models.
pub(super) fn unigram(vocabulary: Vocabulary) -> Result<Parts> {
    let types = vocabulary.types()?;
    if vocabulary.scores.len() != vocabulary.tokens.len() {
        bail!(
            UnsupportedTokenizer,
            "the vocabulary has {} tokens but {} scores, wanted one for each",
            vocabulary.tokens.len(),
            vocabulary.scores.len()
        );
    }
    let bos = vocabulary.checked_id("BOS", vocabulary.bos)?;
    let eos = vocabulary.checked_id("EOS", vocabulary.eos.or(Some(1)))?;
    let unk = vocabulary.checked_id("unknown", vocabulary.unk.or(Some(2)))?;
    let pad = vocabulary.checked_id("padding", vocabulary.pad)?;
    let sep = vocabulary.checked_id("separator", vocabulary.sep)?;
    let mut added = Vec::new();
    let mut pieces = Vec::with_capacity(vocabulary.tokens.len());
    for (((text, &score), &kind), id) in vocabulary.tokens.iter().zip(&vocabulary.scores).zip(&types).zip(0u32..) {
        if matches!(kind, TokenType::Control | TokenType::UserDefined) && !text.is_empty() {
            let special = kind == TokenType::Control;
            added.push(Added { id, token: AddedToken::from(text.as_str(), special).normalized(false) });
        }
        pieces.push((text.clone(), f64::from(score)));
    }
    let no_text = |id: usize, _: &str| matches!(types[id], TokenType::Control | TokenType::Unknown | TokenType::Unused);
    let model = json_model::unigram(pieces, unk.map(|unk| unk as usize), false, no_text)?;
    let mut normalizers = Vec::new();
    if vocabulary.remove_extra_whitespaces.unwrap_or(true) {
        normalizers.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
        normalizers.push(json!({"type": "Replace", "pattern": {"Regex": "^ | $"}, "content": ""}));
    }
    let prefix = if vocabulary.add_space_prefix.unwrap_or(true) { "always" } else { "never" };
    let mut steps = Steps::new(
        Some(json!({"type": "Sequence", "normalizers": normalizers})),
        Some(json!({"type": "Metaspace", "replacement": SPACE_SYMBOL, "prepend_scheme": prefix, "split": true})),
        json!({"type": "Metaspace", "replacement": SPACE_SYMBOL, "prepend_scheme": prefix, "split": true}),
    )?;
    if !vocabulary.charsmap.is_empty() {
        steps.normalizers = steps.normalizers.with_charsmap(&vocabulary.charsmap)?;
    }
    let tokens = vocabulary.tokens.iter().cloned().map(Some).collect();
    let specials = Specials {
        bos,
        eos,
        pad,
        before: bos.filter(|_| vocabulary.add_bos.unwrap_or(false)),
        ends: Ends {
            eos: eos.filter(|_| vocabulary.add_eos.unwrap_or(true)),
            sep: sep.filter(|_| vocabulary.add_sep.unwrap_or(false)),
        },
        types: [0, 0],
    };
    assemble(&vocabulary, model, steps, tokens, types, added, specials)
}

/// BPE of characters by rank, with `▁` for a space and byte tokens for characters without a token.
pub(super) fn characters(vocabulary: Vocabulary) -> Result<Parts> {
    let types = vocabulary.types()?;
    let bos = vocabulary.checked_id("BOS", vocabulary.bos)?;
    let eos = vocabulary.checked_id("EOS", vocabulary.eos)?;
    let unk = vocabulary.checked_id("unknown", vocabulary.unk)?;
    let pad = vocabulary.checked_id("padding", vocabulary.pad)?;
    let mut vocab = Vocab::default();
    let mut added = Vec::new();
    for ((text, &kind), id) in vocabulary.tokens.iter().zip(&types).zip(0u32..) {
        if vocab.insert(text.clone(), id).is_some() {
            bail!(UnsupportedTokenizer, "token {id} is written like another one, {text:?}");
        }
        if matches!(kind, TokenType::Control | TokenType::UserDefined) && !text.is_empty() {
            let special = kind == TokenType::Control;
            added.push(Added { id, token: AddedToken::from(text.as_str(), special).normalized(false) });
        }
    }
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (rank, merge) in vocabulary.merges.iter().enumerate() {
        let pair = super::byte_level::split_merge(merge);
        match pair.filter(|(left, right)| vocab.contains_key(&format!("{left}{right}"))) {
            Some((left, right)) => merges.push((left.to_owned(), right.to_owned())),
            None => bail!(UnsupportedTokenizer, "merge {rank} ({merge:?}) makes no token of the vocabulary"),
        }
    }
    let mut in_merges: HashSet<&str> = unk.map(|unk| vocabulary.tokens[unk as usize].as_str()).into_iter().collect();
    let made: Vec<String> = merges.iter().map(|(left, right)| format!("{left}{right}")).collect();
    in_merges.extend(merges.iter().flat_map(|(left, right)| [left.as_str(), right.as_str()]));
    in_merges.extend(made.iter().map(String::as_str));
    for Added { token, .. } in added.iter().filter(|added| added.token.special) {
        if !in_merges.contains(token.content.as_str()) {
            vocab.remove(&token.content);
        }
    }
    let mut builder =
        BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true).cache_capacity(0);
    if let Some(unk) = unk {
        builder = builder.unk_token(vocabulary.tokens[unk as usize].clone());
    }
    let model = builder.build().map_err(|cause| err!(UnsupportedTokenizer, "the merges don't fit: {cause}"))?;
    let model = BuiltModel { model: ModelWrapper::BPE(model), tokens: Vec::new() };
    let steps = Steps::new(
        Some(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SYMBOL})),
        Some(json!({"type": "Split", "pattern": {"Regex": "[^\n]+|\n+"}, "behavior": "Isolated", "invert": false})),
        json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE_SYMBOL}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]}),
    )?;
    let tokens = vocabulary.tokens.iter().cloned().map(Some).collect();
    let specials = Specials {
        bos,
        eos,
        pad,
        before: bos.filter(|_| vocabulary.add_bos.unwrap_or(true)),
        ends: Ends { eos: eos.filter(|_| vocabulary.add_eos.unwrap_or(false)), sep: None },
        types: [0, 0],
    };
    assemble(&vocabulary, model, steps, tokens, types, added, specials)
}

fn assemble(
    vocabulary: &Vocabulary,
    model: BuiltModel,
    steps: Steps,
    tokens: Vec<Option<String>>,
    mut types: Vec<TokenType>,
    added: Vec<Added>,
    specials: Specials,
) -> Result<Parts> {
    let end_of_generation = vocabulary.end_of_generation(&mut types, specials.eos)?;
    let pipeline = Pipeline::new(model, steps.normalizers, steps.pre_tokenizers, &added)?;
    let before: Vec<u32> = specials.before.into_iter().collect();
    Ok(Parts {
        pipeline,
        decoding: steps.decoding,
        tokens,
        types,
        added,
        bos: specials.bos,
        eos: specials.eos,
        pad: specials.pad,
        after: specials.ends.of_text(),
        pair: Some(specials.ends.of_pair(&before, specials.types)),
        before,
        end_of_generation,
    })
}
