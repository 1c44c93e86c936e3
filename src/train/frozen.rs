//! What does not learn: ops of the model as operations on arrays, with the way back through them.

use crate::array::{Array, DType, Library};
use crate::error::Result;
use crate::model::{DenseRope, Matrix};
use crate::tensor::ops::Rope;
use crate::tensor::{Desc, Shape, Tensor};

/// Ops with what they need besides their inputs.
pub(super) struct Frozen {
    library: Library,
    /// Rope begins at position 0.
    start: Tensor,
}

/// [rows, columns], in memory as kernels read it.
fn matrix(x: &Array) -> Result<Tensor> {
    let columns = x.dims().last().copied().unwrap_or(1);
    x.detached().readable_tensor()?.reshaped(Shape::from([x.elements() / columns, columns]))
}

impl Frozen {
    pub fn new(library: &Library) -> Result<Self> {
        let start = library.context().zeros(Desc::u32(&[4]))?;
        Ok(Self { library: library.clone(), start })
    }

    /// A tensor of the model, in f32.
    pub fn array(&self, tensor: &Tensor) -> Result<Array> {
        self.library.adopt(tensor, DType::F32)
    }

    /// x [n, columns] · Wᵀ: [n, rows].
    pub fn product(&self, matrix_of_model: &Matrix, x: &Array) -> Result<Array> {
        let context = self.library.context();
        let y = self.array(&matrix_of_model.product(context, &matrix(x)?)?)?;
        let (library, own) = (self.library.clone(), matrix_of_model.clone());
        let back = move |gradient: &Array| {
            let of_x = own.product_backward(library.context(), &matrix(gradient)?)?;
            Ok(vec![Some(library.adopt(&of_x, DType::F32)?)])
        };
        y.record("product", &[x], Box::new(back))
    }

    /// Queries or keys [n, heads · head_dim], of which row i is at position i, turned by rope.
    pub fn rope(&self, rope: &DenseRope, head_dim: usize, x: &Array) -> Result<Array> {
        let op = Rope { head_dim, interleaved: rope.interleaved, scale: rope.scale };
        let turned = self.turned(op, x, &rope.frequencies)?;
        // The transposed of a turn is the turn back.
        let frequencies = self.array(&rope.frequencies)?.scaled(-1.0)?.readable_tensor()?;
        let own = Self { library: self.library.clone(), start: self.start.clone() };
        turned.record("rope", &[x], Box::new(move |gradient| Ok(vec![Some(own.turned(op, gradient, &frequencies)?)])))
    }

    fn turned(&self, op: Rope, x: &Array, frequencies: &Tensor) -> Result<Array> {
        let turned = x.detached().copied()?;
        let tensor = turned.writable_tensor("rope")?.reshaped(matrix(&turned)?.shape())?;
        self.library.context().run(&op, &[&tensor, frequencies, &self.start])?;
        Ok(turned)
    }
}
