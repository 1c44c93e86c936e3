//! What DeBERTa's attention takes besides queries, keys and values: for each layer the projections of the distances' embedding, and the bucket of
//! each distance. Nothing of it depends on a text, so it is computed once.

use super::Weights;
use super::config::Config;
use super::layer::Layer;
use super::norm::Norm;
use crate::error::Result;
use crate::tensor::ops::{Epilogue, MatMul, QkvParts};
use crate::tensor::{Context, HostTensor, Tensor};

/// Ready for the kernels.
pub(super) struct Disentangled {
    /// Of each layer the keys and the queries of distances, [2 · buckets, n_heads · head_dim].
    pub layers: Vec<[Tensor; 2]>,
    /// [2 · reach + 1] u32: the bucket of a token that is −reach to reach tokens before another one.
    pub buckets: Tensor,
}

impl Disentangled {
    /// Of a model with such attention.
    pub fn new(context: &Context, config: &Config, weights: &Weights, layers: &[Layer]) -> Result<Option<Self>> {
        let Some(buckets) = config.disentangled else { return Ok(None) };
        let rows: Vec<u32> = (0..2 * buckets.count as u32).collect();
        let rows = context.tensor(&HostTensor::u32(&[rows.len()], &rows))?;
        let table = weights.matrix("rel_embd.weight")?.embed(context, &rows, false)?;
        let table = Norm::of(config, weights, "rel_embd_norm").run(context, &table)?;
        let product = &MatMul { epilogue: Epilogue::NONE };
        let of_layer = |layer: &Layer| {
            let Some(attention) = &layer.attention else { bail!(Internal, "a layer without attention in an encoder") };
            let project = |part: usize| {
                let linear = attention.queries_keys_values.iter().find(|(parts, _)| *parts == QkvParts::of(part, 1));
                match linear {
                    Some((_, linear)) => linear.run(context, product, &[&table]),
                    None => bail!(Internal, "queries and keys of layer {} in one matrix", attention.index),
                }
            };
            Ok([project(1)?, project(0)?])
        };
        let reach = config.context_length.saturating_sub(1) as i64;
        let of_distances: Vec<u32> = (-reach..=reach).map(|distance| buckets.row(distance)).collect();
        Ok(Some(Self {
            layers: layers.iter().map(of_layer).collect::<Result<_>>()?,
            buckets: context.tensor(&HostTensor::u32(&[of_distances.len()], &of_distances))?,
        }))
    }
}
