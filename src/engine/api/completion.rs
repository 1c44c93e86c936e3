//! Completions: from a request to go on with a text to a generation of it, and what chats share with it.

use std::rc::Rc;

use super::request::{CompletionRequest, GenerationFields, Prompt};
use crate::engine::choices::Generation;
use crate::engine::context_shift::ContextShift;
use crate::engine::generate::Request;
use crate::engine::loaded::Engine;
use crate::engine::speculation::Speculation;
use crate::error::Result;
use crate::sampler::check_room;

impl Engine {
    /// Continues a text.
    pub fn complete(&self, request: CompletionRequest) -> Result<Generation> {
        self.0.decoder()?;
        let CompletionRequest { completion, logprobs, generation } = request;
        let prompt = match completion.prompt {
            Prompt::Text(text) => self.tokenizer().encode(&text, true, true)?,
            Prompt::Tokens(ids) => ids,
        };
        self.start(self.request(generation, prompt, true, logprobs.wanted()?)?)
    }

    /// Checks what the fields say, together and beside the engine's model.
    pub(super) fn request(
        &self,
        fields: GenerationFields,
        prompt: Vec<u32>,
        continues: bool,
        logprobs: Option<usize>,
    ) -> Result<Request> {
        let penalties = &fields.penalties;
        let sampler = fields.sampling.settings(penalties.penalties()?, penalties.dry()?)?;
        let longest = fields.ending.longest()?;
        let (tokenizer, vocab_size) = (self.tokenizer(), self.0.decoder()?.config().vocab_size);
        let ends = [tokenizer.end_of_generation(), &fields.ending.stop_token_ids].concat();
        let rules = penalties.rules(tokenizer, vocab_size, prompt.len(), longest, ends)?;
        check_room(&rules)?;
        let speculation = fields
            .speculation
            .speculation
            .map(|asked| Speculation::new(asked, &sampler, &rules, self.info().draft.is_some()))
            .transpose()?;
        let capacity = self.info().context_length;
        let context_shift =
            fields.context.context_shift.map(|asked| ContextShift::new(asked, capacity)).transpose()?.flatten();
        if context_shift.is_some() {
            self.0.decoder()?.check_shift()?;
        }
        if logprobs.is_some() && speculation.is_some() {
            bail!(
                InvalidRequest,
                "logprobs and speculation exclude each other: a draft is verified without log probabilities; leave one out"
            );
        }
        let grammar = fields.structured.grammar()?;
        if let Some(asked) = &grammar {
            if speculation.is_some() {
                bail!(InvalidRequest, "{} and speculation exclude each other; leave one of them out", asked.field);
            }
            if fields.ending.ignore_eos {
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
            ignore_eos: fields.ending.ignore_eos,
            answer: fields.ending.answer(self.tokenizer().vocab_size(), rules.min_tokens)?,
            budget: None,
            sampler,
            rules: Rc::new(rules),
            speculation,
            context_shift,
            logprobs,
            processor: None,
            choices: fields.choices.count()?,
            is_reproducible: fields.sampling.seed.is_some(),
            grammar,
            continues,
        })
    }
}
