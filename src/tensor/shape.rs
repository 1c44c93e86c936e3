//! Shapes: up to six dimensions, outermost first, row-major.

use std::fmt;

use crate::error::Result;

/// The most dimensions of a shape.
pub const MAX_RANK: usize = 6;

/// A shape of up to six dimensions; a scalar has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    /// Panics above six dimensions.
    pub fn new(dims: &[usize]) -> Self {
        assert!(dims.len() <= MAX_RANK, "a shape has at most six dimensions, not {dims:?}");
        let mut shape = Self { dims: [1; MAX_RANK], rank: dims.len() };
        shape.dims[..dims.len()].copy_from_slice(dims);
        shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The product of the dimensions; 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The two dimensions of a matrix: rows, columns.
    pub fn matrix(&self) -> Result<(usize, usize)> {
        match self.dims() {
            [rows, columns] => Ok((*rows, *columns)),
            _ => bail!(ShapeMismatch, "a matrix is wanted, not {self}"),
        }
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self::new(&dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
