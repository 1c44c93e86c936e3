//! Where one token's product goes at the end of a half layer: into the residual stream, or into an output.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{change_soa, from_soa, to_soa, write_soa};
use crate::tensor::{CpuTensors, Desc, HostTensor, Rng};

/// What happens to a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    /// x, the last input, [1, rows] in SoA, is changed: x += product · scale.
    Add {
        /// The factor of the product.
        scale: f32,
        /// The row of x that the weight's first row belongs to. Not 0 only if the weight is a part of a matrix.
        first_row: usize,
    },
    /// The product [1, rows] in SoA is an output, because a norm comes before the sum.
    Apart,
}

impl Residual {
    /// x += product, all rows of it.
    pub const ADD: Residual = Residual::Add { scale: 1.0, first_row: 0 };

    /// One of each kind.
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

    /// The number of inputs after the operands: an optional bias of all rows of x, and x, if the product is added to it.
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
            (true, 6) => &[6],
            (true, 7) => &[7],
            (true, 8) => &[8],
            _ => &[],
        }
    }

    /// The outputs of a product of `rows` rows, if the inputs after the operands fit.
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

    /// The parameters for `wgsl/residual.wgsl`: the first row and the blocks of x.
    pub(in crate::tensor::ops) fn params(self, inputs: &[Desc], rows: usize) -> [u32; 2] {
        let x = inputs.last().filter(|_| self.adds());
        let all_rows = x.and_then(|x| x.shape.dims().last().copied()).unwrap_or(rows);
        [self.first_row() as u32, (all_rows / BLOCK) as u32]
    }

    /// Where the device is the CPU, for a product in the order of rows.
    pub(in crate::tensor::ops) fn on_cpu(
        self,
        tensors: &mut CpuTensors<'_>,
        operands: usize,
        bias: bool,
        mut product: Vec<f32>,
    ) -> Result<()> {
        if bias {
            let bias = tensors.input(operands)?.f32s()?;
            product.iter_mut().zip(&bias[self.first_row()..]).for_each(|(value, bias)| *value += bias);
        }
        match self {
            Self::Add { scale, first_row } => {
                let x = tensors.changed(operands + usize::from(bias))?.f32s_mut()?;
                change_soa(x, first_row, &product, |x, product| x + product * scale);
            }
            Self::Apart => write_soa(&product, tensors.output(0)?.f32s_mut()?),
        }
        Ok(())
    }

    /// The same for the reference.
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
            return Ok(vec![HostTensor::f32(&[1, product.len()], &to_soa(&product))]);
        };
        let x = &mut inputs[operands + usize::from(bias)];
        let mut sum = from_soa(&x.to_f32()?);
        sum[first_row..].iter_mut().zip(&product).for_each(|(x, product)| *x += product * scale);
        x.set_f32(&to_soa(&sum));
        Ok(vec![])
    }

    /// Random inputs after the operands, for a product of `rows` rows.
    pub(in crate::tensor::ops) fn random_inputs(self, rng: &mut Rng, bias: bool, rows: usize) -> Vec<HostTensor> {
        // Also rows of x after the product, if it is a part.
        let all_rows = if self.first_row() > 0 { (self.first_row() + rows).next_multiple_of(BLOCK) } else { rows };
        let bias = bias.then(|| rng.tensor(&[all_rows]));
        bias.into_iter().chain(self.adds().then(|| rng.tensor(&[1, all_rows]))).collect()
    }
}
