//! Products of matrices and vectors.

use crate::array::dtype::{DType, promote};
use crate::array::graph::node::{Array, Pending, Product};
use crate::array::layout::broadcast_shapes;
use crate::error::Result;
use crate::tensor::Shape;

use super::functions::Binary;
use super::reductions::Reduce;

/// The longest inner dimension of one kernel on software adapters: llvmpipe ends loops after 65,535 rounds.
const LONGEST: usize = 1 << 15;

impl Array {
    /// The matrix product of the last two dimensions; those before them broadcast. One dimension is a row on the left and a column on the
    /// right, and goes again, as in NumPy. Computed in f32.
    pub fn matmul(&self, other: &Array) -> Result<Array> {
        let (left, right) = (self.dims(), other.dims());
        if left.is_empty() || right.is_empty() {
            bail!(ShapeMismatch, "matmul: {} and {}: at least one dimension is wanted", self.shape(), other.shape());
        }
        if !self.library().is_same(other.library()) {
            bail!(WrongDevice, "matmul: a tensor {} is one of another device", other.shape());
        }
        let a = if left.len() == 1 { self.unsqueeze(0)? } else { self.clone() };
        let b = if right.len() == 1 { other.unsqueeze(1)? } else { other.clone() };
        let ([.., rows, inner], [.., inner_right, columns]) = (a.dims(), b.dims()) else {
            bail!(Internal, "a matrix has two dimensions")
        };
        let (rows, inner, columns) = (*rows, *inner, *columns);
        if inner != *inner_right {
            bail!(ShapeMismatch, "matmul: inner dimensions differ, {} and {}", self.shape(), other.shape());
        }
        let batch = |array: &Array| Shape::new(&array.dims()[..array.dims().len() - 2]);
        let Some(batch) = broadcast_shapes(&[batch(&a), batch(&b)]) else {
            bail!(
                ShapeMismatch,
                "matmul: the batch dimensions of {} and {} don't broadcast",
                self.shape(),
                other.shape()
            )
        };
        let mut dims = batch.dims().to_vec();
        dims.extend([rows, columns]);
        let shape = crate::array::layout::checked_shape(&dims)?;
        self.check_grid(rows, columns, batch.elements())?;
        let dtype = promote(self.dtype(), other.dtype());
        let product = if inner == 0 || shape.elements() == 0 {
            self.library().constant(&dims, dtype, 0)?
        } else {
            let floats =
                |array: &Array| if array.dtype().is_float() { Ok(array.clone()) } else { array.cast(DType::F32) };
            let (a, b) = (kept(&floats(&a)?.detached())?, kept(&floats(&b)?.detached())?);
            summed(&a, &b, shape)?.cast(dtype)?
        };
        let saved = [b.requires_grad().then_some(&a), a.requires_grad().then_some(&b)];
        let is_shared = b.dims()[..b.dims().len() - 2].iter().all(|dim| *dim == 1);
        let product = product.derived("matmul", &[&a, &b], &saved, move |pull| {
            let gradient = &pull.gradient;
            pull.each(&[&|| gradient.matmul(&pull.saved(1)?.transpose(-2, -1)?), &|| {
                transposed_product(pull.saved(0)?, gradient, is_shared)
            }])
        })?;
        if left.len() == 1 || right.len() == 1 {
            let mut dims = batch.dims().to_vec();
            dims.extend((left.len() > 1).then_some(rows));
            dims.extend((right.len() > 1).then_some(columns));
            return product.viewed(Shape::new(&dims));
        }
        Ok(product)
    }

    /// The sum of products of two arrays of one dimension and one size.
    pub fn dot(&self, other: &Array) -> Result<Array> {
        if self.dims().len() != 1 || other.shape() != self.shape() {
            bail!(
                ShapeMismatch,
                "dot: one dimension of one size is wanted, not {} and {}",
                self.shape(),
                other.shape()
            );
        }
        // Products of 16-bit floats are not rounded before they are added.
        let dtype = promote(self.dtype(), other.dtype());
        let wide = |array: &Array| array.cast(dtype.computed());
        wide(self)?.binary(Binary::Mul, &wide(other)?)?.reduce(Reduce::Sum, None, false)?.cast(dtype)
    }

    fn check_grid(&self, rows: usize, columns: usize, batch: usize) -> Result<()> {
        let limit = self.library().context().device().capabilities().max_workgroups_per_dimension as usize;
        if batch > limit || rows.div_ceil(16) > limit || columns.div_ceil(64) > limit {
            bail!(AdapterLimits, "matmul: {batch} products of {rows} by {columns} are more than a dispatch may have");
        }
        Ok(())
    }
}

/// The product of stored matrices, in f32. Software adapters take long inner dimensions by parts.
fn summed(a: &Array, b: &Array, shape: Shape) -> Result<Array> {
    let library = a.library();
    let inner = a.dims().last().copied().unwrap_or(1);
    let longest = if library.context().device().capabilities().software { LONGEST } else { inner };
    let mut sum: Option<Array> = None;
    for first in (0..inner).step_by(longest.max(1)) {
        let part = |array: &Array, dim: i64| {
            array.slice(dim, Some(first as i64), Some((first + longest).min(inner) as i64), 1)
        };
        let product = Product { a: part(a, -1)?, b: part(b, -2)? };
        let product = Array::pending(library, shape, DType::F32, Pending::Product(product));
        sum = Some(match sum {
            Some(sum) => sum.binary(Binary::Add, &product)?,
            None => product,
        });
    }
    sum.ok_or_else(|| err!(Internal, "a product has an inner dimension"))
}

/// aᵀ · gradient: for a matrix that stood beside many, in one product over all of them.
fn transposed_product(a: &Array, gradient: &Array, is_shared: bool) -> Result<Array> {
    let ([.., inner], [.., columns]) = (a.dims(), gradient.dims()) else {
        bail!(Internal, "a matrix has two dimensions")
    };
    let is_same_batch = a.dims().len() == gradient.dims().len()
        && a.dims()[..a.dims().len() - 1] == gradient.dims()[..a.dims().len() - 1];
    if is_shared && is_same_batch && a.dims().len() > 2 && a.elements() > 0 && gradient.elements() > 0 {
        let (a, gradient) = (a.reshape(&[-1, *inner as i64])?, gradient.reshape(&[-1, *columns as i64])?);
        return a.transpose(-2, -1)?.matmul(&gradient);
    }
    a.transpose(-2, -1)?.matmul(gradient)
}

/// In memory: elements of operands are read often.
fn kept(array: &Array) -> Result<Array> {
    array.stored_now()?;
    Ok(array.clone())
}
