//! Cumulative sums along a dimension.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::scan::line_scan::{self, prefers_invocations, summands};
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [outer, n, inner], f32 or u32. Output: the same shape; element i of a line is the sum of its elements 0 … i. Sums of u32
/// wrap around.
///
/// A line is one workgroup's, or one invocation's. Few long lines keep a GPU busy by three ops: `ScanBlocks` sums within blocks,
/// `Cumsum` goes along the sums of the blocks, and `AddBlockSums` adds them. `tensor::cumsum` does so where it pays.
#[derive(Clone)]
pub struct Cumsum;

impl Cumsum {
    /// The length of the blocks in which few long lines are summed faster; nothing where one `Cumsum` does as well.
    pub fn block(x: &Desc, capabilities: &Capabilities) -> Result<Option<usize>> {
        let (outer, n, inner) = summands("cumsum", &[*x], 1)?;
        let by_invocations = prefers_invocations(inner, capabilities);
        // As many as a large GPU has at work.
        let enough = if by_invocations { 16_384 } else { 1024 };
        if n <= 4096 || outer * inner >= enough {
            return Ok(None);
        }
        // One invocation goes along a block as long as there are blocks; a workgroup takes 1024 numbers at a time.
        Ok(Some(if by_invocations { n.isqrt().next_power_of_two() } else { 2048 }))
    }
}

impl Op for Cumsum {
    on_cpu!();

    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        summands("cumsum", inputs, 1)?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        line_scan::kernel(&inputs[0], usize::MAX, false, capabilities)
    }
}

impl Reference for Cumsum {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [out, _] = line_scan::reference(&inputs[0], usize::MAX)?;
        Ok(vec![out])
    }
}

/// Numbers whose sums wrap around.
pub(in crate::tensor::ops) fn integers(dims: &[usize], rng: &mut Rng) -> HostTensor {
    let data: Vec<u32> = (0..dims.iter().product()).map(|_| rng.next_u64() as u32).collect();
    HostTensor::u32(dims, &data)
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(92);
    let mut cases = Vec::new();
    let shapes = [
        [1, 1, 1],
        [3, 2, 1],
        [2, 16, 1],
        [5, 17, 1],
        [2, 256, 1],
        [3, 1023, 1],
        [2, 1024, 1],
        [2, 1025, 1],
        [2, 10_007, 1],
        [1, 1, 5],
        [2, 3, 4],
        [5, 7, 11],
        [2, 1031, 70],
        [1, 70_001, 1],
        [1, 16_387, 3],
    ];
    for dims in shapes {
        cases.push(Case::new(Cumsum, vec![rng.tensor(&dims)], 3e-6));
        cases.push(Case::new(Cumsum, vec![integers(&dims, &mut rng)], 0.0));
    }
    // An infinity and a NaN reach what comes after them alone.
    let mut row: Vec<f32> = (0..4000).map(|i| (i % 5) as f32).collect();
    (row[1500], row[1501], row[3001]) = (f32::INFINITY, f32::MIN, f32::NEG_INFINITY);
    row.extend((0..4000).map(|i| if i == 2047 { f32::NAN } else { 1.0 }));
    for dims in [[2, 4000, 1], [1, 2000, 4]] {
        cases.push(Case::new(Cumsum, vec![HostTensor::f32(&dims, &row)], 1e-6));
    }
    cases
}
