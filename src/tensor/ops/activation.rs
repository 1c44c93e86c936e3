//! The functions that a feed-forward's gate, or its only projection, goes through (`wgsl/activate.wgsl`).

use crate::gpu::Define;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x), also called Swish (Ramachandran et al. 2017).
    #[default]
    Silu,
    /// By the tanh approximation (Hendrycks, Gimpel 2016), which models that name it `gelu_pytorch_tanh` or `gelu_new` were
    /// trained with.
    GeluTanh,
}

impl Activation {
    pub const ALL: [Self; 2] = [Self::Silu, Self::GeluTanh];

    pub(super) fn defines(self) -> Vec<(&'static str, Define)> {
        match self {
            Self::Silu => vec![],
            Self::GeluTanh => vec![("GELU", Define::Flag)],
        }
    }

    pub(super) fn of(self, x: f64) -> f64 {
        match self {
            Self::Silu => x / (1.0 + (-x).exp()),
            // ½ x (1 + tanh(a)), in the form that keeps its digits where tanh is near -1.
            Self::GeluTanh => {
                let a = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                x / (1.0 + (-2.0 * a).exp())
            }
        }
    }
}
