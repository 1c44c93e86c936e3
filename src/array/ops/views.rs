//! Views: other shapes, orders and parts of the same elements, without a copy where strides allow it.

use std::ops::Range;

use crate::array::graph::node::{Array, State, Stored};
use crate::array::layout::{Layout, checked_elements, checked_shape};
use crate::error::Result;
use crate::tensor::Shape;

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
        let own = self.shape();
        self.detached().reshaped(shape)?.derived_from("reshape", self, move |gradient| gradient.viewed(own))
    }

    fn reshaped(&self, shape: Shape) -> Result<Array> {
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
        self.contiguous()?.reshaped(shape)
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
        let view = Array::stored(self.library(), self.dtype(), Stored { storage, layout });
        Ok(view.derived_without_gradient("as_strided", &[self]))
    }

    /// The same elements side by side in row-major order, in memory of their own unless they lie so already.
    pub fn contiguous(&self) -> Result<Array> {
        if self.stored_now()?.layout.is_contiguous() {
            return Ok(self.clone());
        }
        let copy = self.library().adopt(&self.tensor()?, self.dtype())?;
        copy.derived_from("contiguous", self, |gradient| Ok(gradient.clone()))
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
        self.permuted("permute", order)
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
        self.permuted("transpose", order)
    }

    fn permuted(&self, what: &'static str, order: Vec<usize>) -> Result<Array> {
        let view = self.view(|layout| layout.permuted(&order))?;
        view.derived_from(what, self, move |gradient| {
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(to, from)| back[*from] = to as i64);
            gradient.permute(&back)
        })
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
        let view = self.view(|layout| layout.broadcast(shape).unwrap_or(*layout))?;
        view.derived_from("expand", self, |gradient| Ok(gradient.clone()))
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
        self.part("slice", dim, start, step as isize, count)
    }

    /// The elements of a dimension in `range`, which lies within it.
    pub(super) fn narrow(&self, dim: usize, range: Range<usize>) -> Result<Array> {
        self.part("slice", dim, range.start, 1, range.len())
    }

    fn part(&self, what: &'static str, dim: usize, start: usize, step: isize, count: usize) -> Result<Array> {
        let (shape, view) = (self.shape(), self.view(|layout| layout.sliced(dim, start, step, count))?);
        view.derived_from(what, self, move |gradient| {
            if count == shape.dims()[dim] {
                // All of it, perhaps backwards.
                return gradient
                    .view(|layout| if step < 0 { layout.sliced(dim, count - 1, -1, count) } else { *layout });
            }
            gradient.placed(shape.dims(), &|layout| layout.sliced(dim, start, step, count))
        })
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
        let named: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        let view = self.view(|layout| {
            let flipped = |layout: Layout, dim: &usize| match layout.dims()[*dim] {
                0 => layout,
                size => layout.sliced(*dim, size - 1, -1, size),
            };
            dims.iter().fold(*layout, flipped)
        })?;
        view.derived_from("flip", self, move |gradient| gradient.flip(&named))
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
