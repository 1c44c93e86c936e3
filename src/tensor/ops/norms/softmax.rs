//! Softmax and its logarithm along a dimension, with the largest element and the sum in one reading (Milakov, Gimelshein 2018).

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, folded, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x [outer, n, inner]. Output: the same shape, each line along n by itself. As in PyTorch, a line with a NaN or an ∞, or of
/// −∞ alone, becomes NaN.
#[derive(Clone)]
pub struct Softmax {
    /// The logarithm of the result: x − log Σ e^x.
    pub log: bool,
}

/// Rows up to this length lie in a cache line or two, so that an invocation reads one by itself.
const SHORT: usize = 16;
/// Longer lines are a workgroup's whatever stands beside them: few of them keep few invocations busy, and llvmpipe ends a loop after
/// 65535 rounds.
const LONG: usize = 16_384;
/// Each invocation of a workgroup holds up to four vec4 of a row.
const PARTS: u32 = 4;
const WORKGROUP: u32 = 256;

/// The invocations for a row, of which each takes eight numbers or more.
fn workgroup(columns: usize) -> u32 {
    (columns.min(8 * WORKGROUP as usize).next_power_of_two() as u32 / 8).clamp(32, WORKGROUP)
}

impl Op for Softmax {
    on_cpu!();

    fn name(&self) -> &'static str {
        "softmax"
    }

    fn title(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.title(), inputs, &[Some(DType::F32)])?;
        folded(self.title(), "x", &inputs[0])?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (outer, n, inner) = folded(self.title(), "x", &inputs[0])?;
        let mut defines = Vec::new();
        if self.log {
            defines.push(("LOG", Define::Flag));
        }
        let lines = outer * inner;
        let workgroups = if n <= SHORT || n <= LONG && (inner > 1 || capabilities.software) {
            defines.push(("LINES", Define::Flag));
            lines.div_ceil(64)
        } else {
            let workgroup = workgroup(n);
            let lanes = subgroup_lanes(capabilities, 32);
            defines.extend(lanes_defines(workgroup, lanes));
            if lanes.is_none_or(|lanes| lanes < workgroup) {
                defines.push(("MEMORY", Define::Flag));
            }
            if inner == 1 && n.is_multiple_of(4) {
                defines.push(("FOUR", Define::Flag));
            }
            let parts = n.div_ceil(4 * workgroup as usize) as u32;
            if parts <= PARTS {
                defines.extend([("HELD", Define::Flag), ("PARTS", Define::U32(parts))]);
            }
            lines
        };
        Ok(Kernel {
            template: crate::shader!("softmax.wgsl"),
            modules: &[],
            defines,
            params: vec![lines as u32, n as u32, inner as u32, f32::NEG_INFINITY.to_bits(), f32::NAN.to_bits()],
            grid: grid_2d(workgroups, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Softmax {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (outer, n, inner) = folded(self.title(), "x", &inputs[0].desc())?;
        let x = inputs[0].to_f32()?;
        let mut out = vec![0f32; x.len()];
        for line in 0..outer * inner {
            let at = |i: usize| (line / inner * n + i) * inner + line % inner;
            let values: Vec<f64> = (0..n).map(|i| f64::from(x[at(i)])).collect();
            let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = values.iter().map(|x| (x - largest).exp()).sum();
            for (i, x) in values.iter().enumerate() {
                let shifted = x - largest;
                out[at(i)] = if self.log { shifted - sum.ln() } else { shifted.exp() / sum } as f32;
            }
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

/// Lines with what is not finite, and with numbers far apart.
fn special_rows(columns: usize, rng: &mut Rng) -> Vec<f32> {
    let mut rows = Vec::new();
    for kind in 0..9 {
        let row = (0..columns).map(|column| match (kind, column) {
            (0, _) => f32::NEG_INFINITY,
            (1, c) if c == columns - 1 => f32::NAN,
            (2, 0) => f32::NAN,
            (3, 1) => f32::INFINITY,
            (4, c) if c % 2 == 0 => f32::NEG_INFINITY,
            (5, c) => {
                if c == 1 {
                    f32::MAX
                } else {
                    f32::MIN
                }
            }
            (6, _) => f32::MIN,
            (7, c) => -1e4 + (c % 97) as f32 * 100.0,
            _ => rng.signed(),
        });
        rows.extend(row);
    }
    rows
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(91);
    let mut cases = Vec::new();
    // Every length class of rows, with and without vec4: short, held in one to four parts, and longer.
    let rows = [1, 2, 16, 17, 32, 97, 256, 1023, 1024, 2047, 3072, 4095, 4096, 4097, 10_004];
    for log in [false, true] {
        let mut case = |dims: &[usize; 3], scale: f32| {
            let x: Vec<f32> = (0..dims.iter().product()).map(|_| rng.signed() * scale).collect();
            cases.push(Case::new(Softmax { log }, vec![HostTensor::f32(dims, &x)], 3e-6));
        };
        rows.iter().for_each(|columns| case(&[3, *columns, 1], 8.0));
        for dims in
            [[1, 1, 1], [1, 1, 5], [2, 3, 4], [5, 7, 11], [1, 257, 131], [130, 2, 1], [1, 70_001, 1], [1, 16_387, 3]]
        {
            case(&dims, 3.0);
        }
        for (columns, inner) in [(5, 1), (31, 1), (1999, 1), (5000, 1), (8, 3)] {
            let x = special_rows(columns, &mut rng);
            let x = match inner {
                1 => HostTensor::f32(&[9, columns, 1], &x),
                // The same rows as lines with neighbours.
                _ => {
                    let at = |i: usize| x[(i / columns / inner * inner + i % inner) * columns + i / inner % columns];
                    let lines: Vec<f32> = (0..x.len()).map(at).collect();
                    HostTensor::f32(&[9 / inner, columns, inner], &lines)
                }
            };
            cases.push(Case::new(Softmax { log }, vec![x], 3e-6));
        }
    }
    cases
}
