//! Speculation: several tokens by one pass. A draft of what may come next is taken in at once, and as much of it is kept as the
//! model says itself (Leviathan et al. 2023, Chen et al. 2023; here restricted to greedy, where a draft's token is kept when
//! it is the most probable one). Reading the weights is what a pass takes its time for, so a few tokens cost little more than
//! one.
//!
//! Drafts come from the text itself: what followed the last tokens where they stood before (prompt lookup decoding; Saxena
//! 2023). That wins where answers repeat their prompt or themselves, and costs a little elsewhere. Or they come from a second,
//! smaller model (`draft.rs`).

use super::api::request::SpeculationRequest;
use super::draft::DraftModel;
use super::loaded::Inner;
use super::session::Session;
use super::verification::Draft;
use crate::error::Result;
use crate::sampler::{Features, SamplerSettings, TokenRules};
use crate::tensor::Readback;
use crate::tensor::ops::MatVecFew;

/// The most tokens of a draft: with the token before it, they are as many as share each read of the weights.
const MAX_DRAFT: usize = MatVecFew::MAX_TOKENS - 1;
const DEFAULT_DRAFT: usize = 5;

/// The most tokens that are compared to find the best place to copy from.
const MAX_NGRAM: usize = 16;
const DEFAULT_NGRAM: usize = 2;

/// The most plain steps of a submit: then a draft is looked for again.
const MAX_PLAIN_STEPS: usize = 8;

/// Finds drafts in the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PromptLookup {
    max_tokens: usize,
    min_ngram: usize,
}

/// Where drafts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drafts {
    Lookup(PromptLookup),
    /// At most so many tokens of the draft model.
    Model(usize),
}

/// The speculation of one generation.
pub struct Speculation {
    drafts: Drafts,
    /// The draft model, held until the generation ends. Without it, where another generation has it, plain steps run.
    model: Option<DraftModel>,
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

impl Clone for Speculation {
    /// The same, of another choice: the draft model is whose it is.
    fn clone(&self) -> Self {
        Self { drafts: self.drafts, model: None, draft_tokens: 0, accepted_draft_tokens: 0 }
    }
}

impl Speculation {
    /// Refuses what can't be had.
    pub fn new(
        request: SpeculationRequest,
        sampler: &SamplerSettings,
        rules: &TokenRules,
        has_draft_model: bool,
    ) -> Result<Self> {
        if sampler.temperature != 0.0 {
            bail!(
                InvalidRequest,
                "speculation works at temperature 0 alone, and temperature is {}; set temperature to 0 or leave \
                 speculation out",
                sampler.temperature
            );
        }
        if Features::of(sampler, rules).adjusts() {
            bail!(
                InvalidRequest,
                "speculation takes the model's own most probable tokens, and the request changes them by a bias, a ban, min_tokens, \
                 a penalty or DRY; leave these or speculation out"
            );
        }
        let within = |name: &str, value: Option<u64>, default: usize, most: usize| match value {
            None => Ok(default),
            Some(value) if (1..=most as u64).contains(&value) => Ok(value as usize),
            Some(value) => bail!(InvalidRequest, "speculation.{name} is {value}, wanted 1 to {most}"),
        };
        let drafts = match request {
            SpeculationRequest::PromptLookup { max_tokens, min_ngram } => Drafts::Lookup(PromptLookup {
                max_tokens: within("max_tokens", max_tokens, DEFAULT_DRAFT, MAX_DRAFT)?,
                min_ngram: within("min_ngram", min_ngram, DEFAULT_NGRAM, MAX_NGRAM)?,
            }),
            SpeculationRequest::DraftModel { max_tokens } => {
                let max_tokens = within("max_tokens", max_tokens, DEFAULT_DRAFT, MAX_DRAFT)?;
                if !has_draft_model {
                    bail!(
                        InvalidRequest,
                        "speculation.type is \"draft_model\", and the engine has none; load it with the option draft"
                    );
                }
                Drafts::Model(max_tokens)
            }
        };
        Ok(Self { drafts, model: None, draft_tokens: 0, accepted_draft_tokens: 0 })
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
        let most = room.saturating_sub(1);
        let transformer = engine.decoder()?;
        let readback = match self.drafts {
            Drafts::Lookup(lookup) => {
                let draft = lookup.draft(session.tokens(), last, most);
                if draft.is_empty() {
                    None
                } else {
                    Some(session.verify(transformer, last, Draft::Known(&draft)).await?)
                }
            }
            Drafts::Model(max_tokens) if most > 0 => {
                if self.model.is_none() {
                    self.model = engine.draft.borrow_mut().take();
                }
                let count = max_tokens.min(most);
                let drafted = match &mut self.model {
                    Some(model) => model.draft(session.tokens(), last, count).await?,
                    None => None,
                };
                match drafted {
                    Some(drafted) => Some(session.verify(transformer, last, Draft::OnGpu(&drafted, count)).await?),
                    None => None,
                }
            }
            Drafts::Model(_) => None,
        };
        let Some(readback) = readback else {
            let steps = plain_steps.min(MAX_PLAIN_STEPS).min(room);
            let context = &engine.context;
            session.resume(context, last, step)?;
            session.decoded(last);
            for _ in 0..steps {
                session.step(context)?;
            }
            return Ok(Pass::Steps(session.read_tokens(context, step, steps)?, steps));
        };
        let bytes = readback.bytes().await?;
        let words = |bytes: &Vec<u8>| bytemuck::pod_collect_to_vec::<u8, u32>(bytes);
        let [mut greedy, taken_in] = match &bytes[..] {
            [greedy, taken_in] if greedy.len() == taken_in.len() => [words(greedy), words(taken_in)],
            _ => bail!(Internal, "a pass gave {} read-backs of other lengths", bytes.len()),
        };
        let draft = taken_in.get(1..).unwrap_or_default();
        let accepted = draft.iter().zip(&greedy).take_while(|(draft, greedy)| draft == greedy).count();
        if let Some(model) = &mut self.model {
            model.accepted(draft, accepted);
        }
        self.draft_tokens += draft.len();
        self.accepted_draft_tokens += accepted;
        greedy.truncate(accepted + 1);
        Ok(Pass::Verified(greedy))
    }

    /// Gives the draft model back.
    pub fn end(&mut self, engine: &Inner, forget: bool) {
        if let Some(mut model) = self.model.take() {
            if forget {
                model.forget();
            }
            *engine.draft.borrow_mut() = Some(model);
        }
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
            Speculation::new(serde_json::from_value(request).unwrap(), sampler, &TokenRules::default(), false)
        };
        let greedy = SamplerSettings::greedy();
        let drafts = new(serde_json::json!({"type": "prompt_lookup"}), &greedy).unwrap().drafts;
        assert_eq!(drafts, Drafts::Lookup(PromptLookup { max_tokens: 5, min_ngram: 2 }));
        for (name, value) in [("max_tokens", 0), ("max_tokens", 8), ("min_ngram", 0), ("min_ngram", 17)] {
            let error = new(serde_json::json!({"type": "prompt_lookup", name: value}), &greedy).err().unwrap();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.message().contains(name), "{error}");
        }
        let error = new(serde_json::json!({"type": "prompt_lookup"}), &SamplerSettings::default()).err().unwrap();
        assert!(error.message().contains("temperature"), "{error}");
    }
}
