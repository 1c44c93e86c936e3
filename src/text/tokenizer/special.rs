//! Tokens that are found in text before it is cut into words: control tokens such as `<|im_end|>`, and user-defined ones. Also: which
//! tokens end a generation.

use super::token_finder::TokenFinder;
use super::vocabulary::{TokenType, Vocabulary};
use crate::error::Result;

/// A stretch of text, or a token that was written in it.
pub(super) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

pub(super) struct SpecialTokens {
    /// Found in every text, like llama.cpp's user-defined tokens.
    user_defined: TokenFinder,
    /// Found only in text that may contain special tokens, as the caller says.
    all: TokenFinder,
}

impl SpecialTokens {
    pub(super) fn new(vocabulary: &Vocabulary, types: &[TokenType]) -> Result<Self> {
        let tokens = |wanted: fn(TokenType) -> bool| {
            let tokens = vocabulary.tokens.iter().zip(types).zip(0u32..);
            tokens.filter(move |((_, kind), _)| wanted(**kind)).map(|((text, _), id)| (text.clone(), id))
        };
        Ok(Self {
            user_defined: TokenFinder::new(tokens(|kind| kind == TokenType::UserDefined))?,
            all: TokenFinder::new(tokens(|kind| {
                matches!(kind, TokenType::UserDefined | TokenType::Control | TokenType::Unknown)
            }))?,
        })
    }

    /// Cuts text at the tokens written in it. Stretches of text are never empty.
    pub(super) fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let finder = if parse_special { &self.all } else { &self.user_defined };
        let mut fragments = Vec::new();
        let mut done = 0;
        for (place, id) in finder.find_all(text) {
            if done < place.start {
                fragments.push(Fragment::Text(&text[done..place.start]));
            }
            fragments.push(Fragment::Token(id));
            done = place.end;
        }
        if done < text.len() {
            fragments.push(Fragment::Text(&text[done..]));
        }
        fragments
    }
}

/// Texts of tokens that end a turn or a text. The list is llama.cpp's (`llama-vocab.cpp`, tokens that cause end of generation), because
/// GGUF files name only some of them.
const END_OF_GENERATION: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end▁of▁sentence|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "</s>",
    "[e~[",
];

/// Tokens that end a generation: first those that the file names, then the others by id. Marks them as control tokens, because in some
/// files they are user-defined ones, whose text would be shown.
pub(super) fn end_of_generation<'t>(
    texts: impl Iterator<Item = &'t str> + Clone,
    types: &mut [TokenType],
    named: &[u32],
) -> Vec<u32> {
    let mut ids: Vec<u32> = Vec::new();
    for &id in named {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let is_special = |kind: TokenType| matches!(kind, TokenType::Control | TokenType::UserDefined);
    let has = |wanted: &str, types: &[TokenType]| {
        texts.clone().zip(types).any(|(text, &kind)| text == wanted && is_special(kind))
    };
    // In harmony and similar formats "<|end|>" ends a message, but not the turn.
    let end_goes_on =
        (has("<|return|>", types) && has("<|call|>", types)) || (has("<|calls|>", types) && has("<|flush|>", types));
    for ((id, text), kind) in (0u32..).zip(texts).zip(types) {
        let known = END_OF_GENERATION.contains(&text) && is_special(*kind);
        let is_named = named.contains(&id);
        if known && !(end_goes_on && text == "<|end|>") && !is_named {
            ids.push(id);
        }
        if known || is_named {
            *kind = TokenType::Control;
        }
    }
    ids
}
