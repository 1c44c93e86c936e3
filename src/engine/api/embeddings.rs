//! Texts to vectors: of an encoder, or of a decoder whose files say how to pool.

use std::borrow::Cow;

use serde::Serialize;

use super::passes::{Pooled, passes};
use super::request::{EmbeddingRequest, Input};
use crate::engine::engine::{Engine, EngineTensor, Inner};
use crate::error::Result;
use crate::model::Pooling;
use crate::tensor::{Desc, HostTensor, ops};
use crate::text::tokenizer::TypedIds;

/// The most inputs of a request, as in OpenAI's API.
pub(super) const MAX_INPUTS: usize = 2048;

/// The vectors of a request's inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// [inputs · dimensions]: a vector of length 1 for each input, in their order.
    pub values: Vec<f32>,
    /// Length of each vector: the request's `dimensions`, or the model's `embedding_length`.
    pub dimensions: usize,
    /// Tokens of all inputs.
    pub usage: EmbeddingUsage,
}

/// How many tokens a request for embeddings, scores or labels took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct EmbeddingUsage {
    /// Includes the tokens that the model wants around a text, such as `[CLS]` and `[SEP]`.
    pub prompt_tokens: usize,
    /// The same number: nothing is generated.
    pub total_tokens: usize,
}

/// What a request for embeddings asks of the model.
struct Checked {
    texts: Vec<TypedIds>,
    dimensions: usize,
    pooling: Pooling,
    usage: EmbeddingUsage,
}

impl Engine {
    /// Embeds 1 to 2048 inputs. `invalid_request` if the model can't, `context_length_exceeded` if an input is too long.
    pub async fn embed(&self, request: EmbeddingRequest) -> Result<Embeddings> {
        let inner = &*self.0;
        let Checked { texts, dimensions, pooling, usage } = inner.checked(request)?;
        let mut values = Vec::with_capacity(texts.len() * dimensions);
        for pass in passes(&texts) {
            for vectors in inner.vectors(pass, Pooled::Embedding(pooling)).await? {
                let vectors = inner.context.readback_one(&inner.dense.run(vectors)?).await?.to_f32()?;
                for vector in vectors.chunks_exact(inner.info.embedding_length) {
                    values.extend(normalized(&vector[..dimensions])?);
                }
            }
        }
        Ok(Embeddings { values, dimensions, usage })
    }

    /// The same as a tensor [inputs, dimensions], which stays on the GPU.
    pub async fn embed_tensor(&self, request: EmbeddingRequest) -> Result<EngineTensor> {
        let inner = &*self.0;
        let Checked { texts, dimensions, pooling, .. } = inner.checked(request)?;
        let context = &inner.context;
        let out = context.empty(Desc::f32(&[texts.len(), dimensions]), "embeddings")?;
        // A root mean square is the length by the root of the number of elements. No length is 0 for what is added to its square.
        let scale = HostTensor::f32(&[dimensions], &vec![1.0 / (dimensions as f32).sqrt(); dimensions]);
        let (norm, scale) = (ops::RmsNorm { epsilon: 1e-30 }, context.tensor(&scale)?);
        let mut first = 0;
        for pass in passes(&texts) {
            for vectors in inner.vectors(pass, Pooled::Embedding(pooling)).await? {
                let vectors = inner.dense.run(vectors)?;
                let cut = match inner.info.embedding_length {
                    width if width == dimensions => vectors,
                    _ => context.run1(&ops::SliceColumns { first: 0, count: dimensions }, &[&vectors])?,
                };
                let normed = context.run1(&norm, &[&cut, &scale])?;
                context.copy(&normed, 0..normed.shape().elements(), &out, first)?;
                first += normed.shape().elements();
            }
        }
        context.device().flush();
        Ok(EngineTensor::new(context, out))
    }
}

impl Inner {
    fn checked(&self, request: EmbeddingRequest) -> Result<Checked> {
        let width = self.info.embedding_length;
        let dimensions = match request.dimensions {
            None => width,
            Some(asked) if (1..=width).contains(&asked) => asked,
            Some(asked) => {
                bail!(InvalidRequest, "dimensions is {asked}, wanted 1 to {width}, the length of the model's vectors")
            }
        };
        let Some(pooling) = self.embeds.pooling else {
            if self.scoring.is_some() {
                bail!(
                    InvalidRequest,
                    "the model scores or labels texts: its vectors were not trained to be compared; use rerank or classify, or a model for \
                     embeddings"
                );
            }
            bail!(
                InvalidRequest,
                "the model's files do not say how the vectors of its tokens become one (pooling_type of a GGUF file, or \
                 1_Pooling/config.json); use a model for embeddings"
            );
        };
        let texts = self.inputs(request.input, request.truncate)?;
        let usage = EmbeddingUsage::of(&texts);
        Ok(Checked { texts, dimensions, pooling, usage })
    }

    /// The token ids of each input, checked.
    fn inputs(&self, input: Input, truncate: bool) -> Result<Vec<TypedIds>> {
        let text = |text: &String| self.tokenizer.encode(&self.cased(text), true, false);
        let texts = match input {
            Input::Text(one) => vec![text(&one)?],
            Input::Texts(texts) => texts.iter().map(text).collect::<Result<_>>()?,
            Input::Tokens(ids) => vec![ids],
            Input::ManyTokens(texts) => texts,
        };
        self.check_number("input", "texts", texts.len())?;
        let check = |(index, ids)| self.checked_text(&format!("input {index}"), ids, truncate).map(TypedIds::from);
        texts.into_iter().enumerate().map(check).collect()
    }

    /// A text as the model's tokenizer wants it.
    pub(super) fn cased<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.embeds.lowercase { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text) }
    }

    /// The most tokens of a text.
    pub(super) fn token_limit(&self) -> usize {
        self.embeds.max_tokens.map_or(self.info.context_length, |max| max.min(self.info.context_length))
    }

    pub(super) fn check_number(&self, field: &str, what: &str, number: usize) -> Result<()> {
        if number == 0 || number > MAX_INPUTS {
            bail!(InvalidRequest, "{field} has {number} {what}, wanted 1 to {MAX_INPUTS}");
        }
        Ok(())
    }

    /// Ids of a text with the tokens around it, no more than the model takes.
    pub(super) fn checked_text(&self, what: &str, mut ids: Vec<u32>, truncate: bool) -> Result<Vec<u32>> {
        let (limit, vocab_size) = (self.token_limit(), self.info.vocab_size);
        if ids.is_empty() {
            bail!(InvalidRequest, "{what} has no tokens, wanted at least one");
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab_size) {
            bail!(InvalidRequest, "{what} has token id {id}, wanted ids below {vocab_size}");
        }
        if ids.len() > limit {
            if !truncate {
                bail!(
                    ContextLengthExceeded,
                    "{what} has {} tokens and the model takes {limit}; shorten it, cut it into parts, or set truncate: true to leave out \
                     its end",
                    ids.len()
                );
            }
            // The tokens that end a text, such as `[SEP]`, stay.
            let after = self.tokenizer.ids_after();
            let ends_so = ids.ends_with(after) && after.len() < limit;
            let after = if ends_so { after } else { &[] };
            ids.truncate(limit - after.len());
            ids.extend_from_slice(after);
        }
        Ok(ids)
    }
}

impl EmbeddingUsage {
    /// Of all texts.
    pub(super) fn of(texts: &[TypedIds]) -> Self {
        let prompt_tokens = texts.iter().map(|text| text.ids.len()).sum();
        Self { prompt_tokens, total_tokens: prompt_tokens }
    }
}

/// The vector with length 1.
fn normalized(vector: &[f32]) -> Result<impl Iterator<Item = f32>> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() {
        bail!(NumericalError, "the vector of an input holds NaN or infinity; the model's weights may be broken");
    }
    // A vector of zeros has no direction, and stays as it is.
    let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
    Ok(vector.iter().map(move |x| (f64::from(*x) * scale) as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_get_length_one() {
        let unit: Vec<f32> = normalized(&[3.0, 4.0]).unwrap().collect();
        assert_eq!(unit, [0.6, 0.8]);
        assert_eq!(normalized(&[0.0, 0.0]).unwrap().collect::<Vec<_>>(), [0.0, 0.0]);
        assert!(normalized(&[f32::NAN]).is_err());
    }
}
