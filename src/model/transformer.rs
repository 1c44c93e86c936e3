//! The forward pass of a decoder: from token ids to logits. It branches on the fields of the architecture, never on a
//! model's name. One token goes through `decode.rs` and many through `prefill.rs`, or both through `plain.rs`.

use serde::{Deserialize, Serialize};

use super::arch::Norm;
use super::config::Config;
use super::joined::Joined;
use super::matrix::Matrix;
use super::plain::{NormWeights, Plain};
use super::rope::RopeTable;
use super::{KvCache, Weights, decode, prefill};
use crate::error::Result;
use crate::tensor::ops::{self, Epilogue, MatVecFew, RmsNormPlanes, Scale, SliceRows, Softcap};
use crate::tensor::{Context, HostTensor, Tensor};

/// A model that is ready to run.
pub struct Transformer {
    context: Context,
    config: Config,
    precision: Precision,
    token_embedding: Matrix, // [vocab_size, n_embd]
    layers: Layers,
    positions: Option<Matrix>, // [context_length, n_embd]
    output_norm: NormWeights,  // [n_embd]
    output: Matrix,            // [vocab_size, n_embd]; the embedding again when tied
    ropes: Vec<RopeTensor>,
    quantization: &'static str,
    weight_bytes: u64,
    parameters: u64,
}

/// One of the model's ropes.
pub(super) struct RopeTensor {
    /// Of each pair of a head, [rope_dim / 2].
    pub frequencies: Tensor,
    /// What sine and cosine are multiplied with.
    pub scale: f32,
}

enum Layers {
    Joined(Box<Joined>),
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
    /// `capacity` is how many tokens there will be at most; some ropes depend on it.
    pub fn new(
        context: &Context,
        mut config: Config,
        weights: &Weights,
        capacity: usize,
        precision: Precision,
    ) -> Result<Self> {
        // A window of no fewer tokens than there will be is none.
        for layer in &mut config.layers {
            layer.window = layer.window.filter(|&window| window < capacity);
        }
        let token_embedding = weights.matrix("token_embd.weight")?;
        let output = match config.tie_embeddings {
            true => token_embedding.clone(),
            false => weights.matrix("output.weight")?,
        };
        let tables: Vec<RopeTable> = config
            .ropes
            .iter()
            .map(|rope| rope.table(capacity, |tensor| weights.vector(tensor)))
            .collect::<Result<_>>()?;
        let layers = match weights.is_joined() {
            true => Layers::Joined(Box::new(Joined::new(context, &config, weights, &tables)?)),
            false => Layers::Plain(Plain::new(&config, weights)?),
        };
        let Some(output_norm) = NormWeights::optional(weights, "output_norm") else {
            bail!(MissingTensor, "the model has no tensor \"output_norm.weight\"")
        };
        let rope = |RopeTable { frequencies, scale }: RopeTable| {
            let frequencies = context.tensor(&HostTensor::f32(&[frequencies.len()], &frequencies))?;
            Ok::<_, crate::Error>(RopeTensor { frequencies, scale })
        };
        Ok(Self {
            context: context.clone(),
            precision,
            token_embedding,
            layers,
            positions: weights.optional_matrix("position_embd.weight"),
            output_norm,
            output,
            ropes: tables.into_iter().map(rope).collect::<Result<_>>()?,
            quantization: weights.quantization(),
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

    /// The type of most bytes of the matrices.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// Whether its matrices could be joined, so that one pass can take in tokens of several sequences.
    pub fn is_joined(&self) -> bool {
        matches!(self.layers, Layers::Joined(_))
    }

    pub(super) fn has_learned_positions(&self) -> bool {
        self.positions.is_some()
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn token_embedding(&self) -> &Matrix {
        &self.token_embedding
    }

    /// Learned positions, if the model has them.
    pub(super) fn positions(&self) -> Option<&Matrix> {
        self.positions.as_ref()
    }

    pub(super) fn output(&self) -> &Matrix {
        &self.output
    }

    /// A rope of the model by its number.
    pub(super) fn rope(&self, index: usize) -> Result<&RopeTensor> {
        self.ropes.get(index).ok_or_else(|| err!(Internal, "the model has no rope {index}"))
    }

    /// What the first layer takes of `tokens` [n], the first at position `state[0]`: [n, n_embd].
    pub(super) fn embed(&self, tokens: &Tensor, state: &Tensor) -> Result<Tensor> {
        let mut x = self.token_embedding.embed(&self.context, tokens, false)?;
        if self.config.embedding_scale != 1.0 {
            x = self.context.run1(&Scale { factor: self.config.embedding_scale }, &[&x])?;
        }
        if let Some(positions) = &self.positions {
            positions.add_positions(&self.context, &x, state, false)?;
        }
        Ok(x)
    }

    /// What the head gave, [rows, vocab_size], as the model means it.
    pub(super) fn finish_logits(&self, mut logits: Tensor) -> Result<Tensor> {
        if self.config.logit_scale != 1.0 {
            logits = self.context.run1(&Scale { factor: self.config.logit_scale }, &[&logits])?;
        }
        if let Some(cap) = self.config.logit_softcap {
            self.context.run(&Softcap { cap }, &[&logits])?;
        }
        Ok(logits)
    }

    /// Records one forward pass over `tokens` [n], as [`Transformer::forward`], and returns what the head would take: the residual
    /// stream behind the last norm, [n, n_embd].
    pub fn states(&self, tokens: &Tensor, state: &Tensor, cache: &KvCache) -> Result<Tensor> {
        let x = match &self.layers {
            Layers::Joined(joined) => prefill::forward(self, joined, tokens, state, cache, false)?,
            Layers::Plain(plain) => plain.forward(self, tokens, state, cache)?,
        }; // [n, n_embd]
        self.output_norm.run(&self.context, &self.config, &x)
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
        let takes_planes =
            MatVecFew::takes(rows) && MatVecFew::has_planes(self.config.n_embd) && self.config.arch.norm == Norm::Rms;
        let logits = if takes_planes {
            let norm = RmsNormPlanes { epsilon: self.config.norm_eps };
            let h = self.context.run1(&norm, &[&x, &self.output_norm.weight])?; // [rows, n_embd] in planes
            self.output.multiply(&self.context, &MatVecFew { planar: true, epilogue: Epilogue::NONE }, &[&h])?
        } else {
            let h = self.output_norm.run(&self.context, &self.config, &x)?; // [rows, n_embd]
            self.output.multiply(&self.context, ops::linear(rows), &[&h])?
        }; // [rows, vocab_size]
        Ok(Some(self.finish_logits(logits)?))
    }
}
