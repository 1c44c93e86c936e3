//! Whether a draft model has the model's vocabulary.

use crate::error::Result;
use crate::text::tokenizer::Tokenizer;

/// Vocabularies of one family may differ at their end, by at most this many tokens that fill them up to a round number.
const PADDING: usize = 256;

/// Refuses a draft model that has other tokens: its drafts would be another text. The error is `vocabulary_mismatch`.
pub fn check_vocabulary(own: &Tokenizer, drafts: &Tokenizer) -> Result<()> {
    let (own_size, draft_size) = (own.vocab_size(), drafts.vocab_size());
    if own_size.abs_diff(draft_size) > PADDING {
        bail!(
            VocabularyMismatch,
            "the draft model has {draft_size} tokens and the model {own_size}; a draft model must have the model's vocabulary, as \
             smaller models of one family do"
        );
    }
    for id in 0..own_size.min(draft_size) as u32 {
        let (own_bytes, draft_bytes) = (own.token_bytes_with_control(id)?, drafts.token_bytes_with_control(id)?);
        if own_bytes != draft_bytes || own.is_control(id) != drafts.is_control(id) {
            bail!(
                VocabularyMismatch,
                "token {id} is {:?} in the draft model and {:?} in the model; a draft model must have the model's vocabulary, as \
                 smaller models of one family do",
                String::from_utf8_lossy(draft_bytes),
                String::from_utf8_lossy(own_bytes)
            );
        }
    }
    Ok(())
}
