//! xIELU (Huang, Schlag 2024, "Deriving activation functions using integration"): a parabola above zero, an integrated ELU below.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x, of any shape. Output: the same shape. With x > 0: `α_p x² + β x`; else `α_n (e^min(x, ε) − 1 − x) + β x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// α_p in the formula.
    pub alpha_p: f32,
    /// α_n in the formula.
    pub alpha_n: f32,
    /// β in the formula.
    pub beta: f32,
    /// ε in the formula: a little below zero.
    pub epsilon: f32,
}

impl Op for Xielu {
    on_cpu!();

    fn name(&self) -> &'static str {
        "xielu"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("xielu", inputs, &[Some(DType::F32)])?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        let numbers = [self.alpha_p, self.alpha_n, self.beta, self.epsilon].map(f32::to_bits);
        Ok(Kernel {
            template: crate::shader!("xielu.wgsl"),
            modules: &[],
            defines: vec![],
            params: [&[n as u32][..], &numbers].concat(),
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Xielu {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [alpha_p, alpha_n, beta, epsilon] = [self.alpha_p, self.alpha_n, self.beta, self.epsilon].map(f64::from);
        let of = |x: &f32| {
            let x = f64::from(*x);
            let curved = if x > 0.0 { alpha_p * x * x } else { alpha_n * (x.min(epsilon).exp_m1() - x) };
            (curved + beta * x) as f32
        };
        let out: Vec<f32> = inputs[0].to_f32()?.iter().map(of).collect();
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(85);
    let op = Xielu { alpha_p: 0.8, alpha_n: 1.1, beta: 0.5, epsilon: -1e-6 };
    let mut cases: Vec<Case> =
        [[1, 1], [3, 97], [19, 512]].iter().map(|dims| Case::new(op, vec![rng.tensor(dims)], 1e-6)).collect();
    // Around zero, where e^x − 1 − x loses its digits, and far out.
    let x = HostTensor::f32(&[1, 10], &[-300.0, -90.0, -1.0, -0.1, -1e-3, -1e-7, 0.0, 1e-7, 1.0, 90.0]);
    cases.push(Case::new(op, vec![x], 1e-6));
    cases
}
