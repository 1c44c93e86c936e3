//! The first of an adapter's two products (LoRA, Hu et al. 2021): h = scale · A·x. The scale is that of the adapter in the token's sequence,
//! which stands in a tensor: so one kernel serves sequences with different adapters.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::ops::attention::attention_merge::merged_on_cpu;
use crate::tensor::ops::attention::attention_split::{ALL_SPLITS, AttentionSplit, SHAPES, inputs, random_sinks};
use crate::tensor::ops::cache::placement::Placement;
use crate::tensor::ops::products::mat_vec::reference_linear;
use crate::tensor::ops::{AttentionMerge, RowNorm};
use crate::tensor::quant::{BLOCK, FORMATS};
use crate::tensor::soa::{from_soa, rows_to_soa};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: what `input` says, down [ranks, columns] (A, a weight of the format f16), factors [ranks, 2] u32 (of each rank which of the scales of a
/// sequence is its adapter's, and the bits of a factor besides), scales [sequences, adapters], state [4] or [tokens, 4] u32 (state[3] is the
/// sequence). Output: h [tokens, ranks]; zero where the scale is.
#[derive(Clone, Debug)]
pub struct LowRankDown {
    /// What A is multiplied with.
    pub input: LowRankInput,
}

/// What an adapter's A is multiplied with, and which inputs that is made of.
#[derive(Clone, Debug)]
pub enum LowRankInput {
    /// x [tokens, columns].
    Rows,
    /// x [tokens, columns], each row in SoA (`tensor/soa.rs`).
    Soa,
    /// x [1, columns] in SoA and the norm's vectors, as `norm_mat_vec` has them.
    Normed {
        /// The norm of x.
        norm: RowNorm,
        /// An RMS norm divides x by its root mean square, unless the product that h is added to is divided as a whole
        /// (`wgsl/normed_rows.wgsl`).
        divides: bool,
    },
    /// What `attention_merge` would give for one token: its sums, totals and sinks, if there are any. Its state comes with the others.
    Merged(AttentionMerge),
}

/// Tokens and ranks of a workgroup if there are many tokens, which share what is read.
const MANY: usize = 4;

impl Op for LowRankDown {
    on_cpu!();

    fn name(&self) -> &'static str {
        "low_rank_down"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        let operands = self.operands();
        let wanted = std::iter::repeat_n(f32, operands).chain([None, u32, f32, u32]);
        expect("low_rank_down", inputs, &wanted.collect::<Vec<_>>())?;
        let [down, factors, scales, state] = [0, 1, 2, 3].map(|further| inputs[operands + further]);
        let ((ranks, columns), (rows, of_x)) = (down.shape.matrix()?, inputs[0].shape.matrix()?);
        scales.shape.matrix()?;
        let tokens = self.tokens(rows);
        let fits = match &self.input {
            LowRankInput::Rows => true,
            LowRankInput::Soa => columns.is_multiple_of(BLOCK),
            LowRankInput::Normed { norm, .. } => {
                rows == 1 && columns.is_multiple_of(BLOCK) && inputs[1].shape.elements() == norm.vectors() * columns
            }
            LowRankInput::Merged(merge) => {
                let sinks = if merge.sinks { Some(inputs[2]) } else { None };
                let of_merge: Vec<Desc> = [inputs[0], inputs[1], state].into_iter().chain(sinks).collect();
                merge.infer(&of_merge)? == [Desc::f32(&[1, columns])]
            }
        };
        let is_f16 = matches!(down.dtype, DType::Weight(format) if format.name == "f16");
        if !fits || !is_f16 || columns != of_x || factors.shape.dims() != [ranks, 2] || !ranks.is_multiple_of(2) {
            bail!(
                ShapeMismatch,
                "low_rank_down: x {}, A {} of the type {:?} and factors {}; wanted as many columns, an even number of ranks, f16, and two words \
                 for each rank",
                inputs[0].shape,
                down.shape,
                down.dtype,
                factors.shape
            );
        }
        Placement::of("low_rank_down", state, tokens)?;
        fits_u32("low_rank_down", &[tokens, columns.next_multiple_of(BLOCK)])?;
        fits_u32("low_rank_down", &[ranks, columns.next_multiple_of(BLOCK)])?;
        Ok(vec![Desc::f32(&[tokens, ranks])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let operands = self.operands();
        let [down, _, scales, state] = [0, 1, 2, 3].map(|further| inputs[operands + further]);
        let ((tokens, ranks), (_, columns), (_, adapters)) =
            (outputs[0].shape.matrix()?, down.shape.matrix()?, scales.shape.matrix()?);
        let blocks = columns.div_ceil(BLOCK);
        let at_once = if tokens > MANY { MANY } else { 1 };
        let most = if at_once == 1 { 256 } else { 64 };
        let most = most.min(capabilities.max_invocations_per_workgroup);
        let team = Team::of_workgroup((blocks * 8).next_power_of_two().clamp(32, most as usize) as u32, capabilities);
        let mut defines = team.defines();
        defines.extend(Placement::of("low_rank_down", state, tokens)?.defines());
        let first = operands as u32;
        let numbers = [
            ("FACTORS_BINDING", first),
            ("SCALES_BINDING", first + 1),
            ("STATE_BINDING", first + 2),
            ("OUT_BINDING", first + 3),
            ("TOKENS", at_once as u32),
            ("RANKS", at_once as u32),
        ];
        defines.extend(numbers.map(|(name, number)| (name, Define::U32(number))));
        if at_once == MANY {
            defines.push(("FOUR_RANKS", Define::Flag));
        }
        let (mut epsilon, mut of_merge) = (0, [0; 3]);
        match &self.input {
            LowRankInput::Rows if columns.is_multiple_of(4) => defines.push(("VECTORS", Define::Flag)),
            LowRankInput::Rows => defines.push(("RAGGED", Define::Flag)),
            LowRankInput::Soa => defines.extend([("VECTORS", Define::Flag), ("SOA", Define::Flag)]),
            LowRankInput::Normed { norm, divides } => {
                defines.extend([("NORMED", Define::Flag), ("SOA", Define::Flag)]);
                defines.extend(norm.defines());
                if matches!(norm, RowNorm::Layer { .. }) || (*divides && matches!(norm, RowNorm::Rms { .. })) {
                    defines.push(("DIVIDED", Define::Flag));
                }
                epsilon = norm.epsilon_bits();
            }
            LowRankInput::Merged(AttentionMerge { heads, head_dim, capacity, splits, sinks }) => {
                defines.extend([("MERGED", Define::Flag), ("SOA", Define::Flag)]);
                defines.extend([("HEADS", Define::U32(*heads as u32)), ("SPLITS", Define::U32(splits.splits as u32))]);
                if *sinks {
                    defines.extend([("SINKS", Define::Flag), ("SINKS_BINDING", Define::U32(2))]);
                }
                of_merge = [*head_dim, splits.tile, *capacity].map(|number| number as u32);
            }
        }
        let numbers = [tokens, columns, blocks, ranks, adapters].map(|number| number as u32);
        let grid = [ranks.div_ceil(at_once), tokens.div_ceil(at_once)].map(|groups| groups as u32);
        if grid.into_iter().any(|groups| groups > capabilities.max_workgroups_per_dimension) {
            bail!(ShapeMismatch, "low_rank_down: {tokens} tokens and {ranks} ranks are too many");
        }
        Ok(Kernel {
            template: crate::shader!("low_rank_down.wgsl"),
            modules: &[],
            defines,
            params: numbers.into_iter().chain([epsilon]).chain(of_merge).collect(),
            grid: [grid[0], grid[1], 1],
        })
    }
}

impl Reference for LowRankDown {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let operands = self.operands();
        let (ranks, columns) = inputs[operands].shape.matrix()?;
        let x = match &self.input {
            LowRankInput::Rows => inputs[0].to_f32()?,
            LowRankInput::Soa => inputs[0].to_f32()?.chunks_exact(columns).flat_map(from_soa).collect(),
            LowRankInput::Normed { norm, divides } => {
                let x = from_soa(&inputs[0].to_f32()?);
                let vectors: Vec<Vec<f32>> = inputs[1].to_f32()?.chunks_exact(columns).map(from_soa).collect();
                let weight = inputs[operands].to_f32()?;
                let factor = if *divides { 1.0 } else { norm.divisor(&x) };
                let products =
                    norm.products(&x, &vectors, &weight).into_iter().map(|product| (product * factor) as f32);
                return self.scaled(inputs, products.collect(), ranks);
            }
            LowRankInput::Merged(merge) => {
                let mut of_merge = vec![inputs[0].clone(), inputs[1].clone(), inputs[operands + 3].clone()];
                of_merge.extend(merge.sinks.then(|| inputs[2].clone()));
                let merged = merge.reference(&mut of_merge)?;
                from_soa(&merged[0].to_f32()?)
            }
        };
        let x = HostTensor::f32(&[x.len() / columns.max(1), columns], &x);
        let products = reference_linear(&[x, inputs[operands].clone()])?;
        self.scaled(inputs, products.into_iter().map(|product| product as f32).collect(), ranks)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let operands = self.operands();
        let x = tensors.input(0)?;
        let (_, columns) = x.desc.shape.matrix()?;
        let x = match &self.input {
            LowRankInput::Rows => x.f32s()?.to_vec(),
            LowRankInput::Soa => x.f32s()?.chunks_exact(columns).flat_map(from_soa).collect(),
            LowRankInput::Normed { norm: RowNorm::Rms { .. }, divides: false } => {
                let weight = tensors.input(1)?.f32s()?;
                from_soa(&x.f32s()?.iter().zip(weight).map(|(x, weight)| x * weight).collect::<Vec<f32>>())
            }
            LowRankInput::Normed { norm, .. } => norm.on_cpu(x.f32s()?, tensors.input(1)?.f32s()?)?,
            LowRankInput::Merged(merge) => {
                let state = tensors.input(operands + 3)?.u32s()?;
                let splits = merge.splits.ranges(Placement::Consecutive.length(state, 0, merge.capacity)).len();
                let sinks = if merge.sinks { Some(tensors.input(2)?.f32s()?) } else { None };
                let of_token = [x.f32s()?, tensors.input(1)?.f32s()?];
                merged_on_cpu(of_token, splits, [merge.heads, merge.head_dim], sinks)
            }
        };
        let mut h = linear(tensors.input(operands)?, &x)?;
        let factors = tensors.input(operands + 1)?.u32s()?;
        let (scales, state) = (tensors.input(operands + 2)?, tensors.input(operands + 3)?);
        let (_, adapters) = scales.desc.shape.matrix()?;
        let (ranks, _) = tensors.input(operands)?.desc.shape.matrix()?;
        scale(factors, (scales.f32s()?, adapters), state.u32s()?, (&mut h, ranks));
        tensors.output(0)?.write_f32s(&h)
    }
}

impl LowRankDown {
    /// Inputs before A.
    fn operands(&self) -> usize {
        match &self.input {
            LowRankInput::Rows | LowRankInput::Soa => 1,
            LowRankInput::Normed { .. } => 2,
            LowRankInput::Merged(merge) => 2 + usize::from(merge.sinks),
        }
    }

    /// How many tokens a first input of this many rows holds.
    fn tokens(&self, rows: usize) -> usize {
        if matches!(self.input, LowRankInput::Merged(_)) { 1 } else { rows }
    }

    fn scaled(&self, inputs: &[HostTensor], mut h: Vec<f32>, ranks: usize) -> Result<Vec<HostTensor>> {
        let [factors, scales, state] = [1, 2, 3].map(|further| &inputs[self.operands() + further]);
        let (_, adapters) = scales.shape.matrix()?;
        scale(&factors.to_u32()?, (&scales.to_f32()?, adapters), &state.to_u32()?, (&mut h, ranks));
        Ok(vec![HostTensor::f32(&[h.len() / ranks.max(1), ranks], &h)])
    }
}

/// Multiplies rows of h with the scales of their sequences, of which each has one for each adapter.
fn scale(factors: &[u32], (scales, adapters): (&[f32], usize), state: &[u32], (h, ranks): (&mut [f32], usize)) {
    for (token, h) in h.chunks_exact_mut(ranks.max(1)).enumerate() {
        let sequence = if state.len() == 4 { state[3] } else { state[token * 4 + 3] } as usize;
        for (h, of_rank) in h.iter_mut().zip(factors.chunks_exact(2)) {
            let factor = scales[sequence * adapters + of_rank[0] as usize] * f32::from_bits(of_rank[1]);
            *h = if factor == 0.0 { 0.0 } else { *h * factor };
        }
    }
}

/// For cases: the inputs after those that A is multiplied with.
fn further(rng: &mut Rng, ranks: usize, columns: usize, state: HostTensor) -> Vec<HostTensor> {
    let Some(f16) = FORMATS.iter().find(|format| format.name == "f16") else { return vec![] };
    let (sequences, adapters) = (state.shape.elements() / 4 + 2, 3);
    let of_rank = |rank: usize| [rank as u32 / 2 % 3, (0.5 + (rank / 8) as f32 * 0.25).to_bits()];
    // A sequence has the second adapter alone, and one lacks the first.
    let mut scales: Vec<f32> = (0..sequences * adapters).map(|_| rng.signed()).collect();
    scales[0] = 0.0;
    scales[adapters..2 * adapters].copy_from_slice(&[0.0, 0.75, 0.0]);
    vec![
        rng.weight(f16, ranks, columns),
        HostTensor::u32(&[ranks, 2], &(0..ranks).flat_map(of_rank).collect::<Vec<u32>>()),
        HostTensor::f32(&[sequences, adapters], &scales),
        state,
    ]
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(71);
    let mut cases = Vec::new();
    let ranks = [6, 48, 72, 2];
    // Rows: tokens and columns.
    for (index, (tokens, columns)) in
        [(1, 7), (3, 36), (5, 64), (67, 101), (13, 1056), (130, 4), (4, 8200)].into_iter().enumerate()
    {
        for is_soa in [false, true] {
            let columns = if is_soa { usize::next_multiple_of(columns, BLOCK) } else { columns };
            let are_sequences = tokens > 1 && index % 2 == 0;
            let row = |token: usize| [7, 0, 0, (token % 3) as u32];
            let state: Vec<u32> =
                if are_sequences { (0..tokens).flat_map(row).collect() } else { row(index % 2 + 1).to_vec() };
            let state_dims = if are_sequences { vec![tokens, 4] } else { vec![4] };
            let state = HostTensor::u32(&state_dims, &state);
            let x = rng.tensor(&[tokens, columns]);
            let mut inputs = vec![if is_soa { rows_to_soa(&x).unwrap_or(x) } else { x }];
            inputs.extend(further(&mut rng, ranks[index % 4], columns, state));
            let input = if is_soa { LowRankInput::Soa } else { LowRankInput::Rows };
            cases.push(Case::new(LowRankDown { input }, inputs, 1e-5));
        }
    }
    for (index, columns) in [32, 96, 1056, 2048, 8224].into_iter().enumerate() {
        for (norm, divides) in RowNorm::ALL.into_iter().flat_map(|norm| [(norm, false), (norm, true)]) {
            let mut inputs = vec![rng.tensor(&[1, columns]), rng.tensor(&[norm.vectors() * columns])];
            let state = HostTensor::u32(&[4], &[7, 0, 0, index as u32 % 3]);
            inputs.extend(further(&mut rng, ranks[index % 4], columns, state));
            cases.push(Case::new(LowRankDown { input: LowRankInput::Normed { norm, divides } }, inputs, 1e-5));
        }
    }
    // Ranks in the hundreds, of one token and of several.
    for tokens in [1, 5] {
        let mut inputs = vec![rng.tensor(&[tokens, 64])];
        inputs.extend(further(&mut rng, 770, 64, HostTensor::u32(&[4], &[7, 0, 0, 1])));
        cases.push(Case::new(LowRankDown { input: LowRankInput::Rows }, inputs, 1e-5));
    }
    cases.extend(merged_cases(&mut rng, ranks));
    cases
}

/// Each shape that attention is merged in, of one token.
fn merged_cases(rng: &mut Rng, ranks: [usize; 4]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, shape) in SHAPES.into_iter().enumerate() {
        let (heads, kv_heads, head_dim, capacity, _) = shape;
        let splits = ALL_SPLITS[index % ALL_SPLITS.len()];
        let mut of_split = inputs(rng, 1, DType::F32, shape);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let split = AttentionSplit { heads, kv_heads, head_dim, scale, window: None, softcap: None, splits };
        let Ok(mut inputs) = split.reference(&mut of_split) else { continue };
        let Some(mut state) = of_split.pop() else { continue };
        if index % 5 == 4 {
            // Has stopped.
            state.set_u32(&[shape.4, 0, 1, 0]);
        }
        let sinks = index % 2 == 1;
        inputs.extend(sinks.then(|| random_sinks(rng, heads)));
        inputs.extend(further(rng, ranks[index % 4], heads * head_dim, state));
        let input = LowRankInput::Merged(AttentionMerge { heads, head_dim, capacity, splits, sinks });
        cases.push(Case::new(LowRankDown { input }, inputs, 1e-5));
    }
    cases
}
