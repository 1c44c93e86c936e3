//! Sorts rows that fit a workgroup, by a bitonic network (Batcher 1968). `tensor::sort_rows` sorts longer ones, too.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::indexing::indices::{of_words, words};
use crate::tensor::ops::sorting::sort_key::{self, RUN, SortKey, SortOrder, expect_keep, rows};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape};

/// Input: x [rows, n], n up to 1024. Outputs: the first `keep` elements of each row in order [rows, keep], and their columns, u32.
/// Of equal elements the one of the lower column comes first.
#[derive(Clone)]
pub struct Sort {
    /// What comes first.
    pub order: SortOrder,
    /// The elements of each row that are kept, at least one.
    pub keep: usize,
}

impl Sort {
    /// The longest row.
    pub const MOST: usize = RUN;
}

impl Op for Sort {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("sort", inputs, &[Some(self.order.key.dtype())])?;
        expect_keep("sort", self.keep, &inputs[0])?;
        let (rows, columns) = rows("sort", &inputs[0])?;
        if columns > RUN {
            bail!(ShapeMismatch, "sort: {}, and a workgroup sorts rows of up to {RUN}", inputs[0].shape);
        }
        let shape = Shape::from([rows, self.keep]);
        Ok(vec![Desc { shape, dtype: inputs[0].dtype }, Desc { shape, dtype: DType::U32 }])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut defines = self.order.defines();
        defines.push(("VALUES", Define::Flag));
        sort_key::kernel(&inputs[0], self.keep, self.keep, defines, capabilities)
    }
}

impl Reference for Sort {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = rows("sort", &inputs[0].desc())?;
        let (mut values, mut indices) = (Vec::new(), Vec::new());
        for row in words(&inputs[0]).chunks_exact(columns) {
            let sorted = self.order.columns(row);
            values.extend(sorted[..self.keep].iter().map(|column| row[*column as usize]));
            indices.extend_from_slice(&sorted[..self.keep]);
        }
        let dims = [rows, self.keep];
        Ok(vec![of_words(inputs[0].dtype, &dims, &values), HostTensor::u32(&dims, &indices)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(98);
    let mut cases = Vec::new();
    let shapes =
        [(1, 1), (3, 1), (7, 2), (1, 3), (131, 31), (1100, 2), (5, 257), (3, 512), (2, 513), (3, 1023), (2, 1024)];
    for key in SortKey::ALL {
        for (index, (rows, columns)) in shapes.into_iter().enumerate() {
            let order = SortOrder { key, descending: index % 2 == 1 };
            let x = sort_key::random(key, &[rows, columns], &mut rng);
            cases.push(Case::new(Sort { order, keep: columns }, vec![x.clone()], 0.0));
            let order = SortOrder { key, descending: !order.descending };
            cases.push(Case::new(Sort { order, keep: columns.div_ceil(3) }, vec![x], 0.0));
        }
    }
    cases
}
