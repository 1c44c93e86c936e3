//! The forward pass of many tokens in few dispatches: matrices that were joined, and what stands between two products in one
//! kernel.
//!
//! The same computation as `Transformer::forward`, but for the precision: in `Precision::Fast` the inputs of products are int8
//! where the format of the weight has a view as int8. Not for so few tokens that the time goes into reading weights: smaller
//! activations gain nothing there.

use super::arch::RopeKind;
use super::config::Config;
use super::joined::Joined;
use super::transformer::Precision;
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::{
    self, Attention, AttentionPrefill, AttentionTile, Embedding, Epilogue, MatMul, MatMulInt8, MatVecFew, Quantize,
    RmsNorm, RmsNormInt8, RopeKvAppend, SwigluFused, SwigluInt8, ToPlanes,
};
use crate::tensor::{Context, DType, Op, Tensor};

/// Tokens whose first layer takes the GPU longer than it takes to record the others.
const LONG: usize = 128;

/// The inputs of a product, [tokens, columns].
enum Activations {
    F32(Tensor),
    /// Of few tokens, in planes.
    Planar(Tensor),
    /// Quants and scales as `quantize` makes them.
    Int8(Tensor, Tensor),
}

struct Pass<'a> {
    context: &'a Context,
    precision: Precision,
    /// So few tokens that products are mat-vecs.
    few: bool,
}

impl Pass<'_> {
    fn takes_int8(&self, weight: &Tensor) -> bool {
        let has_view = matches!(weight.dtype(), DType::Weight(format) if format.has_int8_view);
        self.precision == Precision::Fast && has_view && !self.few
    }

    /// By the op for int8 or the op for f32, as the weight wants it that takes the result.
    fn produce(&self, int8: &dyn Op, f32: &dyn Op, inputs: &[&Tensor], weight: &Tensor) -> Result<Activations> {
        match self.takes_int8(weight) {
            true => self.produce_int8(int8, inputs),
            false => self.floats(self.context.run1(f32, inputs)?),
        }
    }

    fn produce_int8(&self, op: &dyn Op, inputs: &[&Tensor]) -> Result<Activations> {
        match <[Tensor; 2]>::try_from(self.context.run(op, inputs)?) {
            Ok([quants, scales]) => Ok(Activations::Int8(quants, scales)),
            Err(outputs) => bail!(Internal, "{} has {} outputs, not two", op.name(), outputs.len()),
        }
    }

    fn quantize(&self, x: Tensor, weight: &Tensor) -> Result<Activations> {
        match self.takes_int8(weight) {
            true => self.produce_int8(&Quantize, &[&x]),
            false => self.floats(x),
        }
    }

    fn floats(&self, x: Tensor) -> Result<Activations> {
        let has_planes = MatVecFew::has_planes(x.shape().matrix()?.1);
        match self.few && has_planes {
            true => Ok(Activations::Planar(self.context.run1(&ToPlanes, &[&x])?)),
            false => Ok(Activations::F32(x)),
        }
    }

    /// [tokens, rows]
    fn product(&self, activations: &Activations, weight: &Tensor) -> Result<Tensor> {
        match activations {
            Activations::F32(x) => self.context.run1(ops::linear(x.shape().dims()[0]), &[x, weight]),
            Activations::Planar(x) => {
                self.context.run1(&MatVecFew { planar: true, ..MatVecFew::default() }, &[x, weight])
            }
            Activations::Int8(quants, scales) => self.context.run1(&MatMulInt8::default(), &[quants, scales, weight]),
        }
    }

    /// x += product
    fn add_product(&self, activations: &Activations, weight: &Tensor, x: &Tensor) -> Result<()> {
        let epilogue = Epilogue { residual: true, ..Epilogue::default() };
        match activations {
            Activations::F32(a) if self.few => {
                self.context.run(&MatVecFew { epilogue, planar: false }, &[a, weight, x])?
            }
            Activations::F32(a) => self.context.run(&MatMul { epilogue }, &[a, weight, x])?,
            Activations::Planar(a) => self.context.run(&MatVecFew { epilogue, planar: true }, &[a, weight, x])?,
            Activations::Int8(quants, scales) => {
                self.context.run(&MatMulInt8 { epilogue }, &[quants, scales, weight, x])?
            }
        };
        Ok(())
    }
}

/// Records the pass over `tokens` [n], the first at position `state[0]`. Returns their residual stream after the last layer,
/// [n, n_embd].
pub(super) fn forward(
    transformer: &Transformer,
    joined: &Joined,
    tokens: &Tensor,
    state: &Tensor,
    cache: &KvCache,
) -> Result<Tensor> {
    let config: &Config = transformer.config();
    let context = transformer.context();
    let few = MatVecFew::takes(tokens.shape().elements());
    let pass = Pass { context, precision: transformer.precision(), few };
    let norm = RmsNorm { epsilon: config.rms_eps };
    let norm_int8 = RmsNormInt8 { epsilon: config.rms_eps };
    let attention = AttentionPrefill {
        attention: Attention {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
        },
        tile: AttentionTile::default(),
    };

    let x = context.run1(&Embedding { planar: false }, &[tokens, transformer.token_embedding()])?; // [n, n_embd]
    for (index, layer) in joined.layers.iter().enumerate() {
        let (k_cache, v_cache) = cache.layer(index);
        let rope = RopeKvAppend {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            interleaved: config.arch.rope == RopeKind::Interleaved,
            bias: layer.bias.is_some(),
        };

        let h = pass.produce(&norm_int8, &norm, &[&x, &layer.attention_norm], &layer.qkv)?; // [n, n_embd]
        let qkv = pass.product(&h, &layer.qkv)?; // [n, (n_heads + 2 · n_kv_heads) · head_dim]
        let mut inputs = vec![&qkv, transformer.frequencies(), state, k_cache, v_cache];
        inputs.extend(&layer.bias);
        let q = context.run1(&rope, &inputs)?; // [n, n_heads · head_dim]
        let a = context.run1(&attention, &[&q, k_cache, v_cache, state])?; // [n, n_heads · head_dim]
        let a = pass.quantize(a, &layer.attention_output)?;
        pass.add_product(&a, &layer.attention_output, &x)?;

        let h = pass.produce(&norm_int8, &norm, &[&x, &layer.feed_forward_norm], &layer.gate_up)?; // [n, n_embd]
        let gate_up = pass.product(&h, &layer.gate_up)?; // [n, 2 · n_ff]
        let f = pass.produce(&SwigluInt8, &SwigluFused, &[&gate_up], &layer.down)?; // [n, n_ff]
        pass.add_product(&f, &layer.down, &x)?;
        if index == 0 && tokens.shape().elements() >= LONG {
            // The GPU begins while the other layers are recorded.
            context.device().flush();
        }
    }
    Ok(x)
}
