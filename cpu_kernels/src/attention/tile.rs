//! Some queries with the keys and values of a tile. What is the same for two queries is read once for both.

use super::{LANES, TILE, Wide};
use crate::functions::exp;
use crate::simd::F32x4;

/// Scores of a query with the keys of a tile.
pub(super) type Scores = [F32x4; TILE / LANES];

/// The products of `Q` queries with keys, all of `wide` `Wide`. Four keys at a time, so those after the last one are read as well.
#[inline(never)]
pub(super) fn dots<const Q: usize>(q: &[Wide], keys: &[Wide], wide: usize, out: &mut [Scores; Q]) {
    let q: [&[Wide]; Q] = std::array::from_fn(|n| &q[n * wide..][..wide]);
    for (at, four) in keys.chunks_exact(4 * wide.max(1)).take(TILE / LANES).enumerate() {
        let keys: [&[Wide]; 4] = std::array::from_fn(|n| &four[n * wide..][..wide]);
        let mut sums = [[F32x4::splat(0.0); 4]; Q];
        for block in 0..wide {
            for i in 0..LANES {
                let keys = keys.map(|key| key[block][i]);
                for (sums, q) in sums.iter_mut().zip(q) {
                    for (sum, key) in sums.iter_mut().zip(keys) {
                        *sum = key.mul_add(q[block][i], *sum);
                    }
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            out[at] = F32x4::sums(sums);
        }
    }
}

/// Makes weights e^(score − largest) of the first `count` scores, zeros of the others, and adds them to the query's total, which is the largest
/// score so far and the sum of weights. Returns what the sums so far have to be multiplied by.
pub(super) fn weigh(scores: &mut Scores, count: usize, total: &mut [f32; 2]) -> f32 {
    let used = count.div_ceil(LANES);
    let rest = |scores: &mut Scores, x: f32| {
        let numbers: &mut [f32; TILE] = bytemuck::cast_mut(scores);
        numbers[count..used * LANES].fill(x);
    };
    rest(scores, f32::NEG_INFINITY);
    let scores_used = &mut scores[..used];
    let [last, sum] = *total;
    // A score that is no number may be left out here: its weight is none all the same.
    let largest = scores_used.iter().fold(F32x4::splat(last), |a, b| a.at_least(*b)).largest();
    let of_largest = F32x4::splat(largest);
    for score in scores_used.iter_mut() {
        *score = exp(score.sub(of_largest));
    }
    rest(scores, 0.0);
    let weights = scores[..used].iter().fold(F32x4::splat(0.0), |a, b| a.add(*b)).sum();
    let factor = match sum > 0.0 {
        true if largest == last => 1.0,
        true => exp(F32x4::splat(last - largest)).lanes()[0],
        false => 0.0,
    };
    *total = [largest, sum * factor + weights];
    factor
}

/// `sums` · factor + Σ weight · row, of `Q` queries, all of `wide` `Wide`.
#[inline(never)]
pub(super) fn add_weighted<const Q: usize>(
    weights: [&[f32]; Q],
    rows: &[Wide],
    wide: usize,
    factors: [f32; Q],
    sums: &mut [Wide],
) {
    let weights = weights.map(|weights| &weights[..rows.len() / wide.max(1)]);
    for block in 0..wide {
        let mut totals: [Wide; Q] =
            std::array::from_fn(|n| sums[n * wide + block].map(|sum| sum.mul(F32x4::splat(factors[n]))));
        for (at, row) in rows[block..].iter().step_by(wide).enumerate() {
            for (totals, weights) in totals.iter_mut().zip(weights) {
                let weight = F32x4::splat(weights[at]);
                for (total, row) in totals.iter_mut().zip(row) {
                    *total = row.mul_add(weight, *total);
                }
            }
        }
        for (n, totals) in totals.into_iter().enumerate() {
            sums[n * wide + block] = totals;
        }
    }
}
