//! What a model scores or labels texts by, from its files: a head, or the logits of tokens such as yes and no.

use serde::Deserialize;

use super::api::rerank_prompt::{self, RerankPrompt};
use super::load::options::LoadOptions;
use crate::error::Result;
use crate::json;
use crate::model::checkpoint::{Checkpoint, Module};
use crate::model::config::Config;
use crate::model::{ClassifierConfig, Pooling, Relevance, ScoreFunction};
use crate::text::chat::ChatTemplates;
use crate::text::tokenizer::Tokenizer;

/// How a model scores or labels texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scoring {
    pub by: ScoredBy,
    /// `None` for a model that doesn't rank.
    pub relevance: Option<Relevance>,
    /// For models that are asked in words. Others take a pair as the tokenizer writes it.
    pub prompt: Option<RerankPrompt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScoredBy {
    Head(Box<ClassifierConfig>),
    /// The logits of these tokens after a prompt: the first speaks for a document, the second against it.
    Tokens(Vec<u32>),
}

#[derive(Deserialize)]
struct LogitScore {
    true_token_id: u32,
    false_token_id: Option<u32>,
}

#[derive(Default, Deserialize)]
struct CrossEncoderConfig {
    activation_fn: Option<String>,
}

impl Scoring {
    /// Of a model's files and the options of its load; `None` if it scores nothing.
    pub fn of(
        checkpoint: &Checkpoint<'_>,
        config: &Config,
        options: &LoadOptions,
        (templates, tokenizer): (&ChatTemplates, &Tokenizer),
    ) -> Result<Option<Self>> {
        let head = ClassifierConfig::of(checkpoint, config)?;
        let module = checkpoint.modules.iter().flatten().find(|module| module.kind == "LogitScore");
        let prompt = || if config.arch.is_encoder { Ok(None) } else { RerankPrompt::of(templates, tokenizer) };
        let relevance_of = |minus: Option<usize>| {
            let function = match Self::cross_encoder(checkpoint)?.activation_fn {
                Some(name) => ScoreFunction::of_torch(&name)?,
                None => ScoreFunction::Sigmoid,
            };
            Ok::<_, crate::Error>(Relevance { logit: 0, minus, function })
        };
        if let Some(asked) = &options.classifier_from_token {
            if head.is_some() || module.is_some() || config.arch.is_encoder {
                bail!(
                    InvalidRequest,
                    "classifierFromToken is for a language model that ranks by its tokens and whose files don't say so; {} has {}: leave \
                     the option out",
                    checkpoint.name(),
                    if config.arch.is_encoder { "no tokens to give" } else { "what it ranks by in its files" }
                );
            }
            let Some(text) = config.arch.rerank_prompt else {
                bail!(
                    InvalidRequest,
                    "classifierFromToken: how a model of the architecture {:?} is asked is not known; it is of qwen3",
                    config.arch.name
                );
            };
            let [against, for_it] = &asked[..] else {
                bail!(InvalidRequest, "classifierFromToken has {} tokens, wanted 2: [\"no\", \"yes\"]", asked.len())
            };
            let id = |text: &String| match tokenizer.token_id(text) {
                Some(id) => Ok(id),
                None => bail!(InvalidRequest, "classifierFromToken: {text:?} is no token of the model"),
            };
            let by = ScoredBy::Tokens(vec![id(for_it)?, id(against)?]);
            let relevance = Relevance { logit: 0, minus: Some(1), function: ScoreFunction::Sigmoid };
            let prompt = rerank_prompt::of_architecture(text, tokenizer)?;
            return Ok(Some(Self { by, relevance: Some(relevance), prompt: Some(prompt) }));
        }
        if let Some(head) = head {
            let mut relevance = head.relevance;
            if let (Some(relevance), Some(_)) = (&mut relevance, Self::cross_encoder(checkpoint)?.activation_fn) {
                relevance.function = relevance_of(None)?.function;
            }
            return Ok(Some(Self { by: ScoredBy::Head(Box::new(head)), relevance, prompt: prompt()? }));
        }
        let Some(Module { path, config: file, .. }) = module else { return Ok(None) };
        let Some(file) = file else {
            bail!(InvalidFile, "modules.json names a LogitScore, and there is no file \"{path}/config.json\"")
        };
        let LogitScore { true_token_id, false_token_id } =
            json::from_slice(file).map_err(|cause| err!(InvalidFile, "{path}/config.json: {cause}"))?;
        let tokens: Vec<u32> = std::iter::once(true_token_id).chain(false_token_id).collect();
        if let Some(id) = tokens.iter().find(|id| **id as usize >= config.vocab_size) {
            bail!(InvalidFile, "{path}/config.json names the token {id}, wanted one below {}", config.vocab_size);
        }
        let Some(prompt) = prompt()? else {
            bail!(
                UnsupportedArchitecture,
                "the model ranks by its tokens (LogitScore in modules.json), and its chat template has no roles \"query\" and \"document\""
            )
        };
        let relevance = relevance_of(false_token_id.map(|_| 1))?;
        Ok(Some(Self { by: ScoredBy::Tokens(tokens), relevance: Some(relevance), prompt: Some(prompt) }))
    }

    fn cross_encoder(checkpoint: &Checkpoint<'_>) -> Result<CrossEncoderConfig> {
        const FILE: &str = "config_sentence_transformers.json";
        match checkpoint.text_files.get(FILE) {
            Some(bytes) => json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "{FILE}: {cause}")),
            None => Ok(CrossEncoderConfig::default()),
        }
    }

    /// The pooling of the head, if there is one.
    pub fn pooling(&self) -> Option<Pooling> {
        match &self.by {
            ScoredBy::Head(head) => Some(head.pooling),
            ScoredBy::Tokens(_) => None,
        }
    }

    /// The names of the labels; none if there is no head.
    pub fn labels(&self) -> Vec<String> {
        match &self.by {
            ScoredBy::Head(head) => head.labels.clone(),
            ScoredBy::Tokens(_) => Vec::new(),
        }
    }
}
