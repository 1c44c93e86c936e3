//! Requests in the shapes of OpenAI's API (https://platform.openai.com/docs/api-reference): what they may hold, and what
//! becomes of it. A field that is not known here is refused by name, because ignoring it would give another answer than
//! was asked for.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use web_time::SystemTime;

use super::generate::{Generation, Request};
use super::load::Engine;
use super::speculation::{Speculation, SpeculationRequest};
use crate::error::Result;
use crate::text::sampler::SamplerSettings;
use crate::text::stop::StopStrings;

/// Stop strings that a request may name, as in OpenAI's API.
const MAX_STOPS: usize = 4;

/// A request for a chat completion.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    pub messages: Vec<Value>,
    /// Handed to the template. A call comes back as the text that the model wrote.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// Another template than the model's, in Jinja. With the three below an extension, in vLLM's words.
    #[serde(default)]
    pub chat_template: Option<String>,
    /// Variables for the template, such as `enable_thinking`.
    #[serde(default)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether the template begins an answer behind the messages, as it does without a word on it.
    #[serde(default)]
    pub add_generation_prompt: Option<bool>,
    /// The answer goes on with the last message, which is the assistant's.
    #[serde(default)]
    pub continue_final_message: bool,
    #[serde(default)]
    pub max_tokens: Option<u64>,
    #[serde(default)]
    pub max_completion_tokens: Option<u64>,
    #[serde(default)]
    pub temperature: Option<f32>,
    #[serde(default)]
    pub top_p: Option<f32>,
    /// With `min_p` an extension, in vLLM's words.
    #[serde(default)]
    pub top_k: Option<u32>,
    #[serde(default)]
    pub min_p: Option<f32>,
    #[serde(default)]
    pub seed: Option<i64>,
    #[serde(default)]
    pub stop: Option<Stop>,
    /// Goes on past the end of the model's turn; for benchmarks.
    #[serde(default)]
    pub ignore_eos: bool,
    /// Several tokens by one pass, where a draft turns out right (`speculation.rs`). An extension.
    #[serde(default)]
    pub speculation: Option<SpeculationRequest>,
}

/// A request for a completion of a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRequest {
    pub prompt: Prompt,
    #[serde(default)]
    pub max_tokens: Option<u64>,
    #[serde(default)]
    pub temperature: Option<f32>,
    #[serde(default)]
    pub top_p: Option<f32>,
    /// With `min_p` an extension, in vLLM's words.
    #[serde(default)]
    pub top_k: Option<u32>,
    #[serde(default)]
    pub min_p: Option<f32>,
    #[serde(default)]
    pub seed: Option<i64>,
    #[serde(default)]
    pub stop: Option<Stop>,
    #[serde(default)]
    pub ignore_eos: bool,
    /// Several tokens by one pass, where a draft turns out right (`speculation.rs`). An extension.
    #[serde(default)]
    pub speculation: Option<SpeculationRequest>,
}

/// A text, or its token ids.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

impl ChatRequest {
    pub fn parse(request: Value) -> Result<Self> {
        parse("the chat request", request)
    }
}

impl CompletionRequest {
    pub fn parse(request: Value) -> Result<Self> {
        parse("the completion request", request)
    }
}

impl Engine {
    /// Renders and tokenises the messages; generation starts with the first `next`.
    pub fn chat(&self, request: ChatRequest) -> Result<Generation> {
        let max_tokens = match (request.max_tokens, request.max_completion_tokens) {
            (Some(_), Some(_)) => {
                bail!(InvalidRequest, "max_tokens and max_completion_tokens are one setting; give only one of them")
            }
            (one, other) => one.or(other),
        };
        self.0.decoder()?;
        let prompt = self.prompt(&request)?;
        let tokenizer = self.tokenizer();
        // Most templates write BOS themselves; twice would be another prompt.
        let begins_with_bos = tokenizer.bos().is_some_and(|bos| {
            tokenizer.token_bytes_with_control(bos).is_ok_and(|text| prompt.as_bytes().starts_with(text))
        });
        let ids = tokenizer.encode(&prompt, !begins_with_bos, true)?;
        let sampler = sampler(request.temperature, request.top_k, request.top_p, request.min_p, request.seed)?;
        let speculation = request
            .speculation
            .map(|asked| Speculation::new(asked, &sampler, self.info().draft.is_some()))
            .transpose()?;
        self.start(Request {
            prompt: ids,
            max_tokens: positive("max_tokens", max_tokens)?,
            sampler,
            speculation,
            stop: stops(request.stop)?,
            ignore_eos: request.ignore_eos,
            continues: request.continue_final_message,
        })
    }

    /// Continues a text.
    pub fn complete(&self, request: CompletionRequest) -> Result<Generation> {
        self.0.decoder()?;
        let prompt = match request.prompt {
            Prompt::Text(text) => self.tokenizer().encode(&text, true, true)?,
            Prompt::Tokens(ids) => ids,
        };
        let sampler = sampler(request.temperature, request.top_k, request.top_p, request.min_p, request.seed)?;
        let speculation = request
            .speculation
            .map(|asked| Speculation::new(asked, &sampler, self.info().draft.is_some()))
            .transpose()?;
        self.start(Request {
            prompt,
            max_tokens: positive("max_tokens", request.max_tokens)?,
            sampler,
            speculation,
            stop: stops(request.stop)?,
            ignore_eos: request.ignore_eos,
            continues: true,
        })
    }
}

/// Reads a request; an error names the field that it is about.
pub(super) fn parse<T: DeserializeOwned>(what: &str, request: Value) -> Result<T> {
    serde_path_to_error::deserialize(request).map_err(|error| match error.path().iter().next() {
        Some(_) => err!(InvalidRequest, "{what}: {}: {}", error.path(), error.inner()),
        None => err!(InvalidRequest, "{what}: {}", error.inner()),
    })
}

fn positive(name: &str, value: Option<u64>) -> Result<Option<usize>> {
    match value {
        Some(0) => bail!(InvalidRequest, "{name} is 0, wanted at least 1"),
        value => Ok(value.map(|value| usize::try_from(value).unwrap_or(usize::MAX))),
    }
}

fn sampler(
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    seed: Option<i64>,
) -> Result<SamplerSettings> {
    let default = SamplerSettings::default();
    let settings = SamplerSettings {
        temperature: temperature.unwrap_or(default.temperature),
        top_k: top_k.unwrap_or(default.top_k),
        top_p: top_p.unwrap_or(default.top_p),
        min_p: min_p.unwrap_or(default.min_p),
        // Without a seed every generation draws its own; two equal requests then differ, as users expect.
        seed: seed.map_or_else(fresh_seed, |seed| seed as u64),
    };
    settings.validate()?;
    Ok(settings)
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new()
        .hash_one(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos()))
}

fn stops(stop: Option<Stop>) -> Result<StopStrings> {
    let stops = match stop {
        None => vec![],
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Many(stops)) => stops,
    };
    if stops.len() > MAX_STOPS {
        bail!(InvalidRequest, "stop has {} strings, wanted at most {MAX_STOPS}", stops.len());
    }
    StopStrings::new(stops)
}
