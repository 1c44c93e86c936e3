//! Ids of pieces in another vocabulary than that of the model that cuts them, and the code of a language before a text, as Marian has both.

use std::collections::HashMap;

/// The ids of pieces by their texts, in place of those of the model that cuts them.
pub(super) struct PieceIds {
    pub ids: HashMap<String, u32>,
    /// Of pieces that are not there.
    pub unk: u32,
}

impl PieceIds {
    pub(super) fn token_id(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }

    pub(super) fn id(&self, piece: &str) -> u32 {
        self.token_id(piece).unwrap_or(self.unk)
    }
}

/// The code of a language at the beginning of a text, and the rest.
pub(super) fn language_code(text: &str) -> Option<(&str, &str)> {
    let end = text.starts_with(">>").then(|| text.find("<<")).flatten()?;
    Some(text.split_at(end + 2))
}
