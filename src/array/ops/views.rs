//! Views: other shapes, orders and parts of the same elements, without a copy where strides allow it; and what puts arrays together.

use std::ops::Range;

use crate::array::dtype::{DType, promote};
use crate::array::graph::node::{Array, State, Stored};
use crate::array::layout::{Layout, checked_elements, checked_shape};
use crate::array::library::Library;
use crate::array::waiting::Written;
use crate::error::Result;
use crate::tensor::{MAX_RANK, Shape};

use super::elementwise::{Compare, Scalar};

/// A dimension of a caller, which may count from the end.
pub(crate) fn checked_dim(what: &str, dim: i64, rank: usize) -> Result<usize> {
    let from_start = if dim < 0 { dim + rank as i64 } else { dim };
    if from_start < 0 || from_start >= rank as i64 {
        let least = -(rank as i64);
        bail!(OutOfRange, "{what}: there is no dimension {dim} of {rank}; they go from {least} to {}", rank as i64 - 1);
    }
    Ok(from_start as usize)
}

/// The same for several, each once. An array without dimensions may be asked for its one dimension, as in PyTorch, and has none.
pub(crate) fn checked_dims(what: &str, dims: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut checked: Vec<usize> = Vec::with_capacity(dims.len());
    for dim in dims {
        let dim = checked_dim(what, *dim, rank.max(1))?;
        if checked.contains(&dim) {
            bail!(InvalidRequest, "{what}: the dimension {dim} is named twice");
        }
        checked.push(dim);
    }
    checked.truncate(rank);
    Ok(checked)
}

impl Array {
    /// Another layout of the same elements; pending arrays are computed.
    fn view(&self, layout: impl Fn(&Layout) -> Layout) -> Result<Array> {
        let state = match self.0.state.borrow().clone() {
            State::Places(places) => Some(State::Places(layout(&places))),
            state @ State::Constant(_) => Some(state),
            State::Stored(_) | State::Pending(_) => None,
        };
        if let Some(state) = state {
            let (origin, own) = self.origin();
            return Ok(origin.view_without_memory(layout(&own), state));
        }
        let Stored { storage, layout: stored } = self.stored_now()?;
        Ok(Array::stored(self.library(), self.dtype(), Stored { storage, layout: layout(&stored) }))
    }

    /// The same elements in another shape of as many. A copy where strides can't say it.
    pub(crate) fn viewed(&self, shape: Shape) -> Result<Array> {
        if shape == self.shape() {
            return Ok(self.clone());
        }
        if let Some(bits) = self.constant() {
            let (origin, own) = self.origin();
            return match own.reshaped(shape) {
                Some(layout) => Ok(origin.view_without_memory(layout, State::Constant(bits))),
                None => Ok(Array::new(self.library(), shape, self.dtype(), State::Constant(bits))),
            };
        }
        let Stored { storage, layout } = self.stored_now()?;
        if let Some(layout) = layout.reshaped(shape) {
            return Ok(Array::stored(self.library(), self.dtype(), Stored { storage, layout }));
        }
        self.contiguous()?.viewed(shape)
    }

    /// A view of its memory by strides, in elements from its first one.
    pub fn as_strided(&self, layout: Layout) -> Result<Array> {
        let Stored { storage, layout: own } = self.stored_now()?;
        let reach = layout.dims().iter().zip(layout.strides()).map(|(dim, stride)| (*dim as i64 - 1) * *stride as i64);
        let (below, above) = reach.fold((0, 0), |(below, above), reach| (below + reach.min(0), above + reach.max(0)));
        let first = (own.offset() + layout.offset()) as i64;
        let elements = storage.tensor.shape().elements() as i64;
        if layout.shape().elements() > 0 && (first + below < 0 || first + above >= elements) {
            bail!(OutOfRange, "as_strided: {:?} reaches out of {elements} elements", layout.dims());
        }
        let layout = Layout::strided(layout.shape(), layout.strides(), first as usize);
        Ok(Array::stored(self.library(), self.dtype(), Stored { storage, layout }))
    }

    /// The same elements side by side in row-major order, in memory of their own unless they lie so already.
    pub fn contiguous(&self) -> Result<Array> {
        if self.stored_now()?.layout.is_contiguous() {
            return Ok(self.clone());
        }
        self.library().adopt(&self.tensor()?, self.dtype())
    }

    /// The same elements in another shape. One dimension may be −1, and follows from the others.
    pub fn reshape(&self, dims: &[i64]) -> Result<Array> {
        let open = dims.iter().filter(|dim| **dim == -1).count();
        let known: Vec<usize> = dims.iter().filter(|dim| **dim >= 0).map(|dim| *dim as usize).collect();
        if open > 1 || open + known.len() != dims.len() {
            bail!(ShapeMismatch, "reshape: {dims:?}: dimensions are from 0, and one may be -1");
        }
        let product = checked_elements(&known)?;
        let rest = if open == 1 && product > 0 { self.elements() / product } else { 0 };
        let dims: Vec<usize> = dims.iter().map(|dim| usize::try_from(*dim).unwrap_or(rest)).collect();
        let shape = checked_shape(&dims)?;
        if shape.elements() != self.elements() || (open == 1 && product == 0) {
            bail!(
                ShapeMismatch,
                "reshape: {} has {} elements, {dims:?} has another number",
                self.shape(),
                self.elements()
            );
        }
        self.viewed(shape)
    }

    /// Dimensions `first..=last` as one.
    pub fn flatten(&self, first: i64, last: i64) -> Result<Array> {
        let rank = self.dims().len();
        if rank == 0 {
            return self.viewed(Shape::from([1]));
        }
        let (first, last) = (checked_dim("flatten", first, rank)?, checked_dim("flatten", last, rank)?);
        if first > last {
            bail!(InvalidRequest, "flatten: the dimension {first} comes after {last}");
        }
        let mut dims = self.dims()[..first].to_vec();
        dims.push(self.dims()[first..=last].iter().product());
        dims.extend_from_slice(&self.dims()[last + 1..]);
        self.viewed(Shape::new(&dims))
    }

    /// The dimensions in another order: dimension `i` of the result is `order[i]` of this.
    pub fn permute(&self, order: &[i64]) -> Result<Array> {
        let rank = self.dims().len();
        let order = checked_dims("permute", order, rank)?;
        if order.len() != rank {
            bail!(ShapeMismatch, "permute: {} dimensions are named and {} has {rank}", order.len(), self.shape());
        }
        self.view(|layout| layout.permuted(&order))
    }

    /// Two dimensions swapped.
    pub fn transpose(&self, a: i64, b: i64) -> Result<Array> {
        let rank = self.dims().len();
        let (a, b) = (checked_dim("transpose", a, rank.max(1))?, checked_dim("transpose", b, rank.max(1))?);
        if a == b {
            return Ok(self.clone());
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(a, b);
        self.view(|layout| layout.permuted(&order))
    }

    /// Repeated along dimensions of size 1, without a copy; −1 keeps a dimension. New dimensions come first.
    pub fn expand(&self, dims: &[i64]) -> Result<Array> {
        let missing = dims.len() as i64 - self.dims().len() as i64;
        let mut wanted = Vec::with_capacity(dims.len());
        for (index, dim) in dims.iter().enumerate() {
            let own = usize::try_from(index as i64 - missing).ok().and_then(|index| self.dims().get(index));
            match (own, usize::try_from(*dim)) {
                (_, Ok(dim)) => wanted.push(dim),
                (Some(own), Err(_)) if *dim == -1 => wanted.push(*own),
                _ => bail!(ShapeMismatch, "expand: {} can't become {dims:?}", self.shape()),
            }
        }
        let shape = checked_shape(&wanted)?;
        if missing < 0 || Layout::contiguous(self.shape()).broadcast(shape).is_none() {
            bail!(ShapeMismatch, "expand: {} does not broadcast to {shape}", self.shape());
        }
        self.view(|layout| layout.broadcast(shape).unwrap_or(*layout))
    }

    /// Without the dimensions of size 1: all of them, or those named, if they are.
    pub fn squeeze(&self, dims: Option<&[i64]>) -> Result<Array> {
        let rank = self.dims().len();
        let named = match dims {
            Some(dims) => checked_dims("squeeze", dims, rank)?,
            None => (0..rank).collect(),
        };
        let kept = |dim: &usize| self.dims()[*dim] != 1 || !named.contains(dim);
        let dims: Vec<usize> = (0..rank).filter(kept).map(|dim| self.dims()[dim]).collect();
        self.viewed(Shape::new(&dims))
    }

    /// With a dimension of size 1 at this place.
    pub fn unsqueeze(&self, dim: i64) -> Result<Array> {
        let rank = self.dims().len();
        let dim = checked_dim("unsqueeze", dim, rank + 1)?;
        let mut dims = self.dims().to_vec();
        dims.insert(dim, 1);
        self.viewed(checked_shape(&dims)?)
    }

    /// Elements `start, start + step, …` before `stop` of a dimension. Bounds count from the end if they are negative, and are cut to the
    /// dimension; a negative step goes backwards, from the end by default.
    pub fn slice(&self, dim: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Result<Array> {
        let dim = checked_dim("slice", dim, self.dims().len())?;
        if step == 0 {
            bail!(InvalidRequest, "slice: the step is 0");
        }
        let (start, count) = cut(self.dims()[dim] as i64, start, stop, step);
        self.view(|layout| layout.sliced(dim, start, step as isize, count))
    }

    /// The elements of a dimension in `range`, which lies within it.
    fn narrow(&self, dim: usize, range: Range<usize>) -> Result<Array> {
        self.view(|layout| layout.sliced(dim, range.start, 1, range.len()))
    }

    /// One index of a dimension, which goes.
    pub fn select(&self, dim: i64, index: i64) -> Result<Array> {
        let dim = checked_dim("select", dim, self.dims().len())?;
        let size = self.dims()[dim] as i64;
        let at = if index < 0 { index + size } else { index };
        if at < 0 || at >= size {
            bail!(OutOfRange, "select: there is no index {index} in the dimension {dim} of {}", self.shape());
        }
        let part = self.narrow(dim, at as usize..at as usize + 1)?;
        let mut dims = self.dims().to_vec();
        dims.remove(dim);
        part.viewed(Shape::new(&dims))
    }

    /// Parts of these sizes along a dimension.
    pub fn split(&self, sizes: &[usize], dim: i64) -> Result<Vec<Array>> {
        let dim = checked_dim("split", dim, self.dims().len())?;
        if sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size)) != Some(self.dims()[dim]) {
            bail!(ShapeMismatch, "split: the sizes {sizes:?} don't add up to the dimension {dim} of {}", self.shape());
        }
        let starts = sizes.iter().scan(0, |start, size| {
            *start += size;
            Some(*start - size)
        });
        starts.zip(sizes).map(|(start, size)| self.narrow(dim, start..start + size)).collect()
    }

    /// Parts of this size along a dimension; the last may be smaller.
    pub fn split_every(&self, size: usize, dim: i64) -> Result<Vec<Array>> {
        let checked = checked_dim("split", dim, self.dims().len())?;
        let whole = self.dims()[checked];
        if size == 0 && whole > 0 {
            bail!(InvalidRequest, "split: the size of parts is 0");
        }
        let sizes: Vec<usize> = (0..whole).step_by(size.max(1)).map(|start| size.min(whole - start)).collect();
        self.split(if sizes.is_empty() { &[0] } else { &sizes }, dim)
    }

    /// At most this number of parts of equal size along a dimension; the last may be smaller.
    pub fn chunk(&self, chunks: usize, dim: i64) -> Result<Vec<Array>> {
        let checked = checked_dim("chunk", dim, self.dims().len())?;
        if chunks == 0 {
            bail!(InvalidRequest, "chunk: at least one part is wanted");
        }
        match self.dims()[checked] {
            0 => self.split(&vec![0; chunks], dim),
            size => self.split_every(size.div_ceil(chunks), dim),
        }
    }

    /// Backwards along these dimensions.
    pub fn flip(&self, dims: &[i64]) -> Result<Array> {
        let dims = checked_dims("flip", dims, self.dims().len())?;
        self.view(|layout| {
            let flipped = |layout: Layout, dim: &usize| match layout.dims()[*dim] {
                0 => layout,
                size => layout.sliced(*dim, size - 1, -1, size),
            };
            dims.iter().fold(*layout, flipped)
        })
    }

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
        let mut start = 0;
        assembled(first.library(), &dims, dtype, None, |target| {
            for piece in &pieces {
                let size = piece.dims()[dim];
                target(piece, &|layout| layout.sliced(dim, start, 1, size))?;
                start += size;
            }
            Ok(())
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
        let mut inner = self.clone();
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
        assembled(self.library(), &dims, self.dtype(), Some(&value), |target| {
            target(&inner, &|layout| {
                let narrowed = |layout: Layout, dim: usize| layout.sliced(dim, starts[dim], 1, inner_dims[dim]);
                (0..rank).fold(*layout, narrowed)
            })
        })
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

    /// Overwrites its elements, or those of a view, with those of another array, which broadcasts and is cast. What was derived from them
    /// before keeps the old ones.
    pub fn assign(&self, from: &Array) -> Result<()> {
        let from = from.cast(self.dtype())?;
        if Layout::contiguous(from.shape()).broadcast(self.shape()).is_none() {
            bail!(ShapeMismatch, "assign: {} does not broadcast to {}", from.shape(), self.shape());
        }
        if self.elements() == 0 {
            return Ok(());
        }
        let target = self.writable("assign")?;
        let mut reads_it = false;
        from.each_storage(&mut |storage| reads_it |= std::rc::Rc::ptr_eq(storage, &target.storage));
        let from = if reads_it { from.copied()? } else { from };
        if self.dtype().size() == 2 {
            return self.assign_halves(&from, &target);
        }
        from.compute_to(&target)
    }

    /// Two elements of 16 bits share a word: whoever writes one has to write the other.
    fn assign_halves(&self, from: &Array, target: &Stored) -> Result<()> {
        let from = self.library().adopt(&from.tensor()?, from.dtype())?;
        let whole = target.storage.tensor.shape();
        let all = Array::stored(
            self.library(),
            self.dtype(),
            Stored { storage: target.storage.clone(), layout: Layout::contiguous(whole) },
        );
        let wide = all.cast(DType::F32)?.copied()?;
        let State::Stored(place) = wide.0.state.borrow().clone() else { bail!(Internal, "a copy is stored") };
        from.cast(DType::F32)?.compute_to(&Stored { storage: place.storage, layout: target.layout })?;
        let narrow = wide.cast(self.dtype())?.tensor()?;
        self.library().context().device().copy(&narrow.slice(), &target.storage.tensor.slice())
    }

    /// Its elements in new memory.
    pub fn copied(&self) -> Result<Array> {
        let copy = self.apart()?;
        copy.stored_now()?;
        Ok(copy)
    }

    /// Its memory, to be written: what reads it and waits is computed before. An error if elements share memory with each other.
    pub(crate) fn writable(&self, what: &str) -> Result<Stored> {
        self.share_memory()?;
        let stored = self.stored_now()?;
        if stored.layout.may_overlap() {
            bail!(
                InvalidRequest,
                "{what}: elements of the tensor {} share memory with each other, as in what expand() gives; clone() it first",
                self.shape()
            );
        }
        self.library().trials().note_write(&stored.storage);
        stored.storage.compute_dependents()?;
        Ok(stored)
    }
}

/// The first place and the number of a slice, by Python's rules.
fn cut(size: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> (usize, usize) {
    let (least, most) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let bound = |bound: Option<i64>, default: i64| match bound {
        None => default,
        Some(bound) if bound < 0 => bound.saturating_add(size).clamp(least, most),
        Some(bound) => bound.clamp(least, most),
    };
    let (start, stop) =
        if step > 0 { (bound(start, least), bound(stop, most)) } else { (bound(start, most), bound(stop, least)) };
    let span = if step > 0 { stop - start } else { start - stop };
    let count = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
    (start.max(0) as usize, count as usize)
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

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn slices_follow_python() {
        let some = |bound: i64| Some(bound);
        assert_eq!(cut(10, None, None, 1), (0, 10));
        assert_eq!(cut(10, some(-3), None, 1), (7, 3));
        assert_eq!(cut(10, some(2), some(100), 3), (2, 3));
        assert_eq!(cut(10, None, None, -1), (9, 10));
        assert_eq!(cut(10, some(8), some(2), -2), (8, 3));
        assert_eq!(cut(10, some(5), some(5), 1), (5, 0));
        assert_eq!(cut(10, some(7), some(3), 1), (7, 0));
        assert_eq!(cut(0, None, None, 1), (0, 0));
        assert_eq!(cut(0, None, None, -1).1, 0);
        assert_eq!(cut(10, some(i64::MIN), some(i64::MAX), i64::MAX), (0, 1));
    }
}
