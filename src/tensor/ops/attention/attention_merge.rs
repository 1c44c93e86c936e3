//! Merges the splits of `attention_split` for one or a small batch of tokens.

use super::attention_split::{ALL_SPLITS, AttentionSplit, SHAPES, inputs, inputs_of_sequences, random_sinks};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Splits;
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{from_soa, to_soa, write_soa};
use crate::tensor::{Case, CpuTensor, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: sums [tokens · splits, heads · head_dim] and totals [tokens · splits, heads · 2] of `attention_split`, state [4] u32
/// (state[0] is the first token's position) or [tokens, 4], as `attention_split` has it, and with `sinks` the score of each head's sink
/// [heads], which takes its part of the softmax and has no value. Output: [tokens, heads · head_dim], each row
/// in SoA (`tensor/soa.rs`); zero for a sequence that has stopped.
#[derive(Clone, Debug)]
pub struct AttentionMerge {
    /// Query heads.
    pub heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Of the cache.
    pub capacity: usize,
    /// How `attention_split` divided the positions.
    pub splits: Splits,
    /// Whether heads have sinks.
    pub sinks: bool,
}

/// The input that sinks are.
const SINKS: usize = 3;

impl Op for AttentionMerge {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_merge"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let wanted = [f32, f32, Some(DType::U32), f32];
        expect("attention_merge", inputs, &wanted[..SINKS + usize::from(self.sinks)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        let fits = rows.is_multiple_of(self.splits.splits)
            && inputs[1].shape.dims() == [rows, self.heads * 2]
            && columns == self.heads * self.head_dim
            && self.head_dim.is_multiple_of(4)
            && columns.is_multiple_of(BLOCK)
            && (!self.sinks || inputs[SINKS].shape.dims() == [self.heads]);
        if !fits {
            bail!(
                ShapeMismatch,
                "attention_merge: sums {}, totals {}; wanted {} splits of each token, {} heads of {} elements (a multiple of 4), \
                 and a multiple of {BLOCK} in all",
                inputs[0].shape,
                inputs[1].shape,
                self.splits.splits,
                self.heads,
                self.head_dim
            );
        }
        Placement::of("attention_merge", inputs[2], rows / self.splits.splits)?;
        Ok(vec![Desc::f32(&[rows / self.splits.splits, columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = outputs[0].shape.matrix()?;
        let words = tokens * columns / 4;
        let mut defines = Placement::of("attention_merge", inputs[2], tokens)?.defines();
        defines.push(("OUT_BINDING", Define::U32((SINKS + usize::from(self.sinks)) as u32)));
        if self.sinks {
            defines.extend([("SINKS", Define::Flag), ("SINKS_BINDING", Define::U32(SINKS as u32))]);
        }
        Ok(Kernel {
            template: crate::shader!("attention_merge.wgsl"),
            modules: &[],
            defines,
            params: vec![
                words as u32,
                (columns / BLOCK) as u32,
                self.heads as u32,
                self.head_dim as u32,
                self.splits.splits as u32,
                self.splits.tile as u32,
                self.capacity as u32,
            ],
            grid: grid_2d(words.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AttentionMerge {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let (sums, totals) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let placement = Placement::of("attention_merge", inputs[2].desc(), rows / self.splits.splits)?;
        let state = inputs[2].to_u32()?;
        let sinks = if self.sinks { Some(inputs[SINKS].to_f32()?) } else { None };
        let all = self.splits.splits;
        let mut out = Vec::with_capacity(rows / all * columns);
        let tokens = sums.chunks_exact(all * columns).zip(totals.chunks_exact(all * self.heads * 2));
        for (token, (sums, totals)) in tokens.enumerate() {
            let splits = self.splits.ranges(placement.length(&state, token, self.capacity)).len();
            if splits == 0 {
                out.extend(vec![0.0; columns]);
                continue;
            }
            let parts: Vec<Vec<f32>> = sums.chunks_exact(columns).take(splits).map(from_soa).collect();
            let merged: Vec<f32> = (0..columns)
                .map(|column| {
                    let total = |split: usize| &totals[(split * self.heads + column / self.head_dim) * 2..][..2];
                    let sink = sinks.as_ref().map(|sinks| sinks[column / self.head_dim]);
                    let scores = (0..splits).map(|split| total(split)[0]).chain(sink);
                    let largest = scores.fold(f32::NEG_INFINITY, f32::max);
                    let of_sink = sink.map_or(0.0, |sink| (f64::from(sink) - f64::from(largest)).exp());
                    let weight = |split: usize| (f64::from(total(split)[0]) - f64::from(largest)).exp();
                    let sum: f64 = (0..splits).map(|split| weight(split) * f64::from(parts[split][column])).sum();
                    let all: f64 = (0..splits).map(|split| weight(split) * f64::from(total(split)[1])).sum();
                    (sum / (all + of_sink)) as f32
                })
                .collect();
            out.extend(to_soa(&merged));
        }
        Ok(vec![HostTensor::f32(&[rows / all, columns], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [sums, totals, state, sinks @ ..] = &tensors.inputs[..] else {
            bail!(Internal, "attention_merge without three inputs")
        };
        let (rows, columns) = sums.desc.shape.matrix()?;
        let all = self.splits.splits;
        let placement = Placement::of(self.name(), state.desc, rows / all)?;
        let (sums, totals, state) = (sums.f32s()?, totals.f32s()?, state.u32s()?);
        let sinks = sinks.first().map(CpuTensor::f32s).transpose()?;
        let out = tensors.outputs[0].f32s_mut()?;
        for (token, out) in out.chunks_exact_mut(columns).enumerate() {
            let splits = self.splits.ranges(placement.length(state, token, self.capacity)).len();
            let of_token = [&sums[token * all * columns..], &totals[token * all * self.heads * 2..]];
            write_soa(&merged_on_cpu(of_token, splits, [self.heads, self.head_dim], sinks), out);
        }
        Ok(())
    }
}

/// On the CPU's device: the attention of a token, in the order of columns, from its sums in SoA and its totals. Zeros without splits.
pub(in crate::tensor::ops) fn merged_on_cpu(
    [sums, totals]: [&[f32]; 2],
    splits: usize,
    [heads, head_dim]: [usize; 2],
    sinks: Option<&[f32]>,
) -> Vec<f32> {
    let columns = heads * head_dim;
    let mut merged = vec![0.0; columns];
    let parts: Vec<Vec<f32>> = sums.chunks_exact(columns).take(splits).map(from_soa).collect();
    for (head, merged) in merged.chunks_exact_mut(head_dim).enumerate() {
        let total = |split: usize| &totals[(split * heads + head) * 2..][..2];
        let sink = sinks.map(|sinks| sinks[head]);
        let largest = (0..splits).map(|split| total(split)[0]).chain(sink).fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = (0..splits).map(|split| (total(split)[0] - largest).exp()).collect();
        let of_sink = sink.map_or(0.0, |sink| (sink - largest).exp());
        let all = weights.iter().enumerate().map(|(split, weight)| weight * total(split)[1]).sum::<f32>() + of_sink;
        for (part, weight) in parts.iter().zip(&weights) {
            let part = &part[head * head_dim..][..head_dim];
            merged.iter_mut().zip(part).for_each(|(merged, part)| *merged += part * (weight / all));
        }
    }
    merged
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(66);
    let mut cases = Vec::new();
    for splits in ALL_SPLITS {
        for (index, shape) in SHAPES.into_iter().enumerate() {
            let (heads, kv_heads, head_dim, capacity, _) = shape;
            let mut of_split = inputs(&mut rng, 2 + index % 7, DType::F32, shape);
            let split = AttentionSplit {
                heads,
                kv_heads,
                head_dim,
                scale: 1.0 / (head_dim as f32).sqrt(),
                window: None,
                softcap: None,
                splits,
            };
            let Ok(mut parts) = split.reference(&mut of_split) else { continue };
            parts.extend(of_split.pop());
            let sinks = index % 2 == 1;
            parts.extend(sinks.then(|| random_sinks(&mut rng, heads)));
            cases.push(Case::new(AttentionMerge { heads, head_dim, capacity, splits, sinks }, parts, 1e-5));
            if index % 3 == 2 {
                let mut of_split = inputs_of_sequences(&mut rng, DType::F32, shape);
                let Ok(mut parts) = split.reference(&mut of_split) else { continue };
                parts.extend(of_split.pop());
                parts.extend(sinks.then(|| random_sinks(&mut rng, heads)));
                cases.push(Case::new(AttentionMerge { heads, head_dim, capacity, splits, sinks }, parts, 1e-5));
            }
        }
    }
    cases
}
