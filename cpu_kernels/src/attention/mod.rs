//! Attention over keys and values in a cache, with an online softmax: no more scores are kept than those of a tile (Milakov, Gimelshein 2018;
//! FlashAttention, Dao et al. 2022). A tile of keys and values is made floats once for all tokens and for all heads that share them.

mod cache;

use std::ops::Range;

pub use cache::Cache;

use crate::activations::softcap;
use crate::format::{Mismatch, expect};
use crate::functions::exp;
use crate::lanes::{map, padded};
use crate::simd::F32x4;

/// Keys or values of a tile.
const TILE: usize = 32;
const LANES: usize = F32x4::LANES;

/// What is added to scores.
#[derive(Clone, Copy)]
pub enum Added<'a> {
    /// Nothing.
    Nothing,
    /// For each head what each step back takes (ALiBi, Press et al. 2021).
    Slopes(&'a [f32]),
    /// For each head the numbers of distances from −reach to reach; those further away count as the furthest (T5's buckets, Raffel et al. 2020).
    Distances {
        /// [heads, 2 · reach + 1].
        numbers: &'a [f32],
        /// The largest distance.
        reach: usize,
    },
}

/// What a token sees.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Rows of the keys and values.
    pub rows: Range<usize>,
    /// The row that is at distance 0.
    pub own: usize,
}

/// Attention of several heads. Query head h uses key-value head h · kv_heads / heads.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// Scores are q·k · scale.
    pub scale: f32,
    /// Scores become cap · tanh(score / cap).
    pub softcap: Option<f32>,
    /// What is added to scores then.
    pub added: Added<'a>,
}

impl Attention<'_> {
    /// Of each token [tokens, heads · head_dim] and head: `sums`, like `q`, are Σ exp(score − largest) · value, and `totals` [tokens, heads, 2]
    /// the largest score and Σ exp(score − largest); zeros where nothing is seen.
    pub fn attend(
        &self,
        q: &[f32],
        [keys, values]: [Cache<'_>; 2],
        seen: &[Seen],
        sums: &mut [f32],
        totals: &mut [f32],
    ) -> Result<(), Mismatch> {
        let columns = self.heads * self.head_dim;
        expect("queries of tokens", seen.len() * columns, q.len())?;
        expect("sums of tokens", q.len(), sums.len())?;
        expect("totals of tokens", seen.len() * self.heads * 2, totals.len())?;
        expect(
            "heads that share keys",
            self.heads,
            self.heads.checked_div(self.kv_heads).unwrap_or(0) * self.kv_heads,
        )?;
        let end = seen.iter().map(|seen| seen.rows.end).max().unwrap_or(0);
        let rows = keys.rows().min(values.rows());
        if end > rows {
            return Err(Mismatch { what: "rows of keys and values", expected: end, found: rows });
        }
        sums.fill(0.0);
        for total in totals.chunks_exact_mut(2) {
            total.copy_from_slice(&[f32::NEG_INFINITY, 0.0]);
        }
        for kv_head in 0..self.kv_heads {
            self.of_kv_head(kv_head, q, [keys, values], seen, sums, totals);
        }
        for total in totals.chunks_exact_mut(2).filter(|total| total[1] == 0.0) {
            total[0] = 0.0;
        }
        Ok(())
    }

    fn of_kv_head(
        &self,
        kv_head: usize,
        q: &[f32],
        [keys, values]: [Cache<'_>; 2],
        seen: &[Seen],
        sums: &mut [f32],
        totals: &mut [f32],
    ) {
        let dim = self.head_dim;
        let stride = dim.next_multiple_of(LANES);
        let group = self.heads / self.kv_heads;
        let mut tile = [vec![0.0; TILE * stride], vec![0.0; TILE * stride]];
        let mut padded_q = vec![0.0; stride];
        let mut padded_sums = vec![0.0; stride];
        let begin = seen.iter().filter(|seen| !seen.rows.is_empty()).map(|seen| seen.rows.start).min().unwrap_or(0);
        let end = seen.iter().map(|seen| seen.rows.end).max().unwrap_or(0);
        for first in (begin..end).step_by(TILE) {
            let count = TILE.min(end - first);
            let is_seen = |seen: &Seen| seen.rows.start.max(first) < seen.rows.end.min(first + count);
            if !seen.iter().any(is_seen) {
                continue;
            }
            for (tile, cache) in tile.iter_mut().zip([keys, values]) {
                for (row, numbers) in (first..first + count).zip(tile.chunks_exact_mut(stride)) {
                    cache.read(row, kv_head, &mut numbers[..dim]);
                }
            }
            let [keys, values] = &tile;
            for (token, seen) in seen.iter().enumerate() {
                let rows = seen.rows.start.max(first)..seen.rows.end.min(first + count);
                if rows.is_empty() {
                    continue;
                }
                let of_tile = (rows.start - first) * stride..(rows.end - first) * stride;
                for head in kv_head * group..(kv_head + 1) * group {
                    let at = token * self.heads + head;
                    padded_q[..dim].copy_from_slice(&q[at * dim..][..dim]);
                    let mut scores = [0.0; TILE];
                    let scores = &mut scores[..rows.len()];
                    dots(&padded_q, &keys[of_tile.clone()], scores);
                    self.finish(scores, head, seen.own, rows.start);
                    let total = &mut totals[2 * at..2 * at + 2];
                    let largest = scores.iter().fold(total[0], |a, b| a.max(*b));
                    let shrunk = exp(F32x4::splat(total[0] - largest)).lanes()[0];
                    map(scores, |score| exp(score.sub(F32x4::splat(largest))));
                    let factor = if total[1] > 0.0 { shrunk } else { 0.0 };
                    total[1] = total[1] * factor + scores.iter().sum::<f32>();
                    total[0] = largest;
                    padded_sums[..dim].copy_from_slice(&sums[at * dim..][..dim]);
                    add_weighted(scores, &values[of_tile.clone()], factor, &mut padded_sums);
                    sums[at * dim..][..dim].copy_from_slice(&padded_sums[..dim]);
                }
            }
        }
    }

    /// Scores of products.
    fn finish(&self, scores: &mut [f32], head: usize, own: usize, first: usize) {
        let scale = F32x4::splat(self.scale);
        map(scores, |score| score.mul(scale));
        if let Some(cap) = self.softcap {
            softcap(cap, scores);
        }
        let distance = |row: usize| row as i64 - own as i64;
        match self.added {
            Added::Nothing => {}
            Added::Slopes(slopes) => {
                let slope = slopes.get(head).copied().unwrap_or(0.0);
                scores.iter_mut().zip(first..).for_each(|(score, row)| *score += slope * distance(row) as f32);
            }
            Added::Distances { numbers, reach } => {
                let numbers = numbers.chunks_exact(2 * reach + 1).nth(head).unwrap_or(&[]);
                let reach = reach as i64;
                for (score, row) in scores.iter_mut().zip(first..) {
                    let at = (distance(row).clamp(-reach, reach) + reach) as usize;
                    *score += numbers.get(at).copied().unwrap_or(0.0);
                }
            }
        }
    }
}

/// The products of `q` with some rows, all of whole vectors.
#[inline(never)]
fn dots(q: &[f32], rows: &[f32], out: &mut [f32]) {
    let stride = q.len();
    let mut outputs = out.chunks_exact_mut(4);
    let mut fours = rows.chunks_exact(4 * stride.max(1));
    for (out, four) in (&mut outputs).zip(&mut fours) {
        let (a, b) = four.split_at(2 * stride);
        let ((a, b), (c, d)) = (a.split_at(stride), b.split_at(stride));
        let mut sums = [F32x4::splat(0.0); 4];
        let rows =
            a.chunks_exact(LANES).zip(b.chunks_exact(LANES)).zip(c.chunks_exact(LANES).zip(d.chunks_exact(LANES)));
        for (q, ((a, b), (c, d))) in q.chunks_exact(LANES).zip(rows) {
            let q = padded(q);
            for (sum, row) in sums.iter_mut().zip([a, b, c, d]) {
                *sum = padded(row).mul_add(q, *sum);
            }
        }
        out.copy_from_slice(&sums.map(F32x4::sum));
    }
    for (out, row) in outputs.into_remainder().iter_mut().zip(fours.remainder().chunks_exact(stride.max(1))) {
        let mut sum = F32x4::splat(0.0);
        for (q, row) in q.chunks_exact(LANES).zip(row.chunks_exact(LANES)) {
            sum = padded(row).mul_add(padded(q), sum);
        }
        *out = sum.sum();
    }
}

/// `sums` · factor + Σ weight · row.
#[inline(never)]
fn add_weighted(weights: &[f32], rows: &[f32], factor: f32, sums: &mut [f32]) {
    /// Vectors that stay in registers.
    const WIDE: usize = 4 * LANES;
    let stride = sums.len();
    let factor = F32x4::splat(factor);
    for (first, sums) in (0..).step_by(WIDE).zip(sums.chunks_mut(WIDE)) {
        let mut totals = [F32x4::splat(0.0); 4];
        for (total, sum) in totals.iter_mut().zip(sums.chunks_exact(LANES)) {
            *total = padded(sum).mul(factor);
        }
        for (weight, row) in weights.iter().zip(rows.chunks_exact(stride)) {
            let weight = F32x4::splat(*weight);
            for (total, row) in totals.iter_mut().zip(row[first..].chunks_exact(LANES)) {
                *total = padded(row).mul_add(weight, *total);
            }
        }
        for (sum, total) in sums.chunks_exact_mut(LANES).zip(totals) {
            sum.copy_from_slice(&total.lanes());
        }
    }
}

/// Divides `sums` [tokens, heads · head_dim] of `attend` by what `totals` say. A head's sink takes its part of the softmax and has no value
/// (Xiao et al. 2023). Zeros where nothing is seen.
pub fn normalize(sums: &mut [f32], totals: &[f32], sinks: Option<&[f32]>) -> Result<(), Mismatch> {
    let heads = totals.len() / 2;
    expect("sums of heads", sums.len().checked_div(heads).unwrap_or(0) * heads, sums.len())?;
    if sums.is_empty() {
        return Ok(());
    }
    for (index, (sums, total)) in sums.chunks_exact_mut(sums.len() / heads).zip(totals.chunks_exact(2)).enumerate() {
        let [largest, all] = [total[0], total[1]];
        let factor = match sinks.filter(|sinks| !sinks.is_empty()) {
            _ if all == 0.0 => 0.0,
            None => 1.0 / all,
            Some(sinks) => {
                let sink = sinks[index % sinks.len()];
                let most = largest.max(sink);
                let own = (largest - most).exp();
                own / (all * own + (sink - most).exp())
            }
        };
        let factor = F32x4::splat(factor);
        map(sums, |sum| sum.mul(factor));
    }
    Ok(())
}
