//! Text to ids by the steps of a tokenizer.json: added tokens are cut out, the rest is normalized and cut into words, and the crate's model
//! encodes these.
//!
//! The steps are those of the crate's `Tokenizer`, but they are combined here. Each call decides whether control tokens are found in the
//! text; ids of added tokens come from the file instead of being counted; and errors of every step must be returned.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{AddedToken, AddedVocabulary, Model, OffsetType, Token};

use super::json_model::BuiltModel;
use super::steps::{Normalizers, Normalizing, PreTokenizers};
use crate::error::Result;

/// An added token and its id.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub id: u32,
    pub token: AddedToken,
}

pub(super) struct Pipeline {
    model: BuiltModel,
    normalizers: Normalizers,
    pre_tokenizers: PreTokenizers,
    added_ids: HashMap<String, u32>,
    /// Finds all added tokens.
    all: AddedVocabulary,
    /// Finds the added tokens that are not control tokens, for text of unknown origin.
    plain: AddedVocabulary,
}

impl Pipeline {
    pub(super) fn new(
        model: BuiltModel,
        normalizers: Normalizers,
        pre_tokenizers: PreTokenizers,
        added: &[Added],
    ) -> Result<Self> {
        check(added)?;
        let ids: HashMap<String, u32> = added.iter().map(|added| (added.token.content.clone(), added.id)).collect();
        let normalizing = Normalizing { steps: &normalizers, failure: OnceLock::new() };
        let vocabulary = |tokens: &mut dyn Iterator<Item = &Added>| {
            let mut vocabulary = AddedVocabulary::new();
            let tokens: Vec<AddedToken> = tokens.map(|added| added.token.clone()).collect();
            vocabulary
                .add_tokens(tokens, &FileIds(&ids), Some(&normalizing))
                .map_err(|cause| err!(UnsupportedTokenizer, "the added tokens of the tokenizer: {cause}"))?;
            Ok::<_, crate::error::Error>(vocabulary)
        };
        let all = vocabulary(&mut added.iter())?;
        let plain = vocabulary(&mut added.iter().filter(|added| !added.token.special))?;
        Ok(Self { model, normalizers, pre_tokenizers, added_ids: ids, all, plain })
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, parse_special: bool, ids: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let added = if parse_special { &self.all } else { &self.plain };
        let normalizing = Normalizing { steps: &self.normalizers, failure: OnceLock::new() };
        let mut pieces = added.extract_and_normalize(Some(&normalizing), text);
        if let Some(failure) = normalizing.failure.into_inner() {
            return Err(failure);
        }
        self.pre_tokenizers.apply(&mut pieces)?;
        let encoding = self
            .model
            .model
            .tokenize_in_pretokenized(&mut pieces, None)
            .and_then(|()| pieces.into_encoding(None, 0, OffsetType::None))
            .map_err(|cause| err!(UnsupportedTokenizer, "the text can't be encoded: {cause}"))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        self.added_ids.get(text).copied().or_else(|| self.model.id(text))
    }
}

/// Checks what the crate's search for added tokens assumes.
fn check(added: &[Added]) -> Result<()> {
    let mut seen = HashSet::new();
    for Added { token, .. } in added {
        if token.content.is_empty() || !seen.insert(token.content.as_str()) {
            bail!(UnsupportedTokenizer, "added token {:?} is empty or occurs twice in the tokenizer", token.content);
        }
    }
    // A token that includes the spaces after it could include a token that is only spaces, which would then begin after its own end.
    let takes_right = added.iter().find(|added| added.token.rstrip);
    let is_space = |added: &&Added| added.token.lstrip && added.token.content.chars().all(char::is_whitespace);
    if let (Some(right), Some(space)) = (takes_right, added.iter().find(is_space)) {
        bail!(
            UnsupportedTokenizer,
            "added token {:?} includes the spaces to its right and {:?} consists of spaces; wanted only one of the two",
            right.token.content,
            space.token.content
        );
    }
    Ok(())
}

/// Gives the crate the file's ids of added tokens, which it would otherwise count. A model's other functions are left out.
struct FileIds<'i>(&'i HashMap<String, u32>);

impl Model for FileIds<'_> {
    type Trainer = BpeTrainer;

    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Err("not a model".into())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.get(token).copied()
    }

    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        HashMap::new()
    }

    fn get_vocab_size(&self) -> usize {
        0
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("not a model".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}
