//! The embedding and the output matrix, [vocab_size, n_embd]: the largest tensors of many models, and larger than what some adapters
//! bind at once. Then they lie in several parts of consecutive rows.

use crate::error::Result;
use crate::tensor::ops::{Embedding, EmbeddingPart, Fill, PlaceColumns};
use crate::tensor::{Context, Op, Shape, Tensor};

#[derive(Clone)]
pub(super) struct VocabularyMatrix {
    /// At least one. Each but the last has as many rows as the first.
    parts: Vec<Tensor>,
}

impl VocabularyMatrix {
    pub fn new(parts: Vec<Tensor>) -> Result<Self> {
        if parts.is_empty() {
            bail!(Internal, "an embedding or an output matrix of no parts");
        }
        Ok(Self { parts })
    }

    /// Each part, and the token of its first row.
    fn parts(&self) -> impl Iterator<Item = (usize, &Tensor)> {
        self.parts.iter().scan(0, |row, part| {
            let first = *row;
            *row += part.shape().dims()[0];
            Some((first, part))
        })
    }

    /// The rows of `tokens` [n]: [n, n_embd], of one token in planes if wanted.
    pub fn embed(&self, context: &Context, tokens: &Tensor, planar: bool) -> Result<Tensor> {
        // Of a token beyond the first part this takes some row of it, and the token's own part overwrites that.
        let x = context.run1(&Embedding { planar }, &[tokens, &self.parts[0]])?;
        for (first_row, part) in self.parts().skip(1) {
            context.run(&EmbeddingPart { first_row, planar }, &[tokens, part, &x])?;
        }
        Ok(x)
    }

    /// What `op` gives for `inputs` and this matrix after them: [rows, vocab_size].
    pub fn multiply(&self, context: &Context, op: &dyn Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let of_part = |part: &Tensor| context.run1(op, &[inputs, &[part]].concat());
        if let [only] = &self.parts[..] {
            return of_part(only);
        }
        let first = of_part(&self.parts[0])?;
        let columns: usize = self.parts.iter().map(|part| part.shape().dims()[0]).sum();
        let shape = Shape::from([first.shape().dims()[0], columns]);
        let all = context.run1(&Fill { shape, value: 0.0 }, &[])?;
        context.run(&PlaceColumns { first: 0 }, &[&first, &all])?;
        for (row, part) in self.parts().skip(1) {
            context.run(&PlaceColumns { first: row }, &[&of_part(part)?, &all])?;
        }
        Ok(all)
    }
}
