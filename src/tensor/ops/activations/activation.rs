//! The functions that a feed-forward's gate, or its only projection, goes through (`wgsl/activate.wgsl`).

use crate::gpu::Define;

/// The function of a feed-forward.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// x · sigmoid(x), also called Swish (Ramachandran et al. 2017).
    #[default]
    Silu,
    /// By the tanh approximation (Hendrycks, Gimpel 2016), which models that name it `gelu_pytorch_tanh` or `gelu_new` were
    /// trained with.
    GeluTanh,
    /// x · Φ(x), with the error function in Chebyshev form (Numerical Recipes, `erfcc`), to 2e-7.
    Gelu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)² (So et al. 2021, "Primer").
    ReluSquared,
    /// SiLU of the number times this.
    ScaledSilu(f32),
}

impl Activation {
    /// Every function, that with a scale for one scale.
    pub const ALL: [Self; 6] =
        [Self::Silu, Self::GeluTanh, Self::Gelu, Self::Relu, Self::ReluSquared, Self::ScaledSilu(0.625)];

    pub(in crate::tensor::ops) fn defines(self) -> Vec<(&'static str, Define)> {
        match self {
            Self::Silu => vec![],
            Self::GeluTanh => vec![("GELU", Define::Flag)],
            Self::Gelu => vec![("GELU", Define::Flag), ("GELU_ERF", Define::Flag)],
            Self::Relu => vec![("RELU", Define::Flag)],
            Self::ReluSquared => vec![("RELU", Define::Flag), ("SQUARED", Define::Flag)],
            Self::ScaledSilu(scale) => vec![("SILU_SCALE", Define::F32(scale))],
        }
    }

    /// Its name among the functions for the CPU.
    pub(in crate::tensor::ops) fn on_cpu(self) -> rillm_cpu_kernels::Activation {
        use rillm_cpu_kernels::Activation as Kernel;
        match self {
            Self::Silu => Kernel::Silu(1.0),
            Self::ScaledSilu(scale) => Kernel::Silu(scale),
            Self::GeluTanh => Kernel::GeluTanh,
            Self::Gelu => Kernel::Gelu,
            Self::Relu => Kernel::Relu,
            Self::ReluSquared => Kernel::ReluSquared,
        }
    }

    pub(in crate::tensor::ops) fn of(self, x: f64) -> f64 {
        match self {
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::ScaledSilu(scale) => Self::Silu.of(x * f64::from(scale)),
            // ½ x (1 + tanh(a)), in the form that keeps its digits where tanh is near -1.
            Self::GeluTanh => {
                let a = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                x / (1.0 + (-2.0 * a).exp())
            }
            Self::Relu => x.max(0.0),
            Self::ReluSquared => x.max(0.0).powi(2),
            Self::Gelu => 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        }
    }
}

/// The complementary error function in double precision: its series near zero and its continued fraction further out (Abramowitz
/// and Stegun, 7.1.6 and 7.1.14).
pub(crate) fn erfc(x: f64) -> f64 {
    let z = x.abs();
    let tail = if z < 3.0 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        1.0 - 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * sum
    } else {
        let fraction = (1..=60).rev().fold(z, |below, n| z + f64::from(n) / 2.0 / below);
        (-z * z).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    if x < 0.0 { 2.0 - tail } else { tail }
}
