//! The first half of a feed-forward without a gate of one token, in one dispatch: a norm, the projection, its bias and the
//! activation. Or a layer's part of per-layer embeddings (Gemma 3n), where the activation gates a vector.

use rillm_cpu_kernels::activate;

use super::mat_vec::takes_case;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::{Activation, RowNorm};
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::soa::{change_soa, from_soa, to_soa, write_soa};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [1, columns] in SoA (`tensor/soa.rs`), norm [columns] in SoA (of a layer norm [2 · columns], weight and bias:
/// `RowNorm`), weight [rows, columns], an optional bias of all rows, and with `times` numbers [1, n]. Output: [1, rows] in SoA. If the
/// weight is a part of the matrix, the output of all rows is a further input (changed from `part` on).
#[derive(Clone, Copy, Debug)]
pub struct NormUp {
    /// The norm of x before the products.
    pub norm: RowNorm,
    /// The function that the projection goes through.
    pub activation: Activation,
    /// Whether there is a bias.
    pub bias: bool,
    /// Each row's result is multiplied by a number: this is the place of the first row's.
    pub times: Option<usize>,
    /// The weight's first row in the matrix, if it is a part of it.
    pub part: Option<usize>,
}

const ROWS: usize = 4;
const OPERANDS: usize = 3;

impl Op for NormUp {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_up"
    }

    fn mutates(&self) -> &'static [usize] {
        match (self.part, self.more()) {
            (None, _) => &[],
            (Some(_), 0) => &[3],
            (Some(_), 1) => &[4],
            (Some(_), _) => &[5],
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        let all = OPERANDS + self.more() + usize::from(self.part.is_some());
        expect("norm_up", inputs, &[f32, f32, None, f32, f32, f32][..all])?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let all_rows = self.all_rows(inputs)?;
        let fits = inputs[0].shape.dims() == [1, columns]
            && inputs[1].shape.elements() == self.norm.vectors() * columns
            && columns.is_multiple_of(BLOCK)
            && all_rows.is_multiple_of(BLOCK)
            && self.part.unwrap_or(0) + rows <= all_rows
            && (!self.bias || inputs[OPERANDS].shape.dims() == [all_rows])
            && self.times.is_none_or(|first| first + all_rows <= inputs[self.numbers()].shape.elements());
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_up: x {}, norm {}, weight {}, bias, numbers and output {:?}; wanted one row of as many columns as the weight, \
                 multiples of {BLOCK}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                &inputs[OPERANDS..]
            );
        }
        Ok(if self.part.is_some() { vec![] } else { vec![Desc::f32(&[1, rows])] })
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::staged(columns, capabilities), inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        inputs[2].shape.matrix().map_or(vec![], |(_, columns)| Team::staged_candidates(columns, capabilities))
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::of(variant, columns, capabilities), inputs, capabilities)
    }
}

impl Reference for NormUp {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let x = from_soa(&inputs[0].to_f32()?);
        let norm: Vec<Vec<f32>> = inputs[1].to_f32()?.chunks_exact(x.len()).map(from_soa).collect();
        let mut products = self.norm.products(&x, &norm, &inputs[2].to_f32()?);
        let first = self.part.unwrap_or(0);
        if self.bias {
            let bias = inputs[OPERANDS].to_f32()?;
            products.iter_mut().zip(&bias[first..]).for_each(|(product, bias)| *product += f64::from(*bias));
        }
        let mut values: Vec<f32> = products.into_iter().map(|value| self.activation.of(value) as f32).collect();
        if let Some(place) = self.times {
            let numbers = inputs[self.numbers()].to_f32()?;
            values.iter_mut().zip(&numbers[place + first..]).for_each(|(value, number)| *value *= number);
        }
        if self.part.is_none() {
            return Ok(vec![HostTensor::f32(&[1, values.len()], &to_soa(&values))]);
        }
        let out = &mut inputs[OPERANDS + self.more()];
        let mut all = from_soa(&out.to_f32()?);
        all[first..first + values.len()].copy_from_slice(&values);
        out.set_f32(&to_soa(&all));
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let normed = self.norm.on_cpu(tensors.input(0)?.f32s()?, tensors.input(1)?.f32s()?)?;
        let mut values = linear(tensors.input(2)?, &normed)?;
        let first = self.part.unwrap_or(0);
        if self.bias {
            let bias = tensors.input(OPERANDS)?.f32s()?;
            values.iter_mut().zip(&bias[first..]).for_each(|(value, bias)| *value += bias);
        }
        activate(self.activation.on_cpu(), &mut values);
        if let Some(place) = self.times {
            let numbers = tensors.input(self.numbers())?.f32s()?;
            values.iter_mut().zip(&numbers[place + first..]).for_each(|(value, number)| *value *= number);
        }
        if self.part.is_none() {
            write_soa(&values, tensors.output(0)?.f32s_mut()?);
        } else {
            let out = tensors.changed(OPERANDS + self.more())?.f32s_mut()?;
            change_soa(out, first, &values, |_, value| value);
        }
        Ok(())
    }
}

impl NormUp {
    /// Inputs between the operands and the output of a part.
    fn more(&self) -> usize {
        usize::from(self.bias) + usize::from(self.times.is_some())
    }

    /// The input that rows are multiplied by.
    fn numbers(&self) -> usize {
        OPERANDS + usize::from(self.bias)
    }

    fn all_rows(&self, inputs: &[Desc]) -> Result<usize> {
        let out = inputs.last().filter(|_| self.part.is_some());
        Ok(out.unwrap_or(&inputs[2]).shape.dims()[if out.is_some() { 1 } else { 0 }])
    }

    fn kernel_of(&self, team: Team, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[2].shape.matrix()?;
        let mut defines = team.defines();
        defines.extend(self.norm.defines());
        defines.extend(self.activation.defines());
        defines.extend([("TWO_ROWS", Define::Flag), ("FOUR_ROWS", Define::Flag)]);
        defines.push(("OUT_BINDING", Define::U32(2 + self.more() as u32)));
        if self.bias {
            defines.extend([("BIAS", Define::Flag), ("BIAS_BINDING", Define::U32(2))]);
        }
        if self.times.is_some() {
            defines.extend([("TIMES", Define::Flag), ("TIMES_BINDING", Define::U32(2 + u32::from(self.bias)))]);
        }
        Ok(Kernel {
            template: crate::shader!("norm_up.wgsl"),
            modules: &[],
            defines,
            params: vec![
                columns as u32,
                (columns / BLOCK) as u32,
                self.norm.epsilon_bits(),
                rows as u32,
                self.part.unwrap_or(0) as u32,
                (self.all_rows(inputs)? / BLOCK) as u32,
                self.times.unwrap_or(0) as u32,
            ],
            grid: grid_2d(rows.div_ceil(ROWS * team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(99);
    let mut cases = Vec::new();
    for format in in_cases() {
        let shapes = [(32, 32), (96, 160), (1024, 224), (160, 2080)];
        for (index, (rows, columns)) in shapes.into_iter().enumerate() {
            if !takes_case(format, index, shapes.len()) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let norm = RowNorm::ALL[cases.len() % 3];
            let activation = Activation::ALL[cases.len() / 2 % Activation::ALL.len()];
            let bias = cases.len() % 2 == 1;
            let part = (cases.len() % 4 >= 2).then_some(20);
            let times = (cases.len() % 3 == 1).then_some(cases.len() % 7);
            // Rows before and after a part.
            let all_rows = if part.is_some() { rows + 64 } else { rows };
            let vectors = rng.tensor(&[norm.vectors() * columns]);
            let mut inputs = vec![rng.tensor(&[1, columns]), vectors, rng.weight(format, rows, columns)];
            inputs.extend(bias.then(|| rng.tensor(&[all_rows])));
            inputs.extend(times.map(|first| rng.tensor(&[1, first + all_rows + 3])));
            inputs.extend(part.map(|_| rng.tensor(&[1, all_rows])));
            cases.push(Case::new(NormUp { norm, activation, bias, times, part }, inputs, 1e-5));
        }
    }
    cases
}
