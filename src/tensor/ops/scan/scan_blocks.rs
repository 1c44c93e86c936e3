//! The first of three ops for cumulative sums of long lines: sums within blocks. See `Cumsum`.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::op::{fits_u32, on_cpu};
use crate::tensor::ops::scan::cumsum::integers;
use crate::tensor::ops::scan::line_scan::{self, summands};
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape};

/// Input: x [outer, n, inner], f32 or u32. Outputs: the same shape, where each block of a line has its own cumulative sums; and the
/// sum of each block, [outer, blocks, inner], of which the last may be shorter.
///
/// With the block sums through `Cumsum`, `AddBlockSums` makes of both what one `Cumsum` of x gives.
#[derive(Clone)]
pub struct ScanBlocks {
    /// The elements of a block, at least one.
    pub block: usize,
}

impl Op for ScanBlocks {
    on_cpu!();

    fn name(&self) -> &'static str {
        "scan_blocks"
    }

    fn title(&self) -> &'static str {
        "cumsum"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (outer, n, inner) = summands(self.title(), inputs, 1)?;
        if self.block == 0 {
            bail!(ShapeMismatch, "cumsum: a block has at least one element");
        }
        let sums = [outer, n.div_ceil(self.block), inner];
        fits_u32(self.title(), &sums)?;
        Ok(vec![inputs[0], Desc { shape: Shape::new(&sums), dtype: inputs[0].dtype }])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        line_scan::kernel(&inputs[0], self.block, true, capabilities)
    }
}

impl Reference for ScanBlocks {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        Ok(line_scan::reference(&inputs[0], self.block)?.into())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(93);
    let mut cases = Vec::new();
    let shapes = [
        ([1, 1, 1], 1),
        ([3, 5, 1], 2),
        ([2, 1000, 1], 37),
        ([3, 5003, 1], 2048),
        ([2, 4096, 1], 1024),
        ([3, 101, 7], 16),
    ];
    for (dims, block) in shapes {
        cases.push(Case::new(ScanBlocks { block }, vec![rng.tensor(&dims)], 3e-6));
        cases.push(Case::new(ScanBlocks { block }, vec![integers(&dims, &mut rng)], 0.0));
    }
    cases
}
