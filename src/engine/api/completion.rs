//! Completions: from a request to the generation that continues its text, and what chats share with it.

use std::rc::Rc;

use super::request::{CompletionFields, CompletionRequest, Drafters, ForcedBos, GenerationFields, Prompt};
use crate::engine::choice::Request;
use crate::engine::engine::Engine;
use crate::engine::generation::Generation;
use crate::error::Result;
use crate::sampler::check_room;

impl Engine {
    /// Tokenises the text that is to be continued, or that the model's encoder reads. Nothing is generated before the first `next`.
    pub fn complete(&self, request: CompletionRequest) -> Result<Generation> {
        let start = self.decoder_start(&request.completion)?;
        let CompletionRequest { completion, logprobs, generation } = request;
        let prompt = match (completion.prompt, &completion.src_lang) {
            (Prompt::Text(text), None) => self.tokenizer().encode(&text, true, true)?,
            (Prompt::Text(text), Some(language)) => self
                .tokenizer()
                .encode_from_language(&text, language)
                .map_err(|error| error.context(format!("src_lang: {language:?}")))?,
            (Prompt::Tokens(ids), None) => ids,
            (Prompt::Tokens(_), Some(_)) => {
                bail!(
                    InvalidRequest,
                    "src_lang is for a prompt that is a text, and this one has token ids; leave it out"
                )
            }
        };
        let Some(start) = start else {
            return self.start(self.request(generation, prompt, true, logprobs.wanted()?)?);
        };
        // What the decoder writes does not continue the prompt, which its encoder reads.
        let request = self.request(generation, start, false, logprobs.wanted()?)?;
        self.start(Request { source: Some(prompt.into()), ..request })
    }

    /// The tokens with which the decoder of an encoder-decoder begins; `None` for other models.
    fn decoder_start(&self, completion: &CompletionFields) -> Result<Option<Vec<u32>>> {
        let config = self.0.decoder()?.transformer.config();
        let Some(start) = config.decoder_start else {
            let named = completion.forced_bos_token_id.as_ref().map(|_| "forced_bos_token_id");
            if let Some(field) = named.or(completion.src_lang.as_ref().map(|_| "src_lang")) {
                bail!(
                    InvalidRequest,
                    "{field} is for models that have an encoder, and this one ({}) has none; leave it out",
                    self.info().architecture
                );
            }
            return Ok(None);
        };
        let forced = match &completion.forced_bos_token_id {
            None => self.0.answer_defaults.forced_bos,
            Some(ForcedBos::Id(id)) => Some(*id),
            Some(ForcedBos::Text(text)) => match self.tokenizer().token_id(text) {
                Some(id) => Some(id),
                None => bail!(InvalidRequest, "forced_bos_token_id: {text:?} is no token of the model"),
            },
        };
        if let Some(id) = forced.filter(|id| *id as usize >= config.vocab_size) {
            bail!(InvalidRequest, "forced_bos_token_id is {id}, wanted a token below {}", config.vocab_size);
        }
        Ok(Some([start].into_iter().chain(forced).collect()))
    }

    /// Checks the fields against each other and against the model.
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
        let (tokenizer, vocab_size) = (self.tokenizer(), self.0.decoder()?.transformer.config().vocab_size);
        let ends = [tokenizer.end_of_generation(), &fields.ending.stop_token_ids].concat();
        let is_word = |word: &&Vec<u32>| !matches!(word[..], [id] if tokenizer.end_of_generation().contains(&id));
        let banned = self.0.answer_defaults.bad_words.iter().filter(is_word);
        let rules = penalties.rules(tokenizer, vocab_size, prompt.len(), longest, ends)?.banning(banned.cloned());
        rules.validate(vocab_size)?;
        check_room(&rules)?;
        let drafters = Drafters { draft_model: self.info().draft.is_some(), mtp: self.info().multi_token_prediction };
        let speculation = fields.speculation.speculation.map(|asked| asked.speculation(drafters)).transpose()?;
        let capacity = self.info().context_length;
        let context_shift =
            fields.context.context_shift.map(|asked| asked.context_shift(capacity)).transpose()?.flatten();
        if context_shift.is_some() {
            self.0.decoder()?.transformer.check_shift()?;
        }
        let grammar = fields.structured.grammar()?;
        let adapters = self.0.adapter_set(fields.adapters.adapters.as_ref())?;
        Ok(Request {
            adapters,
            prompt,
            source: None,
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
            replayed: None,
            grammar,
            continues,
        })
    }
}
