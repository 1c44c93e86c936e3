//! What products with stacks of experts' matrices have in common: which of their inputs is what, whether the shapes fit, and for pairs that are
//! grouped by expert the products on the CPU and the test cases.

use rillm_cpu_kernels::{add, reserved};

use super::group_experts::{GroupExperts, random_ids};
use crate::error::Result;
use crate::tensor::cpu::fits;
use crate::tensor::cpu::linear::linear_rows;
use crate::tensor::quant::Format;
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Reference, Rng};

/// A stack of experts' matrices, or a part of one, as a product takes it: from `weight` on the inputs are the weight [experts · rows, columns],
/// with `bias` the biases [experts, rows], and for a part the output, which changes in the rows of the part's experts.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The number of all experts, also if the weight holds a part.
    pub experts: usize,
    /// Whether experts have biases.
    pub bias: bool,
    /// The number of the weight's first expert, if it is a part of the stack.
    pub part: Option<usize>,
    /// The place of the weight among the inputs.
    pub weight: usize,
}

/// The sizes of a stack.
pub struct StackShape {
    /// Of each matrix.
    pub rows: usize,
    pub columns: usize,
    /// The number of the first matrix, and how many there are.
    pub first: usize,
    pub matrices: usize,
}

impl Stack {
    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.out() + usize::from(self.part.is_some())
    }

    /// The place of a part's output.
    fn out(&self) -> usize {
        self.weight + 1 + usize::from(self.bias)
    }

    /// Its sizes, if they are those of a product of `pairs` of a token and an expert.
    pub fn shape(&self, inputs: &[Desc], pairs: usize) -> Result<Option<StackShape>> {
        let (all_rows, columns) = inputs[self.weight].shape.matrix()?;
        let out = match self.part {
            Some(_) => Some(inputs[self.out()].shape.matrix()?),
            None => None,
        };
        let rows = out.map_or(all_rows / self.experts.max(1), |(_, rows)| rows);
        if self.experts == 0 || !all_rows.is_multiple_of(rows.max(1)) {
            return Ok(None);
        }
        let (first, matrices) = (self.part.unwrap_or(0), all_rows / rows.max(1));
        let holds_all = self.part.is_some() || all_rows.is_multiple_of(self.experts);
        let biases_fit = !self.bias || inputs[self.weight + 1].shape.dims() == [self.experts, rows];
        let fits = holds_all
            && out.is_none_or(|(out_rows, _)| out_rows == pairs)
            && first + matrices <= self.experts
            && biases_fit;
        Ok(fits.then_some(StackShape { rows, columns, first, matrices }))
    }

    /// What the product gives: the rows of all pairs, if they are not among the inputs.
    pub fn outputs(&self, shape: &StackShape, pairs: usize) -> Vec<Desc> {
        match self.part {
            Some(_) => vec![],
            None => vec![Desc::f32(&[pairs, shape.rows])],
        }
    }

    /// On the CPU's device: `multiply`. Each expert's matrix is read once.
    pub fn multiply_on_cpu(
        &self,
        x: &[f32],
        pairs: usize,
        mut items: Vec<(usize, usize)>,
        tensors: &mut CpuTensors<'_>,
    ) -> Result<()> {
        let descs: Vec<Desc> = tensors.inputs.iter().map(|input| input.desc).collect();
        let Some(StackShape { rows, columns, first, matrices }) = self.shape(&descs, pairs)? else {
            bail!(Internal, "a stack of shapes that don't fit");
        };
        items.retain(|(_, expert)| (first..first + matrices).contains(expert));
        items.sort_by_key(|(_, expert)| *expert);
        let of_row = pairs / (x.len() / columns).max(1);
        let CpuTensors { inputs, outputs, .. } = tensors;
        let (read, changed) = inputs.split_at_mut(self.out().min(descs.len()));
        let weight = &read[self.weight];
        let biases = if self.bias { Some(read[self.weight + 1].f32s()?) } else { None };
        let out = match (self.part, changed.first_mut(), outputs.first_mut()) {
            (Some(_), Some(out), _) => out.f32s_mut()?,
            (None, _, Some(out)) => {
                let out = out.f32s_mut()?;
                out.fill(0.0);
                out
            }
            _ => bail!(Internal, "a product of experts without an output"),
        };
        for group in items.chunk_by(|a, b| a.1 == b.1) {
            let expert = group[0].1;
            let mut of_group = fits(reserved(group.len() * columns))?;
            for (pair, _) in group {
                of_group.extend_from_slice(&x[pair / of_row * columns..][..columns]);
            }
            let here = (expert - first) * rows;
            let products = linear_rows(weight, here..here + rows, &of_group)?;
            for ((pair, _), product) in group.iter().zip(products.chunks_exact(rows.max(1))) {
                let out = &mut out[pair * rows..][..rows];
                out.copy_from_slice(product);
                if let Some(biases) = biases {
                    add(out, &biases[expert * rows..][..rows]);
                }
            }
        }
        Ok(())
    }

    /// The same where `order` and `tiles` of `group_experts` come before the weight and say the items.
    pub fn multiply_groups_on_cpu(&self, x: &[f32], tensors: &mut CpuTensors<'_>) -> Result<()> {
        let (order, tiles) = (tensors.input(self.weight - 2)?.u32s()?, tensors.input(self.weight - 1)?.u32s()?);
        let of_tile = |tile: &[u32]| {
            let expert = tile[0] as usize;
            let pairs = order[tile[1] as usize..][..tile[2] as usize].iter();
            pairs.map(|pair| (*pair as usize, expert)).collect::<Vec<_>>()
        };
        let items = tiles.chunks_exact(4).flat_map(of_tile).collect();
        self.multiply_on_cpu(x, order.len(), items, tensors)
    }

    /// For references: the products of `items`, which are the numbers of a pair and of its expert, with the rows of `x`, one for each token or for
    /// each of all `pairs`.
    pub fn multiply(
        &self,
        x: &[f64],
        pairs: usize,
        items: impl Iterator<Item = (usize, usize)>,
        inputs: &mut [HostTensor],
    ) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[self.weight].shape.matrix()?;
        let weight = inputs[self.weight].to_f32()?;
        let bias = if self.bias { inputs[self.weight + 1].to_f32()? } else { vec![] };
        let (first, rows) = match (self.part, inputs.get(self.out())) {
            (Some(first), Some(out)) => (first, out.shape.dims()[1]),
            _ => (0, weight.len() / columns / self.experts),
        };
        let mut out = match inputs.get(self.out()) {
            Some(out) => out.to_f32()?,
            None => vec![0.0; pairs * rows],
        };
        let of_row = pairs / (x.len() / columns);
        let matrices: Vec<&[f32]> = weight.chunks_exact(rows * columns).collect();
        for (pair, expert) in items {
            let Some(matrix) = expert.checked_sub(first).and_then(|here| matrices.get(here)) else { continue };
            let x = &x[pair / of_row * columns..][..columns];
            for (at, row) in matrix.chunks_exact(columns).enumerate() {
                let product = x.iter().zip(row).map(|(x, w)| x * f64::from(*w)).sum::<f64>();
                let bias = bias.get(expert * rows + at).map_or(0.0, |bias| f64::from(*bias));
                out[pair * rows + at] = (product + bias) as f32;
            }
        }
        if let Some(changed) = inputs.get_mut(self.out()) {
            changed.set_f32(&out);
            return Ok(vec![]);
        }
        Ok(vec![HostTensor::f32(&[pairs, rows], &out)])
    }

    /// The same where `order` and `tiles` of `group_experts` come before the weight and say the items.
    pub fn multiply_groups(&self, x: &[f64], inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (order, tiles) = (inputs[self.weight - 2].to_u32()?, inputs[self.weight - 1].to_u32()?);
        let of_tile = |tile: &[u32]| {
            let expert = tile[0] as usize;
            order[tile[1] as usize..][..tile[2] as usize]
                .iter()
                .map(move |pair| (*pair as usize, expert))
                .collect::<Vec<_>>()
        };
        self.multiply(x, order.len(), tiles.chunks_exact(4).flat_map(of_tile), inputs)
    }
}

/// Tokens, experts that each uses, experts, and the rows and columns of their matrices.
pub type GroupedSizes = [usize; 5];

/// Adds cases of pairs that are grouped by expert: with the whole stack, and with a part of it that has the experts of some of the ids. `x` makes
/// this number of rows, and `case` the case of a stack.
pub fn add_grouped_cases(
    cases: &mut Vec<Case>,
    rng: &mut Rng,
    format: &'static Format,
    [tokens, used, experts, rows, columns]: GroupedSizes,
    x: impl Fn(&mut Rng, usize) -> Vec<HostTensor>,
    case: impl Fn(usize, bool, Option<usize>, Vec<HostTensor>) -> Case,
) {
    for (all, part) in [(experts, None), (experts + 3, Some(2))] {
        let mut ids = [random_ids(rng, tokens, used, all)];
        let Ok(grouped) = (GroupExperts { experts: all }).reference(&mut ids) else { continue };
        let x_rows = if cases.len().is_multiple_of(2) { tokens } else { tokens * used };
        let mut inputs = x(rng, x_rows);
        inputs.extend(grouped);
        inputs.push(rng.weight(format, experts * rows, columns));
        let bias = cases.len() % 3 == 1;
        inputs.extend(bias.then(|| rng.tensor(&[all, rows])));
        inputs.extend(part.map(|_| rng.tensor(&[tokens * used, rows])));
        cases.push(case(all, bias, part, inputs));
    }
}
