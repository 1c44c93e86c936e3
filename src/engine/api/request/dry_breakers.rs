//! DRY's sequence breakers as tokens: texts that no repetition reaches across.
//!
//! A breaker can stand in one token, or begin at the end of one and continue in others. Only the tokens that the tokenizer writes for its
//! rest are found; the same letters in other tokens are not, as in llama.cpp.

use std::collections::HashMap;

use crate::error::Result;
use crate::sampler::DryBreakers;
use crate::text::tokenizer::Tokenizer;

/// The beginning of breakers that stands at the end of a token.
#[derive(Default)]
struct Beginning {
    /// Indices of the rests that may follow.
    rests: Vec<usize>,
    /// Indices of the breakers.
    texts: Vec<usize>,
}

/// The breakers of `texts`, none of which is empty, and for each text whether a vocabulary of `vocab_size` tokens can write it.
pub fn dry_breakers(texts: &[&str], tokenizer: &Tokenizer, vocab_size: usize) -> Result<(DryBreakers, Vec<bool>)> {
    let mut all = DryBreakers::default();
    let mut beginnings: HashMap<&[u8], Beginning> = HashMap::new();
    for (number, text) in texts.iter().enumerate() {
        let mut splits: Vec<(usize, Vec<u32>)> =
            text.char_indices().skip(1).map(|(at, _)| (at, tokenizer.encode_inside(&text[at..]))).collect();
        // In the tokenizer's own tokens the first one may end inside a character.
        let ids = tokenizer.encode_inside(text);
        if let Some((first, rest)) = ids.split_first() {
            splits.push((tokenizer.token_bytes(*first)?.len(), rest.to_vec()));
        }
        for (at, ids) in splits {
            if ids.is_empty() || ids.iter().any(|id| *id as usize >= vocab_size) {
                continue;
            }
            let rest = all.rests.iter().position(|rest| *rest == ids).unwrap_or_else(|| {
                all.rests.push(ids);
                all.rests.len() - 1
            });
            let beginning = beginnings.entry(&text.as_bytes()[..at]).or_default();
            beginning.rests.push(rest);
            beginning.texts.push(number);
        }
    }
    let longest = beginnings.keys().map(|bytes| bytes.len()).max().unwrap_or(0);
    let mut is_written = vec![false; texts.len()];
    let mut lists: HashMap<Vec<usize>, usize> = HashMap::new();
    for id in 0..vocab_size.min(tokenizer.vocab_size()) as u32 {
        let bytes = tokenizer.token_bytes_with_control(id)?;
        let mut breaks = false;
        for (text, is_written) in texts.iter().zip(&mut is_written) {
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                (*is_written, breaks) = (true, true);
            }
        }
        if breaks {
            all.tokens.push(id);
        }
        // Here control tokens have no text.
        let bytes = tokenizer.token_bytes(id)?;
        let ends = (1..=longest.min(bytes.len())).filter_map(|length| beginnings.get(&bytes[bytes.len() - length..]));
        let mut list = Vec::new();
        for Beginning { rests, texts } in ends {
            list.extend(rests);
            texts.iter().for_each(|text| is_written[*text] = true);
        }
        list.sort_unstable();
        list.dedup();
        if !list.is_empty() {
            let count = lists.len();
            let number = *lists.entry(list).or_insert_with_key(|list| {
                all.lists.push(list.clone());
                count
            });
            all.heads.push((id, number));
        }
    }
    Ok((all, is_written))
}
