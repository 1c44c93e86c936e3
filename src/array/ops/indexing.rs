//! Elements by their indices, and sums up to each element.

use super::functions::{Compare, Logical, Scalar};
use super::views::checked_dim;
use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::array::layout::Layout;
use crate::error::Result;
use crate::tensor::{self, Shape, Tensor, ops};

impl Array {
    /// `out[i][j][k] = self[i][index[i][j][k]][k]` for the second of three dimensions, and likewise for others. `index` is i32 or u32; −1 is the
    /// last element. Out of range a float is NaN and an integer 0. Other dimensions of `index` may be smaller.
    pub fn gather(&self, dim: i64, index: &Array) -> Result<Array> {
        let rank = self.dims().len();
        let dim = checked_dim("gather", dim, rank.max(1))?;
        let signed = signed_index("gather", index)?;
        self.check_beside("gather", dim, index)?;
        if index.elements() == 0 {
            return self.library().constant(index.dims(), self.dtype(), 0);
        }
        if self.elements() == 0 {
            bail!(OutOfRange, "gather: {} has no elements to choose from", self.shape());
        }
        let x = self.trimmed(dim, index)?;
        let op = ops::Gather { float: self.dtype().is_float(), signed };
        let x = x.wide(&x.folded(dim))?;
        let index_tensor = index.wide(&index.folded(dim))?;
        let out = self.library().context().run1(&op, &[&x, &index_tensor])?;
        let shape = self.shape();
        let gathered = self.narrowed(&out, index.dims(), self.dtype())?;
        gathered.derived("gather", &[self], &[Some(index)], move |pull| {
            let gradient = &pull.gradient;
            Ok(vec![Some(gradient.zeros(shape.dims())?.scatter_add(dim as i64, pull.saved(0)?, gradient)?)])
        })
    }

    /// Adds `source[i][j][k]` to `self[i][index[i][j][k]][k]`, into a new array. An index out of range leaves its element out. Floats are
    /// added in no fixed order.
    pub fn scatter_add(&self, dim: i64, index: &Array, source: &Array) -> Result<Array> {
        let sums = self.detached().scattered(dim, index, &source.detached())?;
        let (own, source_dims) = (self.dims().get(dim_of(dim, self)).copied().unwrap_or(1), source.shape());
        sums.derived("scatter_add", &[self, source], &[Some(index)], move |pull| {
            let gradient = &pull.gradient;
            pull.each(&[&|| Ok(gradient.clone()), &|| {
                let index = pull.saved(0)?;
                if index.elements() == 0 {
                    return gradient.zeros(source_dims.dims());
                }
                // What was left out has no part in the sums.
                let least = if index.dtype() == DType::I32 { -(own as i64) } else { 0 };
                let is_used = index.compare_scalar(Compare::GreaterEqual, Scalar::Int(least))?;
                let is_used =
                    is_used.logical(Logical::And, &index.compare_scalar(Compare::Lower, Scalar::Int(own as i64))?)?;
                let used = gradient.gather(dim, index)?.kept_where(&is_used)?;
                if used.shape() == source_dims {
                    return Ok(used);
                }
                let cut = |layout: &Layout| {
                    let cut = |layout: Layout, (dim, size): (usize, &usize)| layout.sliced(dim, 0, 1, *size);
                    used.dims().iter().enumerate().fold(*layout, cut)
                };
                used.placed(source_dims.dims(), &cut)
            }])
        })
    }

    fn scattered(&self, dim: i64, index: &Array, source: &Array) -> Result<Array> {
        let rank = self.dims().len();
        let dim = checked_dim("scatter_add", dim, rank.max(1))?;
        let signed = signed_index("scatter_add", index)?;
        if source.dtype() != self.dtype() {
            let (own, other) = (self.dtype().name(), source.dtype().name());
            bail!(DtypeMismatch, "scatter_add: the source is {other}, wanted {own}");
        }
        self.check_beside("scatter_add", dim, index)?;
        let is_smaller = |(index, source): (&usize, &usize)| index <= source;
        if source.dims().len() != rank || !index.dims().iter().zip(source.dims()).all(is_smaller) {
            bail!(
                ShapeMismatch,
                "scatter_add: the index {} is larger than the source {}",
                index.shape(),
                source.shape()
            );
        }
        if index.elements() == 0 || self.elements() == 0 {
            return self.apart();
        }
        let kind = if self.dtype().is_float() { ops::ScatterKind::F32 } else { ops::ScatterKind::Integer };
        let source = source.cut_to(index.dims())?;
        let trimmed = self.trimmed(dim, index)?;
        let wide = trimmed.cast(self.dtype().computed())?.owned()?;
        let op = ops::ScatterAdd { kind, signed };
        let inputs = [&wide.reshaped(Shape::new(&trimmed.folded(dim)))?, &index.wide(&index.folded(dim))?];
        self.library().run(&op, &[inputs[0], inputs[1], &source.wide(&index.folded(dim))?])?;
        let sums = self.narrowed(&wide, trimmed.dims(), self.dtype())?;
        if sums.shape() == self.shape() {
            return Ok(sums);
        }
        let out = self.copied()?;
        let part = out.cut_to_view(sums.dims())?;
        part.assign(&sums)?;
        Ok(out)
    }

    /// The elements of a dimension with these indices. `index` has one dimension, and is i32 or u32.
    pub fn index_select(&self, dim: i64, index: &Array) -> Result<Array> {
        let rank = self.dims().len();
        let dim = checked_dim("index_select", dim, rank.max(1))?;
        let signed = signed_index("index_select", index)?;
        if index.dims().len() > 1 {
            bail!(ShapeMismatch, "index_select: the index is {}, wanted one dimension", index.shape());
        }
        self.selected("index_select", dim, index, signed, &self.resized(dim, index.elements()))
    }

    /// The rows of this matrix with these indices: a dimension more than `index`.
    pub fn embedding(&self, index: &Array) -> Result<Array> {
        let [_, columns] = self.dims() else {
            bail!(ShapeMismatch, "embedding: the weight is {}, wanted [rows, columns]", self.shape())
        };
        let signed = signed_index("embedding", index)?;
        let mut dims = index.dims().to_vec();
        dims.push(*columns);
        let dims = crate::array::layout::checked_shape(&dims)?;
        self.selected("embedding", 0, index, signed, dims.dims())
    }

    fn selected(&self, what: &'static str, dim: usize, index: &Array, signed: bool, dims: &[usize]) -> Result<Array> {
        if dims.contains(&0) {
            let shape = self.shape();
            let nothing = self.library().constant(dims, self.dtype(), 0)?;
            return nothing.derived_from(what, self, move |gradient| gradient.zeros(shape.dims()));
        }
        if self.elements() == 0 {
            bail!(OutOfRange, "{what}: {} has no elements to choose from", self.shape());
        }
        let op = ops::IndexSelect { float: self.dtype().is_float(), signed };
        let (x, index_tensor) = (self.wide(&self.folded(dim))?, index.wide(&[index.elements()])?);
        let out = self.library().context().run1(&op, &[&x, &index_tensor])?;
        let (shape, folded) = (self.shape(), self.folded(dim));
        self.narrowed(&out, dims, self.dtype())?.derived(what, &[self], &[Some(index)], move |pull| {
            // [outer, n, inner] on both sides.
            let [outer, size, inner] = folded;
            let index = pull.saved(0)?;
            let many = index.elements();
            let gradient = pull.gradient.viewed(Shape::from([outer, many, inner]))?;
            let index = index.viewed(Shape::from([1, many, 1]))?.expand(&[outer as i64, many as i64, inner as i64])?;
            Ok(vec![Some(gradient.zeros(&[outer, size, inner])?.scatter_add(1, &index, &gradient)?.viewed(shape)?)])
        })
    }

    /// The sum of the elements up to each one along a dimension. Integers wrap around; bools are counted as i32.
    pub fn cumsum(&self, dim: i64) -> Result<Array> {
        let dim = checked_dim("cumsum", dim, self.dims().len().max(1))?;
        let dtype = if self.dtype() == DType::Bool { DType::I32 } else { self.dtype() };
        let array = self.cast(dtype)?;
        if self.elements() == 0 {
            return Ok(array);
        }
        let out = tensor::cumsum(self.library().context(), &array.wide(&array.folded(dim))?)?;
        self.narrowed(&out, self.dims(), dtype)?.derived_from("cumsum", self, move |gradient| {
            let dim = dim as i64;
            if gradient.dims().is_empty() {
                return Ok(gradient.clone());
            }
            gradient.flip(&[dim])?.cumsum(dim)?.flip(&[dim])
        })
    }

    /// An error if an index does not lie beside the elements: as many dimensions, none but `dim` larger.
    fn check_beside(&self, what: &str, dim: usize, index: &Array) -> Result<()> {
        let fits = |(at, (index, own)): (usize, (&usize, &usize))| at == dim || index <= own;
        let pairs = index.dims().iter().zip(self.dims());
        if index.dims().len() != self.dims().len() || !pairs.enumerate().all(fits) {
            bail!(
                ShapeMismatch,
                "{what}: the index {} does not fit {} beside the dimension {dim}",
                index.shape(),
                self.shape()
            );
        }
        Ok(())
    }

    /// As much of the other dimensions as an index has.
    fn trimmed(&self, dim: usize, index: &Array) -> Result<Array> {
        let mut dims = index.dims().to_vec();
        if let (Some(size), Some(own)) = (dims.get_mut(dim), self.dims().get(dim)) {
            *size = *own;
        }
        self.cut_to(&dims)
    }

    fn cut_to(&self, dims: &[usize]) -> Result<Array> {
        if self.dims() == dims { Ok(self.clone()) } else { self.cut_to_view(dims) }
    }

    fn cut_to_view(&self, dims: &[usize]) -> Result<Array> {
        let cut = |array: Array, (dim, size): (usize, &usize)| array.slice(dim as i64, None, Some(*size as i64), 1);
        dims.iter().enumerate().try_fold(self.clone(), cut)
    }

    /// Its elements in a tensor that nobody else has.
    fn owned(&self) -> Result<Tensor> {
        self.copied()?.tensor()
    }
}

/// A dimension that was checked, from the start.
fn dim_of(dim: i64, array: &Array) -> usize {
    if dim < 0 { (dim + array.dims().len().max(1) as i64) as usize } else { dim as usize }
}

/// Whether an index counts from the end if it is negative.
fn signed_index(what: &str, index: &Array) -> Result<bool> {
    match index.dtype() {
        DType::I32 => Ok(true),
        DType::U32 => Ok(false),
        other => bail!(DtypeMismatch, "{what}: the index is {}, wanted i32 or u32", other.name()),
    }
}
