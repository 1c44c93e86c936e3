//! The first step for rows that don't fit a workgroup: sorts runs of each.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::ops::indexing::indices::words;
use crate::tensor::ops::sorting::sort_key::{self, RUN, SortKey, SortOrder, rows};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape};

/// What is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOf {
    /// Elements in this order.
    Elements(SortOrder),
    /// The outputs of another `SortRuns`.
    Pairs,
}

/// Input: x [rows, n], or keys and columns of it, u32 [rows, n]. Outputs, u32 [rows, m]: of each run of 1024 elements the first
/// `keep` in order, as keys, of which the smaller comes first; and their columns in x. A run that is shorter than `keep` has words of
/// ones behind its elements, which come after all others. If whole runs are kept, m is n.
///
/// `MergeRuns` makes longer runs of whole ones. `SortRuns` of pairs finds the first of a row among the first of its runs.
#[derive(Clone)]
pub struct SortRuns {
    /// What is sorted.
    pub of: RunsOf,
    /// The elements of a run that are kept, 1 to 1024.
    pub keep: usize,
}

impl SortRuns {
    /// The length of a run.
    pub const RUN: usize = RUN;

    fn out_columns(&self, columns: usize) -> usize {
        if self.keep == RUN { columns } else { columns.div_ceil(RUN) * self.keep }
    }
}

impl Op for SortRuns {
    on_cpu!();

    fn name(&self) -> &'static str {
        "sort_runs"
    }

    fn title(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        match self.of {
            RunsOf::Elements(order) => expect(self.title(), inputs, &[Some(order.key.dtype())])?,
            RunsOf::Pairs => expect(self.title(), inputs, &[Some(DType::U32), Some(DType::U32)])?,
        }
        let (rows, columns) = rows(self.title(), &inputs[0])?;
        if inputs.iter().any(|input| input.shape != inputs[0].shape) {
            bail!(ShapeMismatch, "sort: keys {} and their columns {}", inputs[0].shape, inputs[1].shape);
        }
        if self.keep == 0 || self.keep > RUN {
            bail!(ShapeMismatch, "sort: {} of a run can't be kept, only 1 to {RUN}", self.keep);
        }
        let dims = [rows, self.out_columns(columns)];
        fits_u32(self.title(), &dims)?;
        Ok(vec![Desc { shape: Shape::from(dims), dtype: DType::U32 }; 2])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, out_columns) = outputs[0].shape.matrix()?;
        let defines = match self.of {
            RunsOf::Elements(order) => order.defines(),
            RunsOf::Pairs => vec![("PAIRS", Define::Flag)],
        };
        sort_key::kernel(&inputs[0], self.keep, out_columns, defines, capabilities)
    }
}

impl Reference for SortRuns {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = rows(self.title(), &inputs[0].desc())?;
        let x = words(&inputs[0]);
        let (keys, indices): (Vec<u32>, Vec<u32>) = match self.of {
            RunsOf::Elements(order) => {
                let all = x.iter().enumerate();
                all.map(|(at, element)| (order.word(*element), (at % columns) as u32)).unzip()
            }
            RunsOf::Pairs => (x, inputs[1].to_u32()?),
        };
        let (mut out_keys, mut out_indices) = (Vec::new(), Vec::new());
        for (keys, indices) in keys.chunks_exact(columns).zip(indices.chunks_exact(columns)) {
            for (keys, indices) in keys.chunks(RUN).zip(indices.chunks(RUN)) {
                let mut run: Vec<(u32, u32)> = keys.iter().copied().zip(indices.iter().copied()).collect();
                run.sort_unstable();
                run.resize(if self.keep == RUN { run.len() } else { self.keep }, (u32::MAX, u32::MAX));
                out_keys.extend(run.iter().map(|pair| pair.0));
                out_indices.extend(run.iter().map(|pair| pair.1));
            }
        }
        let dims = [rows, self.out_columns(columns)];
        Ok(vec![HostTensor::u32(&dims, &out_keys), HostTensor::u32(&dims, &out_indices)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(99);
    let mut cases = Vec::new();
    for (index, (rows, columns, keep)) in
        [(1, 1, 1), (3, 700, 9), (2, 1025, RUN), (3, 5003, RUN), (3, 5003, 1), (2, 4097, 256)].into_iter().enumerate()
    {
        let order = SortOrder { key: SortKey::ALL[index % 3], descending: index % 2 == 1 };
        let x = sort_key::random(order.key, &[rows, columns], &mut rng);
        cases.push(Case::new(SortRuns { of: RunsOf::Elements(order), keep }, vec![x], 0.0));
        // Each index once in a row, as what comes from runs has it.
        let keys: Vec<u32> = (0..rows * columns).map(|_| rng.below(1000) as u32).collect();
        let indices: Vec<u32> = (0..rows * columns).map(|at| (columns - 1 - at % columns) as u32).collect();
        let pairs = [keys, indices].map(|words| HostTensor::u32(&[rows, columns], &words));
        cases.push(Case::new(SortRuns { of: RunsOf::Pairs, keep }, pairs.to_vec(), 0.0));
    }
    cases
}
