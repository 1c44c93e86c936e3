//! The forward pass of an encoder: from the tokens of several texts to a vector for each text. Every token attends to its whole text, or to a
//! window around it. The layers are those of `layer.rs`, with unfused ops.

use super::Weights;
use super::config::Config;
use super::disentangled::Disentangled;
use super::distances;
use super::layer::Layer;
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::Norm;
use super::pooling::Pooling;
use super::rope::{Rope, RopeTensor};
use super::unfused::{Tokens, Unfused, Within};
use crate::error::Result;
use crate::tensor::ops::{Add, Epilogue, MatMul, Scale};
use crate::tensor::{Context, DType, HostTensor, Tensor};

/// An encoder that is ready to run.
pub struct Encoder {
    context: Context,
    config: Config,
    token_embedding: Matrix,     // [vocab_size, n_embd]
    token_types: Option<Matrix>, // [types, n_embd]
    positions: Option<Matrix>,   // [context_length, n_embd]
    embedding_norm: Norm,        // [n_embd]
    /// [n_embd, embedding_width], of models whose tables have rows of another length.
    embedding_projection: Option<Linear>,
    /// What distances add to scores.
    distances: Option<Tensor>,
    disentangled: Option<Disentangled>,
    output_norm: Norm,
    ropes: Vec<RopeTensor>,
    layers: Vec<Layer>,
    quantization: &'static str,
    weight_bytes: u64,
    parameters: u64,
}

/// One text of a pass, or two as one.
#[derive(Clone, Copy)]
pub struct EncoderText<'a> {
    /// At least one token, no more than the context holds, and all in the vocabulary.
    pub ids: &'a [u32],
    /// The type of each token; none for type 0.
    pub types: &'a [u32],
}

/// The texts of one pass, in the form that kernels read.
struct Batch {
    tokens: Tensor,    // [n] u32
    types: Tensor,     // [n] u32
    positions: Tensor, // [n] u32: of each token in its text
    spans: Tensor,     // [n, 2] u32: of each token, where its text begins and ends
    windows: Tensor,   // [n, 2] u32: the same within a window; the same tensor without one
}

impl Encoder {
    pub fn new(context: &Context, config: Config, weights: &Weights) -> Result<Self> {
        let token_embedding = weights.matrix("token_embd.weight")?;
        let projection = weights.optional_matrix("token_embd_proj.weight");
        let projection = projection.map(|_| Linear::of(weights, "token_embd_proj")).transpose()?;
        let rope =
            |rope: &Rope| RopeTensor::new(context, rope.table(config.context_length, |tensor| weights.vector(tensor))?);
        let quantization = match weights.matrix("blk.0.ffn_down.weight")?.dtype() {
            DType::Weight(format) => format.name,
            other => other.name(),
        };
        let layers: Vec<Layer> =
            (0..config.n_layers).map(|layer| Layer::new(context, &config, weights, layer)).collect::<Result<_>>()?;
        Ok(Self {
            context: context.clone(),
            token_embedding,
            token_types: weights.optional_matrix("token_types.weight"),
            positions: weights.optional_matrix("position_embd.weight"),
            embedding_norm: Norm::of(&config, weights, "token_embd_norm"),
            embedding_projection: projection,
            distances: distances::table(context, &config, weights)?,
            output_norm: Norm::of(&config, weights, "output_norm"),
            ropes: config.ropes.iter().map(rope).collect::<Result<_>>()?,
            disentangled: Disentangled::new(context, &config, weights, &layers)?,
            layers,
            quantization,
            weight_bytes: weights.bytes(),
            parameters: weights.parameters(),
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
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

    /// Whether the device packs weights, so that products round activations to 8 bits.
    pub fn packs_weights(&self) -> bool {
        self.context.device().capabilities().packs_weights
    }

    /// Records one pass over `texts`. Returns what `pooling` makes of a span of each text, from its begin: [texts, n_embd], not normalized.
    pub fn forward(&self, texts: &[EncoderText<'_>], spans: &[[u32; 2]], pooling: Pooling) -> Result<Tensor> {
        let x = self.states(texts)?;
        let mut begin = 0;
        let mut rows = Vec::with_capacity(2 * texts.len());
        for (text, [first, end]) in texts.iter().zip(spans) {
            rows.extend([begin + first, begin + end]);
            begin += text.ids.len() as u32;
        }
        pooling.run(&self.context, &x, &rows)
    }

    /// The same pass without the pooling: a vector for each token, [n, n_embd].
    pub fn states(&self, texts: &[EncoderText<'_>]) -> Result<Tensor> {
        let batch = self.batch(texts)?;
        let mut x = self.embed(&batch)?; // [n, n_embd]
        let ops = Unfused {
            context: &self.context,
            config: &self.config,
            ropes: &self.ropes,
            tokens: Tokens::Within(Within {
                spans: &batch.spans,
                windows: &batch.windows,
                positions: &batch.positions,
                distances: self.distances.as_ref(),
                disentangled: self.disentangled.as_ref(),
            }),
            // Small batches have kernels that would be compiled for each number of tokens.
            product: &MatMul { epilogue: Epilogue::NONE },
            adapters: None,
        };
        for layer in &self.layers {
            x = layer.run(&ops, &x, None)?;
        }
        self.output_norm.run(&self.context, &x)
    }

    fn batch(&self, texts: &[EncoderText<'_>]) -> Result<Batch> {
        let n = texts.iter().map(|text| text.ids.len()).sum();
        let (mut tokens, mut types) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut positions, mut spans) = (Vec::with_capacity(n), Vec::new());
        // A table of one row is of models whose texts all have that type.
        let has_types = self.config.token_types > 1;
        for EncoderText { ids, types: of_text } in texts {
            let begin = tokens.len() as u32;
            let end = begin + ids.len() as u32;
            tokens.extend_from_slice(ids);
            types.extend((0..ids.len()).map(|at| of_text.get(at).copied().filter(|_| has_types).unwrap_or(0)));
            positions.extend(0..end - begin);
            spans.extend((begin..end).flat_map(|_| [begin, end]));
        }
        if let Some(kind) = types.iter().find(|kind| **kind as usize >= self.config.token_types.max(1)) {
            bail!(
                InvalidFile,
                "the tokenizer has tokens of type {kind}, and the model {} types",
                self.config.token_types
            );
        }
        let u32s = |dims: &[usize], words: &[u32]| self.context.tensor(&HostTensor::u32(dims, words));
        let all = u32s(&[n, 2], &spans)?;
        let windows = match self.config.layers.iter().find_map(|layer| layer.window) {
            Some(window) => {
                let half = window as u32 / 2;
                let seen = |(at, span): (usize, &[u32])| {
                    let at = at as u32;
                    [span[0].max(at.saturating_sub(half)), span[1].min(at.saturating_add(half + 1))]
                };
                let windows: Vec<u32> = spans.chunks_exact(2).enumerate().flat_map(seen).collect();
                u32s(&[n, 2], &windows)?
            }
            None => all.clone(),
        };
        Ok(Batch {
            tokens: u32s(&[n], &tokens)?,
            types: u32s(&[n], &types)?,
            positions: u32s(&[n], &positions)?,
            spans: all,
            windows,
        })
    }

    /// [n, n_embd]
    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let rows = |of: &Matrix, ids: &Tensor| of.embed(&self.context, ids, false);
        let mut x = rows(&self.token_embedding, &batch.tokens)?;
        if self.config.embedding_scale != 1.0 {
            x = self.context.run1(&Scale { factor: self.config.embedding_scale }, &[&x])?;
        }
        if let Some(positions) = &self.positions {
            self.context.run(&Add, &[&x, &rows(positions, &batch.positions)?])?;
        }
        if let Some(types) = &self.token_types {
            self.context.run(&Add, &[&x, &rows(types, &batch.types)?])?;
        }
        x = self.embedding_norm.run(&self.context, &x)?;
        match &self.embedding_projection {
            Some(projection) => projection.run(&self.context, &MatMul { epilogue: Epilogue::NONE }, &[&x]),
            None => Ok(x),
        }
    }
}
