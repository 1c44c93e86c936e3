//! A function of each element.

use rillm_cpu_kernels::extremes;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::on_cpu::by_reference;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Activation;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// The function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryKind {
    /// |x|.
    Abs,
    /// e^x; infinite if f32 overflows, x > 88.72.
    Exp,
    /// By the tanh approximation, which differs from x · Φ(x) by up to 5e-4 (Hendrycks, Gimpel 2016): WGSL has no erf.
    Gelu,
    /// x · Φ(x), with the error function in Chebyshev form (Numerical Recipes, `erfcc`), to 2e-7.
    GeluErf,
    /// −x.
    Neg,
    /// max(x, 0); NaN stays NaN.
    Relu,
    /// max(x, 0)² (So et al. 2021, "Primer"); NaN stays NaN.
    ReluSquared,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// NaN for negative numbers.
    Sqrt,
    /// x · sigmoid(x), also called SiLU (Ramachandran et al. 2017).
    Swish,
    /// The hyperbolic tangent.
    Tanh,
}

impl TryFrom<Activation> for UnaryKind {
    type Error = crate::Error;

    fn try_from(activation: Activation) -> Result<Self> {
        Ok(match activation {
            Activation::ScaledSilu(_) => bail!(Internal, "a scaled activation without a product"),
            Activation::Silu => Self::Swish,
            Activation::GeluTanh => Self::Gelu,
            Activation::Gelu => Self::GeluErf,
            Activation::Relu => Self::Relu,
            Activation::ReluSquared => Self::ReluSquared,
        })
    }
}

impl UnaryKind {
    /// Every function.
    pub const ALL: [Self; 11] = [
        Self::Abs,
        Self::Exp,
        Self::Gelu,
        Self::GeluErf,
        Self::Neg,
        Self::Relu,
        Self::ReluSquared,
        Self::Sigmoid,
        Self::Sqrt,
        Self::Swish,
        Self::Tanh,
    ];

    /// What it is in a feed-forward. Not `Relu`: there no number is the same as 0.
    fn activation(self) -> Option<Activation> {
        match self {
            Self::Gelu => Some(Activation::GeluTanh),
            Self::GeluErf => Some(Activation::Gelu),
            Self::Swish => Some(Activation::Silu),
            _ => None,
        }
    }

    fn define(self) -> &'static str {
        match self {
            Self::Abs => "KIND_ABS",
            Self::Exp => "KIND_EXP",
            Self::Gelu => "KIND_GELU",
            Self::GeluErf => "KIND_GELU_ERF",
            Self::Neg => "KIND_NEG",
            Self::Relu => "KIND_RELU",
            Self::ReluSquared => "KIND_RELU_SQUARED",
            Self::Sigmoid => "KIND_SIGMOID",
            Self::Sqrt => "KIND_SQRT",
            Self::Swish => "KIND_SWISH",
            Self::Tanh => "KIND_TANH",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Exp => "exp",
            Self::Gelu | Self::GeluErf => "gelu",
            Self::Neg => "neg",
            Self::Relu => "relu",
            Self::ReluSquared => "relu_squared",
            Self::Sigmoid => "sigmoid",
            Self::Sqrt => "sqrt",
            Self::Swish => "swish",
            Self::Tanh => "tanh",
        }
    }

    fn of(self, x: f64) -> f64 {
        match self {
            Self::Abs => x.abs(),
            Self::Exp => x.exp(),
            Self::Gelu => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                // ½ x (1 + tanh(inner)), in the form that keeps its digits where tanh is near -1.
                x / (1.0 + (-2.0 * inner).exp())
            }
            Self::GeluErf => Activation::Gelu.of(x),
            Self::Neg => -x,
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::ReluSquared => {
                if x < 0.0 {
                    0.0
                } else {
                    x * x
                }
            }
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Sqrt => x.sqrt(),
            Self::Swish => x / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
        }
    }
}

/// Input: x. Output: the same shape.
#[derive(Clone)]
pub struct Unary {
    /// The function.
    pub kind: UnaryKind,
}

impl Op for Unary {
    on_cpu!();

    fn name(&self) -> &'static str {
        "unary"
    }

    fn title(&self) -> &'static str {
        self.kind.title()
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect(self.title(), inputs, &[Some(DType::F32)])?;
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("unary.wgsl"),
            modules: &[],
            defines: vec![(self.kind.define(), Define::Flag)],
            params: vec![n as u32, f32::INFINITY.to_bits(), f32::NAN.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Unary {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let out: Vec<f32> = inputs[0].to_f32()?.iter().map(|x| self.kind.of(f64::from(*x)) as f32).collect();
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        // Those of a feed-forward; the others run seldom.
        let Some(activation) = self.kind.activation() else { return by_reference(self, tensors) };
        let mut out = tensors.input(0)?.f32s()?.to_vec();
        rillm_cpu_kernels::activate(activation.on_cpu(), &mut out);
        // Where nothing but a tail is left the loops stop at the smallest numbers, and what is infinite or none is not theirs.
        let x = tensors.input(0)?.f32s()?;
        if extremes(x).is_none_or(|[smallest, _]| smallest <= -10.0) {
            for (out, x) in out.iter_mut().zip(x) {
                if !(x.is_finite() && *x > -10.0) {
                    *out = self.kind.of(f64::from(*x)) as f32;
                }
            }
        }
        tensors.output(0)?.write_f32s(&out)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(13);
    let mut cases = Vec::new();
    for kind in UnaryKind::ALL {
        // exp may be off by 3 + 2 |x| units in the last place (WGSL): by 3e-6 at 12 and by 2e-5 at 88.
        let tolerance = if kind == UnaryKind::Exp { 5e-6 } else { 2e-6 };
        let mut case = |dims: &[usize], scale: f32| {
            let mut x = rng.tensor(dims).to_f32().unwrap_or_default();
            for x in &mut x {
                *x *= scale;
                if kind == UnaryKind::Sqrt {
                    *x = x.abs();
                }
            }
            cases.push(Case::new(Unary { kind }, vec![HostTensor::f32(dims, &x)], tolerance));
        };
        case(&[1], 1.0);
        case(&[13, 61], 4.0);
        case(&[3, 5, 7, 11], 12.0);
        case(&[257, 1031], 2.0);
        // Small numbers of their own: among large ones their relative error would not show.
        case(&[97], 1e-3);
        case(&[97], 0.6);
        // Far out, one sign at a time, where a simple exp overflows and the built-in tanh may give NaN.
        let far = [20.0f32, 45.0, 88.0, 1e3, 1e10, 1e30];
        let positive = if kind == UnaryKind::Exp { &far[..3] } else { &far[..] };
        let tolerance = if kind == UnaryKind::Exp { 2e-5 } else { 2e-6 };
        cases.push(Case::new(Unary { kind }, vec![HostTensor::f32(&[positive.len()], positive)], tolerance));
        // As in PyTorch: NaN stays NaN, and so does what has no value.
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -1.0, f32::MAX, f32::MIN, 1.0];
        let special = if kind == UnaryKind::Neg { &special[..3] } else { &special[..] };
        cases.push(Case::new(Unary { kind }, vec![HostTensor::f32(&[special.len()], special)], 1e-5));
        if kind != UnaryKind::Sqrt {
            cases.push(Case::new(Unary { kind }, vec![HostTensor::f32(&[6], &far.map(|x| -x))], 1e-5));
        }
    }
    cases
}
