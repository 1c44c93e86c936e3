//! A function of the elements of two tensors of one shape, into a new one.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// The function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// x + y.
    Add,
    /// x − y.
    Sub,
    /// x · y.
    Mul,
    /// x / y; ±∞ or NaN where y is 0.
    Div,
    /// The larger; NaN if one of them is.
    Max,
    /// The smaller; NaN if one of them is.
    Min,
}

impl BinaryKind {
    /// Every function.
    pub const ALL: [Self; 6] = [Self::Add, Self::Sub, Self::Mul, Self::Div, Self::Max, Self::Min];

    fn define(self) -> &'static str {
        match self {
            Self::Add => "KIND_ADD",
            Self::Sub => "KIND_SUB",
            Self::Mul => "KIND_MUL",
            Self::Div => "KIND_DIV",
            Self::Max => "KIND_MAX",
            Self::Min => "KIND_MIN",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Sub => x - y,
            Self::Mul => x * y,
            Self::Div => x / y,
            Self::Max | Self::Min if x.is_nan() || y.is_nan() => f64::NAN,
            Self::Max => x.max(y),
            Self::Min => x.min(y),
        }
    }
}

/// Inputs: x, y, of one shape. Output: the same shape.
#[derive(Clone)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
}

impl Op for Binary {
    on_cpu!();

    fn name(&self) -> &'static str {
        "binary"
    }

    fn title(&self) -> &'static str {
        self.kind.title()
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let name = self.title();
        expect(name, inputs, &[Some(DType::F32), Some(DType::F32)])?;
        if inputs[0].shape != inputs[1].shape {
            bail!(ShapeMismatch, "{name}: {} and {} differ in shape", inputs[0].shape, inputs[1].shape);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("binary.wgsl"),
            modules: &[],
            defines: vec![(self.kind.define(), Define::Flag)],
            params: vec![n as u32, f32::INFINITY.to_bits(), f32::NAN.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Binary {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (x, y) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let of = |(x, y): (&f32, &f32)| self.kind.of(f64::from(*x), f64::from(*y)) as f32;
        let out: Vec<f32> = x.iter().zip(&y).map(of).collect();
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(15);
    let mut cases = Vec::new();
    let shapes: [&[usize]; 5] = [&[1], &[37], &[13, 61], &[3, 5, 7, 11], &[257, 1031]];
    for kind in BinaryKind::ALL {
        for dims in shapes {
            let x = rng.tensor(dims);
            let mut y = rng.tensor(dims);
            if kind == BinaryKind::Div {
                // A divisor near zero would dominate the norm and hide all others.
                let away: Vec<f32> = y.to_f32().unwrap_or_default().iter().map(|y| y + 0.25f32.copysign(*y)).collect();
                y.set_f32(&away);
            }
            cases.push(Case::new(Binary { kind }, vec![x, y], 1e-6));
        }
        // As in PyTorch, each with each.
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0, -2.0, f32::MAX, f32::MIN, 1e-30, -1e30];
        let pairs = special.iter().flat_map(|x| special.iter().map(move |y| (*x, *y)));
        let (x, y): (Vec<f32>, Vec<f32>) = pairs.unzip();
        let pair = |x: &[f32], y: &[f32]| vec![HostTensor::f32(&[x.len()], x), HostTensor::f32(&[y.len()], y)];
        cases.push(Case::new(Binary { kind }, pair(&x, &y), 1e-6));
    }
    cases
}
