//! The ops of many tokens, or of a small batch: matrices are joined, and one kernel does all that is between two products.
//!
//! The computation is that of `unfused.rs`, except for the precision: with `Precision::Fast` the inputs of products are int8 if the
//! weight's format has a view as int8. Not in a small batch: its time goes into reading weights, so smaller activations gain nothing.

use serde::{Deserialize, Serialize};

use super::adapters::Added;
use super::attention;
use super::feed_forward;
use super::fused::FusedPass;
use super::layer_ops::LayerOps;
use super::linear::Linear;
use super::matrix::Matrix;
use super::mixer::{RecurrentMixer, Step};
use super::mixture::{Combined, Form, Mixture};
use super::norm::Norm;
use super::per_layer::PerLayerInput;
use crate::error::Result;
use crate::tensor::ops::{
    self, Add, AddRow, Attention, AttentionMerge, AttentionPrefill, AttentionTile, CombineExperts, ConcatColumns,
    Epilogue, GateInput, LowRankInput, MatMul, MatMulInt8, MatVecSmallBatch, Quantize, RmsNorm, RmsNormInt8,
    RmsNormSoa, Scale, SigmoidGate, SwigluFused, SwigluInt8, SwigluSoa, Unary, UnaryKind, Xielu,
};
use crate::tensor::{Context, DType, Op, Tensor};

/// How exact the activations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// In prefill: 8 bits with a scale for every 32 values, if the weights are quantised too.
    Fast,
    /// 32-bit floats everywhere.
    Exact,
}

pub(super) struct Prefill<'a> {
    pub pass: FusedPass<'a>,
    pub precision: Precision,
    /// The tokens are so few that products are mat-vecs; at most as many as `MatVecSmallBatch` takes.
    pub small_batch: bool,
}

/// The inputs of a product, [tokens, columns].
pub(super) enum Activations {
    F32(Tensor),
    /// Of a small batch, in SoA. A fused model has no columns that SoA can't hold.
    Soa(Tensor),
    /// Quants and scales, from `quantize`. Adapters, which are not quantised, read what they were made of.
    Int8 {
        quants: Tensor,
        scales: Tensor,
        exact: Option<Box<Tensor>>,
    },
}

/// The residual stream [tokens, n_embd], and the norm, which is applied in the layout that a matrix wants.
pub(super) struct Normed<'a> {
    x: &'a Tensor,
    norm: &'a Norm,
}

/// One op in three forms, one for each layout of its result.
struct Producer<'a> {
    f32: &'a dyn Op,
    soa: &'a dyn Op,
    int8: &'a dyn Op,
}

impl LayerOps for Prefill<'_> {
    type Normed<'a> = Normed<'a>;
    type Inner = Activations;

    fn context(&self) -> &Context {
        self.pass.context
    }

    fn normed<'a>(&self, norm: &'a Norm, x: &'a Tensor) -> Result<Normed<'a>> {
        Ok(Normed { x, norm })
    }

    fn attention(&self, layer: &attention::Attention, h: &Normed<'_>) -> Result<Activations> {
        let FusedPass { context, config, cache, state, .. } = self.pass;
        let of_layer = &config.layers[layer.index];
        let mut q = None;
        let projections = &layer.queries_keys_values;
        let linears = projections.iter().map(|(_, linear)| linear).chain(&layer.gate);
        let products = self.normed_products(h, linears)?;
        let gate = products.get(projections.len()); // [n, n_heads · head_dim]
        for ((parts, _), product) in projections.iter().zip(&products) {
            q = self.pass.rope_and_append(layer, *parts, product)?.or(q);
        }
        let Some(q) = q else { bail!(Internal, "no queries among the projections of layer {}", layer.index) }; // [n, n_heads · head_dim]
        let sinks = self.pass.sinks(layer);
        if self.small_batch {
            // A tile of a few tokens would go over the whole context alone.
            let [sums, totals] = self.pass.attention_split(layer, &q)?;
            let (heads, head_dim, capacity) = (config.n_heads, of_layer.head_dim, self.pass.seen(layer));
            let splits = self.pass.splits(layer);
            let merge = AttentionMerge { heads, head_dim, capacity, splits, sinks: sinks.is_some() };
            let a = context.run1(&merge, &[&sums, &totals, state].into_iter().chain(sinks).collect::<Vec<_>>())?;
            if let Some(gate) = gate {
                context.run(&SigmoidGate { soa: true }, &[&a, gate])?;
            }
            return Ok(Activations::Soa(a));
        }
        let attention = AttentionPrefill {
            attention: Attention {
                heads: config.n_heads,
                kv_heads: of_layer.n_kv_heads,
                head_dim: of_layer.head_dim,
                scale: config.attention_scale,
                window: of_layer.window,
                softcap: config.attention_softcap,
            },
            tile: AttentionTile::default(),
            sinks: sinks.is_some(),
        };
        let (k_cache, v_cache) = cache.layer(layer.state);
        let inputs: Vec<&Tensor> = [&q, k_cache, v_cache, state].into_iter().chain(sinks).collect();
        let a = context.run1(&attention, &inputs)?; // [n, n_heads · head_dim]
        if let Some(gate) = gate {
            context.run(&SigmoidGate { soa: false }, &[&a, gate])?;
        }
        self.quantize(a, &layer.output.weight)
    }

    fn recurrent(&self, mixer: &RecurrentMixer, h: &Normed<'_>) -> Result<Activations> {
        let FusedPass { context, config, recurrent: states, state: position, .. } = self.pass;
        let products = &self.normed_products(h, &mixer.inputs)?;
        let y = mixer.run(&Step { context, config, products, position, states, soa: self.small_batch })?; // [n, width]
        if self.small_batch { Ok(Activations::Soa(y)) } else { self.quantize(y, &mixer.output.weight) }
    }

    fn whole(&self, h: &Normed<'_>, up: &Linear, down: &Linear, is_gated: bool) -> Result<Option<Tensor>> {
        let beside = Some(self.pass.beside());
        let normed = || h.norm.run(self.context(), h.x);
        feed_forward::whole(self.context(), self.pass.config.activation, beside, normed, [up, down], is_gated)
    }

    fn gated(&self, h: &Normed<'_>, gate_up: &[Linear], down: &Linear, _: Option<f32>) -> Result<Activations> {
        let activation = self.pass.config.activation;
        let products = self.normed_products(h, gate_up)?;
        let concatenated;
        let gate_up = match &products[..] {
            [both] => both,
            [gate, up] => {
                concatenated = self.context().run1(&ConcatColumns, &[gate, up])?;
                &concatenated
            }
            _ => bail!(Internal, "gate and up in {} matrices", products.len()),
        }; // [n, 2 · n_ff]
        let swiglu = Producer {
            f32: &SwigluFused { activation },
            soa: &SwigluSoa { activation },
            int8: &SwigluInt8 { activation },
        };
        self.produce(&swiglu, &[gate_up], &down.weight)
    }

    fn ungated(&self, h: &Normed<'_>, up: &Linear, down: &Linear, _: Option<Xielu>) -> Result<Activations> {
        let kind = UnaryKind::try_from(self.pass.config.activation)?;
        let up = self.product(&self.normed_for(h, &up.weight)?, up)?; // [n, n_ff]
        self.quantize(self.context().run1(&Unary { kind }, &[&up])?, &down.weight)
    }

    fn experts(&self, h: &Normed<'_>, routed: &Normed<'_>, router: &Linear, experts: &Mixture) -> Result<Combined> {
        let FusedPass { context, config, .. } = self.pass;
        let is_same = std::ptr::eq(h, routed);
        let h = h.norm.run(context, h.x)?; // [n, n_embd]
        let routed = if is_same { h.clone() } else { routed.norm.run(context, routed.x)? };
        let logits = router.run(context, ops::linear(h.shape().dims()[0]), &[&routed])?; // [n, experts]
        let is_fast = self.precision == Precision::Fast && !self.small_batch;
        let form = if is_fast { Form::Fast } else { Form::Rows };
        experts.run(context, config, &h, &logits, form, config.residual_scales.feed_forward)
    }

    fn add_product(&self, x: &Tensor, inner: Activations, linear: &Linear, norm: &Norm, scale: f32) -> Result<()> {
        let Linear { weight, bias } = linear;
        let Some(whole) = weight.whole().filter(|_| norm.is_none() && scale == 1.0) else {
            return self.add_normed(x, &self.product(&inner, linear)?, norm, scale);
        };
        let epilogue = Epilogue { bias: bias.is_some(), residual: true };
        self.multiply(&inner, epilogue, whole, &bias.iter().chain([x]).collect::<Vec<_>>())?;
        self.add_low_rank(x, &inner, weight)
    }

    fn per_layer_input(&self, x: &Tensor, input: &PerLayerInput, vectors: &Tensor) -> Result<Activations> {
        let normed = Normed { x, norm: &input.none };
        let gate = self.product(&self.normed_for(&normed, &input.gate.weight)?, &input.gate)?; // [n, length]
        let op = GateInput { activation: self.pass.config.activation, first: input.first, soa: self.small_batch };
        let y = self.context().run1(&op, &[&gate, vectors])?;
        if self.small_batch { Ok(Activations::Soa(y)) } else { self.quantize(y, &input.projection.weight) }
    }

    fn add_experts(&self, x: &Tensor, Combined { outputs, weights, .. }: Combined, norm: &Norm) -> Result<()> {
        let context = self.context();
        if norm.is_none() {
            return context.run(&CombineExperts { adds: true, soa: false }, &[&outputs, &weights, x]).map(|_| ());
        }
        let y = context.run1(&CombineExperts::default(), &[&outputs, &weights])?; // [tokens, n_embd]
        self.add_normed(x, &y, norm, self.pass.config.residual_scales.feed_forward)
    }

    fn add_normed(&self, x: &Tensor, y: &Tensor, norm: &Norm, scale: f32) -> Result<()> {
        let context = self.context();
        let mut y = norm.run(context, y)?; // [tokens, n_embd]
        if scale != 1.0 {
            y = context.run1(&Scale { factor: scale }, &[&y])?;
        }
        context.run(&Add, &[x, &y]).map(|_| ())
    }
}

impl Prefill<'_> {
    fn takes_int8(&self, weight: &Matrix) -> bool {
        let has_view = matches!(weight.dtype(), DType::Weight(format) if format.int8.is_some());
        self.precision == Precision::Fast && has_view && !self.small_batch
    }

    /// Runs the producer in the layout that the weight reading the result wants.
    fn produce(&self, producer: &Producer, inputs: &[&Tensor], weight: &Matrix) -> Result<Activations> {
        if self.takes_int8(weight) && self.pass.beside().touches(weight) {
            self.quantize(self.context().run1(producer.f32, inputs)?, weight)
        } else if self.takes_int8(weight) {
            self.produce_int8(producer.int8, inputs)
        } else if self.small_batch {
            Ok(Activations::Soa(self.context().run1(producer.soa, inputs)?))
        } else {
            Ok(Activations::F32(self.context().run1(producer.f32, inputs)?))
        }
    }

    fn produce_int8(&self, op: &dyn Op, inputs: &[&Tensor]) -> Result<Activations> {
        match <[Tensor; 2]>::try_from(self.context().run(op, inputs)?) {
            Ok([quants, scales]) => Ok(Activations::Int8 { quants, scales, exact: None }),
            Err(outputs) => bail!(Internal, "{} has {} outputs, not two", op.name(), outputs.len()),
        }
    }

    fn quantize(&self, x: Tensor, weight: &Matrix) -> Result<Activations> {
        if !self.takes_int8(weight) {
            return Ok(Activations::F32(x));
        }
        let made = self.produce_int8(&Quantize, &[&x])?;
        Ok(match made {
            Activations::Int8 { quants, scales, .. } if self.pass.beside().touches(weight) => {
                Activations::Int8 { quants, scales, exact: Some(Box::new(x)) }
            }
            made => made,
        })
    }

    /// The normed tokens, in the layout that the weight reading them wants.
    fn normed_for(&self, Normed { x, norm }: &Normed<'_>, weight: &Matrix) -> Result<Activations> {
        match norm.rms_weight() {
            Some((epsilon, norm)) => {
                let (f32, soa, int8) = (RmsNorm { epsilon }, RmsNormSoa { epsilon }, RmsNormInt8 { epsilon });
                self.produce(&Producer { f32: &f32, soa: &soa, int8: &int8 }, &[x, norm], weight)
            }
            None => self.quantize(norm.run(self.context(), x)?, weight),
        }
    }

    /// The products of the normed tokens with several matrices, [tokens, rows] each. The tokens are normed once for each layout that the
    /// matrices want.
    fn normed_products<'a>(
        &self,
        h: &Normed<'_>,
        linears: impl IntoIterator<Item = &'a Linear>,
    ) -> Result<Vec<Tensor>> {
        // An adapter wants besides what int8 are made of.
        let mut made: [Option<Activations>; 3] = [None, None, None];
        let product = |linear: &Linear| {
            let is_int8 = self.takes_int8(&linear.weight);
            let is_adapted = is_int8 && self.pass.beside().touches(&linear.weight);
            let layout = &mut made[usize::from(is_int8) + usize::from(is_adapted)];
            let activations = match layout.take() {
                Some(activations) => activations,
                None => self.normed_for(h, &linear.weight)?,
            };
            self.product(layout.insert(activations), linear)
        };
        linears.into_iter().map(product).collect()
    }

    /// [tokens, rows]
    fn product(&self, activations: &Activations, Linear { weight, bias }: &Linear) -> Result<Tensor> {
        let product = |bias: Option<&Tensor>| {
            let epilogue = Epilogue { bias: bias.is_some(), residual: false };
            weight.multiply_by(self.context(), |part| self.multiply1(activations, epilogue, part, bias.as_slice()))
        };
        let y = match bias {
            // Each part would need its own piece of the bias.
            Some(bias) if weight.whole().is_none() => {
                let y = product(None)?;
                self.context().run(&AddRow, &[&y, bias])?;
                y
            }
            bias => product(bias.as_ref())?,
        };
        self.add_low_rank(&y, activations, weight)?;
        Ok(y)
    }

    /// y += what adapters add to the product.
    fn add_low_rank(&self, y: &Tensor, activations: &Activations, weight: &Matrix) -> Result<()> {
        let (input, x) = match activations {
            Activations::F32(x) => (LowRankInput::Rows, x),
            Activations::Soa(x) => (LowRankInput::Soa, x),
            Activations::Int8 { exact: Some(x), .. } => (LowRankInput::Rows, &**x),
            Activations::Int8 { exact: None, .. } if self.pass.beside().touches(weight) => {
                bail!(Internal, "an adapter beside a product of int8 alone")
            }
            Activations::Int8 { .. } => return Ok(()),
        };
        self.pass.beside().add(weight, y, Added::ROWS, &input, &[x])
    }

    fn multiply1(
        &self,
        activations: &Activations,
        epilogue: Epilogue,
        weight: &Tensor,
        more: &[&Tensor],
    ) -> Result<Tensor> {
        let outputs = self.multiply(activations, epilogue, weight, more)?;
        outputs.into_iter().next().ok_or_else(|| err!(Internal, "a product without an output"))
    }

    /// The product with one tensor, with the other inputs of an epilogue.
    fn multiply(
        &self,
        activations: &Activations,
        epilogue: Epilogue,
        weight: &Tensor,
        more: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let run = |op: &dyn Op, inputs: &[&Tensor]| self.context().run(op, &[inputs, &[weight], more].concat());
        match activations {
            Activations::F32(x) if self.small_batch => run(&MatVecSmallBatch { epilogue, soa: false }, &[x]),
            Activations::F32(x) => run(&MatMul { epilogue }, &[x]),
            Activations::Soa(x) => run(&MatVecSmallBatch { epilogue, soa: true }, &[x]),
            Activations::Int8 { quants, scales, .. } => run(&MatMulInt8 { epilogue }, &[quants, scales]),
        }
    }
}
