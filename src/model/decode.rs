//! The forward pass of one token in few dispatches: what a decode step replays. A layer of a Llama takes five, one with layer norms,
//! biases and no gate too; norms of heads take two more, a norm behind attention or feed-forward one each, and projections that are
//! joined but of different types one for each type.
//!
//! The same computation as `Transformer::forward`, by ops that join several of its own.

use super::config::Config;
use super::joined::{FeedForward, GateUp, Joined, Layer, PostNorm, PreNorm};
use super::matrix::Matrix;
use super::mixture::Combined;
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::{
    AttentionOut, CombineExperts, ConcatColumns, Fill, MatVecAdd, NormAdd, NormGateUp, NormHeads, NormMatVec, NormQkv,
    NormUp, QkvParts, Residual, RmsNorm, RopeKvAppend, Scale, Splits, SwigluPlanes,
};
use crate::tensor::{Context, Desc, Tensor};

/// Records the pass over one token at position `state[0]`. Returns its residual stream after the last layer, [1, n_embd] in
/// planes.
pub(super) fn forward(
    transformer: &Transformer,
    joined: &Joined,
    token: &Tensor,
    state: &Tensor,
    cache: &KvCache,
) -> Result<Tensor> {
    let (context, config) = (transformer.context(), transformer.config());
    let splits = Splits::choose(config.head_dim, context.device().capabilities());
    let mut x = transformer.token_embedding().embed(context, token, true)?; // [1, n_embd] in planes, as all x
    if config.embedding_scale != 1.0 {
        x = context.run1(&Scale { factor: config.embedding_scale }, &[&x])?;
    }
    if let Some(positions) = transformer.positions() {
        positions.add_positions(context, &x, state, true)?;
    }
    for (index, layer) in joined.layers.iter().enumerate() {
        let caches = cache.layer(index);
        let q = queries(context, config, layer, &x, state, caches)?; // [1, n_heads · head_dim]
        let (k_cache, v_cache) = caches;
        let parts = context.run(&layer.attention_split(config, splits), &[&q, k_cache, v_cache, state])?;
        let [sums, totals] = &parts[..] else { bail!(Internal, "attention_split has two outputs") };
        let attention_out = AttentionOut {
            heads: config.n_heads,
            head_dim: config.head_dim,
            capacity: layer.seen(cache.capacity()),
            splits,
            residual: Residual::Apart,
            bias: layer.attention_output_bias.is_some(),
        };
        add(context, config, &layer.attention_output, &x, &layer.post_attention_norm, &|residual, part, x| {
            let mut inputs = vec![sums, totals, part, state];
            inputs.extend(layer.attention_output_bias.iter().chain(x));
            context.run(&AttentionOut { residual, ..attention_out }, &inputs)
        })?;

        let add_down = |f: Tensor, down: &Matrix| {
            let bias = &layer.down_bias;
            add(context, config, down, &x, &layer.post_feed_forward_norm, &|residual, part, x| {
                let mut inputs = vec![&f, part];
                inputs.extend(bias.iter().chain(x));
                context.run(&MatVecAdd { residual, bias: bias.is_some() }, &inputs)
            })
        };
        match &layer.feed_forward {
            // What comes of the first half is [1, n_ff] in planes.
            FeedForward::Gated { gate_up, down } => add_down(gated(context, config, layer, gate_up, &x)?, down)?,
            FeedForward::Ungated { up, bias, down } => add_down(ungated(context, config, layer, up, bias, &x)?, down)?,
            FeedForward::Experts { router, experts } => {
                let PreNorm { kind, planar, .. } = &layer.feed_forward_norm;
                let logits = router.multiply(context, &NormMatVec { norm: *kind }, &[&x, planar])?; // [1, experts]
                // [1, n_embd] in planes
                let h = context.run1(&RmsNorm { epsilon: config.norm_eps }, &[&x, planar])?;
                let Combined { outputs, weights } = experts.run(context, config, &h, &logits, true)?;
                context.run(&CombineExperts { adds: true, planar: true }, &[&outputs, &weights, &x])?;
            }
        }
    }
    Ok(x)
}

/// Queries [1, n_heads · head_dim]; keys and values go to the caches. One op does it all, unless there are norms of heads between the
/// projections and rope, or a projection lies in parts.
fn queries(
    context: &Context,
    config: &Config,
    layer: &Layer,
    x: &Tensor,
    state: &Tensor,
    caches: (&Tensor, &Tensor),
) -> Result<Tensor> {
    let (k_cache, v_cache) = caches;
    let norm = layer.attention_norm.kind;
    let mut q = None;
    for (parts, matrix) in &layer.qkv {
        q = match matrix.whole() {
            Some(matrix) if layer.head_norms.is_none() => {
                let op = NormQkv {
                    parts: *parts,
                    norm,
                    q_dim: config.n_heads * config.head_dim,
                    kv_dim: config.n_kv_heads * config.head_dim,
                    head_dim: config.head_dim,
                    pairs: layer.rope.pairs,
                    interleaved: layer.rope.interleaved,
                    scale: layer.rope.scale,
                    bias: layer.bias.is_some(),
                };
                let mut inputs = vec![x, &layer.vectors, matrix, state];
                inputs.extend(parts.k.then_some(k_cache));
                inputs.extend(parts.v.then_some(v_cache));
                context.run(&op, &inputs)?.pop().or(q)
            }
            _ => {
                let planar = &layer.attention_norm.planar;
                let product = matrix.multiply(context, &NormMatVec { norm }, &[x, planar])?; // [1, rows]
                layer.rope_and_append(context, config, *parts, &product, state, caches)?.or(q)
            }
        };
    }
    q.ok_or_else(|| err!(Internal, "no queries among the parts of a layer"))
}

impl Layer {
    /// From the product with a part of the projections [n, rows] to its queries [n, n_heads · head_dim], if they are among it;
    /// its keys and values go to the caches.
    pub(super) fn rope_and_append(
        &self,
        context: &Context,
        config: &Config,
        parts: QkvParts,
        product: &Tensor,
        state: &Tensor,
        (k_cache, v_cache): (&Tensor, &Tensor),
    ) -> Result<Option<Tensor>> {
        if let Some(norms) = self.head_norms.as_ref().filter(|_| parts.q || parts.k) {
            // Of all heads together there is one norm of queries, and one of keys.
            let heads = [config.n_heads, config.n_kv_heads];
            let (counts, lengths) = match config.arch.norms_heads_together {
                true => ([1, 1], heads.map(|heads| heads * config.head_dim)),
                false => (heads, [config.head_dim; 2]),
            };
            let norm = NormHeads {
                epsilon: config.norm_eps,
                queries: if parts.q { counts[0] } else { 0 },
                keys: if parts.k { counts[1] } else { 0 },
                query_length: lengths[0],
                key_length: lengths[1],
            };
            context.run(&norm, &[product, norms])?;
        }
        let rope = RopeKvAppend {
            parts,
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            interleaved: self.rope.interleaved,
            scale: self.rope.scale,
            bias: self.bias.is_some(),
        };
        let mut inputs = vec![product, &self.rope.frequencies, state];
        inputs.extend(parts.k.then_some(k_cache));
        inputs.extend(parts.v.then_some(v_cache));
        inputs.extend(&self.bias);
        Ok(context.run(&rope, &inputs)?.pop())
    }
}

/// What gate and up make of a token, [1, n_ff] in planes.
fn gated(context: &Context, config: &Config, layer: &Layer, gate_up: &GateUp, x: &Tensor) -> Result<Tensor> {
    let activation = config.arch.activation;
    let PreNorm { kind: norm, planar, .. } = &layer.feed_forward_norm;
    let product = |matrix: &Matrix| matrix.multiply(context, &NormMatVec { norm: *norm }, &[x, planar]);
    let gate_up = match gate_up {
        GateUp::Joined(matrix) => match matrix.whole() {
            Some(matrix) => return context.run1(&NormGateUp { norm: *norm, activation }, &[x, planar, matrix]),
            None => product(matrix)?,
        },
        GateUp::Apart(gate, up) => context.run1(&ConcatColumns, &[&product(gate)?, &product(up)?])?,
    }; // [1, 2 · n_ff]
    context.run1(&SwigluPlanes { activation }, &[&gate_up])
}

/// What the only projection makes of a token, [1, n_ff] in planes.
fn ungated(
    context: &Context,
    config: &Config,
    layer: &Layer,
    up: &Matrix,
    bias: &Option<Tensor>,
    x: &Tensor,
) -> Result<Tensor> {
    let PreNorm { kind, planar, .. } = &layer.feed_forward_norm;
    let op = NormUp { norm: *kind, activation: config.arch.activation, bias: bias.is_some(), part: None };
    if let Some(whole) = up.whole() {
        return context.run1(&op, &[x, planar, whole].into_iter().chain(bias).collect::<Vec<_>>());
    }
    let out = context.empty(Desc::f32(&[1, up.rows()]), "norm_up")?;
    for (first_row, part) in up.parts() {
        let inputs: Vec<&Tensor> = [x, planar, part].into_iter().chain(bias).chain([&out]).collect();
        context.run(&NormUp { part: Some(first_row), ..op }, &inputs)?;
    }
    Ok(out)
}

/// A product with a part of a matrix, apart or added to a tensor.
type Product<'p> = dyn Fn(Residual, &Tensor, Option<&Tensor>) -> Result<Vec<Tensor>> + 'p;

/// x += the product with a matrix, after its norm. `run` gives the product with a part of it, apart or added to a tensor.
fn add(
    context: &Context,
    config: &Config,
    matrix: &Matrix,
    x: &Tensor,
    norm: &Option<PostNorm>,
    run: &Product<'_>,
) -> Result<()> {
    let add_parts = |scale: f32, to: &Tensor| {
        matrix
            .parts()
            .try_for_each(|(first_row, part)| run(Residual::Add { scale, first_row }, part, Some(to)).map(|_| ()))
    };
    let Some(norm) = norm else { return add_parts(config.residual_scale, x) };
    let y = match matrix.whole() {
        Some(whole) => run(Residual::Apart, whole, None)?.pop(),
        None => {
            let sum = context.run1(&Fill { shape: x.shape(), value: 0.0 }, &[])?;
            add_parts(1.0, &sum)?;
            Some(sum)
        }
    }; // [1, n_embd] in planes
    let Some(y) = y else { bail!(Internal, "a product gave nothing") };
    context.run(&NormAdd { epsilon: config.norm_eps }, &[x, &y, &norm.planar]).map(|_| ())
}

/// The logits, [1, vocab_size], of what `forward` returned.
pub(super) fn logits(transformer: &Transformer, joined: &Joined, x: &Tensor) -> Result<Tensor> {
    let PreNorm { kind, planar, .. } = &joined.output_norm;
    let op = NormMatVec { norm: *kind };
    let logits = transformer.output().multiply(transformer.context(), &op, &[x, planar])?;
    transformer.finish_logits(logits)
}
