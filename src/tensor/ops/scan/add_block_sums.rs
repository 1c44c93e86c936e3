//! The last of three ops for cumulative sums of long lines: adds to each block the sum of those before it. See `Cumsum`.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{folded, on_cpu};
use crate::tensor::ops::scan::cumsum::integers;
use crate::tensor::ops::scan::line_scan::{number, summands};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [outer, n, inner] (changed), f32 or u32, and the cumulative sums of its blocks [outer, blocks, inner]. Element i of
/// a line gets the sum of the blocks up to the one before its own.
#[derive(Clone)]
pub struct AddBlockSums {
    /// The elements of a block, at least one.
    pub block: usize,
}

impl Op for AddBlockSums {
    on_cpu!();

    fn name(&self) -> &'static str {
        "add_block_sums"
    }

    fn title(&self) -> &'static str {
        "cumsum"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (outer, n, inner) = summands(self.title(), inputs, 2)?;
        let sums = inputs[1].shape;
        if self.block == 0 || sums.dims() != [outer, n.div_ceil(self.block), inner] {
            bail!(ShapeMismatch, "cumsum: x {}, blocks of {} and their sums {sums}", inputs[0].shape, self.block);
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (outer, n, inner) = folded(self.title(), "x", &inputs[0])?;
        let elements = outer * n * inner;
        let words = [elements, n, inner, self.block.min(n), n.div_ceil(self.block)];
        Ok(Kernel {
            template: crate::shader!("add_block_sums.wgsl"),
            modules: &[],
            defines: number(inputs[0].dtype).into_iter().collect(),
            params: words.map(|word| word as u32).to_vec(),
            grid: grid_2d(elements.div_ceil(256), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AddBlockSums {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (outer, n, inner) = folded(self.title(), "x", &inputs[0].desc())?;
        let blocks = n.div_ceil(self.block);
        // For each element that has one, its place and that of the sum before its block.
        let places: Vec<(usize, usize)> = (0..outer * n * inner)
            .filter(|at| at / inner % n >= self.block)
            .map(|at| (at, (at / inner / n * blocks + at / inner % n / self.block - 1) * inner + at % inner))
            .collect();
        if inputs[0].dtype == DType::U32 {
            let (mut x, sums) = (inputs[0].to_u32()?, inputs[1].to_u32()?);
            places.iter().for_each(|(at, sum)| x[*at] = x[*at].wrapping_add(sums[*sum]));
            inputs[0].set_u32(&x);
        } else {
            let (mut x, sums) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
            places.iter().for_each(|(at, sum)| x[*at] += sums[*sum]);
            inputs[0].set_f32(&x);
        }
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(94);
    let mut cases = Vec::new();
    for (dims, block) in [([1, 1, 1], 1), ([3, 5, 1], 2), ([2, 5003, 1], 1024), ([3, 101, 7], 16), ([2, 64, 3], 64)] {
        let sums: [usize; 3] = [dims[0], usize::div_ceil(dims[1], block), dims[2]];
        let inputs = vec![rng.tensor(&dims), rng.tensor(&sums)];
        cases.push(Case::new(AddBlockSums { block }, inputs, 1e-6));
        let inputs = vec![integers(&dims, &mut rng), integers(&sums, &mut rng)];
        cases.push(Case::new(AddBlockSums { block }, inputs, 0.0));
    }
    cases
}
