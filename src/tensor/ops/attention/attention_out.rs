//! The second half of one token's attention, in one dispatch: merges the splits of `attention_split`, projects, and adds to the
//! residual stream.

use super::attention_merge::merged_on_cpu;
use super::attention_split::{ALL_SPLITS, SHAPES, Splits, random_sinks};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::{grid_2d, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Residual;
use crate::tensor::ops::products::low_rank;
use crate::tensor::ops::products::mat_vec::reference_linear;
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::from_soa;
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: sums [splits, heads · head_dim] and totals [splits, heads · 2] of `attention_split`, weight [rows, heads · head_dim],
/// state [4] u32 (state[0] is the token's position; state[2] is not 0 if the sequence has stopped: then nothing is done), with `sinks`
/// the score of each head's sink [heads], which takes its part of the softmax and has no value (Xiao et al. 2023, as gpt-oss learns them),
/// with `low_rank` h and the words of B (`low_rank.rs`), a bias of all rows, if there is one, and x [1, rows] in SoA, if the product is added to it (`Residual`).
#[derive(Clone)]
pub struct AttentionOut {
    /// Query heads.
    pub heads: usize,
    /// The dimensions of a head.
    pub head_dim: usize,
    /// The capacity of the KV cache, in positions.
    pub capacity: usize,
    /// How `attention_split` divided the positions.
    pub splits: Splits,
    /// Whether heads have sinks.
    pub sinks: bool,
    /// Where the product goes.
    pub residual: Residual,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether an adapter adds to the product.
    pub low_rank: bool,
}

/// The input that sinks are.
const SINKS: usize = 4;

/// Invocations of a workgroup that merges the splits for all its rows.
const WORKGROUP: u32 = 256;

impl Op for AttentionOut {
    on_cpu!();

    fn name(&self) -> &'static str {
        "attention_out"
    }

    fn mutates(&self) -> &'static [usize] {
        self.residual.mutates(self.operands(), self.bias)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let operands = self.operands();
        let sinks = self.sinks.then_some(f32);
        let of_adapter = [f32, Some(DType::U32)].into_iter().take(low_rank::inputs(self.low_rank));
        let further = std::iter::repeat_n(f32, self.residual.inputs(self.bias));
        let first = [f32, f32, None, Some(DType::U32)].into_iter();
        let wanted: Vec<_> = first.chain(sinks).chain(of_adapter).chain(further).collect();
        expect("attention_out", inputs, &wanted)?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let splits = self.splits.splits;
        let fits = inputs[0].shape.dims() == [splits, columns]
            && inputs[1].shape.dims() == [splits, self.heads * 2]
            && columns == self.heads * self.head_dim
            && self.head_dim.is_multiple_of(4)
            && columns.is_multiple_of(32)
            && (!self.sinks || inputs[SINKS].shape.dims() == [self.heads])
            && low_rank::fit(self.low_rank, inputs, self.of_adapter());
        match self.residual.infer(inputs, operands, self.bias, rows).filter(|_| fits) {
            Some(outputs) => Ok(outputs),
            None => bail!(
                ShapeMismatch,
                "attention_out: sums {}, totals {}, weight {}, sinks, bias and x {:?}; wanted {splits} splits, {} heads of {} elements (a \
                 multiple of 4), and multiples of 32 in all",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                &inputs[SINKS..],
                self.heads,
                self.head_dim
            ),
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        // Otherwise every team would read all splits again.
        let merges_once =
            self.can_merge_once(columns, capabilities) && capabilities.max_invocations_per_workgroup >= WORKGROUP;
        let (team, rows_of_a_team) = if merges_once {
            (Team::in_workgroup(columns, WORKGROUP, capabilities), 4)
        } else {
            (Team::for_columns(columns, capabilities), 2)
        };
        self.kernel_of(team, rows_of_a_team, merges_once, inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        let Ok((_, columns)) = inputs[2].shape.matrix() else { return vec![] };
        let apart = Team::candidates(capabilities).into_iter().filter(|team| team.get("workgroup") == 64);
        let mut variants: Vec<Variant> = apart.map(|team| team.with("rows", 2).with("merged", 0)).collect();
        if self.can_merge_once(columns, capabilities) {
            let lanes = subgroup_lanes(capabilities, 32).unwrap_or(u32::MAX);
            let together = [(32, 128, 4), (32, 256, 2), (32, 256, 4), (64, 256, 4)];
            variants.extend(
                together
                    .into_iter()
                    .filter(|(team, workgroup, _)| {
                        *team >= lanes && *workgroup <= capabilities.max_invocations_per_workgroup
                    })
                    .map(|(team, workgroup, rows)| {
                        Variant::new(&[("team", team), ("workgroup", workgroup), ("rows", rows), ("merged", 1)])
                    }),
            );
        }
        variants
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        let team = Team::of(variant, columns, capabilities);
        self.kernel_of(team, variant.get("rows"), variant.get("merged") == 1, inputs, capabilities)
    }

    fn tuning_sizes(&self, inputs: &[Desc]) -> [usize; 3] {
        let [rows, columns] = [0, 1].map(|dim| inputs[2].shape.dims().get(dim).copied().unwrap_or_default());
        [rows, columns, self.splits.splits]
    }
}

impl Reference for AttentionOut {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[2].shape.matrix()?;
        let (sums, totals) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let state = inputs[3].to_u32()?;
        if state[2] != 0 {
            return Ok(vec![]);
        }
        let length = (state[0] as usize + 1).min(self.capacity);
        let splits = self.splits.ranges(length).len();
        let rows: Vec<Vec<f32>> = sums.chunks_exact(columns).take(splits).map(from_soa).collect();
        let sinks = if self.sinks { Some(inputs[SINKS].to_f32()?) } else { None };
        let merged: Vec<f32> = (0..columns)
            .map(|column| {
                let total = |split: usize| &totals[(split * self.heads + column / self.head_dim) * 2..][..2];
                let sink = sinks.as_ref().map(|sinks| sinks[column / self.head_dim]);
                let scores = (0..splits).map(|split| total(split)[0]).chain(sink);
                let largest = scores.fold(f32::NEG_INFINITY, f32::max);
                let of_sink = sink.map_or(0.0, |sink| (f64::from(sink) - f64::from(largest)).exp());
                let weight = |split: usize| (f64::from(total(split)[0]) - f64::from(largest)).exp();
                let sum: f64 = (0..splits).map(|split| weight(split) * f64::from(rows[split][column])).sum();
                let all: f64 = (0..splits).map(|split| weight(split) * f64::from(total(split)[1])).sum();
                (sum / (all + of_sink)) as f32
            })
            .collect();
        let attention = HostTensor::f32(&[1, columns], &merged);
        let mut products = reference_linear(&[attention, inputs[2].clone()])?;
        low_rank::add_reference(self.low_rank, inputs, self.of_adapter(), 1.0, &mut products)?;
        let products = products.iter().map(|product| *product as f32).collect();
        self.residual.reference(inputs, self.operands(), self.bias, products)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let state = tensors.input(3)?.u32s()?;
        if state[2] != 0 {
            return Ok(());
        }
        let splits = self.splits.ranges((state[0] as usize + 1).min(self.capacity)).len();
        let sinks = if self.sinks { Some(tensors.input(SINKS)?.f32s()?) } else { None };
        let of_token = [tensors.input(0)?.f32s()?, tensors.input(1)?.f32s()?];
        let merged = merged_on_cpu(of_token, splits, [self.heads, self.head_dim], sinks);
        let mut product = linear(tensors.input(2)?, &merged)?;
        low_rank::add_on_cpu(self.low_rank, &tensors, self.of_adapter(), 1.0, &mut product)?;
        self.residual.on_cpu(&mut tensors, self.operands(), self.bias, product)
    }
}

impl AttentionOut {
    /// The inputs before the bias.
    fn operands(&self) -> usize {
        self.of_adapter() + low_rank::inputs(self.low_rank)
    }

    /// The inputs before those of an adapter.
    fn of_adapter(&self) -> usize {
        SINKS + usize::from(self.sinks)
    }

    /// Whether the attention of all heads fits in workgroup memory, and is worth it.
    fn can_merge_once(&self, columns: usize, capabilities: &Capabilities) -> bool {
        self.splits.splits > 1 && columns * 4 <= capabilities.max_workgroup_storage_size as usize / 2
    }

    fn kernel_of(
        &self,
        team: Team,
        rows_of_a_team: u32,
        merges_once: bool,
        inputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        let (rows, columns) = inputs[2].shape.matrix()?;
        let blocks = columns / BLOCK;
        let splits = self.splits.splits;
        let mut defines = team.defines();
        // The weight has bindings of its own.
        defines.extend(low_rank::defines(self.low_rank, self.of_adapter() as u32 - 1));
        defines.extend(self.residual.defines(self.operands() as u32 - 1, self.bias));
        if self.sinks {
            defines.extend([("SINKS", Define::Flag), ("SINKS_BINDING", Define::U32(3))]);
        }
        defines.extend([
            ("ROWS", Define::U32(rows_of_a_team)),
            ("TWO_ROWS", Define::Flag),
            ("SPLITS", Define::U32(splits as u32)),
            ("HEADS", Define::U32(self.heads as u32)),
            ("BLOCKS", Define::U32(blocks as u32)),
        ]);
        if rows_of_a_team == 4 {
            defines.push(("FOUR_ROWS", Define::Flag));
        }
        if merges_once {
            defines.push(("MERGED_ONCE", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("attention_out.wgsl"),
            modules: &[],
            defines,
            params: [rows, blocks, self.head_dim, self.splits.tile, self.capacity]
                .map(|number| number as u32)
                .into_iter()
                .chain(self.residual.params(inputs, rows))
                .collect(),
            grid: grid_2d(
                rows.div_ceil(rows_of_a_team as usize * team.teams()),
                capabilities.max_workgroups_per_dimension,
            ),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(36);
    let mut cases = Vec::new();
    for (index, (heads, _, head_dim, capacity, position)) in SHAPES.into_iter().enumerate() {
        for splits in ALL_SPLITS {
            let columns = heads * head_dim;
            // The formats take turns, if they have rows of this many columns.
            let formats: Vec<_> = in_cases().filter(|format| columns.is_multiple_of(format.block_size)).collect();
            let format = formats[cases.len() % formats.len()];
            let rows = [32, 96, 1056][index % 3];
            let totals: Vec<f32> =
                (0..splits.splits * heads).flat_map(|_| [rng.signed() * 3.0, 1.0 + rng.below(60) as f32]).collect();
            let residual = Residual::ALL[cases.len() / 2 % Residual::ALL.len()];
            // Every seventh has stopped, if there is an input that then stays as it is.
            let has_stopped = u32::from(cases.len() % 7 == 6 && residual.adds());
            let mut inputs = vec![
                rng.tensor(&[splits.splits, columns]),
                HostTensor::f32(&[splits.splits, heads * 2], &totals),
                rng.weight(format, rows, columns),
                HostTensor::u32(&[4], &[position, 0, has_stopped, 0]),
            ];
            let (bias, sinks) = (cases.len() % 4 >= 2, cases.len() % 3 == 1);
            inputs.extend(sinks.then(|| random_sinks(&mut rng, heads)));
            let low_rank = cases.len() % 5 == 2;
            inputs.extend(low_rank::random_inputs(low_rank, &mut rng, rows));
            inputs.extend(residual.random_inputs(&mut rng, bias, rows));
            let op = AttentionOut { heads, head_dim, capacity, splits, sinks, residual, bias, low_rank };
            cases.push(Case::new(op, inputs, 1e-5));
        }
    }
    cases
}
