//! A step of AdamW (Loshchilov, Hutter 2019, https://arxiv.org/abs/1711.05101), as PyTorch's `torch.optim.AdamW` computes it, in one
//! dispatch for one parameter.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: parameter (changed), gradient, mean and mean of squares of earlier gradients (both changed), all of one shape; the factor of the
/// gradient [1], such as that of clipping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub rate: f64,
    /// What stays of the means in a step: 0.9 and 0.999 mostly.
    pub betas: [f64; 2],
    /// What is added to the root of the mean of squares.
    pub epsilon: f64,
    /// The part of the parameter that a step takes away, times the rate.
    pub decay: f64,
    /// Which step it is; the first is 1.
    pub step: u32,
}

impl AdamW {
    /// 1 − βᵗ: the means began with 0.
    fn corrections(&self) -> [f64; 2] {
        self.betas.map(|beta| 1.0 - beta.powf(f64::from(self.step)))
    }
}

impl Op for AdamW {
    on_cpu!();

    fn name(&self) -> &'static str {
        "adam_w"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0, 2, 3]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.name(), inputs, &[Some(DType::F32); 5])?;
        if inputs[1..4].iter().any(|input| input.shape != inputs[0].shape) || inputs[4].shape.elements() != 1 {
            let shapes: Vec<String> = inputs.iter().map(|input| input.shape.to_string()).collect();
            bail!(ShapeMismatch, "adam_w: {}, wanted four of one shape and one number", shapes.join(", "));
        }
        if self.step == 0 {
            bail!(OutOfRange, "adam_w: the first step is 1");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        let [mean_correction, square_correction] = self.corrections();
        let [beta1, beta2] = self.betas;
        let numbers = [
            beta1,
            1.0 - beta1,
            beta2,
            1.0 - beta2,
            self.epsilon,
            1.0 - self.rate * self.decay,
            self.rate / mean_correction,
            1.0 / square_correction.sqrt(),
        ];
        Ok(Kernel {
            template: crate::shader!("adam_w.wgsl"),
            modules: &[],
            defines: vec![],
            params: [n as u32].into_iter().chain(numbers.map(|number| (number as f32).to_bits())).collect(),
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AdamW {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let mut parameter = inputs[0].to_f32()?;
        let (gradient, factor) = (inputs[1].to_f32()?, f64::from(inputs[4].to_f32()?[0]));
        let (mut mean, mut square) = (inputs[2].to_f32()?, inputs[3].to_f32()?);
        let [mean_correction, square_correction] = self.corrections();
        let Self { rate, betas: [beta1, beta2], epsilon, decay, .. } = *self;
        for index in 0..parameter.len() {
            let g = f64::from(gradient[index]) * factor;
            let m = beta1 * f64::from(mean[index]) + (1.0 - beta1) * g;
            let v = beta2 * f64::from(square[index]) + (1.0 - beta2) * g * g;
            let p = f64::from(parameter[index]) * (1.0 - rate * decay);
            let step = rate * (m / mean_correction) / ((v / square_correction).sqrt() + epsilon);
            (mean[index], square[index], parameter[index]) = (m as f32, v as f32, (p - step) as f32);
        }
        inputs[0].set_f32(&parameter);
        inputs[2].set_f32(&mean);
        inputs[3].set_f32(&square);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(62);
    let mut cases = Vec::new();
    for (dims, step, decay, factor) in [
        (&[1, 1][..], 1, 0.0, 1.0),
        (&[7, 37], 2, 0.01, 0.3),
        (&[64, 3], 100, 0.1, 1.0),
        (&[1021, 67], 5000, 0.0, 1e-3),
    ] {
        let mut squares = rng.tensor(dims);
        let positive: Vec<f32> = squares.to_f32().unwrap_or_default().iter().map(|x| x * x).collect();
        squares.set_f32(&positive);
        let inputs =
            vec![rng.tensor(dims), rng.tensor(dims), rng.tensor(dims), squares, HostTensor::f32(&[1], &[factor])];
        let op = AdamW { rate: 1e-2, betas: [0.9, 0.999], epsilon: 1e-8, decay, step };
        cases.push(Case::new(op, inputs, 2e-6));
    }
    cases
}
