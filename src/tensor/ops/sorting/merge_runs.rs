//! Merges sorted runs of rows, two by two: an element's place is its own in its run and the number of elements of the other run that
//! come before it, by a binary search (Satish, Harris, Garland 2009). So there is no barrier, and runs may have any length.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::sorting::sort_key::{expect_keep, rows};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: keys u32 [rows, n], of which each run is sorted, and a column for each, u32 [rows, n]; both from `SortRuns` or this op.
/// Outputs: the same in runs twice as long, [rows, keep]: of each row the first `keep` alone. Of equal keys those of the earlier run
/// come first.
#[derive(Clone)]
pub struct MergeRuns {
    /// The length of a run; the last of a row may be shorter.
    pub run: usize,
    /// The elements of a row that are written: n, or fewer where the row becomes one run.
    pub keep: usize,
}

impl Op for MergeRuns {
    on_cpu!();

    fn name(&self) -> &'static str {
        "merge_runs"
    }

    fn title(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.title(), inputs, &[Some(DType::U32), Some(DType::U32)])?;
        expect_keep(self.title(), self.keep, &inputs[0])?;
        let (rows, _) = rows(self.title(), &inputs[0])?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "sort: keys {} and their columns {}", inputs[0].shape, inputs[1].shape);
        }
        if self.run == 0 {
            bail!(ShapeMismatch, "sort: a run has at least one element");
        }
        Ok(vec![Desc::u32(&[rows, self.keep]); 2])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = rows(self.title(), &inputs[0])?;
        let elements = rows * columns;
        Ok(Kernel {
            template: crate::shader!("merge_runs.wgsl"),
            modules: &[],
            defines: vec![],
            params: [elements, columns, self.run.min(columns), self.keep].map(|word| word as u32).to_vec(),
            grid: grid_2d(elements.div_ceil(256), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MergeRuns {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (rows, columns) = rows(self.title(), &inputs[0].desc())?;
        let (keys, indices) = (inputs[0].to_u32()?, inputs[1].to_u32()?);
        let pairs: Vec<(u32, u32)> = keys.into_iter().zip(indices).collect();
        let mut out = Vec::new();
        for row in pairs.chunks_exact(columns) {
            let mut row = row.to_vec();
            // The sort is stable, as the merge is.
            row.chunks_mut(2 * self.run.min(columns)).for_each(|runs| runs.sort_by_key(|pair| pair.0));
            out.extend_from_slice(&row[..self.keep]);
        }
        let (keys, indices): (Vec<u32>, Vec<u32>) = out.into_iter().unzip();
        let dims = [rows, self.keep];
        Ok(vec![HostTensor::u32(&dims, &keys), HostTensor::u32(&dims, &indices)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(100);
    let shapes = [(1, 1, 1), (2, 2, 1), (3, 7, 2), (2, 1031, 1024), (3, 2048, 1024), (2, 5003, 512), (1, 700, 1024)];
    let mut cases = Vec::new();
    for (rows, columns, run) in shapes {
        // Few different keys in long runs, up to the largest.
        let mut keys: Vec<u32> = (0..rows * columns).map(|_| u32::MAX - rng.below(999) as u32).collect();
        keys.chunks_mut(columns).flat_map(|row| row.chunks_mut(run)).for_each(|run| run.sort_unstable());
        let indices: Vec<u32> = (0..rows * columns).map(|at| (at % columns) as u32).collect();
        let inputs = vec![HostTensor::u32(&[rows, columns], &keys), HostTensor::u32(&[rows, columns], &indices)];
        cases.push(Case::new(MergeRuns { run, keep: columns }, inputs.clone(), 0.0));
        if columns <= 2 * run {
            cases.push(Case::new(MergeRuns { run, keep: columns.div_ceil(2) }, inputs, 0.0));
        }
    }
    cases
}
