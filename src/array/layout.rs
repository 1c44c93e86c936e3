//! How an array's elements lie in its memory: strides, as in NumPy. Views are other layouts of the same memory.

use crate::error::Result;
use crate::tensor::{MAX_RANK, Shape};

/// A shape with the place of each element: `offset + Σ index · stride`, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// Row-major, from the first element on.
    pub fn contiguous(shape: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1isize;
        for (index, dim) in shape.dims().iter().enumerate().rev() {
            strides[index] = stride;
            stride *= *dim as isize;
        }
        Self { shape, strides, offset: 0 }
    }

    /// A layout of these strides, one for each dimension. The caller keeps them within the memory.
    pub fn strided(shape: Shape, strides: &[isize], offset: usize) -> Self {
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        Self { shape, strides: all, offset }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Elements between neighbours, for each dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.dims().len()]
    }

    /// The place of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the elements lie side by side in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut stride = 1isize;
        for (dim, actual) in self.dims().iter().zip(self.strides()).rev() {
            if *dim != 1 && *actual != stride {
                return false;
            }
            stride *= *dim as isize;
        }
        true
    }

    /// Whether two elements may have one place. Some strides that interleave without meeting count as well.
    pub fn may_overlap(&self) -> bool {
        if self.shape.elements() < 2 {
            return false;
        }
        let reaches = self.dims().iter().zip(self.strides()).filter(|(dim, _)| **dim > 1);
        let mut reaches: Vec<(usize, usize)> = reaches.map(|(dim, stride)| (stride.unsigned_abs(), *dim)).collect();
        reaches.sort_unstable();
        let mut reached = 0;
        reaches.iter().any(|(stride, dim)| {
            let meets = *stride <= reached;
            reached += stride * (dim - 1);
            meets
        })
    }

    /// The dimensions in another order.
    pub fn permuted(&self, order: &[usize]) -> Self {
        let dims: Vec<usize> = order.iter().map(|dim| self.dims()[*dim]).collect();
        let strides: Vec<isize> = order.iter().map(|dim| self.strides[*dim]).collect();
        Self::strided(Shape::new(&dims), &strides, self.offset)
    }

    /// Repeated to a larger shape, by NumPy's rules of broadcasting. `None` if it does not fit.
    pub fn broadcast(&self, shape: Shape) -> Option<Self> {
        let (from, to) = (self.dims(), shape.dims());
        let missing = to.len().checked_sub(from.len())?;
        let mut strides = [0; MAX_RANK];
        for (index, dim) in from.iter().enumerate() {
            strides[missing + index] = match (*dim, to[missing + index]) {
                (a, b) if a == b => self.strides[index],
                (1, _) => 0,
                _ => return None,
            };
        }
        Some(Self { shape, strides, offset: self.offset })
    }

    /// Elements `start, start + step, …` of a dimension, `count` of them. The caller keeps them within the dimension.
    pub fn sliced(&self, dim: usize, start: usize, step: isize, count: usize) -> Self {
        let mut dims = self.dims().to_vec();
        dims[dim] = count;
        let mut sliced = Self { shape: Shape::new(&dims), ..*self };
        sliced.offset = self.offset.wrapping_add_signed(start as isize * self.strides[dim]);
        sliced.strides[dim] = self.strides[dim] * step;
        sliced
    }

    /// The same elements in another shape, if strides can say it.
    pub fn reshaped(&self, shape: Shape) -> Option<Self> {
        if self.is_contiguous() {
            return Some(Self { offset: self.offset, ..Self::contiguous(shape) });
        }
        // Runs of dimensions that lie as one; each has to become whole dimensions of the new shape.
        let mut runs = self.runs().into_iter();
        let mut strides = [0; MAX_RANK];
        let mut left = 1usize;
        let mut stride = 0isize;
        for (index, dim) in shape.dims().iter().enumerate() {
            if *dim == 1 {
                continue;
            }
            if left == 1 {
                let (size, step) = runs.next()?;
                (left, stride) = (size, step * size as isize);
            }
            if !left.is_multiple_of(*dim) {
                return None;
            }
            left /= dim;
            stride /= *dim as isize;
            strides[index] = stride;
        }
        (left == 1).then_some(Self { shape, strides, offset: self.offset })
    }

    /// Neighbouring dimensions that lie as one, as (elements, stride of the innermost).
    fn runs(&self) -> Vec<(usize, isize)> {
        let mut runs: Vec<(usize, isize)> = Vec::new();
        for (dim, stride) in self.dims().iter().zip(self.strides()).filter(|(dim, _)| **dim != 1) {
            match runs.last_mut() {
                Some((size, outer)) if *outer == stride * *dim as isize => (*size, *outer) = (*size * dim, *stride),
                _ => runs.push((*dim, *stride)),
            }
        }
        runs
    }
}

/// The shape in which these shapes meet, by NumPy's rules of broadcasting. `None` if they don't.
pub fn broadcast_shapes(shapes: &[Shape]) -> Option<Shape> {
    let rank = shapes.iter().map(|shape| shape.dims().len()).max()?;
    let mut dims = [1usize; MAX_RANK];
    for shape in shapes {
        let first = rank - shape.dims().len();
        for (dim, met) in shape.dims().iter().zip(&mut dims[first..]) {
            match (*dim, *met) {
                (a, b) if a == b => {}
                (_, 1) => *met = *dim,
                (1, _) => {}
                _ => return None,
            }
        }
    }
    Some(Shape::new(&dims[..rank]))
}

/// The number of elements, if 32 bits hold it and its bytes.
pub fn checked_elements(dims: &[usize]) -> Result<usize> {
    // A product of the others may be too large beside a zero.
    if dims.contains(&0) {
        return Ok(0);
    }
    let elements = dims.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim as u64));
    match elements {
        Some(elements) if elements <= u64::from(u32::MAX) / 4 => Ok(elements as usize),
        Some(elements) => {
            let most = u32::MAX / 4;
            bail!(AdapterLimits, "a shape {dims:?} has {elements} elements, and at most {most} are possible")
        }
        None => bail!(AdapterLimits, "a shape {dims:?} has more elements than can be counted"),
    }
}

/// A shape of a caller.
pub fn checked_shape(dims: &[usize]) -> Result<Shape> {
    if dims.len() > MAX_RANK {
        bail!(ShapeMismatch, "the shape {dims:?} has {} dimensions and at most {MAX_RANK} are possible", dims.len());
    }
    checked_elements(dims)?;
    Ok(Shape::new(dims))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The places of all elements, in row-major order.
    fn places(layout: &Layout) -> Vec<usize> {
        let mut places = vec![layout.offset()];
        for (dim, stride) in layout.dims().iter().zip(layout.strides()) {
            let next = |place: &usize| {
                let place = *place;
                (0..*dim).map(move |i| place.wrapping_add_signed(i as isize * stride)).collect::<Vec<_>>()
            };
            places = places.iter().flat_map(next).collect();
        }
        places
    }

    proptest! {
        #[test]
        fn a_reshaped_view_has_the_same_elements_in_the_same_order(
            dims in proptest::collection::vec(1usize..5, 1..5),
            order in any::<u64>(),
            cuts in proptest::collection::vec((0usize..4, 1usize..3), 0..3),
            split in 1usize..5,
        ) {
            let mut layout = Layout::contiguous(Shape::new(&dims));
            let mut axes: Vec<usize> = (0..dims.len()).collect();
            axes.rotate_left(order as usize % dims.len());
            layout = layout.permuted(&axes);
            for (dim, step) in cuts {
                let dim = dim % dims.len();
                let count = layout.dims()[dim].div_ceil(step);
                layout = layout.sliced(dim, 0, step as isize, count);
            }
            let n = layout.shape().elements();
            let mut shapes = vec![vec![n], layout.dims().to_vec()];
            if n.is_multiple_of(split) {
                shapes.push(vec![split, n / split]);
                shapes.push(vec![1, n / split, 1, split]);
            }
            for shape in shapes {
                if let Some(reshaped) = layout.reshaped(Shape::new(&shape)) {
                    prop_assert_eq!(places(&reshaped), places(&layout));
                }
            }
            prop_assert!(layout.reshaped(layout.shape()).is_some());
        }
    }

    #[test]
    fn elements_of_one_place_are_found() {
        let strided = |dims: &[usize], strides: &[isize]| Layout::strided(Shape::new(dims), strides, 0).may_overlap();
        assert!(strided(&[2, 3], &[0, 1]));
        assert!(strided(&[3, 3], &[1, 1]));
        assert!(!strided(&[1, 3], &[0, -1]));
        assert!(!strided(&[0, 3], &[0, 1]));
        assert!(!strided(&[3, 2], &[1, 3]));
        assert!(!strided(&[4], &[2]));
        assert!(!Layout::contiguous(Shape::from([2, 3, 4])).permuted(&[2, 0, 1]).may_overlap());
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let shape = |dims: &[usize]| Shape::new(dims);
        assert_eq!(broadcast_shapes(&[shape(&[2, 1, 3]), shape(&[4, 1])]), Some(shape(&[2, 4, 3])));
        assert_eq!(broadcast_shapes(&[shape(&[]), shape(&[0, 2])]), Some(shape(&[0, 2])));
        assert_eq!(broadcast_shapes(&[shape(&[1]), shape(&[0])]), Some(shape(&[0])));
        assert_eq!(broadcast_shapes(&[shape(&[2]), shape(&[3])]), None);
        assert_eq!(broadcast_shapes(&[shape(&[0]), shape(&[3])]), None);
        let row = Layout::contiguous(shape(&[3])).broadcast(shape(&[2, 3])).unwrap();
        assert_eq!(places(&row), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_flipped_view_reads_backwards() {
        let flipped = Layout::contiguous(Shape::from([2, 3])).sliced(1, 2, -1, 3);
        assert_eq!(places(&flipped), [2, 1, 0, 5, 4, 3]);
        assert!(!flipped.is_contiguous());
        assert!(flipped.reshaped(Shape::from([6])).is_none());
    }
}
