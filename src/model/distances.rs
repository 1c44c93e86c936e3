//! What the distance of two tokens adds to their score in an encoder's attention, as a table: ALiBi on both sides, or learned numbers for
//! buckets of distances.

use super::Weights;
use super::attention::alibi_slopes;
use super::config::Config;
use crate::error::Result;
use crate::tensor::{Context, HostTensor, Tensor};

/// From this distance on all fall into one bucket (T5 and MPNet).
const FARTHEST: usize = 128;

/// The table [n_heads, 2 · reach + 1]; `None` if distances add nothing.
pub(super) fn table(context: &Context, config: &Config, weights: &Weights) -> Result<Option<Tensor>> {
    let heads = config.n_heads;
    let (reach, values): (usize, Vec<f32>) = if let Some(largest) = config.alibi {
        let reach = config.context_length.saturating_sub(1);
        let of_head = |slope: f32| (0..=2 * reach).map(move |at| -slope * at.abs_diff(reach) as f32);
        (reach, alibi_slopes(heads, largest).into_iter().flat_map(of_head).collect())
    } else if config.distance_buckets > 0 {
        let buckets = config.distance_buckets;
        let learned = weights.vector("attn_rel_b.weight")?; // [buckets, n_heads]
        let of = |head: usize, at: usize| learned[bucket(at as i64 - FARTHEST as i64, buckets) * heads + head];
        let of_head = |head: usize| (0..=2 * FARTHEST).map(move |at| of(head, at));
        (FARTHEST, (0..heads).flat_map(of_head).collect())
    } else {
        return Ok(None);
    };
    context.tensor(&HostTensor::f32(&[heads, 2 * reach + 1], &values)).map(Some)
}

/// The bucket of a token so far after another one: half of them are for those before it; small distances have one each, and larger ones share
/// them by their logarithm.
fn bucket(distance: i64, buckets: usize) -> usize {
    let half = buckets / 2;
    let (side, far) = (if distance > 0 { half } else { 0 }, distance.unsigned_abs() as usize);
    let exact = half / 2;
    let bucket = if far < exact {
        far
    } else {
        // In the precision of the reference, so that a distance at the border falls to the same side.
        let share = (far as f32 / exact as f32).ln() / ((FARTHEST as f64 / exact as f64).ln() as f32);
        exact + (share * (half - exact) as f32) as usize
    };
    side + bucket.min(half.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_distances_have_buckets_of_their_own() {
        let of = |distance| bucket(distance, 32);
        assert_eq!([0, -1, -7, 1, 7].map(of), [0, 1, 7, 17, 23]);
        assert_eq!([-8, -11, -12, -16, -127, -128, -5000].map(of), [8, 8, 9, 10, 15, 15, 15]);
        assert_eq!([8, 5000].map(of), [24, 31]);
    }
}
