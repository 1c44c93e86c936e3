//! What puts arrays together: side by side, repeated, padded, and the parts of a triangle.

use crate::array::dtype::{DType, promote};
use crate::array::graph::node::{Array, State, Stored};
use crate::array::layout::Layout;
use crate::array::library::Library;
use crate::error::Result;
use crate::tensor::{MAX_RANK, Shape};

use super::functions::{Compare, Scalar};
use super::views::checked_dim;

impl Array {
    /// Arrays one after the other along a dimension, in the type that all are promoted to.
    pub fn cat(arrays: &[Array], dim: i64) -> Result<Array> {
        let Some(first) = arrays.first() else { bail!(InvalidRequest, "cat: at least one tensor is wanted") };
        let dim = checked_dim("cat", dim, first.dims().len())?;
        let mut dims = first.dims().to_vec();
        dims[dim] = 0;
        for array in arrays {
            let fits = array.dims().len() == dims.len()
                && (0..dims.len()).all(|other| other == dim || array.dims()[other] == dims[other]);
            if !fits {
                bail!(
                    ShapeMismatch,
                    "cat: {} and {} differ in other dimensions than {dim}",
                    first.shape(),
                    array.shape()
                );
            }
            let Some(sum) = dims[dim].checked_add(array.dims()[dim]) else {
                bail!(AdapterLimits, "cat: the result is too large")
            };
            dims[dim] = sum;
        }
        let dtype = arrays.iter().map(Array::dtype).fold(first.dtype(), promote);
        let pieces = arrays.iter().map(|array| array.cast(dtype)).collect::<Result<Vec<Array>>>()?;
        let sizes: Vec<usize> = arrays.iter().map(|array| array.dims()[dim]).collect();
        let mut start = 0;
        let joined = assembled(first.library(), &dims, dtype, None, |target| {
            for (piece, size) in pieces.iter().zip(&sizes) {
                target(piece, &|layout| layout.sliced(dim, start, 1, *size))?;
                start += size;
            }
            Ok(())
        })?;
        joined.derived("cat", &arrays.iter().collect::<Vec<_>>(), &[], move |pull| {
            let parts = pull.gradient.split(&sizes, dim as i64)?;
            Ok(parts.into_iter().map(Some).collect())
        })
    }

    /// Arrays of one shape along a new dimension.
    pub fn stack(arrays: &[Array], dim: i64) -> Result<Array> {
        let Some(first) = arrays.first() else { bail!(InvalidRequest, "stack: at least one tensor is wanted") };
        if let Some(other) = arrays.iter().find(|array| array.shape() != first.shape()) {
            bail!(ShapeMismatch, "stack: the shapes {} and {} differ", first.shape(), other.shape());
        }
        let pieces = arrays.iter().map(|array| array.unsqueeze(dim)).collect::<Result<Vec<Array>>>()?;
        Self::cat(&pieces, dim)
    }

    /// Repeated this number of times along each dimension; new dimensions come first.
    pub fn repeat(&self, times: &[usize]) -> Result<Array> {
        let rank = self.dims().len();
        if times.len() < rank || times.len() > MAX_RANK {
            bail!(ShapeMismatch, "repeat: {} numbers for the {rank} dimensions of {}", times.len(), self.shape());
        }
        let mut dims = vec![1; times.len() - rank];
        dims.extend_from_slice(self.dims());
        let mut repeated = self.viewed(Shape::new(&dims))?;
        for (dim, times) in times.iter().enumerate() {
            repeated = match times {
                1 => repeated,
                0 => repeated.narrow(dim, 0..0)?,
                times if repeated.dims()[dim] == 1 => {
                    let mut dims: Vec<i64> = vec![-1; repeated.dims().len()];
                    dims[dim] = *times as i64;
                    repeated.expand(&dims)?
                }
                times => Self::cat(&vec![repeated; *times], dim as i64)?,
            };
        }
        repeated.apart()
    }

    /// With `value` before and after each dimension: pairs of counts, the last dimension's first, as in PyTorch. Negative counts cut.
    pub fn pad(&self, counts: &[i64], value: Scalar) -> Result<Array> {
        let rank = self.dims().len();
        if !counts.len().is_multiple_of(2) || counts.len() / 2 > rank {
            bail!(ShapeMismatch, "pad: {} counts; two are wanted for each of at most {rank} dimensions", counts.len());
        }
        let mut inner = self.detached();
        let mut dims = self.dims().to_vec();
        let mut starts = vec![0usize; rank];
        for (index, pair) in counts.chunks_exact(2).enumerate() {
            let dim = rank - 1 - index;
            let size = inner.dims()[dim] as i64;
            let (cut_before, cut_after) = ((-pair[0]).max(0), (-pair[1]).max(0));
            if cut_before + cut_after > size {
                bail!(ShapeMismatch, "pad: {pair:?} takes more than the dimension {dim} of {} has", self.shape());
            }
            inner = inner.narrow(dim, cut_before as usize..(size - cut_after) as usize)?;
            starts[dim] = pair[0].max(0) as usize;
            let grown = usize::try_from(size + pair[0] + pair[1]);
            let Ok(grown) = grown else { bail!(AdapterLimits, "pad: the result is too large") };
            dims[dim] = grown;
        }
        let value = self.library().constant(&[], self.dtype(), value.bits("pad", self.dtype())?)?;
        let inner_dims = inner.dims().to_vec();
        let padded = assembled(self.library(), &dims, self.dtype(), Some(&value), |target| {
            target(&inner, &|layout| {
                let narrowed = |layout: Layout, dim: usize| layout.sliced(dim, starts[dim], 1, inner_dims[dim]);
                (0..rank).fold(*layout, narrowed)
            })
        })?;
        let back: Vec<i64> = counts.iter().map(|count| -count).collect();
        padded.derived_from("pad", self, move |gradient| gradient.pad(&back, Scalar::Int(0)))
    }

    /// Zeros of these dimensions with this array in a part of them.
    pub(super) fn placed(&self, dims: &[usize], part: &dyn Fn(&Layout) -> Layout) -> Result<Array> {
        assembled(self.library(), dims, self.dtype(), Some(&self.zero()?), |target| target(self, part))
    }

    /// The elements on and above (`upper`) or below a diagonal of the last two dimensions; the others become 0.
    pub fn triangle(&self, upper: bool, diagonal: i64) -> Result<Array> {
        let what = if upper { "triu" } else { "tril" };
        let rank = self.dims().len();
        if rank < 2 {
            bail!(ShapeMismatch, "{what}: at least two dimensions are wanted, not {}", self.shape());
        }
        // Beyond the matrix all diagonals are the same.
        let diagonal = diagonal.clamp(-(u32::MAX as i64) / 2, u32::MAX as i64 / 2);
        let matrix = Shape::new(&self.dims()[rank - 2..]);
        // Column less row.
        let places = State::Places(Layout::strided(matrix, &[-1, 1], 0));
        let places = Array::new(self.library(), matrix, DType::I32, places);
        let kind = if upper { Compare::GreaterEqual } else { Compare::LowerEqual };
        let kept = places.compare_scalar(kind, Scalar::Int(diagonal))?;
        let zero = self.library().constant(&[], self.dtype(), 0)?;
        kept.choose(self, &zero)
    }
}

type Target<'a> = dyn FnMut(&Array, &dyn Fn(&Layout) -> Layout) -> Result<()> + 'a;

/// An array that is put together from pieces, each written to a part of it. Pieces of 16 bits go through f32, which holds all their values.
fn assembled(
    library: &Library,
    dims: &[usize],
    dtype: DType,
    fill: Option<&Array>,
    write: impl FnOnce(&mut Target<'_>) -> Result<()>,
) -> Result<Array> {
    let wide = dtype.computed();
    let whole = library.empty(dims, wide)?;
    let target = whole.stored_now()?;
    if let Some(fill) = fill {
        fill.cast(wide)?.compute_to(&target)?;
    }
    write(&mut |piece, part| {
        if piece.elements() == 0 {
            return Ok(());
        }
        let Stored { storage, layout } = &target;
        piece.cast(wide)?.compute_to(&Stored { storage: storage.clone(), layout: part(layout) })
    })?;
    whole.cast(dtype)
}
