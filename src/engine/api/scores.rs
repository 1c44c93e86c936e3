//! Scores and labels of texts: documents ranked by a query in the shape of Jina's and Cohere's rerank API, and classes in the shape of vLLM's
//! `/classify`.

use serde::Serialize;

use super::embeddings::EmbeddingUsage;
use super::passes::{Pooled, passes};
use super::request::{ClassifyRequest, ClassifyText, RerankRequest, TextPair};
use crate::engine::engine::{Engine, Inner};
use crate::engine::scoring::{ScoredBy, Scoring};
use crate::error::{Error, Result};
use crate::model::ScoreFunction;
use crate::tensor::ops;
use crate::text::tokenizer::{TypedIds, longest_first};

/// Documents by how well they fit a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Ranking {
    /// The best first; of equal ones, the first of the request.
    pub results: Vec<RankedDocument>,
    /// Of all documents, those left out by `top_n` too.
    pub usage: EmbeddingUsage,
}

/// A document's place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RankedDocument {
    /// Its number in the request, from 0.
    pub index: usize,
    /// How relevant it is.
    pub relevance_score: f32,
}

/// Labels of texts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Classification {
    /// In the order of the inputs.
    pub data: Vec<ClassifiedText>,
    /// Of all inputs.
    pub usage: EmbeddingUsage,
}

/// The labels of one input.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ClassifiedText {
    /// The number of the input, from 0.
    pub index: usize,
    /// The label with the highest score.
    pub label: String,
    /// A score for each label, in the order of `info.labels`.
    pub probs: Vec<f32>,
    /// The number of labels.
    pub num_classes: usize,
}

impl Engine {
    /// Ranks 1 to 2048 documents. `invalid_request` if the model can't, `context_length_exceeded` if a pair is too long.
    pub async fn rerank(&self, request: RerankRequest) -> Result<Ranking> {
        let inner = &*self.0;
        let RerankRequest { query, documents, top_n, instruction, truncate, use_activation } = request;
        let Some((scoring, relevance)) = inner.scoring.as_ref().and_then(|scoring| Some((scoring, scoring.relevance?)))
        else {
            return Err(inner.no_ranking());
        };
        inner.check_number("documents", "texts", documents.len())?;
        if top_n == Some(0) {
            bail!(InvalidRequest, "top_n is 0, wanted 1 or more");
        }
        if instruction.is_some() && scoring.prompt.is_none() {
            bail!(
                InvalidRequest,
                "instruction: the model takes a query and a document and no instruction; leave it out"
            );
        }
        let pair = |(index, document): (usize, _)| {
            let texts = [query.as_str(), document];
            inner
                .rerank_pair(scoring, texts, instruction.as_deref(), truncate)
                .map_err(|error| error.context(format_args!("document {index} with the query")))
        };
        let texts: Vec<TypedIds> =
            documents.iter().map(|document| document.text()).enumerate().map(pair).collect::<Result<_>>()?;
        let mut results = Vec::with_capacity(texts.len());
        for logits in inner.scores_of(scoring, &texts).await? {
            let logit = relevance.logit_of(&logits);
            let function = if use_activation { relevance.function } else { ScoreFunction::None };
            let relevance_score = function.of(&[logit])[0];
            results.push(RankedDocument { index: results.len(), relevance_score });
        }
        // The sort keeps the order of equal ones.
        results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
        results.truncate(top_n.unwrap_or(usize::MAX));
        Ok(Ranking { results, usage: EmbeddingUsage::of(&texts) })
    }

    /// Labels 1 to 2048 inputs. `invalid_request` if the model can't, `context_length_exceeded` if an input is too long.
    pub async fn classify(&self, request: ClassifyRequest) -> Result<Classification> {
        let inner = &*self.0;
        let ClassifyRequest { input, truncate, use_activation } = request;
        let Some((scoring, ScoredBy::Head(head))) = inner.scoring.as_ref().map(|scoring| (scoring, &scoring.by)) else {
            bail!(
                InvalidRequest,
                "the model ({}) has no head that labels texts; use a model for classification (…ForSequenceClassification)",
                inner.info.architecture
            );
        };
        let inputs = input.into_texts();
        inner.check_number("input", "texts", inputs.len())?;
        let text = |(index, text)| inner.classify_text(&format!("input {index}"), text, truncate);
        let texts: Vec<TypedIds> = inputs.into_iter().enumerate().map(text).collect::<Result<_>>()?;
        let function = if use_activation { head.function } else { ScoreFunction::None };
        let mut data = Vec::with_capacity(texts.len());
        for logits in inner.scores_of(scoring, &texts).await? {
            let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap_or(0);
            data.push(ClassifiedText {
                index: data.len(),
                label: head.labels[best].clone(),
                probs: function.of(&logits),
                num_classes: logits.len(),
            });
        }
        Ok(Classification { data, usage: EmbeddingUsage::of(&texts) })
    }
}

impl Inner {
    fn no_ranking(&self) -> Error {
        match &self.scoring {
            Some(scoring) => err!(
                InvalidRequest,
                "the model has the labels {:?}, and a model that ranks has one, or yes and no; use classify, or another model",
                scoring.labels()
            ),
            None => err!(
                InvalidRequest,
                "the model ({}) does not rank texts; use a reranker: a cross-encoder with one label, a GGUF file with the pooling rank, or \
                 Qwen3-Reranker, whose plain folder is loaded with classifierFromToken: [\"no\", \"yes\"]",
                self.info.architecture
            ),
        }
    }

    /// The input for a query and a document.
    fn rerank_pair(
        &self,
        scoring: &Scoring,
        texts: [&str; 2],
        instruction: Option<&str>,
        truncate: bool,
    ) -> Result<TypedIds> {
        let cased = texts.map(|text| self.cased(text));
        let [query, document] = [&*cased[0], &*cased[1]];
        match &scoring.prompt {
            Some(prompt) => {
                let limit = (self.token_limit(), truncate);
                let ids = prompt.encode(&self.tokenizer, [query, document], instruction, limit)?;
                if ids.ids.is_empty() {
                    bail!(InvalidRequest, "there are no tokens, wanted at least one");
                }
                Ok(ids)
            }
            None => self.text_pair([query, document], truncate),
        }
    }

    /// Two texts with the tokens around and between them.
    fn text_pair(&self, texts: [&str; 2], truncate: bool) -> Result<TypedIds> {
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        for (text, ids) in texts.into_iter().zip([&mut first, &mut second]) {
            *ids = self.tokenizer.encode(text, false, false)?;
        }
        let (added, limit) = (self.tokenizer.added_ids_of_pair()?, self.token_limit());
        let all = first.len() + second.len() + added;
        if all > limit {
            if !truncate || added >= limit {
                bail!(
                    ContextLengthExceeded,
                    "the pair has {all} tokens and the model takes {limit}; shorten the texts, or set truncate: true to cut the longer one"
                );
            }
            let (a, b) = longest_first(first.len(), second.len(), limit - added);
            first.truncate(a);
            second.truncate(b);
        }
        let pair = self.tokenizer.pair(&first, &second)?;
        if pair.ids.is_empty() {
            bail!(InvalidRequest, "the texts have no tokens, wanted at least one");
        }
        Ok(pair)
    }

    fn classify_text(&self, what: &str, text: ClassifyText, truncate: bool) -> Result<TypedIds> {
        let ids = match text {
            ClassifyText::Pair(TextPair { text, text_pair }) => {
                let cased = [self.cased(&text), self.cased(&text_pair)];
                return self.text_pair([&cased[0], &cased[1]], truncate).map_err(|error| error.context(what));
            }
            ClassifyText::Text(text) => self.tokenizer.encode(&self.cased(&text), true, false)?,
            ClassifyText::Tokens(ids) => ids,
        };
        self.checked_text(what, ids, truncate).map(TypedIds::from)
    }

    /// The logits of each text.
    async fn scores_of(&self, scoring: &Scoring, texts: &[TypedIds]) -> Result<Vec<Vec<f32>>> {
        let mut scores = Vec::with_capacity(texts.len());
        match (&scoring.by, &self.classifier) {
            (ScoredBy::Head(head), Some(classifier)) => {
                for pass in passes(texts) {
                    for vectors in self.vectors(pass, Pooled::Head(head)).await? {
                        let logits = self.context.readback_one(&classifier.run(&vectors)?).await?.to_f32()?;
                        scores.extend(logits.chunks_exact(head.labels.len()).map(<[f32]>::to_vec));
                    }
                }
            }
            (ScoredBy::Head(_), None) => bail!(Internal, "a head that was not loaded"),
            (ScoredBy::Tokens(tokens), _) => {
                for text in texts {
                    let logits = self.logits_after(&text.ids).await?;
                    let mut of_text = Vec::with_capacity(tokens.len());
                    for token in tokens {
                        let slice = ops::SliceColumns { first: *token as usize, count: 1 };
                        let logit = self.context.run1(&slice, &[&logits])?;
                        of_text.extend(self.context.readback_one(&logit).await?.to_f32()?);
                    }
                    scores.push(of_text);
                }
            }
        }
        match scores.iter().position(|logits| !logits.iter().all(|logit| logit.is_finite())) {
            Some(index) => {
                bail!(
                    NumericalError,
                    "the scores of text {index} hold NaN or infinity; the model's weights may be broken"
                )
            }
            None => Ok(scores),
        }
    }
}
