//! The forward pass of an encoder: from the tokens of several texts to a vector for each text. Every token attends to its
//! whole text. The layers are those of `layer.rs`, with unfused ops.

use super::Weights;
use super::config::Config;
use super::layer::Layer;
use super::matrix::Matrix;
use super::norm::Norm;
use super::pooling::Pooling;
use super::rope::{Rope, RopeTensor};
use super::unfused::{Tokens, Unfused};
use crate::error::Result;
use crate::tensor::ops::{Add, Epilogue, MatMul, MeanRows};
use crate::tensor::{Context, DType, HostTensor, Tensor};

/// An encoder that is ready to run.
pub struct Encoder {
    context: Context,
    config: Config,
    token_embedding: Matrix,     // [vocab_size, n_embd]
    token_types: Option<Matrix>, // [types, n_embd]; a single text is of type 0
    positions: Option<Matrix>,   // [context_length, n_embd]
    embedding_norm: Norm,        // [n_embd]
    ropes: Vec<RopeTensor>,
    layers: Vec<Layer>,
    quantization: &'static str,
    weight_bytes: u64,
    parameters: u64,
}

/// The texts of one pass, in the form that kernels read.
struct Batch {
    tokens: Tensor,    // [n] u32
    positions: Tensor, // [n] u32: of each token in its text
    spans: Tensor,     // [n, 2] u32: of each token, where its text begins and ends
}

impl Encoder {
    pub fn new(context: &Context, config: Config, weights: &Weights) -> Result<Self> {
        let token_embedding = weights.matrix("token_embd.weight")?;
        let embedding_norm = Norm::of(&config, weights, "token_embd_norm");
        if embedding_norm.is_none() {
            bail!(MissingTensor, "the model has no tensor \"token_embd_norm.weight\"")
        }
        let rope =
            |rope: &Rope| RopeTensor::new(context, rope.table(config.context_length, |tensor| weights.vector(tensor))?);
        let quantization = match weights.matrix("blk.0.ffn_down.weight")?.dtype() {
            DType::Weight(format) => format.name,
            other => other.name(),
        };
        Ok(Self {
            context: context.clone(),
            token_embedding,
            token_types: weights.optional_matrix("token_types.weight"),
            positions: weights.optional_matrix("position_embd.weight"),
            embedding_norm,
            ropes: config.ropes.iter().map(rope).collect::<Result<_>>()?,
            layers: (0..config.n_layers)
                .map(|layer| Layer::new(context, &config, weights, layer))
                .collect::<Result<_>>()?,
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

    /// Records one pass over `texts`. Each has at least one token and no more than the context holds, and all ids are in the vocabulary.
    /// Returns their vectors, [texts, n_embd], not normalized.
    pub fn forward(&self, texts: &[&[u32]], pooling: Pooling) -> Result<Tensor> {
        let batch = self.batch(texts)?;
        let mut x = self.embed(&batch)?; // [n, n_embd]
        let ops = Unfused {
            context: &self.context,
            config: &self.config,
            ropes: &self.ropes,
            tokens: Tokens::Within { spans: &batch.spans, positions: &batch.positions },
            // Small batches have kernels that would be compiled for each number of tokens.
            product: &MatMul { epilogue: Epilogue::NONE },
        };
        for layer in &self.layers {
            x = layer.run(&ops, &x, None)?;
        }
        let spans = pooling.spans(texts.iter().map(|text| text.len()));
        let spans = self.context.tensor(&HostTensor::u32(&[texts.len(), 2], &spans))?;
        self.context.run1(&MeanRows, &[&x, &spans])
    }

    fn batch(&self, texts: &[&[u32]]) -> Result<Batch> {
        let n = texts.iter().map(|text| text.len()).sum();
        let (mut tokens, mut positions, mut spans) = (Vec::with_capacity(n), Vec::with_capacity(n), Vec::new());
        for text in texts {
            let begin = tokens.len() as u32;
            let end = begin + text.len() as u32;
            tokens.extend_from_slice(text);
            positions.extend(0..end - begin);
            spans.extend((begin..end).flat_map(|_| [begin, end]));
        }
        let u32s = |dims: &[usize], words: &[u32]| self.context.tensor(&HostTensor::u32(dims, words));
        Ok(Batch { tokens: u32s(&[n], &tokens)?, positions: u32s(&[n], &positions)?, spans: u32s(&[n, 2], &spans)? })
    }

    /// [n, n_embd]
    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let rows = |of: &Matrix, ids: &Tensor| of.embed(&self.context, ids, false);
        let x = rows(&self.token_embedding, &batch.tokens)?;
        if let Some(positions) = &self.positions {
            self.context.run(&Add, &[&x, &rows(positions, &batch.positions)?])?;
        }
        if let Some(types) = &self.token_types {
            let n = batch.tokens.shape().elements();
            let first = self.context.tensor(&HostTensor::u32(&[n], &vec![0; n]))?;
            self.context.run(&Add, &[&x, &rows(types, &first)?])?;
        }
        self.embedding_norm.run(&self.context, &x)
    }
}
