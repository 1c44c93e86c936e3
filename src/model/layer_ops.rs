//! The steps of a layer, which an op set does (`unfused.rs`, `decode.rs`, `prefill.rs`).

use super::attention::Attention;
use super::cross_attention::CrossAttention;
use super::latent::LatentAttention;
use super::linear::Linear;
use super::mixer::RecurrentMixer;
use super::mixture::{Combined, Mixture};
use super::norm::Norm;
use super::per_layer::PerLayerInput;
use crate::error::Result;
use crate::tensor::ops::{Scale, Xielu};
use crate::tensor::{Context, Tensor};

/// The ops that compute a layer: each does one step, or several at once.
pub(super) trait LayerOps {
    /// The residual stream as a part of the layer reads it: normed, or with the norm that its op applies.
    type Normed<'a>;
    /// The input of the product whose result is added to the residual stream.
    type Inner;

    fn context(&self) -> &Context;

    fn normed<'a>(&self, norm: &'a Norm, x: &'a Tensor) -> Result<Self::Normed<'a>>;

    /// The heads' sums over the values [n, n_heads · head_dim], for `output`.
    fn attention(&self, attention: &Attention, h: &Self::Normed<'_>) -> Result<Self::Inner>;

    /// The same of attention over latents [n, n_heads · value], which fused ops don't compute (`Fused::takes`).
    fn latent_attention(&self, _: &LatentAttention, _: &Self::Normed<'_>) -> Result<Self::Inner> {
        bail!(Internal, "attention over latents by fused ops")
    }

    /// The same of attention to the output of an encoder, which they don't compute either.
    fn cross_attention(&self, _: &CrossAttention, _: &Self::Normed<'_>) -> Result<Self::Inner> {
        bail!(Internal, "cross-attention by fused ops")
    }

    /// The results of a recurrent layer [n, width], for `output`.
    fn recurrent(&self, mixer: &RecurrentMixer, h: &Self::Normed<'_>) -> Result<Self::Inner>;

    /// The whole feed-forward [n, n_embd], if the device has one op for it and nothing has a part in its steps. Up has gates if `is_gated`.
    fn whole(&self, _: &Self::Normed<'_>, _up: &Linear, _down: &Linear, _is_gated: bool) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// [n, n_ff], for `down`. Of gates only those count that are `sparsity` standard deviations above their mean, if it is given.
    fn gated(
        &self,
        h: &Self::Normed<'_>,
        gate_up: &[Linear],
        down: &Linear,
        sparsity: Option<f32>,
    ) -> Result<Self::Inner>;

    /// [n, n_ff], for `down`
    fn ungated(&self, h: &Self::Normed<'_>, up: &Linear, down: &Linear, xielu: Option<Xielu>) -> Result<Self::Inner>;

    /// The router reads `routed`, which mostly is `h`.
    fn experts(
        &self,
        h: &Self::Normed<'_>,
        routed: &Self::Normed<'_>,
        router: &Linear,
        experts: &Mixture,
    ) -> Result<Combined>;

    /// The layer's vectors among those of all layers, `vectors` [n, layers · length], gated by the residual stream: [n, length], for
    /// `input.projection`.
    fn per_layer_input(&self, x: &Tensor, input: &PerLayerInput, vectors: &Tensor) -> Result<Self::Inner>;

    /// The input of a product, normed. Fused ops have no such norm (`Fused::takes`).
    fn normed_inner(&self, _: Self::Inner, _: &Norm) -> Result<Self::Inner> {
        bail!(Internal, "a norm before a product by fused ops")
    }

    /// x += the product, normed and scaled.
    fn add_product(&self, x: &Tensor, inner: Self::Inner, linear: &Linear, norm: &Norm, scale: f32) -> Result<()>;

    /// (x + the product, normed) · factor. It may change x or not.
    fn add_product_and_scale(
        &self,
        x: &Tensor,
        inner: Self::Inner,
        linear: &Linear,
        norm: &Norm,
        factor: f32,
    ) -> Result<Tensor> {
        self.add_product(x, inner, linear, norm, 1.0)?;
        self.context().run1(&Scale { factor }, &[x])
    }

    /// x += the experts' result, normed and scaled.
    fn add_experts(&self, x: &Tensor, combined: Combined, norm: &Norm) -> Result<()>;

    /// x += y, normed and scaled.
    fn add_normed(&self, x: &Tensor, y: &Tensor, norm: &Norm, scale: f32) -> Result<()>;
}
