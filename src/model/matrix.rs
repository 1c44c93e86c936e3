//! A matrix of weights [rows, columns]: one tensor, or several with consecutive rows if it is too large for one binding of the adapter
//! (`weight_layout.rs` decides). Products run over the parts; each part gives its columns of the result.

use std::rc::Rc;

use crate::error::Result;
use crate::tensor::ops::{
    self, Add, AddPositions, Embedding, EmbeddingPart, Fill, MatMulBackward, PlaceColumns, SliceColumns,
};
use crate::tensor::{Context, DType, Op, Shape, Tensor};

/// A matrix of weights on the GPU. Cloning clones the handle.
#[derive(Clone)]
pub struct Matrix {
    /// At least one. All except the last have the same number of rows.
    parts: Rc<[Tensor]>,
    /// What its rows are, in their order; at least one tensor.
    holds: Rc<[HeldRows]>,
}

/// Rows of a matrix that are a tensor of the model: matrices that read the same input are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRows {
    /// The tensor's name, as GGUF files have it.
    pub name: String,
    /// The first of its rows.
    pub first_row: usize,
    /// How many they are.
    pub rows: usize,
}

impl Matrix {
    /// `tensors` are the names of the tensors that it holds, and how many rows each has.
    pub(super) fn new(parts: Vec<Tensor>, tensors: impl IntoIterator<Item = (String, usize)>) -> Result<Self> {
        let mut next_row = 0;
        let held = tensors.into_iter().map(|(name, rows)| {
            let first_row = next_row;
            next_row += rows;
            HeldRows { name, first_row, rows }
        });
        let holds: Rc<[HeldRows]> = held.collect();
        if parts.is_empty() || holds.is_empty() {
            bail!(Internal, "a matrix of {} parts, of {} tensors", parts.len(), holds.len());
        }
        Ok(Self { parts: parts.into(), holds })
    }

    /// The tensors that its rows are.
    pub fn holds(&self) -> &[HeldRows] {
        &self.holds
    }

    /// What no other matrix of the model is called: the name of the first tensor that it holds.
    pub fn key(&self) -> &str {
        &self.holds[0].name
    }

    /// The length of a row.
    pub fn columns(&self) -> usize {
        self.parts[0].shape().dims()[1]
    }

    /// The tensor, if there is only one part.
    pub(super) fn whole(&self) -> Option<&Tensor> {
        match &*self.parts {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The type of all parts.
    pub(super) fn dtype(&self) -> DType {
        self.parts[0].dtype()
    }

    /// The storage buffers that a kernel binds for a part.
    pub(super) fn buffers(&self) -> usize {
        if let DType::Weight(format) = self.dtype() { format.unit_words.len() } else { 1 }
    }

    /// The number of rows, of all parts.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.shape().dims()[0]).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(Tensor::bytes).sum()
    }

    /// Each part, and the number of its first row.
    pub fn parts(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        self.parts.iter().scan(0, |row, part| {
            let first = *row;
            *row += part.shape().dims()[0];
            Some((first, part))
        })
    }

    /// The rows of the embedding for `tokens` [n]: [n, columns]. With `soa`: one token, in SoA.
    pub(super) fn embed(&self, context: &Context, tokens: &Tensor, soa: bool) -> Result<Tensor> {
        // For a token of another part this reads a wrong row, which the token's own part then overwrites.
        let x = context.run1(&Embedding { soa }, &[tokens, &self.parts[0]])?;
        for (first_row, part) in self.parts().skip(1) {
            context.run(&EmbeddingPart { first_row, soa }, &[tokens, part, &x])?;
        }
        Ok(x)
    }

    /// x [n, columns] += the rows of the tokens' positions, which are in `state`.
    pub(super) fn add_positions(&self, context: &Context, x: &Tensor, state: &Tensor, soa: bool) -> Result<()> {
        for (first_row, part) in self.parts() {
            context.run(&AddPositions { first_row, rows: self.rows(), soa }, &[x, part, state])?;
        }
        Ok(())
    }

    /// The result of `op` for `inputs`, then this matrix: [tokens, rows].
    pub(super) fn multiply(&self, context: &Context, op: &dyn Op, inputs: &[&Tensor]) -> Result<Tensor> {
        self.multiply_by(context, |part| context.run1(op, &[inputs, &[part]].concat()))
    }

    /// The same with a function that gives the product for each part, [tokens, rows of the part].
    pub(super) fn multiply_by(&self, context: &Context, of_part: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let first = of_part(&self.parts[0])?;
        if self.parts.len() == 1 {
            return Ok(first);
        }
        let shape = Shape::from([first.shape().dims()[0], self.rows()]);
        let all = context.run1(&Fill { shape, value: 0.0 }, &[])?;
        context.run(&PlaceColumns { first: 0 }, &[&first, &all])?;
        for (row, part) in self.parts().skip(1) {
            context.run(&PlaceColumns { first: row }, &[&of_part(part)?, &all])?;
        }
        Ok(all)
    }

    /// x [n, columns] → [n, rows].
    pub fn product(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        let tokens = x.shape().dims().first().copied().unwrap_or(0);
        self.multiply(context, ops::linear(tokens), &[x])
    }

    /// The gradient of a product [n, rows] → that of its input, [n, columns].
    pub fn product_backward(&self, context: &Context, gradient: &Tensor) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for (first, part) in self.parts() {
            let count = part.shape().dims()[0];
            let of_part = match self.whole() {
                Some(_) => context.run1(&MatMulBackward, &[gradient, part])?,
                None => {
                    let columns = context.run1(&SliceColumns { first, count }, &[gradient])?;
                    context.run1(&MatMulBackward, &[&columns, part])?
                }
            };
            match &sum {
                Some(sum) => context.run(&Add, &[sum, &of_part]).map(|_| ())?,
                None => sum = Some(of_part),
            }
        }
        sum.ok_or_else(|| err!(Internal, "a matrix has a part"))
    }
}
