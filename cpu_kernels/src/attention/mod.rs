//! Attention over keys and values in a cache, with an online softmax: no more scores are kept than those of a tile (Milakov, Gimelshein 2018;
//! FlashAttention, Dao et al. 2022). A tile of keys and values is made floats once for all tokens and for all heads that share them.

mod cache;
mod sent;
mod tile;

use std::ops::Range;

pub use cache::Cache;
pub use sent::{Received, Sent};

use crate::activations::softcap;
use crate::format::{Mismatch, expect};
use crate::lanes::map;
use crate::room::resized;
use crate::simd::F32x4;
use cache::floats;
use tile::{Scores, add_weighted, dots, weigh};

/// Keys or values of a tile.
const TILE: usize = 32;
const LANES: usize = F32x4::LANES;
/// Numbers that loops take at once.
const WIDE: usize = 4 * LANES;
type Wide = [F32x4; WIDE / LANES];

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

/// Some of the tokens and of the query heads.
#[derive(Clone, Debug)]
pub struct Part {
    /// Tokens.
    pub tokens: Range<usize>,
    /// Query heads.
    pub heads: Range<usize>,
}

/// The first row that a token sees.
fn begin_of(seen: &[Seen]) -> usize {
    seen.iter().filter(|seen| !seen.rows.is_empty()).map(|seen| seen.rows.start).min().unwrap_or(0)
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
        caches: [Cache<'_>; 2],
        seen: &[Seen],
        sums: &mut [f32],
        totals: &mut [f32],
    ) -> Result<(), Mismatch> {
        expect("sums of tokens", q.len(), sums.len())?;
        expect("totals of tokens", seen.len() * self.heads * 2, totals.len())?;
        let all = Part { tokens: 0..seen.len(), heads: 0..self.heads };
        self.attend_part(q, caches, seen, all, |at, sum, total| {
            sums[at * self.head_dim..][..self.head_dim].copy_from_slice(sum);
            totals[2 * at..][..2].copy_from_slice(&total);
        })
    }

    /// The same for some of the tokens and heads, bit for bit: gives `put` the number [tokens, heads] of each, its sums and its totals. What
    /// else there is of `q` and `seen` is theirs all the same, since tiles of keys begin where the first token of all sees something.
    pub fn attend_part(
        &self,
        q: &[f32],
        caches: [Cache<'_>; 2],
        seen: &[Seen],
        part: Part,
        mut put: impl FnMut(usize, &[f32], [f32; 2]),
    ) -> Result<(), Mismatch> {
        self.check(q, caches, seen)?;
        let (dim, group, of_token) = (self.head_dim, self.group(), self.heads * self.head_dim);
        let begin = begin_of(seen);
        let Part { tokens, heads } = part;
        let (Some(seen), true) = (seen.get(tokens.clone()), heads.end <= self.heads) else {
            return Err(Mismatch { what: "tokens of a part", expected: seen.len(), found: tokens.end });
        };
        let q = &q[tokens.start * of_token..tokens.end * of_token];
        let mut work = Work::default();
        for kv_head in 0..self.kv_heads {
            let heads = heads.start.max(kv_head * group)..heads.end.min((kv_head + 1) * group);
            if heads.is_empty() {
                continue;
            }
            self.of_heads(&heads, q, caches, seen, begin, &mut work)?;
            for (index, (of_query, total)) in work.sums.chunks_exact(work.wide).zip(&work.totals).enumerate() {
                let at = (tokens.start + index / heads.len()) * self.heads + heads.start + index % heads.len();
                put(at, &bytemuck::cast_slice(of_query)[..dim], *total);
            }
        }
        Ok(())
    }

    /// The heads that share a head of keys.
    fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    fn check(&self, q: &[f32], [keys, values]: [Cache<'_>; 2], seen: &[Seen]) -> Result<(), Mismatch> {
        expect("queries of tokens", seen.len() * self.heads * self.head_dim, q.len())?;
        expect("heads that share keys", self.heads, self.group() * self.kv_heads)?;
        let end = seen.iter().map(|seen| seen.rows.end).max().unwrap_or(0);
        let rows = keys.rows().min(values.rows());
        if end > rows {
            return Err(Mismatch { what: "rows of keys and values", expected: end, found: rows });
        }
        Ok(())
    }

    /// Of heads that share a head of keys. Tiles begin at multiples of `TILE` from `begin` on.
    fn of_heads(
        &self,
        heads: &Range<usize>,
        q: &[f32],
        [keys, values]: [Cache<'_>; 2],
        seen: &[Seen],
        begin: usize,
        work: &mut Work,
    ) -> Result<(), Mismatch> {
        let (dim, group) = (self.head_dim, heads.len());
        let kv_head = heads.start / self.group();
        work.begin(dim, seen.len() * group)?;
        let wide = work.wide;
        for (index, out) in work.q.chunks_exact_mut(wide).enumerate() {
            let at = index / group * self.heads + heads.start + index % group;
            floats(&q[at * dim..][..dim], out);
        }
        let scale = F32x4::splat(self.scale);
        work.q.iter_mut().flatten().for_each(|q| *q = q.mul(scale));
        let end = seen.iter().map(|seen| seen.rows.end).max().unwrap_or(0);
        let begin = begin + begin_of(seen).saturating_sub(begin) / TILE * TILE;
        for first in (begin..end).step_by(TILE) {
            let tile = first..end.min(first + TILE);
            let of_tile = |seen: &Seen| {
                let rows = seen.rows.start.max(tile.start)..seen.rows.end.min(tile.end);
                if rows.is_empty() { 0..0 } else { rows }
            };
            if seen.iter().all(|seen| of_tile(seen).is_empty()) {
                continue;
            }
            keys.read(tile.clone(), kv_head, dim, &mut work.keys);
            values.read(tile.clone(), kv_head, dim, &mut work.values);
            let rows_of = |index: usize| seen.get(index / group).map(of_tile);
            let mut index = 0;
            while let Some(rows) = rows_of(index) {
                let at = rows.start.saturating_sub(first);
                let place =
                    |index: usize| Place { index, head: heads.start + index % group, seen: &seen[index / group] };
                if rows.is_empty() {
                    index += group;
                } else if rows_of(index + 1).as_ref() == Some(&rows) {
                    self.queries([place(index), place(index + 1)], at, rows, work);
                    index += 2;
                } else {
                    self.queries([place(index)], at, rows, work);
                    index += 1;
                }
            }
        }
        for total in work.totals.iter_mut().filter(|total| total[1] == 0.0) {
            total[0] = 0.0;
        }
        Ok(())
    }

    /// Some queries, one after the other, that see the same rows of a tile, from its row `at` on.
    fn queries<const Q: usize>(&self, places: [Place<'_>; Q], at: usize, rows: Range<usize>, work: &mut Work) {
        let (wide, count, index) = (work.wide, rows.len(), places[0].index);
        let begin = at * wide;
        let mut scores = [[F32x4::splat(0.0); TILE / LANES]; Q];
        let keys = &work.keys[begin..][..count.next_multiple_of(LANES) * wide];
        dots(&work.q[index * wide..][..Q * wide], keys, wide, &mut scores);
        let mut factors = [0.0; Q];
        for (n, place) in places.iter().enumerate() {
            self.finish(&mut scores[n], count, place, rows.start);
            factors[n] = weigh(&mut scores[n], count, &mut work.totals[place.index]);
        }
        let weights = scores.each_ref().map(|scores| &bytemuck::cast_slice(scores)[..count]);
        let values = &work.values[begin..][..count * wide];
        add_weighted(weights, values, wide, factors, &mut work.sums[index * wide..][..Q * wide]);
    }

    /// Scores of products.
    fn finish(&self, scores: &mut Scores, count: usize, place: &Place<'_>, first: usize) {
        let scores = &mut bytemuck::cast_slice_mut(scores)[..count];
        let (head, own) = (place.head, place.seen.own);
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

/// A query.
struct Place<'a> {
    /// Among the queries that share a head of keys.
    index: usize,
    head: usize,
    seen: &'a Seen,
}

/// What is kept while the tokens' queries of a head of keys are at work. Rows are of whole `Wide`.
#[derive(Default)]
struct Work {
    /// `Wide` of a row.
    wide: usize,
    /// [tokens, group], times `scale`.
    q: Vec<Wide>,
    sums: Vec<Wide>,
    totals: Vec<[f32; 2]>,
    /// Of a tile. Products are of four keys at a time, so there are more than it has.
    keys: Vec<Wide>,
    values: Vec<Wide>,
}

impl Work {
    fn begin(&mut self, dim: usize, queries: usize) -> Result<(), Mismatch> {
        let zeros = [F32x4::splat(0.0); LANES];
        self.wide = dim.div_ceil(WIDE).max(1);
        for (vectors, rows) in [(&mut self.keys, TILE + LANES - 1), (&mut self.values, TILE), (&mut self.q, queries)] {
            resized(vectors, rows * self.wide, zeros)?;
        }
        self.sums.clear();
        resized(&mut self.sums, queries * self.wide, zeros)?;
        self.totals.clear();
        resized(&mut self.totals, queries, [f32::NEG_INFINITY, 0.0])
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
