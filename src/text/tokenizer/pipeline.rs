//! Text to ids by the steps of a tokenizer.json: added tokens are cut out, the rest is normalized and cut into words, and the crate's model
//! encodes these.
//!
//! The steps are those of the crate's `Tokenizer`, but they are combined here. Each call decides whether control tokens are found in the
//! text; ids of added tokens come from the file instead of being counted; and errors of every step must be returned.

use std::collections::{HashMap, HashSet};

use tokenizers::{Model as _, OffsetReferential, OffsetType};

use super::added::{Added, AddedTokens};
use super::json_model::BuiltModel;
use super::normalizers::Normalizers;
use super::piece_ids::{PieceIds, language_code};
use super::pre_tokenizers::PreTokenizers;
use super::steps::of_step;
use crate::error::Result;

pub(super) struct Pipeline {
    model: BuiltModel,
    normalizers: Normalizers,
    pre_tokenizers: PreTokenizers,
    added_ids: HashMap<String, u32>,
    /// Finds all added tokens.
    all: AddedTokens,
    /// Finds the added tokens that are not control tokens, for text of unknown origin.
    plain: AddedTokens,
    /// Ids of another vocabulary, in place of the model's.
    piece_ids: Option<PieceIds>,
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
        let all = AddedTokens::new(added.iter(), &normalizers)?;
        let plain = AddedTokens::new(added.iter().filter(|added| !added.token.special), &normalizers)?;
        Ok(Self { model, normalizers, pre_tokenizers, added_ids: ids, all, plain, piece_ids: None })
    }

    /// With the ids of another vocabulary, which has all added tokens too. A text may begin with the code of a language.
    pub(super) fn renumbered(self, ids: PieceIds) -> Self {
        Self { piece_ids: Some(ids), ..self }
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, text: &str, parse_special: bool, ids: &mut Vec<u32>) -> Result<()> {
        let mut text = text;
        if let (Some(piece_ids), true, Some((code, rest))) = (&self.piece_ids, parse_special, language_code(text)) {
            ids.push(piece_ids.id(code));
            text = rest;
        }
        if text.is_empty() {
            return Ok(());
        }
        let added = if parse_special { &self.all } else { &self.plain };
        let mut pieces = added.cut(text, &self.normalizers).map_err(of_step)?;
        self.pre_tokenizers.apply(&mut pieces)?;
        let in_model = |cause: tokenizers::Error| err!(UnsupportedTokenizer, "the text can't be encoded: {cause}");
        self.model.model.tokenize_in_pretokenized(&mut pieces, None).map_err(in_model)?;
        match &self.piece_ids {
            None => ids.extend_from_slice(pieces.into_encoding(None, 0, OffsetType::None).map_err(in_model)?.get_ids()),
            Some(piece_ids) => {
                for (_, _, tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::None) {
                    ids.extend(tokens.iter().flatten().map(|token| piece_ids.id(&token.value)));
                }
            }
        }
        Ok(())
    }

    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        let in_model = || match &self.piece_ids {
            None => self.model.id(text),
            Some(piece_ids) => piece_ids.token_id(text),
        };
        self.added_ids.get(text).copied().or_else(in_model)
    }
}

/// Checks what the search for added tokens assumes.
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
