//! What comes back from the GPU.

use crate::array::dtype::DType;
use std::rc::Rc;

use crate::array::graph::node::{Array, Stored};
use crate::error::Result;
use crate::tensor::{HostTensor, Readback, Shape, Tensor};

impl Array {
    /// Starts reading its elements in row-major order, as they lie on the GPU. What waits is computed first.
    pub fn start_readback(arrays: &[&Array]) -> Result<Option<Readback>> {
        let tensors = arrays.iter().filter(|array| array.elements() > 0).map(|array| array.tensor());
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let Some(first) = arrays.first() else { return Ok(None) };
        let slices: Vec<_> =
            tensors.iter().map(|tensor| crate::gpu::BufferSlice { size: tensor.bytes(), ..tensor.slice() }).collect();
        if slices.is_empty() { Ok(None) } else { first.library().context().device().read(&slices).map(Some) }
    }

    /// Whether its memory can be written as it lies: elements side by side from where a binding may begin.
    pub fn is_writable(&self) -> Result<bool> {
        Ok(self.tensor_in_place()?.is_some())
    }

    /// Its memory, for a kernel or a write that changes it. What was derived from it before is computed first. An error if elements don't
    /// lie side by side.
    pub fn writable_tensor(&self, what: &str) -> Result<Tensor> {
        let stored = self.writable(what)?;
        self.whole(what, &stored)
    }

    /// Its memory, for who reads it and perhaps writes it without our knowledge.
    pub fn exposed_tensor(&self, what: &str) -> Result<Tensor> {
        let stored = self.exposed(what)?;
        self.whole(what, &stored)
    }

    fn whole(&self, what: &str, Stored { layout, .. }: &Stored) -> Result<Tensor> {
        let problem = match self.tensor_in_place()? {
            Some(tensor) => return Ok(tensor),
            None if layout.is_contiguous() => "that begins where no binding may, which is at multiples of 256 bytes",
            None => "whose elements don't lie side by side",
        };
        bail!(InvalidRequest, "{what}: the tensor is a view {problem}; clone() it first")
    }

    /// Its elements side by side, to be read: its own memory if they lie so, a copy otherwise.
    pub fn readable_tensor(&self) -> Result<Tensor> {
        self.tensor()
    }

    /// Whether two arrays lie in the same memory, in any part of it.
    pub fn shares_memory(&self, other: &Array) -> Result<bool> {
        Ok(Rc::ptr_eq(&self.stored_now()?.storage, &other.stored_now()?.storage))
    }

    /// Overwrites elements from `first` on, in row-major order, with those of an array of one dimension.
    pub fn assign_from(&self, what: &str, first: usize, from: &Array) -> Result<()> {
        let end = first.checked_add(from.elements()).filter(|end| *end <= self.elements());
        let Some(end) = end else {
            let (count, room) = (from.elements(), self.elements());
            bail!(OutOfRange, "{what}: {count} elements from element {first} don't fit a tensor of {room} elements")
        };
        self.check_may_be_written(what)?;
        let Stored { storage, layout } = self.stored_now()?;
        if let Some(flat) = layout.reshaped(Shape::from([self.elements()])) {
            let flat = Array::stored(self.library(), self.dtype(), Stored { storage, layout: flat });
            return flat.slice(0, Some(first as i64), Some(end as i64), 1)?.assign(from);
        }
        // A view that has no one stride: its elements in order, then back.
        let flat = self.detached().copied()?.reshape(&[-1])?;
        flat.slice(0, Some(first as i64), Some(end as i64), 1)?.assign(from)?;
        self.assign(&flat.viewed(self.shape())?)
    }

    /// The bytes of its elements in row-major order: 2 or 4 for each.
    pub async fn bytes(&self) -> Result<Vec<u8>> {
        let Some(readback) = Self::start_readback(&[self])? else { return Ok(Vec::new()) };
        let mut bytes = readback.bytes().await?.pop().unwrap_or_default();
        bytes.truncate(self.elements() * self.dtype().size());
        Ok(bytes)
    }

    /// The elements as f32, whatever their type.
    pub async fn to_f32(&self) -> Result<Vec<f32>> {
        let bytes = self.cast(DType::F32)?.bytes().await?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Its elements on the host, for ops that tests compare with. Of f32 and words only.
    pub async fn host(&self) -> Result<HostTensor> {
        let bytes = self.bytes().await?;
        Ok(HostTensor { shape: self.shape(), dtype: self.dtype().storage(), bytes })
    }
}
