//! Texts to vectors. An encoder takes several texts in one pass. A decoder works too, if its files say how to pool.

use std::borrow::Cow;

use serde::Serialize;

use super::request::{EmbeddingRequest, Input};
use crate::engine::engine::{Engine, EngineTensor, Inner, Model};
use crate::error::{Code, Result};
use crate::model::{Encoder, Pooling};
use crate::tensor::{Desc, HostTensor, Tensor, ops};

/// The most tokens of a pass, unless a single text has more: memory for activations grows with them.
const PASS_TOKENS: usize = 512;
/// The most inputs of a request, as in OpenAI's API.
const MAX_INPUTS: usize = 2048;

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

/// How many tokens a request for embeddings took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct EmbeddingUsage {
    /// Includes the tokens that the model wants around a text, such as `[CLS]` and `[SEP]`.
    pub prompt_tokens: usize,
    /// The same number: embeddings generate nothing.
    pub total_tokens: usize,
}

/// What a request for embeddings asks of the model.
struct Checked {
    texts: Vec<Vec<u32>>,
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
            for vectors in inner.vectors(pass, pooling).await? {
                let vectors = inner.context.readback_one(&vectors).await?.to_f32()?;
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
            for vectors in inner.vectors(pass, pooling).await? {
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
            bail!(
                InvalidRequest,
                "the model's files do not say how the vectors of its tokens become one (pooling_type of a GGUF file, or \
                 1_Pooling/config.json); use a model for embeddings"
            );
        };
        let texts = self.inputs(request.input, request.truncate)?;
        let prompt_tokens = texts.iter().map(Vec::len).sum();
        let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
        Ok(Checked { texts, dimensions, pooling, usage })
    }

    /// The vectors of texts that make one pass, [texts, embedding_length], in one tensor or in several.
    async fn vectors(&self, texts: &[Vec<u32>], pooling: Pooling) -> Result<Vec<Tensor>> {
        let vectors = match &self.model {
            Model::Encoder(encoder) => self.vectors_of_encoder(encoder, texts, pooling).await,
            Model::Decoder(_) => self.vectors_of_decoder(texts, pooling).await,
        };
        vectors.map_err(|error| self.explain(error))
    }

    /// An encoder takes several texts at a time.
    async fn vectors_of_encoder(&self, encoder: &Encoder, texts: &[Vec<u32>], pooling: Pooling) -> Result<Vec<Tensor>> {
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        let device = self.context.device();
        let mut has_freed = false;
        loop {
            let pass = device.attempt("a pass over texts", || encoder.forward(&texts, pooling)).await;
            match pass {
                Err(error) if error.code() == Code::OutOfMemory && !has_freed => {
                    has_freed = true;
                    device.free_unused().await?;
                }
                pass => return Ok(vec![pass?]),
            }
        }
    }

    /// The token ids of each input, checked.
    fn inputs(&self, input: Input, truncate: bool) -> Result<Vec<Vec<u32>>> {
        let text = |text: &String| {
            let text =
                if self.embeds.lowercase { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text.as_str()) };
            self.tokenizer.encode(&text, true, false)
        };
        let texts = match input {
            Input::Text(one) => vec![text(&one)?],
            Input::Texts(texts) => texts.iter().map(text).collect::<Result<_>>()?,
            Input::Tokens(ids) => vec![ids],
            Input::ManyTokens(texts) => texts,
        };
        if texts.is_empty() || texts.len() > MAX_INPUTS {
            bail!(InvalidRequest, "input has {} texts, wanted 1 to {MAX_INPUTS}", texts.len());
        }
        let limit = self.embeds.max_tokens.map_or(self.info.context_length, |max| max.min(self.info.context_length));
        let vocab_size = self.info.vocab_size;
        let check = |(index, mut ids): (usize, Vec<u32>)| {
            if ids.is_empty() {
                bail!(InvalidRequest, "input {index} has no tokens, wanted at least one");
            }
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocab_size) {
                bail!(InvalidRequest, "input {index} has token id {id}, wanted ids below {vocab_size}");
            }
            if ids.len() > limit {
                if !truncate {
                    bail!(
                        ContextLengthExceeded,
                        "input {index} has {} tokens and the model takes {limit}; shorten it, cut it into parts, or set \
                         truncate: true to leave out its end",
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
        };
        texts.into_iter().enumerate().map(check).collect()
    }

    /// A decoder takes one text at a time.
    async fn vectors_of_decoder(&self, texts: &[Vec<u32>], pooling: Pooling) -> Result<Vec<Tensor>> {
        let mut vectors = Vec::with_capacity(texts.len());
        let decoder = self.decoder()?;
        for ids in texts {
            let states = decoder.states(ids).await?;
            let spans = HostTensor::u32(&[1, 2], &pooling.spans([ids.len()].into_iter()));
            let spans = self.context.tensor(&spans)?;
            vectors.push(self.context.run1(&ops::MeanRows, &[&states, &spans])?);
        }
        Ok(vectors)
    }
}

/// Groups the texts by pass: neighbours go together while they fit.
fn passes(texts: &[Vec<u32>]) -> Vec<&[Vec<u32>]> {
    let mut passes = Vec::new();
    let (mut begin, mut tokens) = (0, 0);
    for (index, text) in texts.iter().enumerate() {
        if index > begin && tokens + text.len() > PASS_TOKENS {
            passes.push(&texts[begin..index]);
            (begin, tokens) = (index, 0);
        }
        tokens += text.len();
    }
    passes.push(&texts[begin..]);
    passes
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
    fn passes_hold_whole_texts() {
        let texts: Vec<Vec<u32>> = [500, 12, 1, 600, 3, 509, 1].map(|length| vec![0; length]).to_vec();
        let lengths: Vec<Vec<usize>> = passes(&texts).iter().map(|pass| pass.iter().map(Vec::len).collect()).collect();
        assert_eq!(lengths, [vec![500, 12], vec![1], vec![600], vec![3, 509], vec![1]]);
    }

    #[test]
    fn vectors_get_length_one() {
        let unit: Vec<f32> = normalized(&[3.0, 4.0]).unwrap().collect();
        assert_eq!(unit, [0.6, 0.8]);
        assert_eq!(normalized(&[0.0, 0.0]).unwrap().collect::<Vec<_>>(), [0.0, 0.0]);
        assert!(normalized(&[f32::NAN]).is_err());
    }
}
