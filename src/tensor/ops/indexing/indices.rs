//! What the ops that take indices share: which element an index means, and the shapes of an index and what it points into.

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::op::folded;
use crate::tensor::{DType, Desc, HostTensor};

/// The WGSL function that tells the element of an index, by the name that kernels import.
pub(in crate::tensor::ops) const MODULES: &[(&str, &str)] = &[("index_of", crate::shader!("index_of.wgsl"))];

/// The element that an index means, of n; nothing where there is none. Signed, −1 is the last.
pub(in crate::tensor::ops) fn index_of(index: u32, n: usize, signed: bool) -> Option<usize> {
    let index = if signed && (index as i32) < 0 { i64::from(index as i32) + n as i64 } else { i64::from(index) };
    usize::try_from(index).ok().filter(|index| *index < n)
}

/// The bits of an element that an index out of range gives.
pub(in crate::tensor::ops) fn missing(float: bool) -> u32 {
    if float { f32::NAN.to_bits() } else { 0 }
}

/// The define of signed indices.
pub(in crate::tensor::ops) fn defines(signed: bool) -> Vec<(&'static str, Define)> {
    if signed { vec![("SIGNED", Define::Flag)] } else { vec![] }
}

/// Checks that x is f32 or u32 and the index u32.
pub(in crate::tensor::ops) fn expect_words(op: &str, x: &Desc, index: &Desc) -> Result<()> {
    if !matches!(x.dtype, DType::F32 | DType::U32) {
        bail!(DtypeMismatch, "{op}: x is {:?}, wanted f32 or u32", x.dtype);
    }
    if index.dtype != DType::U32 {
        bail!(DtypeMismatch, "{op}: the index is {:?}, wanted 32-bit integers", index.dtype);
    }
    Ok(())
}

/// The dimensions outer, n and inner of x, and the m of an index [outer, m, inner].
pub(in crate::tensor::ops) fn beside(op: &str, x: &Desc, index: &Desc) -> Result<[usize; 4]> {
    let (outer, n, inner) = folded(op, "x", x)?;
    let (index_outer, m, index_inner) = folded(op, "the index", index)?;
    for (of_x, of_index, which) in [(outer, index_outer, "first"), (inner, index_inner, "last")] {
        if of_x != of_index {
            bail!(ShapeMismatch, "{op}: the index {} and x {} differ in the {which} dimension", index.shape, x.shape);
        }
    }
    Ok([outer, n, inner, m])
}

/// The bits of the elements.
pub(in crate::tensor::ops) fn words(tensor: &HostTensor) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&tensor.bytes)
}

/// The same tensor with other bits and shape.
pub(in crate::tensor::ops) fn of_words(dtype: DType, dims: &[usize], words: &[u32]) -> HostTensor {
    HostTensor { dtype, ..HostTensor::u32(dims, words) }
}

/// Indices for tests: most of them mean one of n elements, and some none.
#[derive(Clone, Copy)]
pub(in crate::tensor::ops) struct RandomIndices {
    pub n: usize,
    pub signed: bool,
}

impl RandomIndices {
    pub(in crate::tensor::ops) fn tensor(self, dims: &[usize], rng: &mut crate::tensor::Rng) -> HostTensor {
        let n = self.n as u32;
        let outside = [n, n + 1, u32::MAX - n, 1 << 31, (1 << 31) - 1];
        let index = |i: usize| match i % 7 {
            3 => outside[i / 7 % outside.len()],
            // Of unsigned indices these are out of range, too.
            5 if self.signed || i.is_multiple_of(2) => u32::MAX - rng.below(self.n) as u32,
            _ => rng.below(self.n) as u32,
        };
        HostTensor::u32(dims, &(0..dims.iter().product()).map(index).collect::<Vec<_>>())
    }
}
