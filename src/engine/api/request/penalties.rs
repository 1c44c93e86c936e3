//! What makes single tokens more or less likely: biases, bans, and penalties for what the text already has.

use std::collections::BTreeMap;

use super::{dry_breakers, group};
use crate::error::Result;
use crate::sampler::{Dry, DryBreakers, Penalties, TokenRules, WHOLE_TEXT, breaker_words};
use crate::text::tokenizer::Tokenizer;

group! {
    /// What makes tokens more or less likely, in this order: `logit_bias`, `repetition_penalty`, `frequency_penalty` and
    /// `presence_penalty`, DRY, and last the bans. Not with `speculation`. Values that are out of range or contradict each other reject
    /// with `invalid_request`, which names the fields.
    #[derive(Clone, Debug, Default)]
    pub struct PenaltyFields {
        /// What is added to the logits of tokens, by their ids: -100 to 100.
        pub logit_bias: Option<BTreeMap<String, f32>>,
        /// Ids of tokens that are never chosen. An extension, with transformers' name.
        pub suppress_tokens: Option<Vec<u32>>,
        /// Texts (at most 256) that are not written, also not inside longer words: when the text ends with all tokens of one but the last,
        /// that last token is banned. The tokens are the tokenizer's own for the text at the beginning, after a space and after anything
        /// else; the same letters in other tokens are not seen. An extension, with vLLM's name.
        pub bad_words: Option<Vec<String>>,
        /// The fewest tokens of the answer. Before that, no token ends it (end of text, end of turn, `stop_token_ids`), and no text of
        /// `stop` that is complete by then: such a text stays in the answer. An extension, with vLLM's name.
        pub min_tokens: Option<u64>,
        /// Divides the positive logits of tokens that are in the prompt or the answer, and multiplies the negative ones. Above 0, at most
        /// 100. Default: 1, which changes nothing. An extension, with vLLM's name.
        pub repetition_penalty: Option<f32>,
        /// Subtracted from a token's logit once for each time that the answer has the token, -2 to 2. Default: 0.
        pub frequency_penalty: Option<f32>,
        /// Subtracted from a token's logit if the answer has the token at all, -2 to 2. Default: 0.
        pub presence_penalty: Option<f32>,
        /// How many tokens at the end of the text these three penalties look at: 0 none, -1 all. Default: -1. An extension, with
        /// llama.cpp's name (there the default is 64).
        pub repeat_last_n: Option<i64>,
        /// DRY: a token that would continue a repetition of n ≥ `dry_allowed_length` tokens, in prompt and answer, loses
        /// `dry_multiplier` · `dry_base` ** (n - `dry_allowed_length`). Default: 0, which is off; 0.8 is usual. This and the next four
        /// fields are extensions, with the names of llama.cpp's server.
        pub dry_multiplier: Option<f32>,
        /// How fast the penalty grows with the repetition, 1 to 100. Default: 1.75.
        pub dry_base: Option<f32>,
        /// The shortest repetition that is penalised, 1 to 1024 tokens. Default: 2.
        pub dry_allowed_length: Option<u32>,
        /// How many tokens at the end of the text DRY looks at: 0 none, -1 all. Default: -1.
        pub dry_penalty_last_n: Option<i64>,
        /// Texts (at most 256) that no repetition reaches across. A text counts inside a token, or if it begins in one and continues in the
        /// tokens that the model's tokenizer writes for its rest. A text that can't be written rejects. Default: `["\n", ":", "\"", "*"]`.
        pub dry_sequence_breakers: Option<Vec<String>>,
    }
}

/// The default sequence breakers, as in llama.cpp and text-generation-webui.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// The most texts of a list: each is looked for in the whole vocabulary.
const MAX_TEXTS: usize = 256;

impl PenaltyFields {
    pub(in crate::engine::api) fn penalties(&self) -> Result<Penalties> {
        let none = Penalties::default();
        Ok(Penalties {
            repetition: self.repetition_penalty.unwrap_or(none.repetition),
            frequency: self.frequency_penalty.unwrap_or(none.frequency),
            presence: self.presence_penalty.unwrap_or(none.presence),
            window: window("repeat_last_n", self.repeat_last_n)?,
        })
    }

    pub(in crate::engine::api) fn dry(&self) -> Result<Dry> {
        let none = Dry::default();
        Ok(Dry {
            multiplier: self.dry_multiplier.unwrap_or(none.multiplier),
            base: self.dry_base.unwrap_or(none.base),
            allowed_length: self.dry_allowed_length.unwrap_or(none.allowed_length),
            window: window("dry_penalty_last_n", self.dry_penalty_last_n)?,
        })
    }

    /// For a model with `vocab_size` logits, a prompt of `prompt` tokens and an answer of at most `longest`, which `ends` may end.
    pub(in crate::engine::api) fn rules(
        &self,
        tokenizer: &Tokenizer,
        vocab_size: usize,
        prompt: usize,
        longest: Option<usize>,
        ends: Vec<u32>,
    ) -> Result<TokenRules> {
        let min_tokens = self.min_tokens.unwrap_or(0);
        if let Some(longest) = longest.filter(|longest| (*longest as u64) < min_tokens) {
            bail!(InvalidRequest, "min_tokens is {min_tokens} and max_tokens {longest}, wanted no more than that");
        }
        Ok(TokenRules {
            biases: self.biases()?,
            suppressed: self.suppress_tokens.clone().unwrap_or_default(),
            bad_words: self.bad_words(tokenizer)?,
            min_tokens: u32::try_from(min_tokens).unwrap_or(u32::MAX),
            ends: ends.into_iter().filter(|id| min_tokens > 0 && (*id as usize) < vocab_size).collect(),
            dry_breakers: self.breakers(tokenizer, vocab_size)?,
            answer_start: prompt,
        })
    }

    fn biases(&self) -> Result<Vec<(u32, f32)>> {
        let biases = self.logit_bias.iter().flatten();
        biases
            .map(|(id, bias)| match id.parse() {
                Ok(id) => Ok((id, *bias)),
                Err(_) => bail!(InvalidRequest, "logit_bias has the name {id:?}, wanted a token id"),
            })
            .collect()
    }

    /// The tokens of each word at the start of a text and after a space, as in vLLM, and after anything else. With sentencepiece's
    /// vocabularies vLLM's two are the same, and miss words in brackets or quotes.
    fn bad_words(&self, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
        let words = self.bad_words.as_deref().unwrap_or_default();
        at_most("bad_words", words.len())?;
        let mut all: Vec<Vec<u32>> = Vec::new();
        for word in words {
            let text = word.trim_start();
            if text.is_empty() {
                bail!(InvalidRequest, "bad_words has {word:?}, wanted texts of more than space");
            }
            all.extend(tokenizer.encode_word(text)?);
        }
        // A word that ends with a shorter one is banned by that one.
        all.sort_by_key(Vec::len);
        let mut kept: Vec<Vec<u32>> = Vec::new();
        for ids in all {
            if !kept.iter().any(|shorter| ids.ends_with(shorter)) {
                kept.push(ids);
            }
        }
        Ok(kept)
    }

    /// DRY's sequence breakers.
    fn breakers(&self, tokenizer: &Tokenizer, vocab_size: usize) -> Result<DryBreakers> {
        if self.dry_multiplier.is_none_or(|multiplier| multiplier == 0.0) {
            return Ok(DryBreakers::default());
        }
        let asked: Option<Vec<&str>> =
            self.dry_sequence_breakers.as_ref().map(|texts| texts.iter().map(String::as_str).collect());
        let is_asked = asked.is_some();
        let texts = asked.unwrap_or_else(|| BREAKERS.to_vec());
        at_most("dry_sequence_breakers", texts.len())?;
        if texts.contains(&"") {
            bail!(InvalidRequest, "dry_sequence_breakers has an empty text");
        }
        let (breakers, is_written) = dry_breakers(&texts, tokenizer, vocab_size)?;
        breaker_words(&breakers, vocab_size).map_err(|error| error.context("dry_sequence_breakers"))?;
        // A small vocabulary may lack some of the default ones. Those of the request must take effect.
        match texts.iter().zip(is_written).find(|(_, is_written)| is_asked && !is_written) {
            Some((text, _)) => bail!(
                InvalidRequest,
                "dry_sequence_breakers has {text:?}, which the model's tokens can't write; give others"
            ),
            None => Ok(breakers),
        }
    }
}

fn at_most(name: &str, texts: usize) -> Result<()> {
    if texts > MAX_TEXTS {
        bail!(InvalidRequest, "{name} has {texts} texts, wanted at most {MAX_TEXTS}");
    }
    Ok(())
}

/// The number of tokens at the end of the text that count.
fn window(name: &str, tokens: Option<i64>) -> Result<u32> {
    match tokens {
        None | Some(-1) => Ok(WHOLE_TEXT),
        Some(tokens) if tokens < -1 => {
            bail!(InvalidRequest, "{name} is {tokens}, wanted -1 (the whole text), 0 (off) or a number of tokens")
        }
        Some(tokens) => Ok(u32::try_from(tokens).unwrap_or(WHOLE_TEXT)),
    }
}
