//! Attention of one token, or of a small batch of consecutive ones, over the KV cache. The positions are divided into splits that
//! run in parallel (flash decoding: Dao et al. 2023), with grouped query heads (Ainslie et al. 2023) and an online softmax
//! (Milakov, Gimelshein 2018). `attention_out` merges the splits of one token, `attention_merge` those of several.

use rillm_cpu_kernels::{Added, Attention, Seen};

use super::attention::{LIMITS, capped, limits};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::attention::{Stays, attend};
use crate::tensor::exec::{lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::cache::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache,
};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::soa::{to_soa, write_soa};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: q [tokens, heads · head_dim], k_cache and v_cache [capacity, kv_heads · head_dim], state [4] u32 (state[0] is the first
/// token's position; their keys and values are in the cache already). Outputs: sums [tokens · splits, heads · head_dim], of each
/// split Σ exp(score − largest) · value in SoA (`tensor/soa.rs`), and totals [tokens · splits, heads · 2], of each head the largest
/// score and Σ exp(score − largest). Splits without positions are zero, as are all splits of a sequence that has stopped. With a
/// state [tokens, 4] each token is of a sequence of its own, and caches are [sequences, capacity, kv_heads · head_dim]
/// (`placement.rs`).
#[derive(Clone)]
pub struct AttentionSplit {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Scores are q·k · scale; usually 1 / √head_dim.
    pub scale: f32,
    /// The number of positions that a token sees, its own included and last (sliding window); `None`: all. Splits divide these.
    pub window: Option<usize>,
    /// Scores become softcap · tanh(score / softcap).
    pub softcap: Option<f32>,
    /// How the positions are divided.
    pub splits: Splits,
}

/// How the work is divided; `attention_out` needs the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    /// The largest number of splits.
    pub splits: usize,
    /// The positions of a split are a multiple of this.
    pub tile: usize,
    /// One workgroup for every four query heads that share a key-value head, with workgroup memory and subgroups, rather than one
    /// team of lanes for each head.
    grouped: bool,
}

/// Invocations of a workgroup in the grouped kernel, which takes a quarter of that number of positions in a step.
const WORKGROUP: usize = 256;

/// The longest head that the grouped kernel takes: two invocations, each with half of the positions, sum the same dimensions of the values.
const MAX_GROUPED: usize = 2 * WORKGROUP;

impl Splits {
    /// The default for an adapter and a head length.
    pub fn choose(head_dim: usize, capabilities: &Capabilities) -> Self {
        let grouped = !capabilities.software && Self::can_group(head_dim, capabilities);
        match grouped {
            // Enough workgroups for a large GPU on long contexts, and few enough that merging stays cheap.
            true => Self { splits: 8, tile: WORKGROUP / 4, grouped },
            // On a CPU merging costs more than it saves.
            false if capabilities.software => Self { splits: 1, tile: 64, grouped },
            false => Self { splits: 8, tile: 64, grouped },
        }
    }

    /// Whether the grouped kernel can run.
    fn can_group(head_dim: usize, capabilities: &Capabilities) -> bool {
        let lanes = subgroup_lanes(capabilities, 32).unwrap_or(1) as usize;
        // The arrays of the kernel.
        let workgroup_bytes = 16 * (head_dim + WORKGROUP / 4 + 2 * WORKGROUP / lanes + 2 * WORKGROUP);
        lanes >= 4
            && capabilities.max_invocations_per_workgroup as usize >= WORKGROUP
            && capabilities.max_workgroup_storage_size as usize >= workgroup_bytes
            && head_dim <= MAX_GROUPED
            && head_dim.is_multiple_of(4)
    }

    /// How the kernels divide `length` positions: the ranges of the splits that are not empty.
    pub(in crate::tensor::ops) fn ranges(&self, length: usize) -> Vec<(usize, usize)> {
        let positions = (length.div_ceil(self.tile).div_ceil(self.splits) * self.tile).max(1);
        (0..length.div_ceil(positions)).map(|s| (s * positions, length.min((s + 1) * positions))).collect()
    }
}

impl Op for AttentionSplit {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_split"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let cache = cache_dtype(inputs.get(1));
        expect("attention_split", inputs, &[Some(DType::F32), cache, cache, Some(DType::U32)])?;
        let q_dim = self.heads * self.head_dim;
        let (tokens, q_columns) = inputs[0].shape.matrix()?;
        let (_, kv_dim) = Placement::of("attention_split", inputs[3], tokens)?.cache("attention_split", inputs[1])?;
        let fits = q_columns == q_dim
            && tokens > 0
            && q_dim.is_multiple_of(32)
            && kv_dim == cache_columns(inputs[1].dtype, self.kv_heads, self.head_dim)
            && self.heads.is_multiple_of(self.kv_heads)
            && inputs[1].shape == inputs[2].shape;
        if !fits {
            bail!(
                ShapeMismatch,
                "attention_split: q {}, caches {} and {}, {} heads over {} of {}; wanted rows of a multiple of 32 columns",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                self.heads,
                self.kv_heads,
                self.head_dim
            );
        }
        let rows = tokens * self.splits.splits;
        Ok(vec![Desc::f32(&[rows, q_dim]), Desc::f32(&[rows, self.heads * 2])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let grouped = self.splits.grouped && subgroup_lanes(capabilities, 32).is_some_and(|lanes| lanes >= 4);
        self.kernel_of(grouped, inputs, capabilities)
    }

    fn variants(&self, _: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        let can_group =
            self.splits.tile.is_multiple_of(WORKGROUP / 4) && Splits::can_group(self.head_dim, capabilities);
        let most = u32::from(can_group);
        (0..=most).map(|grouped| Variant::new(&[("grouped", grouped)])).collect()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("grouped") == 1, inputs, capabilities)
    }

    fn tuning_sizes(&self, _: &[Desc]) -> [usize; 3] {
        [self.heads, self.kv_heads, self.head_dim]
    }
}

impl Reference for AttentionSplit {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [k, v] = [cached(&inputs[1], self.head_dim)?, cached(&inputs[2], self.head_dim)?];
        let q = inputs[0].to_f32()?;
        let (tokens, q_dim) = inputs[0].shape.matrix()?;
        let placement = Placement::of("attention_split", inputs[3].desc(), tokens)?;
        let (capacity, _) = placement.cache("attention_split", inputs[1].desc())?;
        let kv_dim = self.kv_heads * self.head_dim;
        let state = inputs[3].to_u32()?;
        let rows = tokens * self.splits.splits;
        let mut sums = vec![0f32; rows * q_dim];
        let mut totals = vec![0f32; rows * self.heads * 2];
        for (token, q) in q.chunks_exact(q_dim).enumerate() {
            let length = placement.length(&state, token, capacity);
            let first_row = placement.first_row(&state, token, capacity);
            let first = self.window.map_or(0, |window| length.saturating_sub(window));
            for (split, (begin, end)) in self.splits.ranges(length - first).into_iter().enumerate() {
                let (begin, end) = (first + begin, first + end);
                let at_row = token * self.splits.splits + split;
                let mut row = vec![0f32; q_dim];
                for head in 0..self.heads {
                    let q = &q[head * self.head_dim..][..self.head_dim];
                    let kv_at = head / (self.heads / self.kv_heads) * self.head_dim;
                    let at = |p: usize| (first_row + p) * kv_dim + kv_at;
                    let dot = |p| q.iter().zip(&k[at(p)..]).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
                    let scores: Vec<f64> =
                        (begin..end).map(|p| capped(dot(p) * f64::from(self.scale), self.softcap)).collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                    for d in 0..self.head_dim {
                        let weighted = weights.iter().zip(begin..end).map(|(w, p)| w * f64::from(v[at(p) + d]));
                        row[head * self.head_dim + d] = weighted.sum::<f64>() as f32;
                    }
                    totals[(at_row * self.heads + head) * 2] = largest as f32;
                    totals[(at_row * self.heads + head) * 2 + 1] = weights.iter().sum::<f64>() as f32;
                }
                sums[at_row * q_dim..][..q_dim].copy_from_slice(&to_soa(&row));
            }
        }
        Ok(vec![HostTensor::f32(&[rows, q_dim], &sums), HostTensor::f32(&[rows, self.heads * 2], &totals)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [q, k, v, state] = &tensors.inputs[..] else { bail!(Internal, "attention_split without four inputs") };
        let [all_sums, all_totals] = &mut tensors.outputs[..] else {
            bail!(Internal, "attention_split without two outputs")
        };
        let (tokens, q_dim) = q.desc.shape.matrix()?;
        let placement = Placement::of(self.name(), state.desc, tokens)?;
        let (capacity, _) = placement.cache(self.name(), k.desc)?;
        let Self { heads, kv_heads, head_dim, scale, softcap, .. } = *self;
        let attention = Attention { heads, kv_heads, head_dim, scale, softcap, added: Added::Nothing };
        let (state, all_sums, all_totals) = (state.u32s()?, all_sums.f32s_mut()?, all_totals.f32s_mut()?);
        all_sums.fill(0.0);
        all_totals.fill(0.0);
        for (token, q) in q.f32s()?.chunks_exact(q_dim).enumerate() {
            let length = placement.length(state, token, capacity);
            let first = self.window.map_or(0, |window| length.saturating_sub(window));
            let first_row = placement.first_row(state, token, capacity) + first;
            for (split, (begin, end)) in self.splits.ranges(length - first).into_iter().enumerate() {
                let seen = [Seen { rows: first_row + begin..first_row + end, own: 0 }];
                let (sums, totals) = attend(tensors.team, &attention, q, [k, v], Stays::Kept, &seen)?;
                let row = token * self.splits.splits + split;
                write_soa(&sums, &mut all_sums[row * q_dim..][..q_dim]);
                all_totals[row * heads * 2..][..heads * 2].copy_from_slice(&totals);
            }
        }
        Ok(())
    }
}

impl AttentionSplit {
    fn kernel_of(&self, grouped: bool, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let placement = Placement::of("attention_split", inputs[3], tokens)?;
        let (capacity, _) = placement.cache("attention_split", inputs[1])?;
        let splits = self.splits;
        let (limits, [window, softcap]) = limits(self.window, self.softcap);
        let params = vec![
            self.heads as u32,
            self.kv_heads as u32,
            self.head_dim as u32,
            capacity as u32,
            self.scale.to_bits(),
            splits.splits as u32,
            window,
            softcap,
        ];
        let lanes = subgroup_lanes(capabilities, 32);
        if grouped {
            let mut defines = lanes_defines(WORKGROUP as u32, lanes);
            defines.extend(limits);
            defines.extend(placement.defines());
            defines.extend(cache_defines(inputs.get(1)));
            defines.push(("HEAD_DIM", Define::U32(self.head_dim as u32)));
            defines.push(("TILE", Define::U32(splits.tile as u32)));
            return Ok(Kernel {
                template: crate::shader!("attention_split.wgsl"),
                modules: &[],
                defines,
                params,
                grid: [
                    self.kv_heads as u32,
                    splits.splits as u32,
                    (tokens * (self.heads / self.kv_heads).div_ceil(4)) as u32,
                ],
            });
        }
        // Lanes share a head's dimensions, so more lanes than dimensions would idle.
        let lanes = subgroup_lanes(capabilities, self.head_dim.next_power_of_two().min(32) as u32);
        let workgroup = lanes.unwrap_or(32);
        let mut defines = lanes_defines(workgroup, lanes);
        defines.extend(limits);
        defines.extend(placement.defines());
        defines.extend(cache_defines(inputs.get(1)));
        defines.push(("DIMS_PER_LANE", Define::U32((self.head_dim as u32).div_ceil(workgroup))));
        defines.push(("TILE", Define::U32(splits.tile as u32)));
        Ok(Kernel {
            template: crate::shader!("attention_split_teams.wgsl"),
            modules: &[],
            defines,
            params,
            grid: [self.heads as u32, splits.splits as u32, tokens as u32],
        })
    }
}

/// Heads, key-value heads, head_dim, capacity and position of cases.
pub(in crate::tensor::ops) const SHAPES: [(usize, usize, usize, usize, u32); 16] = [
    (4, 1, 8, 5, 0),
    (4, 2, 16, 40, 17),
    (6, 3, 64, 700, 521),
    (14, 2, 64, 1300, 1299),
    (2, 1, 80, 64, 63),
    (32, 8, 64, 200, 128),
    (4, 4, 128, 600, 255),
    (2, 1, 256, 70, 67),
    (16, 1, 96, 33, 31),
    (128, 8, 64, 140, 130),
    (6, 1, 192, 50, 49),
    (16, 2, 112, 70, 66),
    (11, 1, 160, 40, 39),
    (45, 3, 224, 35, 33),
    (2, 1, 512, 70, 67),
    // A step that ran ahead past the end of the context.
    (4, 2, 32, 66, 67),
];

pub(in crate::tensor::ops) const ALL_SPLITS: [Splits; 3] = [
    Splits { splits: 8, tile: 64, grouped: true },
    Splits { splits: 3, tile: 64, grouped: false },
    Splits { splits: 1, tile: 64, grouped: false },
];

/// Scores of sinks, far below all others, among them, and far above.
pub(in crate::tensor::ops) fn random_sinks(rng: &mut Rng, heads: usize) -> HostTensor {
    let sinks: Vec<f32> = (0..heads).map(|head| [0.5, -30.0, 20.0][head % 3] + rng.signed()).collect();
    HostTensor::f32(&[heads], &sinks)
}

/// q, caches and state of a shape.
pub(in crate::tensor::ops) fn inputs(
    rng: &mut Rng,
    tokens: usize,
    dtype: DType,
    shape: (usize, usize, usize, usize, u32),
) -> Vec<HostTensor> {
    let (heads, kv_heads, head_dim, capacity, position) = shape;
    let mut q = rng.tensor(&[tokens, heads * head_dim]);
    // Large enough that the softmax is far from flat.
    let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
    q.set_f32(&sharp);
    let [k_cache, v_cache] = [(); 2].map(|()| random_cache(rng, dtype, &[capacity], kv_heads, head_dim));
    vec![q, k_cache, v_cache, HostTensor::u32(&[4], &[position, 0, 0, 0])]
}

/// The same for tokens of four sequences, in another order than in the cache; the third has stopped.
pub(super) fn inputs_of_sequences(
    rng: &mut Rng,
    dtype: DType,
    shape: (usize, usize, usize, usize, u32),
) -> Vec<HostTensor> {
    let (heads, kv_heads, head_dim, capacity, position) = shape;
    let q = inputs(rng, 4, dtype, shape).remove(0);
    let [k_cache, v_cache] = [(); 2].map(|()| random_cache(rng, dtype, &[5, capacity], kv_heads, head_dim));
    assert_eq!(q.shape.elements(), 4 * heads * head_dim);
    let state = [position, 9, 0, 2, 0, 3, 0, 0, position, 4, 1, 1, position / 2, 7, 0, 4];
    vec![q, k_cache, v_cache, HostTensor::u32(&[4, 4], &state)]
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(35);
    let mut cases = Vec::new();
    for splits in ALL_SPLITS {
        for (index, shape) in SHAPES.into_iter().enumerate() {
            let (heads, kv_heads, head_dim, ..) = shape;
            let scale = 1.0 / (head_dim as f32).sqrt();
            for tokens in [1, 2 + index % 7] {
                let (window, softcap) = LIMITS[(index + tokens) % LIMITS.len()];
                let op = AttentionSplit { heads, kv_heads, head_dim, scale, window, softcap, splits };
                let mut inputs = inputs(&mut rng, tokens, case_dtype(cases.len()), shape);
                if index % 5 == 4 {
                    // Has stopped.
                    inputs[3].set_u32(&[shape.4, 0, 1, 0]);
                }
                cases.push(Case::new(op, inputs, 1e-5));
            }
            if index % 3 == 2 {
                let (window, softcap) = LIMITS[index / 3 % LIMITS.len()];
                let op = AttentionSplit { heads, kv_heads, head_dim, scale, window, softcap, splits };
                let inputs = inputs_of_sequences(&mut rng, case_dtype(cases.len()), shape);
                cases.push(Case::new(op, inputs, 1e-5));
            }
        }
    }
    cases
}
