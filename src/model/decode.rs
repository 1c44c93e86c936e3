//! The ops of one token: what a decode step replays. A layer of Llama takes five, and so does one with layer norms, biases and no gate.
//! Norms of heads take two more, a norm after attention or feed-forward one each, and joined projections of different types one for each
//! type.
//!
//! The residual stream is in SoA (`tensor/soa.rs`). Products norm their inputs and add their results to the residual stream.

use super::adapters::Added;
use super::attention::Attention;
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
    AddRow, AttentionMerge, AttentionOut, CombineExperts, ConcatColumns, Fill, GateInput, LowRankInput, MatVecAdd,
    NormAdd, NormGateUp, NormMatVec, NormQkv, NormUp, Residual, RmsNorm, Scale, SigmoidGate, SwigluSoa, Xielu,
};
use crate::tensor::{Context, Desc, Tensor};

pub(super) struct Decode<'a>(pub FusedPass<'a>);

/// The residual stream, [1, n_embd] in SoA, and the norm for its readers.
pub(super) struct Normed<'a> {
    x: &'a Tensor,
    norm: &'a Norm,
}

/// The input of the matrix whose product is added to the residual stream.
pub(super) enum Inner {
    /// Attention's result for each split of the positions; the product merges them.
    Splits(Box<SplitSums>),
    /// [1, n_ff] in SoA
    Activations(Tensor),
}

/// Attention's result for each split, and the scores of the heads' sinks.
pub(super) struct SplitSums {
    sums: Tensor,
    totals: Tensor,
    sinks: Option<Tensor>,
    merge: AttentionMerge,
}

impl Normed<'_> {
    /// What an adapter's A is multiplied with.
    fn of_adapter(&self, divides: bool) -> LowRankInput {
        LowRankInput::Normed { norm: self.norm.kind, divides }
    }
}

impl Inner {
    /// What an adapter's A is multiplied with.
    fn of_adapter(&self) -> (LowRankInput, Vec<&Tensor>) {
        match self {
            Inner::Activations(f) => (LowRankInput::Soa, vec![f]),
            Inner::Splits(of_splits) => {
                let SplitSums { sums, totals, sinks, merge } = &**of_splits;
                (LowRankInput::Merged(merge.clone()), [sums, totals].into_iter().chain(sinks).collect())
            }
        }
    }
}

impl LayerOps for Decode<'_> {
    type Normed<'a> = Normed<'a>;
    type Inner = Inner;

    fn context(&self) -> &Context {
        self.0.context
    }

    fn normed<'a>(&self, norm: &'a Norm, x: &'a Tensor) -> Result<Normed<'a>> {
        Ok(Normed { x, norm })
    }

    fn attention(&self, layer: &Attention, h: &Normed<'_>) -> Result<Inner> {
        let q = self.queries(layer, h)?; // [1, n_heads · head_dim]
        let [sums, totals] = self.0.attention_split(layer, &q)?;
        let FusedPass { context, config, state, .. } = self.0;
        let sinks = self.0.sinks(layer);
        let merge = AttentionMerge {
            heads: config.n_heads,
            head_dim: config.layers[layer.index].head_dim,
            capacity: self.0.seen(layer),
            splits: self.0.splits(layer),
            sinks: sinks.is_some(),
        };
        if layer.gate.is_none() {
            return Ok(Inner::Splits(Box::new(SplitSums { sums, totals, sinks: sinks.cloned(), merge })));
        }
        let inputs: Vec<&Tensor> = [&sums, &totals, state].into_iter().chain(sinks).collect();
        let a = context.run1(&merge, &inputs)?; // [1, n_heads · head_dim] in SoA
        if let Some(gate) = &layer.gate {
            context.run(&SigmoidGate { soa: true }, &[&a, &self.product(h, &gate.weight)?])?;
        }
        Ok(Inner::Activations(a))
    }

    fn recurrent(&self, mixer: &RecurrentMixer, h: &Normed<'_>) -> Result<Inner> {
        let FusedPass { context, config, recurrent: states, state: position, .. } = self.0;
        let products: Vec<Tensor> =
            mixer.inputs.iter().map(|linear| self.product(h, &linear.weight)).collect::<Result<_>>()?;
        let step = Step { context, config, products: &products, position, states, soa: true };
        mixer.run(&step).map(Inner::Activations)
    }

    fn gated(&self, h: &Normed<'_>, gate_up: &[Linear], _: &Linear, _: Option<f32>) -> Result<Inner> {
        let FusedPass { context, config, .. } = self.0;
        let activation = config.activation;
        let gate_up = match gate_up {
            [both] => {
                let of_adapter = self.of_adapter(h, &both.weight, 3)?;
                if let (Some(whole), Some(added)) = (both.weight.whole(), of_adapter) {
                    let op = NormGateUp { norm: h.norm.kind, activation, low_rank: !added.is_empty() };
                    let inputs: Vec<&Tensor> = [h.x, h.norm.soa()?, whole].into_iter().chain(&added).collect();
                    return context.run1(&op, &inputs).map(Inner::Activations);
                }
                self.product(h, &both.weight)?
            }
            [gate, up] => {
                context.run1(&ConcatColumns, &[&self.product(h, &gate.weight)?, &self.product(h, &up.weight)?])?
            }
            _ => bail!(Internal, "gate and up in {} matrices", gate_up.len()),
        }; // [1, 2 · n_ff]
        context.run1(&SwigluSoa { activation }, &[&gate_up]).map(Inner::Activations)
    }

    fn ungated(&self, h: &Normed<'_>, up: &Linear, _: &Linear, _: Option<Xielu>) -> Result<Inner> {
        let FusedPass { context, config, .. } = self.0;
        let Linear { weight, bias } = up;
        let norm = h.norm.soa()?;
        let activation = config.activation;
        let op = NormUp { norm: h.norm.kind, activation, bias: bias.is_some(), times: None, part: None };
        if self.0.beside().touches(weight) {
            // The activation comes after what the adapter adds.
            let up = self.product(h, weight)?; // [1, n_ff]
            if let Some(bias) = bias {
                context.run(&AddRow, &[&up, bias])?;
            }
            let ones = context.run1(&Fill { shape: up.shape(), value: 1.0 }, &[])?;
            let op = GateInput { activation, first: 0, soa: true };
            return context.run1(&op, &[&up, &ones]).map(Inner::Activations);
        }
        if let Some(whole) = weight.whole() {
            let inputs: Vec<&Tensor> = [h.x, norm, whole].into_iter().chain(bias).collect();
            return context.run1(&op, &inputs).map(Inner::Activations);
        }
        let out = context.empty(Desc::f32(&[1, weight.rows()]), "norm_up")?;
        for (first_row, part) in weight.parts() {
            let inputs: Vec<&Tensor> = [h.x, norm, part].into_iter().chain(bias).chain([&out]).collect();
            context.run(&NormUp { part: Some(first_row), ..op }, &inputs)?;
        }
        Ok(Inner::Activations(out))
    }

    fn experts(&self, h: &Normed<'_>, routed: &Normed<'_>, router: &Linear, experts: &Mixture) -> Result<Combined> {
        let FusedPass { context, config, .. } = self.0;
        let logits = self.product(routed, &router.weight)?; // [1, experts]
        if let Some(bias) = &router.bias {
            context.run(&AddRow, &[&logits, bias])?;
        }
        let h = context.run1(&RmsNorm { epsilon: config.norm_eps }, &[h.x, h.norm.soa()?])?; // [1, n_embd] in SoA
        experts.run(context, config, &h, &logits, Form::Soa, config.residual_scales.feed_forward)
    }

    fn add_product(&self, x: &Tensor, inner: Inner, linear: &Linear, norm: &Norm, scale: f32) -> Result<()> {
        if norm.is_none() {
            return self.add_to(x, &inner, linear, scale);
        }
        self.add_normed(x, &self.product_apart(x, &inner, linear)?, norm, scale)
    }

    fn add_product_and_scale(
        &self,
        x: &Tensor,
        inner: Inner,
        linear: &Linear,
        norm: &Norm,
        factor: f32,
    ) -> Result<Tensor> {
        let FusedPass { context, config, .. } = self.0;
        if norm.is_none() {
            self.add_to(x, &inner, linear, 1.0)?;
            return context.run1(&Scale { factor }, &[x]);
        }
        let y = self.product_apart(x, &inner, linear)?;
        context.run(&NormAdd { epsilon: config.norm_eps, factor }, &[x, &y, norm.soa()?])?;
        Ok(x.clone())
    }

    fn per_layer_input(&self, x: &Tensor, input: &PerLayerInput, vectors: &Tensor) -> Result<Inner> {
        let FusedPass { context, config, .. } = self.0;
        if let Some(gate) = input.gate.weight.whole() {
            let (norm, activation) = (input.none.kind, config.activation);
            let op = NormUp { norm, activation, bias: false, times: Some(input.first), part: None };
            return context.run1(&op, &[x, input.none.soa()?, gate, vectors]).map(Inner::Activations);
        }
        let gate = self.product(&Normed { x, norm: &input.none }, &input.gate.weight)?; // [1, length]
        let op = GateInput { activation: config.activation, first: input.first, soa: true };
        context.run1(&op, &[&gate, vectors]).map(Inner::Activations)
    }

    fn add_experts(&self, x: &Tensor, Combined { outputs, weights, .. }: Combined, norm: &Norm) -> Result<()> {
        let context = self.0.context;
        if norm.is_none() {
            return context.run(&CombineExperts { adds: true, soa: true }, &[&outputs, &weights, x]).map(|_| ());
        }
        let y = context.run1(&CombineExperts { adds: false, soa: true }, &[&outputs, &weights])?;
        self.add_normed(x, &y, norm, self.0.config.residual_scales.feed_forward)
    }

    /// The scale is one if there is a norm (`Fused::takes`).
    fn add_normed(&self, x: &Tensor, y: &Tensor, norm: &Norm, _: f32) -> Result<()> {
        let FusedPass { context, config, .. } = self.0;
        context.run(&NormAdd { epsilon: config.norm_eps, factor: 1.0 }, &[x, y, norm.soa()?]).map(|_| ())
    }
}

impl Decode<'_> {
    /// What kernels of the product with a matrix add by themselves: two tensors, or none if no adapter touches it. `None` if it has to be added
    /// after the product. Besides the matrix the kernel binds `buffers`.
    fn of_adapter(&self, h: &Normed<'_>, matrix: &Matrix, buffers: usize) -> Result<Option<Vec<Tensor>>> {
        let beside = self.0.beside();
        if !beside.touches(matrix) {
            return Ok(Some(vec![]));
        }
        let added = beside.in_kernel(matrix, buffers, &h.of_adapter(false), &[h.x, h.norm.soa()?])?;
        Ok(added.map(Vec::from))
    }

    /// x += the product · scale, with what adapters add.
    fn add_to(&self, x: &Tensor, inner: &Inner, linear: &Linear, scale: f32) -> Result<()> {
        let mut is_added = false;
        for (first_row, part) in linear.weight.parts() {
            let (_, with_adapter) = self.multiply(inner, linear, part, Residual::Add { scale, first_row }, Some(x))?;
            is_added = with_adapter;
        }
        if is_added { Ok(()) } else { self.add_low_rank(x, inner, linear, scale) }
    }

    /// The product by itself, of the shape of the residual stream `x`: [1, n_embd] in SoA.
    fn product_apart(&self, x: &Tensor, inner: &Inner, linear: &Linear) -> Result<Tensor> {
        let Some(whole) = linear.weight.whole() else {
            let sum = self.0.context.run1(&Fill { shape: x.shape(), value: 0.0 }, &[])?;
            self.add_to(&sum, inner, linear, 1.0)?;
            return Ok(sum);
        };
        let (mut outputs, is_added) = self.multiply(inner, linear, whole, Residual::Apart, None)?;
        let Some(product) = outputs.pop() else { bail!(Internal, "a product gave nothing") };
        if !is_added {
            self.add_low_rank(&product, inner, linear, 1.0)?;
        }
        Ok(product)
    }

    /// x, in SoA, += what adapters add to the product · scale.
    fn add_low_rank(&self, x: &Tensor, inner: &Inner, linear: &Linear, factor: f32) -> Result<()> {
        let (input, inputs) = inner.of_adapter();
        self.0.beside().add(&linear.weight, x, Added { factor, soa: true }, &input, &inputs)
    }

    /// Queries [1, n_heads · head_dim]. Keys and values go to the caches. One op does all of it, unless heads are normed between the
    /// projections and rope, or a projection is in parts.
    fn queries(&self, layer: &Attention, h: &Normed<'_>) -> Result<Tensor> {
        let FusedPass { context, config, state, .. } = self.0;
        let vectors = self.0.vectors(layer);
        let of_layer = &config.layers[layer.index];
        let mut q = None;
        for (parts, Linear { weight, .. }) in &layer.queries_keys_values {
            q = match weight.whole() {
                Some(matrix) if vectors.head_norms.is_none() => {
                    let buffers = 3 + usize::from(parts.q) + usize::from(parts.k) + usize::from(parts.v);
                    let Some(added) = self.of_adapter(h, weight, buffers)? else {
                        q = self.0.rope_and_append(layer, *parts, &self.product(h, weight)?)?.or(q);
                        continue;
                    };
                    let op = NormQkv {
                        parts: *parts,
                        norm: h.norm.kind,
                        q_dim: config.q_dim(layer.index),
                        kv_dim: of_layer.kv_dim(),
                        head_dim: of_layer.head_dim,
                        pairs: vectors.rope.pairs,
                        interleaved: vectors.rope.interleaved,
                        scale: vectors.rope.scale,
                        bias: vectors.bias.is_some(),
                        low_rank: !added.is_empty(),
                    };
                    let mut inputs = vec![h.x, &vectors.all, matrix, state];
                    inputs.extend(self.0.caches(layer, *parts));
                    inputs.extend(&added);
                    context.run(&op, &inputs)?.pop().or(q)
                }
                _ => self.0.rope_and_append(layer, *parts, &self.product(h, weight)?)?.or(q),
            };
        }
        q.ok_or_else(|| err!(Internal, "no queries among the projections of a layer"))
    }

    /// [1, rows]
    fn product(&self, h: &Normed<'_>, matrix: &Matrix) -> Result<Tensor> {
        let (context, norm) = (self.0.context, h.norm.soa()?);
        let of_adapter = self.of_adapter(h, matrix, 3)?;
        let op = |low_rank: bool| NormMatVec { norm: h.norm.kind, low_rank };
        if let (Some(whole), Some(added)) = (matrix.whole(), &of_adapter) {
            let inputs: Vec<&Tensor> = [h.x, norm, whole].into_iter().chain(added).collect();
            return context.run1(&op(!added.is_empty()), &inputs);
        }
        let y = matrix.multiply(context, &op(false), &[h.x, norm])?;
        self.0.beside().add(matrix, &y, Added::ROWS, &h.of_adapter(true), &[h.x, norm])?;
        Ok(y)
    }

    /// The product with a part of a matrix and the bias, by itself or added to a tensor; and whether it has what adapters add.
    fn multiply(
        &self,
        inner: &Inner,
        Linear { bias, weight }: &Linear,
        part: &Tensor,
        residual: Residual,
        to: Option<&Tensor>,
    ) -> Result<(Vec<Tensor>, bool)> {
        let FusedPass { context, state, .. } = self.0;
        let (input, of_adapter) = inner.of_adapter();
        // With the state, the bias, and what is written.
        let buffers = of_adapter.len() + 3;
        let added = self.0.beside().in_kernel(weight, buffers, &input, &of_adapter)?;
        let low_rank = added.is_some();
        let further = added.iter().flatten().chain(bias).chain(to);
        let outputs = match inner {
            Inner::Splits(of_splits) => {
                let SplitSums { sums, totals, sinks, merge } = &**of_splits;
                let op = AttentionOut {
                    heads: merge.heads,
                    head_dim: merge.head_dim,
                    capacity: merge.capacity,
                    splits: merge.splits,
                    sinks: merge.sinks,
                    residual,
                    bias: bias.is_some(),
                    low_rank,
                };
                let operands = [sums, totals, part, state].into_iter().chain(sinks);
                context.run(&op, &operands.chain(further).collect::<Vec<&Tensor>>())
            }
            Inner::Activations(f) => {
                let inputs: Vec<&Tensor> = [f, part].into_iter().chain(further).collect();
                context.run(&MatVecAdd { residual, bias: bias.is_some(), low_rank }, &inputs)
            }
        };
        Ok((outputs?, low_rank))
    }

    /// The product of the normed residual stream after the last layer with the head's matrix: [1, vocab_size].
    pub fn logits(&self, x: &Tensor, norm: &Norm, output: &Matrix) -> Result<Tensor> {
        self.product(&Normed { x, norm }, output)
    }
}
