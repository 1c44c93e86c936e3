//! The forward pass of many tokens in few dispatches: matrices that were joined, and what stands between two products in one
//! kernel.
//!
//! The same computation as `Transformer::forward`, but for the precision: in `Precision::Fast` the inputs of products are int8
//! where the format of the weight has a view as int8. Not for so few tokens that the time goes into reading weights: smaller
//! activations gain nothing there.

use super::config::Config;
use super::joined::{FeedForward, GateUp, Joined, PostNorm, PreNorm};
use super::matrix::Matrix;
use super::mixture::Combined;
use super::transformer::Precision;
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::{
    self, Add, AddRow, Attention, AttentionMerge, AttentionPrefill, AttentionTile, CombineExperts, ConcatColumns,
    Epilogue, MatMul, MatMulInt8, MatVecFew, Quantize, RmsNorm, RmsNormInt8, RmsNormPlanes, RowNorm, Scale, Splits,
    SwigluFused, SwigluInt8, SwigluPlanes, Unary, UnaryKind,
};
use crate::tensor::{Context, DType, Op, Tensor};

/// Tokens of which a layer takes the GPU longer than it takes to record the next.
const LONG: usize = 128;

/// The inputs of a product, [tokens, columns].
enum Activations {
    F32(Tensor),
    /// Of few tokens, in planes, which all columns of a joined model have.
    Planar(Tensor),
    /// Quants and scales as `quantize` makes them.
    Int8(Tensor, Tensor),
}

/// One op by the layout of what it gives.
struct Producer<'a> {
    f32: &'a dyn Op,
    planar: &'a dyn Op,
    int8: &'a dyn Op,
}

struct Pass<'a> {
    context: &'a Context,
    precision: Precision,
    /// So few tokens that products are mat-vecs.
    few: bool,
}

impl Pass<'_> {
    fn takes_int8(&self, weight: &Matrix) -> bool {
        let has_view = matches!(weight.dtype(), DType::Weight(format) if format.int8.is_some());
        self.precision == Precision::Fast && has_view && !self.few
    }

    /// In the layout that the weight wants which takes the result.
    fn produce(&self, producer: &Producer, inputs: &[&Tensor], weight: &Matrix) -> Result<Activations> {
        match self.takes_int8(weight) {
            true => self.produce_int8(producer.int8, inputs),
            false if self.few => Ok(Activations::Planar(self.context.run1(producer.planar, inputs)?)),
            false => Ok(Activations::F32(self.context.run1(producer.f32, inputs)?)),
        }
    }

    fn produce_int8(&self, op: &dyn Op, inputs: &[&Tensor]) -> Result<Activations> {
        match <[Tensor; 2]>::try_from(self.context.run(op, inputs)?) {
            Ok([quants, scales]) => Ok(Activations::Int8(quants, scales)),
            Err(outputs) => bail!(Internal, "{} has {} outputs, not two", op.name(), outputs.len()),
        }
    }

    fn quantize(&self, x: Tensor, weight: &Matrix) -> Result<Activations> {
        match self.takes_int8(weight) {
            true => self.produce_int8(&Quantize, &[&x]),
            false => Ok(Activations::F32(x)),
        }
    }

    /// The normed tokens, in the layout that the weight wants which takes them.
    fn normed(&self, config: &Config, norm: &PreNorm, x: &Tensor, weight: &Matrix) -> Result<Activations> {
        match (&norm.rows, norm.kind) {
            (None, _) => self.quantize(x.clone(), weight),
            (Some(rows), RowNorm::Rms { epsilon }) => {
                let (f32, planar, int8) = (RmsNorm { epsilon }, RmsNormPlanes { epsilon }, RmsNormInt8 { epsilon });
                self.produce(&Producer { f32: &f32, planar: &planar, int8: &int8 }, &[x, &rows.weight], weight)
            }
            (Some(rows), _) => self.quantize(rows.run(self.context, config, x)?, weight),
        }
    }

    /// [tokens, rows]
    fn product(&self, activations: &Activations, weight: &Matrix, bias: &Option<Tensor>) -> Result<Tensor> {
        if let (Some(bias), None) = (bias, weight.whole()) {
            let y = self.product(activations, weight, &None)?;
            self.context.run(&AddRow, &[&y, bias])?;
            return Ok(y);
        }
        let epilogue = Epilogue { bias: bias.is_some(), residual: false };
        weight.multiply_by(self.context, |part| {
            let outputs = self.multiply(activations, epilogue, part, &bias.iter().collect::<Vec<_>>())?;
            outputs.into_iter().next().ok_or_else(|| err!(Internal, "a product without an output"))
        })
    }

    /// The product with a tensor, with the further inputs of an epilogue.
    fn multiply(
        &self,
        activations: &Activations,
        epilogue: Epilogue,
        weight: &Tensor,
        more: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let run = |op: &dyn Op, inputs: &[&Tensor]| self.context.run(op, &[inputs, &[weight], more].concat());
        match activations {
            Activations::F32(x) if self.few => run(&MatVecFew { epilogue, planar: false }, &[x]),
            Activations::F32(x) => run(&MatMul { epilogue }, &[x]),
            Activations::Planar(x) => run(&MatVecFew { epilogue, planar: true }, &[x]),
            Activations::Int8(quants, scales) => run(&MatMulInt8 { epilogue }, &[quants, scales]),
        }
    }

    /// The products of the normed tokens with several matrices, [tokens, rows] each. They are normed once for each layout that the
    /// matrices want.
    fn normed_products(&self, config: &Config, norm: &PreNorm, x: &Tensor, weights: &[&Matrix]) -> Result<Vec<Tensor>> {
        let mut made: [Option<Activations>; 2] = [None, None];
        let mut products = Vec::with_capacity(weights.len());
        for weight in weights {
            let layout = &mut made[usize::from(self.takes_int8(weight))];
            let activations = match layout.take() {
                Some(activations) => activations,
                None => self.normed(config, norm, x, weight)?,
            };
            products.push(self.product(layout.insert(activations), weight, &None)?);
        }
        Ok(products)
    }

    /// x += product, with its bias, after its norm and scale.
    fn add_product(
        &self,
        config: &Config,
        activations: &Activations,
        (weight, bias): (&Matrix, &Option<Tensor>),
        x: &Tensor,
        norm: &Option<PostNorm>,
    ) -> Result<()> {
        let Some(whole) = weight.whole().filter(|_| norm.is_none() && config.residual_scale == 1.0) else {
            let mut y = self.product(activations, weight, bias)?; // [tokens, n_embd]
            if let Some(norm) = norm {
                y = self.context.run1(&RmsNorm { epsilon: config.norm_eps }, &[&y, &norm.weight])?;
            }
            if config.residual_scale != 1.0 {
                y = self.context.run1(&Scale { factor: config.residual_scale }, &[&y])?;
            }
            return self.context.run(&Add, &[x, &y]).map(|_| ());
        };
        let epilogue = Epilogue { bias: bias.is_some(), residual: true };
        self.multiply(activations, epilogue, whole, &bias.iter().chain([x]).collect::<Vec<_>>()).map(|_| ())
    }
}

/// Records the pass over `tokens` [n], the first at position `state[0]`. Returns their residual stream after the last layer,
/// [n, n_embd]. With `few`, which takes no more than `MatVecFew` does, products are mat-vecs.
pub(super) fn forward(
    transformer: &Transformer,
    joined: &Joined,
    tokens: &Tensor,
    state: &Tensor,
    cache: &KvCache,
    few: bool,
) -> Result<Tensor> {
    let config: &Config = transformer.config();
    let context = transformer.context();
    let pass = Pass { context, precision: transformer.precision(), few };
    let activation = config.arch.activation;
    let swiglu = Producer {
        f32: &SwigluFused { activation },
        planar: &SwigluPlanes { activation },
        int8: &SwigluInt8 { activation },
    };
    // A tile of few tokens would go over the whole context by itself.
    let splits = Splits::choose(config.head_dim, context.device().capabilities());

    let x = transformer.embed(tokens, state)?; // [n, n_embd]
    for (index, layer) in joined.layers.iter().enumerate() {
        let (k_cache, v_cache) = cache.layer(index);
        let matrices: Vec<&Matrix> = layer.qkv.iter().map(|(_, matrix)| matrix).collect();
        let products = pass.normed_products(config, &layer.attention_norm, &x, &matrices)?; // [n, (n_heads + 2 · n_kv_heads) · head_dim]
        let mut q = None;
        for ((parts, _), product) in layer.qkv.iter().zip(&products) {
            q = layer.rope_and_append(context, config, *parts, product, state, (k_cache, v_cache))?.or(q);
        }
        let Some(q) = q else { bail!(Internal, "no queries among the parts of layer {index}") }; // [n, n_heads · head_dim]
        let a = if few {
            let parts = context.run(&layer.attention_split(config, splits), &[&q, k_cache, v_cache, state])?;
            let [sums, totals] = &parts[..] else { bail!(Internal, "attention_split has two outputs") };
            let merge = AttentionMerge {
                heads: config.n_heads,
                head_dim: config.head_dim,
                capacity: layer.seen(cache.capacity()),
                splits,
            };
            Activations::Planar(context.run1(&merge, &[sums, totals, state])?)
        } else {
            let attention = AttentionPrefill {
                attention: Attention {
                    heads: config.n_heads,
                    kv_heads: config.n_kv_heads,
                    head_dim: config.head_dim,
                    scale: config.attention_scale,
                    window: layer.window,
                    softcap: config.attention_softcap,
                },
                tile: AttentionTile::default(),
            };
            let a = context.run1(&attention, &[&q, k_cache, v_cache, state])?; // [n, n_heads · head_dim]
            pass.quantize(a, &layer.attention_output)?
        };
        let output = (&layer.attention_output, &layer.attention_output_bias);
        pass.add_product(config, &a, output, &x, &layer.post_attention_norm)?;

        match &layer.feed_forward {
            FeedForward::Gated { gate_up, down } => {
                let products =
                    |weights: &[&Matrix]| pass.normed_products(config, &layer.feed_forward_norm, &x, weights);
                let gate_up = match gate_up {
                    GateUp::Joined(matrix) => products(&[matrix])?.remove(0),
                    GateUp::Apart(gate, up) => {
                        let products = products(&[gate, up])?;
                        context.run1(&ConcatColumns, &[&products[0], &products[1]])?
                    }
                }; // [n, 2 · n_ff]
                let f = pass.produce(&swiglu, &[&gate_up], down)?; // [n, n_ff]
                pass.add_product(config, &f, (down, &layer.down_bias), &x, &layer.post_feed_forward_norm)?;
            }
            FeedForward::Ungated { up, bias, down } => {
                let h = pass.normed(config, &layer.feed_forward_norm, &x, up)?;
                let up = pass.product(&h, up, bias)?; // [n, n_ff]
                let f = context.run1(&Unary { kind: UnaryKind::from(activation) }, &[&up])?; // [n, n_ff]
                let f = pass.quantize(f, down)?;
                pass.add_product(config, &f, (down, &layer.down_bias), &x, &layer.post_feed_forward_norm)?;
            }
            FeedForward::Experts { router, experts } => {
                let Some(norm) = &layer.feed_forward_norm.rows else {
                    bail!(Internal, "experts without a norm before")
                };
                let h = norm.run(context, config, &x)?; // [n, n_embd]
                let logits = router.multiply(context, ops::linear(tokens.shape().elements()), &[&h])?; // [n, experts]
                let Combined { outputs, weights } = experts.run(context, config, &h, &logits, false)?;
                context.run(&CombineExperts { adds: true, planar: false }, &[&outputs, &weights, &x])?;
            }
        }
        if tokens.shape().elements() >= LONG && (index + 1).is_power_of_two() {
            // The GPU works while other layers are recorded: about as many as it has been given, so that it never waits and
            // there are few submits.
            context.device().flush();
        }
    }
    Ok(x)
}
