//! Per-layer embeddings (Gemma 3n and 4): besides its embedding, each token has a vector for every layer. It is the sum of a row of a table
//! and of a projection of the embedding, and at its end the layer adds it to the residual stream, gated by that stream.

use std::rc::Rc;

use super::Weights;
use super::config::Config;
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::Norm;
use super::row_cache::RowCache;
use super::table_on_disk::TABLE;
use crate::error::Result;
use crate::tensor::ops::{self, Add, NormMatVec, RmsNorm, Scale};
use crate::tensor::{Context, HostTensor, Shape, Tensor};

/// What makes the vectors of all layers.
pub(super) struct PerLayerEmbeddings {
    table: Table,       // [vocabulary, layers · length]
    projection: Matrix, // [layers · length, n_embd]
    /// The projection's norm, with the sum's factor in its weights.
    norm: (RmsNorm, Tensor), // [length]
    /// Of the table's rows, with the sum's factor.
    factor: f32,
    length: usize,
    /// For the embedding of one token, which is not normed.
    none: Norm,
}

/// Where the rows of tokens come from.
enum Table {
    OnDevice(Matrix),
    OnDisk(Rc<RowCache>),
}

/// The sum of both parts is divided by √2.
const SUM: f32 = std::f32::consts::FRAC_1_SQRT_2;

impl PerLayerEmbeddings {
    /// None if the model has none.
    pub fn of(context: &Context, config: &Config, weights: &Weights) -> Result<Option<Self>> {
        let length = config.n_embd_per_layer;
        if length == 0 {
            return Ok(None);
        }
        let norm: Vec<f32> = weights.vector("per_layer_proj_norm.weight")?.iter().map(|weight| weight * SUM).collect();
        // Projections are divided by √n_embd before the norm, which undoes it but for its ε.
        let norm_op = RmsNorm { epsilon: config.norm_eps * config.n_embd as f32 };
        Ok(Some(Self {
            table: match weights.row_cache() {
                Some(cache) => Table::OnDisk(cache.clone()),
                None => Table::OnDevice(weights.matrix(TABLE)?),
            },
            projection: weights.matrix("per_layer_model_proj.weight")?,
            norm: (norm_op, context.tensor(&HostTensor::f32(&[length], &norm))?),
            factor: (length as f32).sqrt() * SUM,
            length,
            none: Norm::none_fused(context, config.n_embd)?,
        }))
    }

    /// The rows that a pass needs have to be held in it before the pass; None if the table is on the device.
    pub fn row_cache(&self) -> Option<&Rc<RowCache>> {
        match &self.table {
            Table::OnDevice(_) => None,
            Table::OnDisk(cache) => Some(cache),
        }
    }

    /// The vectors of `tokens` [n] for all layers, [n, layers · length]. Their embeddings are `x` [n, n_embd], or of one token in SoA.
    pub fn of_tokens(&self, context: &Context, tokens: &Tensor, x: &Tensor, soa: bool) -> Result<Tensor> {
        let rows = match &self.table {
            Table::OnDevice(table) => table.embed(context, tokens, false)?,
            Table::OnDisk(cache) => cache.embed(tokens)?,
        };
        let rows = context.run1(&Scale { factor: self.factor }, &[&rows])?;
        let projected = if soa {
            self.projection.multiply(
                context,
                &NormMatVec { norm: self.none.kind, low_rank: false },
                &[x, self.none.soa()?],
            )?
        } else {
            self.projection.multiply(context, ops::linear(tokens.shape().elements()), &[x])?
        };
        let all = rows.shape();
        let by_layer = Shape::from([all.elements() / self.length, self.length]);
        let (norm, weight) = &self.norm;
        let normed = context.run1(norm, &[&projected.reshaped(by_layer)?, weight])?;
        context.run(&Add, &[&normed, &rows.reshaped(by_layer)?])?;
        normed.reshaped(all)
    }
}

/// What a layer does with its vector.
pub(super) struct PerLayerInput {
    /// The residual stream's gate, [length, n_embd].
    pub gate: Linear,
    /// [n_embd, length]
    pub projection: Linear,
    /// For the projection's result.
    pub norm: Norm,
    /// The first column of the layer's vectors among those of all layers.
    pub first: usize,
    /// For the residual stream, which the gate reads as it is.
    pub none: Norm,
}

impl PerLayerInput {
    /// None if the model has no such embeddings.
    pub fn of(context: &Context, config: &Config, weights: &Weights, layer: usize) -> Result<Option<Self>> {
        if config.n_embd_per_layer == 0 {
            return Ok(None);
        }
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let norm = Norm::rms(context, config.norm_eps, weights.vector(&name("post_norm.weight"))?)?;
        Ok(Some(Self {
            gate: Linear::of(weights, &name("inp_gate"))?,
            projection: Linear::of(weights, &name("proj"))?,
            norm,
            first: layer * config.n_embd_per_layer,
            none: Norm::none_fused(context, config.n_embd)?,
        }))
    }
}
