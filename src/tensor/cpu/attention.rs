//! Attention over caches, by the device's threads where that pays.

use std::sync::Arc;

use rillm_cpu_kernels::{Attention, Seen, normalize};

use super::{cache, fits, team, zeros};
use crate::error::Result;
use crate::gpu::Team;
use crate::tensor::CpuTensor;

/// What keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Those of a cache: all but the last are as they were, and threads keep a copy of them.
    Kept,
    /// Those of one pass.
    Passing,
}

/// The attention of tokens [tokens, heads · head_dim] before it is divided: sums, and of each head the largest score and the total.
pub fn attend(
    threads: Option<&Arc<dyn Team>>,
    attention: &Attention<'_>,
    q: &[f32],
    [keys, values]: [&CpuTensor<'_>; 2],
    stays: Stays,
    seen: &[Seen],
) -> Result<(Vec<f32>, Vec<f32>)> {
    let mut sums = zeros(q.len())?;
    let mut totals = zeros(seen.len() * attention.heads * 2)?;
    let caches = [cache::cache(keys, attention.head_dim)?, cache::cache(values, attention.head_dim)?];
    let is_done = match threads {
        Some(threads) => {
            let kept = (stays == Stays::Kept).then_some([keys, values]);
            team::attend(threads, attention, q, caches, kept, seen, [&mut sums, &mut totals])?
        }
        None => false,
    };
    if !is_done {
        fits(attention.attend(q, caches, seen, &mut sums, &mut totals))?;
    }
    Ok((sums, totals))
}

/// The same, divided. `sinks` are heads' scores without values.
pub fn attention(
    threads: Option<&Arc<dyn Team>>,
    attention: &Attention<'_>,
    sinks: Option<&[f32]>,
    q: &[f32],
    caches: [&CpuTensor<'_>; 2],
    stays: Stays,
    seen: &[Seen],
) -> Result<Vec<f32>> {
    let (mut sums, totals) = attend(threads, attention, q, caches, stays, seen)?;
    fits(normalize(&mut sums, &totals, sinks))?;
    Ok(sums)
}

/// What tokens of one sequence see: those before them, as far as the window reaches.
pub fn causal(window: Option<usize>, first: usize, tokens: usize) -> Vec<Seen> {
    let of = |own: usize| Seen { rows: window.map_or(0, |window| (own + 1).saturating_sub(window))..own + 1, own };
    (first..first + tokens).map(of).collect()
}
