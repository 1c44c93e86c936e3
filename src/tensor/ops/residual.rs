//! What becomes of one token's product where a layer adds to the residual stream.

use crate::gpu::Define;
use crate::tensor::{Desc, HostTensor};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residual {
    /// x, the last input, [1, rows] in planes, is changed: x += product · scale.
    Add { scale: f32 },
    /// The product [1, rows] in planes is an output, because a norm comes before the sum.
    Apart,
}

impl Residual {
    pub const ADD: Residual = Residual::Add { scale: 1.0 };

    /// Of each kind one.
    pub(super) const ALL: [Residual; 3] = [Residual::ADD, Residual::Add { scale: 0.22 }, Residual::Apart];

    /// Whether x is an input.
    pub(super) fn adds(self) -> bool {
        matches!(self, Self::Add { .. })
    }

    pub(super) fn outputs(self, rows: usize) -> Vec<Desc> {
        if self.adds() { vec![] } else { vec![Desc::f32(&[1, rows])] }
    }

    pub(super) fn defines(self) -> Vec<(&'static str, Define)> {
        match self {
            Self::Add { scale: 1.0 } => vec![],
            Self::Add { scale } => vec![("SCALED", Define::Flag), ("SCALE", Define::F32(scale))],
            Self::Apart => vec![("APART", Define::Flag)],
        }
    }

    /// What kernels do with a product in planes, on the CPU; `x` is the index of that input.
    pub(super) fn reference(
        self,
        inputs: &mut [HostTensor],
        x: usize,
        product: &[f32],
    ) -> crate::error::Result<Vec<HostTensor>> {
        let Self::Add { scale } = self else { return Ok(vec![HostTensor::f32(&[1, product.len()], product)]) };
        let sum: Vec<f32> = inputs[x].to_f32()?.iter().zip(product).map(|(x, product)| x + product * scale).collect();
        inputs[x].set_f32(&sum);
        Ok(vec![])
    }
}
