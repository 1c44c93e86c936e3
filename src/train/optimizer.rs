//! AdamW over all parameters, with the norm of all gradients clipped.

use crate::array::{Array, Binary, DType, Library, Reduce, Scalar, Unary};
use crate::error::Result;
use crate::tensor::ops::AdamW;
use crate::tensor::{Context, Desc, HostTensor, Shape, Tensor};

/// The settings of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// What stays of the means of gradients and of their squares in a step.
    pub betas: [f64; 2],
    /// What is added to the root of the mean of squares.
    pub epsilon: f64,
    /// The part of each parameter that a step takes away, times the learning rate.
    pub weight_decay: f64,
    /// The largest norm of all gradients together: longer ones are shortened to it. 0 for none.
    pub max_grad_norm: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.0, max_grad_norm: 1.0 }
    }
}

/// Keeps a norm of 0 from being divided by, as `clip_grad_norm_` of PyTorch does.
const SMALLEST_NORM: f64 = 1e-6;

/// The state of an optimizer.
pub(super) struct Optimizer {
    options: AdamWOptions,
    steps: u32,
    /// The means of gradients and of their squares, for each parameter.
    means: Vec<[Tensor; 2]>,
}

impl Optimizer {
    pub fn new<'p>(
        library: &Library,
        options: AdamWOptions,
        parameters: impl Iterator<Item = &'p Array>,
    ) -> Result<Self> {
        let zeros = |array: &Array| library.context().zeros(Desc::f32(array.dims()));
        let means = parameters.map(|array| Ok([zeros(array)?, zeros(array)?])).collect::<Result<_>>()?;
        Ok(Self { options, steps: 0, means })
    }

    /// What it remembers of each parameter.
    pub fn means(&self) -> impl Iterator<Item = &[Tensor; 2]> {
        self.means.iter()
    }

    /// Goes on from what `means` had of a parameter.
    pub fn restore(&mut self, context: &Context, index: usize, dims: &[usize], values: [&[f32]; 2]) -> Result<()> {
        let Some(means) = self.means.get_mut(index) else { bail!(Internal, "an optimizer without parameter {index}") };
        for (mean, values) in means.iter_mut().zip(values) {
            *mean = context.tensor(&HostTensor::f32(dims, values))?;
        }
        Ok(())
    }

    /// The steps that were made.
    pub fn set_steps(&mut self, steps: u32) {
        self.steps = steps;
    }

    /// A step with the gradients that the parameters have, which have none after it. Returns the norm of all of them together.
    pub fn step<'p>(&mut self, rate: f64, parameters: impl Iterator<Item = &'p Array>) -> Result<Array> {
        let with_gradients: Vec<(&Array, Option<Array>)> = parameters.map(|array| (array, array.grad())).collect();
        let Some((first, _)) = with_gradients.first() else { bail!(Internal, "an optimizer without parameters") };
        let library = first.library().clone();
        let norm =
            library.no_grad(|| norm(&library, with_gradients.iter().filter_map(|(_, gradient)| gradient.as_ref())))?;
        let one = library.full(&[], DType::F32, Scalar::Int(1))?;
        let factor = match self.options.max_grad_norm {
            0.0 => one,
            most => {
                let shortened =
                    norm.plus_number(SMALLEST_NORM)?.binary_scalar(Binary::Div, Scalar::Float(most), true)?;
                shortened.binary(Binary::Minimum, &one)?
            }
        };
        let factor = factor.readable_tensor()?.reshaped(Shape::from([1]))?;
        self.steps += 1;
        let AdamWOptions { betas, epsilon, weight_decay, .. } = self.options;
        let op = AdamW { rate, betas, epsilon, decay: weight_decay, step: self.steps };
        for ((parameter, gradient), [mean, square]) in with_gradients.iter().zip(&self.means) {
            if let Some(gradient) = gradient {
                let shape = parameter.shape();
                let own = parameter.detached().writable_tensor("a step")?.reshaped(shape)?;
                let gradient = gradient.readable_tensor()?.reshaped(shape)?;
                library.context().run(&op, &[&own, &gradient, mean, square, &factor])?;
            }
            parameter.set_grad(None)?;
        }
        Ok(norm)
    }
}

/// The norm of all of them as one vector.
fn norm<'g>(library: &Library, gradients: impl Iterator<Item = &'g Array>) -> Result<Array> {
    let mut sum = library.full(&[], DType::F32, Scalar::Int(0))?;
    for gradient in gradients {
        sum = sum.plus(&gradient.times(gradient)?.reduce(Reduce::Sum, None, false)?)?;
    }
    sum.unary(Unary::Sqrt)
}
