//! What the distance of two tokens adds to their score in attention, as a table: ALiBi on both sides (encoders), or learned numbers for
//! buckets of distances (T5, Raffel et al. 2020).

use super::Weights;
use super::config::Config;
use crate::error::Result;
use crate::tensor::{Context, HostTensor, Tensor};

/// The table [n_heads, 2 · reach + 1]; `None` if distances add nothing.
pub(super) fn table(context: &Context, config: &Config, weights: &Weights) -> Result<Option<Tensor>> {
    let heads = config.n_heads;
    let (reach, values): (usize, Vec<f32>) = if let Some(largest) = config.alibi {
        let reach = config.context_length.saturating_sub(1);
        let of_head = |slope: f32| (0..=2 * reach).map(move |at| -slope * at.abs_diff(reach) as f32);
        (reach, alibi_slopes(heads, largest).into_iter().flat_map(of_head).collect())
    } else if let Some(distances) = config.distances {
        let reach = distances.farthest;
        let learned = weights.vector("attn_rel_b.weight")?; // [buckets, n_heads]
        let bucket = |at: usize| distances.bucket(at as i64 - reach as i64, config.arch.is_encoder);
        let of_head = |head: usize| (0..=2 * reach).map(move |at| learned[bucket(at) * heads + head]);
        (reach, (0..heads).flat_map(of_head).collect())
    } else {
        return Ok(None);
    };
    context.tensor(&HostTensor::f32(&[heads, 2 * reach + 1], &values)).map(Some)
}

/// ALiBi's slopes: powers of 2^(−b / n) for the n heads, n rounded down to a power of two, and between them those of twice as many for the
/// heads that are left.
pub(super) fn alibi_slopes(heads: usize, largest: f32) -> Vec<f32> {
    let power = (heads + 1).next_power_of_two() / 2;
    let slope = |head: usize| {
        let steps = if head < power { (head + 1) as f32 } else { (head - power) as f32 + 0.5 };
        (-largest * steps / power as f32).exp2()
    };
    (0..heads).map(slope).collect()
}
