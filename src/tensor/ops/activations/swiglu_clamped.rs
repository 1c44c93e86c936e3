//! The gated unit of gpt-oss: `g · sigmoid(α · g) · (u + 1)`, with the gate g at most `limit` and u between −limit and limit.
//!
//! Source: gpt-oss' model card and transformers' `modeling_gpt_oss`.

use rillm_cpu_kernels::gate_clamped;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::zeros;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: gate and up, of one shape, which is the output's; or, in pairs, one tensor [rows, 2 · columns] whose even columns are the gate:
/// output [rows, columns].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwigluClamped {
    /// α in the formula.
    pub alpha: f32,
    /// The bound; above 0.
    pub limit: f32,
    /// Gate and up are neighbours in one tensor.
    pub pairs: bool,
}

impl Op for SwigluClamped {
    on_cpu!();

    fn name(&self) -> &'static str {
        "swiglu_clamped"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        if self.pairs {
            expect("swiglu_clamped", inputs, &[f32])?;
            let (rows, both) = inputs[0].shape.matrix()?;
            if !both.is_multiple_of(2) {
                bail!(ShapeMismatch, "swiglu_clamped: {} has no pairs", inputs[0].shape);
            }
            return Ok(vec![Desc::f32(&[rows, both / 2])]);
        }
        expect("swiglu_clamped", inputs, &[f32, f32])?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "swiglu_clamped: {} and {} differ in shape", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, _: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = outputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("swiglu_clamped.wgsl"),
            modules: &[],
            defines: if self.pairs { vec![("PAIRS", Define::Flag)] } else { vec![] },
            params: vec![n as u32, self.alpha.to_bits(), self.limit.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for SwigluClamped {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let descs: Vec<Desc> = inputs.iter().map(|input| input.desc()).collect();
        let shape = self.infer(&descs)?[0].shape;
        let first = inputs[0].to_f32()?;
        let (gate, up): (Vec<f32>, Vec<f32>) = if self.pairs {
            first.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip()
        } else {
            (first, inputs[1].to_f32()?)
        };
        let limit = f64::from(self.limit);
        let unit = |(gate, up): (&f32, &f32)| {
            let (gate, up) = (f64::from(*gate).min(limit), f64::from(*up).clamp(-limit, limit));
            (gate / (1.0 + (-f64::from(self.alpha) * gate).exp()) * (up + 1.0)) as f32
        };
        let out: Vec<f32> = gate.iter().zip(&up).map(unit).collect();
        Ok(vec![HostTensor::f32(shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let first = inputs[0].f32s()?;
        let pairs = if self.pairs { first.len() / 2 } else { 0 };
        let (mut gate, mut up) = (zeros(pairs)?, zeros(pairs)?);
        for ((pair, gate), up) in first.chunks_exact(2).zip(&mut gate).zip(&mut up) {
            (*gate, *up) = (pair[0], pair[1]);
        }
        let (gate, up) = if self.pairs { (&gate[..], &up[..]) } else { (first, inputs[1].f32s()?) };
        gate_clamped(self.alpha, self.limit, gate, up, outputs[0].f32s_mut()?);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(84);
    let mut cases = Vec::new();
    for dims in [[1, 2], [3, 98], [19, 512]] {
        // Small enough that many are clamped.
        let limit = 0.6;
        let inputs = vec![rng.tensor(&dims), rng.tensor(&dims)];
        cases.push(Case::new(SwigluClamped { alpha: 1.702, limit, pairs: false }, inputs, 1e-5));
        cases.push(Case::new(SwigluClamped { alpha: 1.702, limit, pairs: true }, vec![rng.tensor(&dims)], 1e-5));
    }
    // Far out on both sides, where a simple sigmoid overflows.
    let both = HostTensor::f32(&[1, 8], &[-200.0, 1.0, -60.0, 200.0, 60.0, -200.0, 200.0, 0.0]);
    cases.push(Case::new(SwigluClamped { alpha: 1.702, limit: 7.0, pairs: true }, vec![both], 1e-5));
    cases
}
