//! Requests in the shapes of OpenAI's API (https://platform.openai.com/docs/api-reference): what they may hold, and what becomes of it.
//!
//! A request is groups of fields. Each group is a file with its struct, the names of its fields and their validation; those that
//! chats and completions share are gathered in `GenerationFields`. So a new field is a line in its group, and a new group a line
//! here. A field of no group is refused by name, because ignoring it would give another answer than was asked for.

mod chat;
mod choices;
mod completion;
mod dry_breakers;
mod ending;
mod fields;
mod logprobs;
mod penalties;
mod reasoning;
mod sampling;
mod structured;

pub use chat::{ChatFields, ChatRequest};
pub use choices::ChoicesFields;
pub use completion::{CompletionFields, CompletionRequest, Prompt};
pub use dry_breakers::dry_breakers;
pub use ending::{EndingFields, Stop};
pub use logprobs::{ChatLogprobsFields, CompletionLogprobsFields};
pub use penalties::PenaltyFields;
pub use reasoning::{ReasoningFields, ReasoningFormat};
pub use sampling::SamplingFields;
pub use structured::{NamedSchema, ResponseFormat, StructuredFields, StructuredOutputs};

pub(super) use fields::{Fields, Group, group};

use std::rc::Rc;

use crate::engine::context_shift::{ContextShift, ContextShiftRequest};
use crate::engine::generate::Request;
use crate::engine::loaded::Engine;
use crate::engine::speculation::{Speculation, SpeculationRequest};
use crate::error::Result;
use crate::sampler::check_room;

/// What chats and completions have in common.
#[derive(Clone, Debug)]
pub struct GenerationFields {
    pub sampling: SamplingFields,
    pub penalties: PenaltyFields,
    pub ending: EndingFields,
    pub structured: StructuredFields,
    pub speculation: SpeculationFields,
    pub context: ContextFields,
    pub choices: ChoicesFields,
}

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct SpeculationFields {
        /// Several tokens by one pass, where a draft turns out right (`speculation.rs`). An extension.
        pub speculation: Option<SpeculationRequest>,
    }
}

group! {
    #[derive(Clone, Copy, Debug)]
    pub struct ContextFields {
        /// Goes on where the context is full, without its older tokens (`context_shift.rs`). An extension.
        pub context_shift: Option<ContextShiftRequest>,
    }
}

impl GenerationFields {
    fn take(fields: &mut Fields) -> Result<Self> {
        Ok(Self {
            sampling: fields.group()?,
            penalties: fields.group()?,
            ending: fields.group()?,
            structured: fields.group()?,
            speculation: fields.group()?,
            context: fields.group()?,
            choices: fields.group()?,
        })
    }

    /// Checks what the fields say, together and beside the engine's model.
    fn request(self, engine: &Engine, prompt: Vec<u32>, continues: bool, logprobs: Option<usize>) -> Result<Request> {
        let penalties = &self.penalties;
        let sampler = self.sampling.settings(penalties.penalties()?, penalties.dry()?)?;
        let longest = self.ending.longest()?;
        let (tokenizer, vocab_size) = (engine.tokenizer(), engine.0.decoder()?.config().vocab_size);
        let ends = [tokenizer.end_of_generation(), &self.ending.stop_token_ids].concat();
        let rules = penalties.rules(tokenizer, vocab_size, prompt.len(), longest, ends)?;
        check_room(&rules)?;
        let speculation = self
            .speculation
            .speculation
            .map(|asked| Speculation::new(asked, &sampler, &rules, engine.info().draft.is_some()))
            .transpose()?;
        let capacity = engine.info().context_length;
        let context_shift =
            self.context.context_shift.map(|asked| ContextShift::new(asked, capacity)).transpose()?.flatten();
        if context_shift.is_some() {
            engine.0.decoder()?.check_shift()?;
        }
        if logprobs.is_some() && speculation.is_some() {
            bail!(
                InvalidRequest,
                "logprobs and speculation exclude each other: a draft is verified without log probabilities; leave one out"
            );
        }
        let grammar = self.structured.grammar()?;
        if let Some(asked) = &grammar {
            if speculation.is_some() {
                bail!(InvalidRequest, "{} and speculation exclude each other; leave one of them out", asked.field);
            }
            if self.ending.ignore_eos {
                bail!(
                    InvalidRequest,
                    "{} and ignore_eos exclude each other: a grammar says where the end is",
                    asked.field
                );
            }
        }
        Ok(Request {
            prompt,
            max_tokens: longest,
            ignore_eos: self.ending.ignore_eos,
            answer: self.ending.answer(engine.tokenizer().vocab_size(), rules.min_tokens)?,
            budget: None,
            sampler,
            rules: Rc::new(rules),
            speculation,
            context_shift,
            logprobs,
            processor: None,
            choices: self.choices.count()?,
            is_reproducible: self.sampling.seed.is_some(),
            grammar,
            continues,
        })
    }
}
