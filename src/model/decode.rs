//! The forward pass of one token in few dispatches: what a decode step replays. A layer of a Llama takes five; norms of heads take two
//! more, a norm behind attention or feed-forward one each, and projections that are joined but of different types one for each type.
//!
//! The same computation as `Transformer::forward`, by ops that join several of its own.

use super::config::{Config, Experts};
use super::joined::{FeedForward, GateUp, HeadNorms, Joined, Layer, PostNorm};
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::{
    AttentionOut, CombineExperts, ConcatColumns, MatVecAdd, MatVecExperts, NormAdd, NormGateUp, NormHeads, NormMatVec,
    NormQkv, QkvParts, RmsNorm, RopeKvAppend, RouteExperts, Scale, Splits, Swiglu, SwigluPlanes,
};
use crate::tensor::{Context, Op, Tensor};

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
    for (index, layer) in joined.layers.iter().enumerate() {
        let caches = cache.layer(index);
        let q = match &layer.head_norms {
            None => queries(context, config, layer, &x, state, caches)?,
            Some(norms) => normed_queries(context, config, layer, norms, &x, state, caches)?,
        }; // [1, n_heads · head_dim]
        let (k_cache, v_cache) = caches;
        let parts = context.run(&layer.attention_split(config, splits), &[&q, k_cache, v_cache, state])?;
        let [sums, totals] = &parts[..] else { bail!(Internal, "attention_split has two outputs") };
        let attention_out = AttentionOut {
            heads: config.n_heads,
            head_dim: config.head_dim,
            capacity: layer.seen(cache.capacity()),
            splits,
            residual: PostNorm::residual(&layer.post_attention_norm, config),
        };
        let inputs = [sums, totals, &layer.attention_output, state];
        add(context, config, &attention_out, &inputs, &x, &layer.post_attention_norm)?;

        match &layer.feed_forward {
            FeedForward::Gated { gate_up, down } => {
                let f = gated(context, config, layer, gate_up, &x)?; // [1, n_ff] in planes
                let op = MatVecAdd { residual: PostNorm::residual(&layer.post_feed_forward_norm, config) };
                add(context, config, &op, &[&f, down], &x, &layer.post_feed_forward_norm)?;
            }
            FeedForward::Experts { router, .. } => {
                let (epsilon, norm) = (config.norm_eps, &layer.feed_forward_norm_planar);
                let logits = context.run1(&NormMatVec { epsilon }, &[&x, norm, router])?; // [1, experts]
                let h = context.run1(&RmsNorm { epsilon }, &[&x, norm])?; // [1, n_embd] in planes
                layer.add_experts(context, config, &h, &logits, &x, true)?;
            }
        }
    }
    Ok(x)
}

/// Queries [1, n_heads · head_dim]; keys and values go to the caches.
fn queries(
    context: &Context,
    config: &Config,
    layer: &Layer,
    x: &Tensor,
    state: &Tensor,
    (k_cache, v_cache): (&Tensor, &Tensor),
) -> Result<Tensor> {
    let op = NormQkv {
        parts: QkvParts::ALL,
        epsilon: config.norm_eps,
        q_dim: config.n_heads * config.head_dim,
        kv_dim: config.n_kv_heads * config.head_dim,
        head_dim: config.head_dim,
        pairs: layer.rope.pairs,
        interleaved: layer.rope.interleaved,
        scale: layer.rope.scale,
        bias: layer.bias.is_some(),
    };
    let mut q = None;
    for (parts, matrix) in &layer.qkv {
        let mut inputs = vec![x, &layer.vectors, matrix, state];
        inputs.extend(parts.k.then_some(k_cache));
        inputs.extend(parts.v.then_some(v_cache));
        q = context.run(&NormQkv { parts: *parts, ..op }, &inputs)?.pop().or(q);
    }
    q.ok_or_else(|| err!(Internal, "no queries among the parts of a layer"))
}

/// The same, with norms of heads between the projections and rope.
fn normed_queries(
    context: &Context,
    config: &Config,
    layer: &Layer,
    norms: &HeadNorms,
    x: &Tensor,
    state: &Tensor,
    caches: (&Tensor, &Tensor),
) -> Result<Tensor> {
    let product = NormMatVec { epsilon: config.norm_eps };
    let mut q = None;
    for (parts, matrix) in &layer.qkv {
        let product = context.run1(&product, &[x, &norms.attention_norm_planar, matrix])?; // [1, rows]
        q = layer.rope_and_append(context, config, *parts, &product, state, caches)?.or(q);
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
        let (queries, keys) = (if parts.q { config.n_heads } else { 0 }, if parts.k { config.n_kv_heads } else { 0 });
        if let Some(norms) = self.head_norms.as_ref().filter(|_| queries + keys > 0) {
            let norm = NormHeads { epsilon: config.norm_eps, head_dim: config.head_dim, queries, keys };
            context.run(&norm, &[product, &norms.weights])?;
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

    /// x += what its experts make of each token. `h` [n, n_embd] is x after its norm, and `logits` [n, experts] what the router makes
    /// of it; x and `h` may stand in planes.
    pub(super) fn add_experts(
        &self,
        context: &Context,
        config: &Config,
        h: &Tensor,
        logits: &Tensor,
        x: &Tensor,
        planar: bool,
    ) -> Result<()> {
        let (FeedForward::Experts { gate, up, down, .. }, Some(experts)) = (&self.feed_forward, config.experts) else {
            bail!(Internal, "a layer has no experts")
        };
        let Experts { count, used, normalize, scale, .. } = experts;
        let routes = context.run(&RouteExperts { used, normalize, scale }, &[logits])?; // [n, used] each
        let [ids, weights] = &routes[..] else { bail!(Internal, "route_experts has two outputs") };
        let product = MatVecExperts { experts: count, planar };
        let gate = context.run1(&product, &[h, ids, gate])?; // [n · used, n_ff]
        let up = context.run1(&product, &[h, ids, up])?; // [n · used, n_ff]
        let f = context.run1(&Swiglu { activation: config.arch.activation }, &[&gate, &up])?; // [n · used, n_ff]
        let down = context.run1(&MatVecExperts { planar: false, ..product }, &[&f, ids, down])?; // [n · used, n_embd]
        context.run(&CombineExperts { adds: true, planar }, &[&down, weights, x]).map(|_| ())
    }
}

/// What gate and up make of a token, [1, n_ff] in planes.
fn gated(context: &Context, config: &Config, layer: &Layer, gate_up: &GateUp, x: &Tensor) -> Result<Tensor> {
    let (epsilon, activation) = (config.norm_eps, config.arch.activation);
    let norm = &layer.feed_forward_norm_planar;
    match gate_up {
        GateUp::Joined(matrix) => context.run1(&NormGateUp { epsilon, activation }, &[x, norm, matrix]),
        GateUp::Apart(gate, up) => {
            let gate = context.run1(&NormMatVec { epsilon }, &[x, norm, gate])?; // [1, n_ff]
            let up = context.run1(&NormMatVec { epsilon }, &[x, norm, up])?; // [1, n_ff]
            context.run1(&SwigluPlanes { activation }, &[&context.run1(&ConcatColumns, &[&gate, &up])?])
        }
    }
}

/// x += what the op gives of the inputs, after its norm.
fn add(
    context: &Context,
    config: &Config,
    op: &dyn Op,
    inputs: &[&Tensor],
    x: &Tensor,
    norm: &Option<PostNorm>,
) -> Result<()> {
    match norm {
        None => context.run(op, &[inputs, &[x]].concat())?,
        Some(norm) => {
            let y = context.run1(op, inputs)?; // [1, n_embd] in planes
            context.run(&NormAdd { epsilon: config.norm_eps }, &[x, &y, &norm.planar])?
        }
    };
    Ok(())
}

/// The logits, [1, vocab_size], of what `forward` returned.
pub(super) fn logits(transformer: &Transformer, joined: &Joined, x: &Tensor) -> Result<Tensor> {
    let op = NormMatVec { epsilon: transformer.config().norm_eps };
    let logits = transformer.output().multiply(transformer.context(), &op, &[x, &joined.output_norm_planar])?;
    transformer.finish_logits(logits)
}
