//! Elements in order.

use super::views::checked_dim;
use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::ops::{SortKey, SortOrder};
use crate::tensor::{self, Tensor};

impl Array {
    /// The elements of a dimension in order, and the index of each as i32. Stable; NaN counts as larger than every number.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Array, Array)> {
        self.in_order("sort", dim, None, descending)
    }

    /// The k largest or smallest elements of a dimension in order, and the index of each as i32. Of equal ones the first come first.
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> Result<(Array, Array)> {
        self.in_order("topk", dim, Some(k), largest)
    }

    fn in_order(&self, what: &'static str, dim: i64, k: Option<usize>, descending: bool) -> Result<(Array, Array)> {
        let (values, indices) = self.detached().ordered(what, dim, k, descending)?;
        let shape = self.shape();
        let values = values.derived(what, &[self], &[Some(&indices)], move |pull| {
            let gradient = &pull.gradient;
            Ok(vec![Some(gradient.zeros(shape.dims())?.scatter_add(dim, pull.saved(0)?, gradient)?)])
        })?;
        Ok((values, indices))
    }

    fn ordered(&self, what: &str, dim: i64, k: Option<usize>, descending: bool) -> Result<(Array, Array)> {
        let rank = self.dims().len();
        let dim = checked_dim(what, dim, rank.max(1))?;
        let columns = self.dims().get(dim).copied().unwrap_or(1);
        let kept = k.unwrap_or(columns);
        if kept > columns {
            bail!(OutOfRange, "{what}: k is {kept}, and the dimension {dim} of {} has {columns}", self.shape());
        }
        let dims = self.resized(dim, kept);
        if dims.contains(&0) {
            let library = self.library();
            return Ok((library.constant(&dims, self.dtype(), 0)?, library.constant(&dims, DType::I32, 0)?));
        }
        // The dimension becomes the last one.
        let last = rank.saturating_sub(1) as i64;
        let swapped = if rank > 1 { self.transpose(dim as i64, last)? } else { self.clone() };
        let key = match self.dtype() {
            DType::I32 => SortKey::I32,
            DType::U32 | DType::Bool => SortKey::U32,
            _ => SortKey::F32,
        };
        let order = SortOrder { key, descending };
        let x = swapped.wide(&[self.elements() / columns, columns])?;
        let context = self.library().context();
        let (values, indices) = match k {
            None => tensor::sort_rows(context, &x, order)?,
            Some(k) => tensor::topk_rows(context, &x, k, order)?,
        };
        let back = |tensor: &Tensor, dtype: DType| {
            let array = self.narrowed(tensor, &swapped.resized(rank.wrapping_sub(1), kept), dtype)?;
            if rank > 1 { array.transpose(dim as i64, last) } else { Ok(array) }
        };
        Ok((back(&values, self.dtype())?, back(&indices, DType::I32)?))
    }
}
