//! The forward pass of a decoder: from token ids to logits. It branches on the fields of the architecture, never on a
//! model's name. One token goes through `decode.rs` and many through `prefill.rs`, or both through `plain.rs`.

use serde::{Deserialize, Serialize};

use super::config::Config;
use super::joined::Joined;
use super::plain::Plain;
use super::{KvCache, Weights, decode, prefill};
use crate::error::Result;
use crate::tensor::ops::{self, Epilogue, MatVecFew, RmsNorm, RmsNormPlanes, SliceRows};
use crate::tensor::{Context, DType, HostTensor, Op, Tensor};

/// A model that is ready to run.
pub struct Transformer {
    context: Context,
    config: Config,
    precision: Precision,
    token_embedding: Tensor, // [vocab_size, n_embd]
    layers: Layers,
    output_norm: Tensor, // [n_embd]
    output: Tensor,      // [vocab_size, n_embd]; the embedding again when tied
    /// Rope's frequency of each pair of a head, [rope_dim / 2].
    frequencies: Tensor,
    quantization: &'static str,
    weight_bytes: u64,
    parameters: u64,
}

enum Layers {
    Joined(Joined),
    Plain(Plain),
}

/// How exact the activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// In prefill, 8 bits with a scale for every 32 of them, where the weights are quantised too.
    Fast,
    /// 32-bit floats everywhere.
    Exact,
}

/// Whose logits a forward pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// Of no token: the pass only fills the KV cache.
    None,
    Last,
    All,
}

impl Transformer {
    pub fn new(context: &Context, config: Config, weights: &Weights, precision: Precision) -> Result<Self> {
        let token_embedding = weights.get("token_embd.weight")?.clone();
        let output =
            if config.tie_embeddings { token_embedding.clone() } else { weights.get("output.weight")?.clone() };
        let factors = match &config.rope_factors {
            Some(name) => weights.vector(name)?,
            None => &[],
        };
        let frequencies: Vec<f32> = (0..config.rope_dim / 2)
            .map(|i| {
                let exponent = -2.0 * i as f64 / config.rope_dim as f64;
                let factor = factors.get(i).copied().unwrap_or(1.0);
                (f64::from(config.rope_theta).powf(exponent) / f64::from(factor)) as f32
            })
            .collect();
        let layers = match weights.is_joined() {
            true => Layers::Joined(Joined::new(context, &config, weights, &frequencies)?),
            false => Layers::Plain(Plain::new(&config, weights)?),
        };
        let quantization = match weights.get("blk.0.ffn_down.weight")?.dtype() {
            DType::Weight(format) => format.name,
            other => other.name(),
        };
        Ok(Self {
            context: context.clone(),
            precision,
            token_embedding,
            layers,
            output_norm: weights.get("output_norm.weight")?.clone(),
            output,
            frequencies: context.tensor(&HostTensor::f32(&[frequencies.len()], &frequencies))?,
            quantization,
            weight_bytes: weights.bytes(),
            parameters: weights.parameters(),
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// The type of the feed-forward weights, which are most of the bytes.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// Whether its matrices could be joined, so that one pass can take in tokens of several sequences.
    pub fn is_joined(&self) -> bool {
        matches!(self.layers, Layers::Joined(_))
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn token_embedding(&self) -> &Tensor {
        &self.token_embedding
    }

    pub(super) fn output(&self) -> &Tensor {
        &self.output
    }

    pub(super) fn frequencies(&self) -> &Tensor {
        &self.frequencies
    }

    /// Records one forward pass over `tokens` [n], whose first stands at position `state[0]`; their keys and values are
    /// appended to the cache. Returns logits [1 or n, vocab_size].
    ///
    /// With a state [n, 4] and the cache of several sequences, each token is of a sequence of its own: 2 to 8 of them, all
    /// logits, and joined matrices.
    ///
    /// Nothing in it depends on the position but what kernels read from `state`, so the commands for one token are the same
    /// at every step.
    pub fn forward(&self, tokens: &Tensor, state: &Tensor, cache: &KvCache, logits: Logits) -> Result<Option<Tensor>> {
        let n = tokens.shape().elements();
        let x = match &self.layers {
            Layers::Joined(joined) if n == 1 => {
                let x = decode::forward(self, joined, tokens, state, cache)?; // [1, n_embd] in planes
                return match logits {
                    Logits::None => Ok(None),
                    _ => Ok(Some(decode::logits(self, joined, &x)?)),
                };
            }
            Layers::Joined(joined) => {
                // The kernels for few tokens are compiled for each number of them. That pays where drafts are verified, whose
                // logits are all wanted, and not for the short rest of a prompt.
                let few = logits == Logits::All && MatVecFew::takes(n);
                prefill::forward(self, joined, tokens, state, cache, few)?
            }
            Layers::Plain(plain) => plain.forward(self, tokens, state, cache)?,
        }; // [n, n_embd]
        let x = match logits {
            Logits::None => return Ok(None),
            Logits::Last if n > 1 => self.context.run1(&SliceRows { first: n - 1, count: 1 }, &[&x])?, // [1, n_embd]
            _ => x,
        };
        let rows = x.shape().dims()[0];
        let epsilon = self.config.rms_eps;
        let (norm, linear): (&dyn Op, &dyn Op) =
            match MatVecFew::takes(rows) && MatVecFew::has_planes(self.config.n_embd) {
                true => (&RmsNormPlanes { epsilon }, &MatVecFew { planar: true, epilogue: Epilogue::NONE }),
                false => (&RmsNorm { epsilon }, ops::linear(rows)),
            };
        let h = self.context.run1(norm, &[&x, &self.output_norm])?; // [rows, n_embd]
        Ok(Some(self.context.run1(linear, &[&h, &self.output])?)) // [rows, vocab_size]
    }
}
