//! Lines along a dimension, as ops of `tensor` see them: [outer, n, inner].

use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::{Shape, Tensor};

impl Array {
    /// Its elements as the ops of `tensor` read them: contiguous, floats as f32, other types as words.
    pub(super) fn wide(&self, dims: &[usize]) -> Result<Tensor> {
        self.cast(self.dtype().computed())?.tensor()?.reshaped(Shape::new(dims))
    }

    /// The dimensions before one, that one, and those after it.
    pub(super) fn folded(&self, dim: usize) -> [usize; 3] {
        let dims = self.dims();
        let (outer, inner) = (&dims[..dim], dims.get(dim + 1..).unwrap_or_default());
        [outer.iter().product(), dims.get(dim).copied().unwrap_or(1), inner.iter().product()]
    }

    /// The way back from a tensor of the elements of `dtype`, in the type in which it is computed.
    pub(super) fn narrowed(&self, tensor: &Tensor, dims: &[usize], dtype: DType) -> Result<Array> {
        let tensor = tensor.reshaped(Shape::new(dims))?;
        self.library().adopt(&tensor, dtype.computed())?.cast(dtype)
    }

    /// The dimensions with another size of one.
    pub(super) fn resized(&self, dim: usize, size: usize) -> Vec<usize> {
        let mut dims = self.dims().to_vec();
        if let Some(dim) = dims.get_mut(dim) {
            *dim = size;
        }
        dims
    }
}
