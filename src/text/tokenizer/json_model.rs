//! The model section of a tokenizer.json: vocabulary and merges, checked, and the crate's model built from them.
//!
//! The crate would first build a tree of JSON values for the whole section. It also assumes that merges fit the vocabulary: its unsafe code
//! copies merges into a buffer as long as the longest token. So the section is parsed here.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{Model as _, ModelWrapper};

use crate::error::Result;

/// A unigram piece is a path of bytes in a tree, which the crate drops recursively.
const LONGEST_UNIGRAM_PIECE: usize = 1024;
/// WordPiece looks at all parts of a word, so its time grows with the square of this.
const LONGEST_WORD: usize = 1000;

/// The fields of all models.
#[derive(Deserialize)]
pub(super) struct ModelSection {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: VocabSection,
    merges: Option<MergesSection>,
    unk_token: Option<String>,
    unk_id: Option<usize>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    max_input_chars_per_word: Option<usize>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
}

/// Tokens with their ids or, for unigram, with their scores.
pub(super) enum VocabSection {
    Ids(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for VocabSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = VocabSection;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tokens and ids, or a list of tokens and scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    ids.push(entry);
                }
                Ok(VocabSection::Ids(ids))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut scores = Vec::new();
                while let Some(entry) = list.next_element()? {
                    scores.push(entry);
                }
                Ok(VocabSection::Scores(scores))
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

/// Pairs, each written as a list of two texts or, before 2024, as one text with a space.
struct MergesSection(Vec<(String, String)>);

impl<'de> Deserialize<'de> for MergesSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let merges: Vec<Merge> = Vec::deserialize(deserializer)?;
        Ok(Self(merges.into_iter().filter_map(|Merge(pair)| pair).collect()))
    }
}

/// `None` for the version line of merges.txt, which some files have.
struct Merge(Option<(String, String)>);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two tokens, as a list or with one space between them")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                match text.split_once(' ') {
                    _ if text.starts_with("#version") => Ok(Merge(None)),
                    Some((left, right)) if !right.contains(' ') => Ok(Merge(Some((left.to_owned(), right.to_owned())))),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge, A::Error> {
                match (list.next_element()?, list.next_element()?, list.next_element::<String>()?) {
                    (Some(left), Some(right), None) => Ok(Merge(Some((left, right)))),
                    _ => Err(serde::de::Error::invalid_length(0, &self)),
                }
            }
        }
        deserializer.deserialize_any(Pair)
    }
}

/// A model and its tokens by id; `None` for ids without a token.
pub(super) struct BuiltModel {
    pub model: ModelWrapper,
    pub tokens: Vec<Option<String>>,
}

const MODELS: &str = "BPE, Unigram, WordLevel, WordPiece";

impl ModelSection {
    /// Those of the given tokens that are in the vocabulary, with their ids.
    pub(super) fn ids_of(&self, tokens: &HashSet<String>) -> HashMap<String, u32> {
        match &self.vocab {
            VocabSection::Ids(ids) => ids.iter().filter(|(token, _)| tokens.contains(token)).cloned().collect(),
            VocabSection::Scores(scores) => {
                let ids = scores.iter().zip(0u32..).filter(|((token, _), _)| tokens.contains(token));
                ids.map(|((token, _), id)| (token.clone(), id)).collect()
            }
        }
    }

    /// The model without the tokens of `hidden`: ordinary text must not become a control token. The unknown token and the parts of merges
    /// stay.
    pub(super) fn build(mut self, hidden: &HashSet<String>) -> Result<BuiltModel> {
        // Older files have no type.
        let kind = match (self.kind.take(), &self.vocab, &self.merges) {
            (Some(kind), ..) => kind,
            (None, VocabSection::Scores(_), _) => "Unigram".to_owned(),
            (None, _, Some(_)) => "BPE".to_owned(),
            (None, ..) if self.max_input_chars_per_word.is_some() => "WordPiece".to_owned(),
            (None, ..) => "WordLevel".to_owned(),
        };
        match kind.as_str() {
            "BPE" => self.bpe(hidden),
            "Unigram" => self.unigram(hidden),
            "WordPiece" => self.word_piece(hidden),
            "WordLevel" => self.word_level(hidden),
            kind => bail!(UnsupportedTokenizer, "the model of the tokenizer is {kind:?}, wanted one of: {MODELS}"),
        }
    }

    /// The vocabulary in the crate's form and as a table, each id once.
    fn ids(&mut self) -> Result<(Vocab, Vec<Option<String>>)> {
        let VocabSection::Ids(entries) = std::mem::replace(&mut self.vocab, VocabSection::Ids(Vec::new())) else {
            bail!(
                UnsupportedTokenizer,
                "the vocabulary of the tokenizer is a list, wanted an object of tokens and ids"
            );
        };
        let n_entries = entries.len();
        let mut tokens = Vec::new();
        for (token, id) in &entries {
            put(&mut tokens, n_entries, *id, token)?;
        }
        let vocab: Vocab = entries.into_iter().collect();
        if vocab.len() != n_entries {
            bail!(UnsupportedTokenizer, "{} tokens occur twice in the vocabulary", n_entries - vocab.len());
        }
        if vocab.is_empty() {
            bail!(UnsupportedTokenizer, "the vocabulary has no tokens, wanted at least one");
        }
        Ok((vocab, tokens))
    }

    fn bpe(mut self, hidden: &HashSet<String>) -> Result<BuiltModel> {
        let (mut vocab, tokens) = self.ids()?;
        let Some(MergesSection(merges)) = self.merges else {
            bail!(UnsupportedTokenizer, "the BPE model of the tokenizer has no merges");
        };
        let prefix = self.continuing_subword_prefix.filter(|prefix| !prefix.is_empty());
        let mut hidden: HashSet<&str> = hidden.iter().map(String::as_str).collect();
        hidden.remove(self.unk_token.as_deref().unwrap_or(""));
        let mut merged = String::new();
        for (rank, (left, right)) in merges.iter().enumerate() {
            let Some(rest) = right.strip_prefix(prefix.as_deref().unwrap_or("")) else {
                bail!(UnsupportedTokenizer, "merge {rank} is of {right:?}, wanted it to begin with {prefix:?}");
            };
            merged.clear();
            merged.push_str(left);
            merged.push_str(rest);
            for token in [left, right, &merged] {
                if !vocab.contains_key(token) {
                    bail!(UnsupportedTokenizer, "merge {rank} has {token:?}, which is no token of the vocabulary");
                }
                hidden.remove(token.as_str());
            }
        }
        vocab.retain(|token, _| !hidden.contains(token.as_str()));
        let mut builder = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .fuse_unk(self.fuse_unk.unwrap_or(false))
            .byte_fallback(self.byte_fallback.unwrap_or(false))
            .ignore_merges(self.ignore_merges.unwrap_or(false))
            // The cache is in a thread-local map that outlives the model, so every reload would leave one there.
            .cache_capacity(0);
        if let Some(unk) = self.unk_token {
            builder = builder.unk_token(unk);
        }
        if let Some(prefix) = prefix {
            builder = builder.continuing_subword_prefix(prefix);
        }
        if let Some(suffix) = self.end_of_word_suffix.filter(|suffix| !suffix.is_empty()) {
            builder = builder.end_of_word_suffix(suffix);
        }
        let model = builder.build().map_err(|cause| err!(UnsupportedTokenizer, "the BPE model: {cause}"))?;
        Ok(BuiltModel { model: model.into(), tokens })
    }

    fn unigram(self, hidden: &HashSet<String>) -> Result<BuiltModel> {
        let VocabSection::Scores(pieces) = self.vocab else {
            bail!(UnsupportedTokenizer, "the vocabulary of the unigram model is not a list of tokens and scores");
        };
        unigram(pieces, self.unk_id, self.byte_fallback.unwrap_or(false), |id, piece| {
            Some(id) == self.unk_id || hidden.contains(piece)
        })
    }

    fn word_piece(mut self, hidden: &HashSet<String>) -> Result<BuiltModel> {
        let (mut vocab, tokens) = self.ids()?;
        let unk = self.unk_token.unwrap_or_else(|| "[UNK]".to_owned());
        let prefix = self.continuing_subword_prefix.unwrap_or_else(|| "##".to_owned());
        vocab.retain(|token, _| *token == unk || !hidden.contains(token));
        let longest = self.max_input_chars_per_word.unwrap_or(100);
        word_piece(vocab, tokens, unk, prefix, longest)
    }

    fn word_level(mut self, hidden: &HashSet<String>) -> Result<BuiltModel> {
        let (mut vocab, tokens) = self.ids()?;
        let unk_token = self.unk_token.unwrap_or_else(|| "<unk>".to_owned());
        vocab.retain(|token, _| *token == unk_token || !hidden.contains(token));
        let model = WordLevel::builder()
            .vocab(vocab)
            .unk_token(unk_token)
            .build()
            .map_err(|cause| err!(UnsupportedTokenizer, "the WordLevel model: {cause}"))?;
        Ok(BuiltModel { model: model.into(), tokens })
    }
}

pub(super) fn word_piece(
    vocab: Vocab,
    tokens: Vec<Option<String>>,
    unk_token: String,
    prefix: String,
    longest_word: usize,
) -> Result<BuiltModel> {
    if longest_word > LONGEST_WORD {
        bail!(
            UnsupportedTokenizer,
            "max_input_chars_per_word of the tokenizer is {longest_word}, wanted at most {LONGEST_WORD}"
        );
    }
    if !vocab.contains_key(&unk_token) {
        bail!(UnsupportedTokenizer, "the unknown token {unk_token:?} is not in the vocabulary of the tokenizer");
    }
    let model = WordPiece::builder()
        .vocab(vocab)
        .unk_token(unk_token)
        .continuing_subword_prefix(prefix)
        .max_input_chars_per_word(longest_word)
        .build()
        .map_err(|cause| err!(UnsupportedTokenizer, "the WordPiece model: {cause}"))?;
    Ok(BuiltModel { model: model.into(), tokens })
}

pub(super) fn unigram(
    mut pieces: Vec<(String, f64)>,
    unk: Option<usize>,
    byte_fallback: bool,
    hidden: impl Fn(usize, &str) -> bool,
) -> Result<BuiltModel> {
    if let Some((piece, _)) = pieces.iter().find(|(piece, _)| piece.len() > LONGEST_UNIGRAM_PIECE) {
        bail!(
            UnsupportedTokenizer,
            "a piece of the unigram model has {} bytes, wanted at most {LONGEST_UNIGRAM_PIECE}",
            piece.len()
        );
    }
    if let Some(id) = pieces.iter().position(|(_, score)| !score.is_finite()) {
        bail!(UnsupportedTokenizer, "the score of token {id} is not finite");
    }
    if pieces.is_empty() || u32::try_from(pieces.len()).is_err() {
        bail!(UnsupportedTokenizer, "the unigram model has {} pieces", pieces.len());
    }
    let tokens = pieces.iter().map(|(piece, _)| Some(piece.clone())).collect();
    for (id, (piece, _)) in pieces.iter_mut().enumerate() {
        if hidden(id, piece) {
            // A token's id is its index in the list, so its piece stays there, empty: no text matches that.
            piece.clear();
        }
    }
    let model = Unigram::from(pieces, unk, byte_fallback)
        .map_err(|cause| err!(UnsupportedTokenizer, "the unigram model: {cause}"))?;
    Ok(BuiltModel { model: model.into(), tokens })
}

/// Puts a token into the table by its id. Ids may have gaps, but a short file must not make a long table.
pub(super) fn put(tokens: &mut Vec<Option<String>>, n_entries: usize, id: u32, token: &str) -> Result<()> {
    let at = id as usize;
    if at >= n_entries.saturating_mul(2).saturating_add(1 << 16) {
        bail!(
            UnsupportedTokenizer,
            "token {token:?} has id {id}, too far above the {n_entries} tokens of the vocabulary"
        );
    }
    if tokens.len() <= at {
        tokens.resize(at + 1, None);
    }
    match &tokens[at] {
        Some(other) if other != token => {
            bail!(UnsupportedTokenizer, "id {id} belongs to two tokens, {other:?} and {token:?}")
        }
        _ => tokens[at] = Some(token.to_owned()),
    }
    Ok(())
}

impl BuiltModel {
    /// The id of the model's token with this text. The empty one stands for those that no text is to match.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        if token.is_empty() { None } else { self.model.token_to_id(token) }
    }
}
