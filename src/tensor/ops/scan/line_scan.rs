//! What the ops of sums along a dimension share: the dtypes, the kernel of lines in blocks, and its reference.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::folded;
use crate::tensor::{DType, Desc, HostTensor, Kernel};

const WORKGROUP: u32 = 256;
/// Rows up to this length lie in a cache line or two, so that an invocation reads one by itself.
const SHORT: usize = 16;
/// Longer lines are a workgroup's whatever stands beside them: few of them keep few invocations busy, and llvmpipe ends a loop after
/// 65535 rounds.
const LONG: usize = 16_384;

/// Whether lines are better gone along by an invocation each than by a workgroup: neighbours stand beside each other, or barriers
/// are dear.
pub(in crate::tensor::ops) fn prefers_invocations(inner: usize, capabilities: &Capabilities) -> bool {
    inner > 1 || capabilities.software
}

/// Checks the number of inputs and their dtype, f32 or u32; gives the dimensions of the first, [outer, n, inner].
pub(in crate::tensor::ops) fn summands(op: &str, inputs: &[Desc], count: usize) -> Result<(usize, usize, usize)> {
    if inputs.len() != count {
        bail!(ShapeMismatch, "{op} takes {count} inputs, not {}", inputs.len());
    }
    for input in inputs {
        if !matches!(input.dtype, DType::F32 | DType::U32) || input.dtype != inputs[0].dtype {
            bail!(DtypeMismatch, "{op}: {:?}, wanted f32 or u32", input.dtype);
        }
    }
    folded(op, "x", &inputs[0])
}

/// The define of the dtype.
pub(in crate::tensor::ops) fn number(dtype: DType) -> Option<(&'static str, Define)> {
    (dtype == DType::U32).then_some(("INTEGERS", Define::Flag))
}

/// The kernel of `cumsum.wgsl` for lines that are summed by blocks, each from 0 on.
pub(in crate::tensor::ops) fn kernel(
    input: &Desc,
    block: usize,
    with_sums: bool,
    capabilities: &Capabilities,
) -> Result<Kernel> {
    let (outer, n, inner) = folded("cumsum", "x", input)?;
    let block = block.min(n);
    let blocks = n.div_ceil(block);
    let lines = outer * blocks * inner;
    let mut defines: Vec<_> = number(input.dtype).into_iter().collect();
    if with_sums {
        defines.push(("SUMS", Define::Flag));
    }
    let workgroups = if block <= SHORT || block <= LONG && prefers_invocations(inner, capabilities) {
        defines.push(("LINES", Define::Flag));
        lines.div_ceil(64)
    } else {
        defines.push(("WORKGROUP", Define::U32(WORKGROUP)));
        lines
    };
    Ok(Kernel {
        template: crate::shader!("cumsum.wgsl"),
        modules: &[],
        defines,
        params: [lines, n, inner, block, blocks].map(|word| word as u32).to_vec(),
        grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
    })
}

/// The sums within blocks of lines [outer, n, inner], and the sum of each block.
pub(in crate::tensor::ops) fn reference(input: &HostTensor, block: usize) -> Result<[HostTensor; 2]> {
    let (outer, n, inner) = folded("cumsum", "x", &input.desc())?;
    let blocks = n.div_ceil(block);
    let place = |line: usize, length: usize, i: usize| (line / inner * length + i) * inner + line % inner;
    let sums_dims = [outer, blocks, inner];
    if input.dtype == DType::U32 {
        let x = input.to_u32()?;
        let (mut out, mut sums) = (vec![0u32; x.len()], vec![0u32; outer * blocks * inner]);
        for (line, i) in (0..outer * inner).flat_map(|line| (0..n).map(move |i| (line, i))) {
            let sum = &mut sums[place(line, blocks, i / block)];
            *sum = sum.wrapping_add(x[place(line, n, i)]);
            out[place(line, n, i)] = *sum;
        }
        return Ok([HostTensor::u32(input.shape.dims(), &out), HostTensor::u32(&sums_dims, &sums)]);
    }
    let x = input.to_f32()?;
    let (mut out, mut sums) = (vec![0f32; x.len()], vec![0f64; outer * blocks * inner]);
    for (line, i) in (0..outer * inner).flat_map(|line| (0..n).map(move |i| (line, i))) {
        let sum = &mut sums[place(line, blocks, i / block)];
        *sum += f64::from(x[place(line, n, i)]);
        out[place(line, n, i)] = *sum as f32;
    }
    let sums: Vec<f32> = sums.iter().map(|sum| *sum as f32).collect();
    Ok([HostTensor::f32(input.shape.dims(), &out), HostTensor::f32(&sums_dims, &sums)])
}
