//! Arrays of what exists: bytes, tensors, constants.

use super::node::{Array, State, Storage, Stored};
use crate::array::dtype::DType;
use crate::array::layout::{Layout, checked_shape};
use crate::array::library::Library;
use crate::error::Result;
use crate::tensor::{Shape, Tensor};

impl Library {
    /// An array of these elements, in row-major order as they lie on the GPU: bool as words of 0 and 1.
    pub fn array(&self, dims: &[usize], dtype: DType, bytes: &[u8]) -> Result<Array> {
        let array = self.empty(dims, dtype)?;
        let wanted = array.elements() * dtype.size();
        if bytes.len() != wanted {
            bail!(
                ShapeMismatch,
                "{} bytes are not the elements of {dtype:?} {dims:?}, which are {wanted}",
                bytes.len()
            );
        }
        if !bytes.is_empty() {
            let mut words = bytes.to_vec();
            words.resize(bytes.len().next_multiple_of(4), 0);
            let slice = array.stored_now()?.storage.tensor.slice();
            self.context().device().write(&slice.buffer, slice.offset, &words)?;
        }
        Ok(array)
    }

    /// An array of f32.
    pub fn f32(&self, dims: &[usize], data: &[f32]) -> Result<Array> {
        self.array(dims, DType::F32, bytemuck::cast_slice(data))
    }

    /// An array with unspecified contents.
    pub fn empty(&self, dims: &[usize], dtype: DType) -> Result<Array> {
        let shape = checked_shape(dims)?;
        let storage = Storage::new(self.memory(shape.elements(), dtype)?);
        Ok(Array::stored(self, dtype, Stored { storage, layout: Layout::contiguous(shape) }))
    }

    /// An array in a tensor that exists, whose elements lie side by side.
    pub fn adopt(&self, tensor: &Tensor, dtype: DType) -> Result<Array> {
        let shape = tensor.shape();
        let flat = tensor.reshaped(Shape::from([shape.elements()]))?;
        let stored = Stored { storage: Storage::new(flat), layout: Layout::contiguous(shape) };
        Ok(Array::stored(self, dtype, stored))
    }

    /// An array of one value, given by its bits: those of an f32 for all floats.
    pub(crate) fn constant(&self, dims: &[usize], dtype: DType, bits: u32) -> Result<Array> {
        Ok(Array::new(self, checked_shape(dims)?, dtype, State::Constant(bits)))
    }
}
