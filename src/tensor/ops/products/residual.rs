//! What becomes of one token's product where a layer adds to the residual stream.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::planar::{from_planar, to_planar};
use crate::tensor::quant::BLOCK;
use crate::tensor::{Desc, HostTensor, Rng};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    /// x, the last input, [1, rows] in planes, is changed: x += product · scale. Where the weight is a part of a matrix, the product
    /// is that of the rows from `first_row` on of all that x has.
    Add { scale: f32, first_row: usize },
    /// The product [1, rows] in planes is an output, because a norm comes before the sum.
    Apart,
}

impl Residual {
    pub const ADD: Residual = Residual::Add { scale: 1.0, first_row: 0 };

    /// Of each kind one.
    pub(in crate::tensor::ops) const ALL: [Residual; 3] =
        [Residual::ADD, Residual::Add { scale: 0.22, first_row: 68 }, Residual::Apart];

    /// Whether x is an input.
    pub(in crate::tensor::ops) fn adds(self) -> bool {
        matches!(self, Self::Add { .. })
    }

    pub(in crate::tensor::ops) fn first_row(self) -> usize {
        match self {
            Self::Add { first_row, .. } => first_row,
            Self::Apart => 0,
        }
    }

    /// The inputs after the `operands`: a bias of all rows of x, if there is one, and x, if there is one.
    pub(in crate::tensor::ops) fn inputs(self, bias: bool) -> usize {
        usize::from(bias) + usize::from(self.adds())
    }

    /// The input that the kernel writes.
    pub(in crate::tensor::ops) fn mutates(self, operands: usize, bias: bool) -> &'static [usize] {
        match (self.adds(), operands + usize::from(bias)) {
            (true, 2) => &[2],
            (true, 3) => &[3],
            (true, 4) => &[4],
            (true, 5) => &[5],
            _ => &[],
        }
    }

    /// The outputs of a product of so many rows, if the inputs after the operands fit.
    pub(in crate::tensor::ops) fn infer(
        self,
        inputs: &[Desc],
        operands: usize,
        bias: bool,
        rows: usize,
    ) -> Option<Vec<Desc>> {
        let all_rows = match inputs.last().filter(|_| self.adds()).map(|x| x.shape.dims().to_vec()) {
            None => rows,
            Some(dims) if dims.len() == 2 && dims[0] == 1 => dims[1],
            Some(_) => return None,
        };
        let fits = self.first_row() + rows <= all_rows
            && all_rows.is_multiple_of(BLOCK)
            && (!bias || inputs.get(operands).is_some_and(|bias| bias.shape.dims() == [all_rows]));
        fits.then(|| if self.adds() { vec![] } else { vec![Desc::f32(&[1, rows])] })
    }

    /// For kernels whose operands take the bindings below `first`.
    pub(in crate::tensor::ops) fn defines(self, first: u32, bias: bool) -> Vec<(&'static str, Define)> {
        let mut defines = vec![("X_BINDING", Define::U32(first + u32::from(bias)))];
        if bias {
            defines.extend([("BIAS", Define::Flag), ("BIAS_BINDING", Define::U32(first))]);
        }
        match self {
            Self::Add { scale: 1.0, .. } => {}
            Self::Add { scale, .. } => defines.extend([("SCALED", Define::Flag), ("SCALE", Define::F32(scale))]),
            Self::Apart => defines.push(("APART", Define::Flag)),
        }
        defines
    }

    /// The words of the parameters that `wgsl/residual.wgsl` wants: the first row and the blocks of x.
    pub(in crate::tensor::ops) fn params(self, inputs: &[Desc], rows: usize) -> [u32; 2] {
        let x = inputs.last().filter(|_| self.adds());
        let all_rows = x.and_then(|x| x.shape.dims().last().copied()).unwrap_or(rows);
        [self.first_row() as u32, (all_rows / BLOCK) as u32]
    }

    /// What kernels do with a product in its order, on the CPU.
    pub(in crate::tensor::ops) fn reference(
        self,
        inputs: &mut [HostTensor],
        operands: usize,
        bias: bool,
        mut product: Vec<f32>,
    ) -> Result<Vec<HostTensor>> {
        if bias {
            let bias = inputs[operands].to_f32()?;
            product.iter_mut().zip(&bias[self.first_row()..]).for_each(|(value, bias)| *value += bias);
        }
        let Self::Add { scale, first_row } = self else {
            return Ok(vec![HostTensor::f32(&[1, product.len()], &to_planar(&product))]);
        };
        let x = &mut inputs[operands + usize::from(bias)];
        let mut sum = from_planar(&x.to_f32()?);
        sum[first_row..].iter_mut().zip(&product).for_each(|(x, product)| *x += product * scale);
        x.set_f32(&to_planar(&sum));
        Ok(vec![])
    }

    /// Random inputs after the operands, of a product of so many rows.
    pub(in crate::tensor::ops) fn random_inputs(self, rng: &mut Rng, bias: bool, rows: usize) -> Vec<HostTensor> {
        // Rows of x behind the product too, where it is a part.
        let all_rows = if self.first_row() > 0 { (self.first_row() + rows).next_multiple_of(BLOCK) } else { rows };
        let bias = bias.then(|| rng.tensor(&[all_rows]));
        bias.into_iter().chain(self.adds().then(|| rng.tensor(&[1, all_rows]))).collect()
    }
}
