//! Speculation: several tokens by one pass. A draft of what may come next is taken in at once, and as much of it is kept as the
//! model says itself (Leviathan et al. 2023, Chen et al. 2023; here restricted to greedy, where a draft's token is kept when
//! it is the most probable one). Reading the weights is what a pass takes its time for, so a few tokens cost little more than
//! one.
//!
//! Drafts come from the text itself: what followed the last tokens where they stood before (prompt lookup decoding; Saxena
//! 2023). That wins where answers repeat their prompt or themselves, and costs a little elsewhere.

use serde::Deserialize;

use super::load::Inner;
use super::session::Session;
use crate::error::Result;
use crate::tensor::Readback;
use crate::tensor::ops::MatVecFew;
use crate::text::sampler::SamplerSettings;

/// The most tokens of a draft: with the token before it, they are as many as share each read of the weights.
const MAX_DRAFT: usize = MatVecFew::MAX_TOKENS - 1;
const DEFAULT_DRAFT: usize = 5;

/// The most tokens that are compared to find the best place to copy from.
const MAX_NGRAM: usize = 16;
const DEFAULT_NGRAM: usize = 2;

/// The most plain steps of a submit: then a draft is looked for again.
const MAX_PLAIN_STEPS: usize = 8;

/// What a request may ask for.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SpeculationRequest {
    PromptLookup {
        #[serde(default)]
        max_tokens: Option<u64>,
        #[serde(default)]
        min_ngram: Option<u64>,
    },
}

/// Finds drafts in the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PromptLookup {
    max_tokens: usize,
    min_ngram: usize,
}

/// The speculation of one generation.
#[derive(Clone, Debug)]
pub struct Speculation {
    lookup: PromptLookup,
    /// Tokens of drafts that were verified, and those of them that were kept.
    pub draft_tokens: usize,
    pub accepted_draft_tokens: usize,
}

/// What was done for the next tokens.
pub enum Pass {
    /// The tokens themselves.
    Verified(Vec<u32>),
    /// So many plain steps are under way.
    Steps(Readback, usize),
}

impl Speculation {
    /// Refuses what can't be had.
    pub fn new(request: SpeculationRequest, sampler: &SamplerSettings) -> Result<Self> {
        let SpeculationRequest::PromptLookup { max_tokens, min_ngram } = request;
        if sampler.temperature != 0.0 {
            bail!(
                InvalidRequest,
                "speculation works at temperature 0 alone, and temperature is {}; set temperature to 0 or leave \
                 speculation out",
                sampler.temperature
            );
        }
        let within = |name: &str, value: Option<u64>, default: usize, most: usize| match value {
            None => Ok(default),
            Some(value) if (1..=most as u64).contains(&value) => Ok(value as usize),
            Some(value) => bail!(InvalidRequest, "speculation.{name} is {value}, wanted 1 to {most}"),
        };
        let lookup = PromptLookup {
            max_tokens: within("max_tokens", max_tokens, DEFAULT_DRAFT, MAX_DRAFT)?,
            min_ngram: within("min_ngram", min_ngram, DEFAULT_NGRAM, MAX_NGRAM)?,
        };
        Ok(Self { lookup, draft_tokens: 0, accepted_draft_tokens: 0 })
    }

    /// Goes on after `last`, which the session has not taken in: step `step` samples the next token, of at most `room`. Where
    /// there is no draft, a few of the `plain_steps` run.
    pub async fn advance(
        &mut self,
        engine: &Inner,
        session: &mut Session,
        last: u32,
        step: usize,
        room: usize,
        plain_steps: usize,
    ) -> Result<Pass> {
        // A pass gives one token besides those of its draft.
        let draft = self.lookup.draft(session.tokens(), last, room.saturating_sub(1));
        if draft.is_empty() {
            let steps = plain_steps.min(MAX_PLAIN_STEPS).min(room);
            let context = &engine.context;
            session.resume(context, last, step)?;
            session.decoded(last);
            for _ in 0..steps {
                session.step(context)?;
            }
            return Ok(Pass::Steps(session.read_tokens(context, step, steps)?, steps));
        }
        let mut ids = vec![last];
        ids.extend_from_slice(&draft);
        let bytes = session.verify(engine, &ids).await?.bytes().await?;
        let mut greedy: Vec<u32> =
            bytes.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec::<u8, u32>(bytes)).collect();
        if greedy.len() != ids.len() {
            bail!(Internal, "a pass over {} tokens gave {} greedy tokens", ids.len(), greedy.len());
        }
        let accepted = draft.iter().zip(&greedy).take_while(|(draft, greedy)| draft == greedy).count();
        self.draft_tokens += draft.len();
        self.accepted_draft_tokens += accepted;
        greedy.truncate(accepted + 1);
        Ok(Pass::Verified(greedy))
    }
}

impl PromptLookup {
    /// What may follow `sequence` and then `last`, at most `room` tokens: what followed where most of the last tokens stood
    /// before, the latest of such places. A copy that reaches its own beginning goes on with itself, as in LZ77 (Ziv, Lempel
    /// 1977), so that something that repeats is drafted at full length.
    fn draft(&self, sequence: &[u32], last: u32, room: usize) -> Vec<u32> {
        let wanted = self.max_tokens.min(room);
        let (mut longest, mut source) = (0, 0);
        for (index, _) in sequence.iter().enumerate().rev().filter(|(_, token)| **token == last) {
            let before = sequence[..index].iter().rev().zip(sequence.iter().rev()).take(MAX_NGRAM - 1);
            let length = 1 + before.take_while(|(earlier, now)| earlier == now).count();
            if length > longest {
                (longest, source) = (length, index + 1);
            }
            if length == MAX_NGRAM {
                break;
            }
        }
        let mut draft: Vec<u32> = Vec::with_capacity(wanted);
        while longest >= self.min_ngram && draft.len() < wanted {
            let at = source + draft.len();
            draft.push(match at.checked_sub(sequence.len()) {
                None => sequence[at],
                Some(0) => last,
                Some(behind) => draft[behind - 1],
            });
        }
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn draft(text: &[u32], max_tokens: usize, min_ngram: usize, room: usize) -> Vec<u32> {
        let (last, sequence) = text.split_last().unwrap();
        PromptLookup { max_tokens, min_ngram }.draft(sequence, *last, room)
    }

    #[test]
    fn a_draft_is_what_followed_before() {
        let text = [1, 2, 3, 4, 5, 9, 1, 2];
        assert_eq!(draft(&text, 3, 2, 10), [3, 4, 5]);
        assert_eq!(draft(&text, 3, 2, 2), [3, 4]);
        assert_eq!(draft(&text, 3, 2, 0), [0; 0]);
        assert_eq!(draft(&text, 3, 3, 10), [0; 0], "only two tokens agree");
        assert_eq!(draft(&[1, 2, 3], 3, 1, 10), [0; 0]);
        assert_eq!(draft(&[1], 3, 1, 10), [0; 0]);
    }

    #[test]
    fn the_longest_match_wins_and_then_the_latest() {
        assert_eq!(draft(&[7, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2], 1, 2, 10), [30]);
        assert_eq!(draft(&[8, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2], 1, 2, 10), [31]);
    }

    #[test]
    fn what_repeats_is_drafted_at_full_length() {
        assert_eq!(draft(&[4, 4, 4], 7, 2, 10), [4; 7]);
        assert_eq!(draft(&[1, 2, 3, 1, 2, 3, 1], 7, 2, 10), [2, 3, 1, 2, 3, 1, 2]);
    }

    #[test]
    fn what_can_not_be_had_is_refused() {
        let new = |request: serde_json::Value, sampler: &SamplerSettings| {
            Speculation::new(serde_json::from_value(request).unwrap(), sampler)
        };
        let greedy = SamplerSettings::greedy();
        let lookup = new(serde_json::json!({"type": "prompt_lookup"}), &greedy).unwrap().lookup;
        assert_eq!(lookup, PromptLookup { max_tokens: 5, min_ngram: 2 });
        for (name, value) in [("max_tokens", 0), ("max_tokens", 8), ("min_ngram", 0), ("min_ngram", 17)] {
            let error = new(serde_json::json!({"type": "prompt_lookup", name: value}), &greedy).unwrap_err();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains(name), "{error}");
        }
        let error = new(serde_json::json!({"type": "prompt_lookup"}), &SamplerSettings::default()).unwrap_err();
        assert!(error.message().contains("temperature"), "{error}");
    }
}
