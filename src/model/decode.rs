//! The forward pass of one token in few dispatches, five a layer: what a decode step replays. Where projections that are joined are of
//! different types there is one more for each type.
//!
//! The same computation as `Transformer::forward`, by ops that join several of its own.

use super::arch::RopeKind;
use super::joined::{GateUp, Joined};
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::{
    AttentionOut, AttentionSplit, ConcatColumns, MatVecAdd, NormGateUp, NormMatVec, NormQkv, QkvParts, Residual,
    Splits, SwigluPlanes,
};
use crate::tensor::{Op, Tensor};

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
    let run = |op: &dyn Op, inputs: &[&Tensor]| context.run(op, inputs).map(|_| ());
    let gate_up = NormGateUp { epsilon: config.norm_eps, activation: config.arch.activation };
    let splits = Splits::choose(config.head_dim, context.device().capabilities());
    let attention = AttentionSplit {
        heads: config.n_heads,
        kv_heads: config.n_kv_heads,
        head_dim: config.head_dim,
        scale: config.attention_scale,
        window: None,
        softcap: None,
        splits,
    };
    let attention_out = AttentionOut {
        heads: config.n_heads,
        head_dim: config.head_dim,
        capacity: cache.capacity(),
        splits,
        residual: Residual::ADD,
    };

    let x = transformer.token_embedding().embed(context, token, true)?; // [1, n_embd] in planes, as all x
    for (index, layer) in joined.layers.iter().enumerate() {
        let (k_cache, v_cache) = cache.layer(index);
        let op = NormQkv {
            parts: QkvParts::ALL,
            epsilon: config.norm_eps,
            q_dim: config.n_heads * config.head_dim,
            kv_dim: config.n_kv_heads * config.head_dim,
            head_dim: config.head_dim,
            pairs: config.layers[index].rope.map_or(0, |rope| config.ropes[rope].dim / 2),
            interleaved: config.ropes[0].kind == RopeKind::Interleaved,
            bias: layer.bias.is_some(),
        };
        let mut q = None;
        for (parts, matrix) in &layer.qkv {
            let mut inputs = vec![&x, &layer.vectors, matrix, state];
            inputs.extend(parts.k.then_some(k_cache));
            inputs.extend(parts.v.then_some(v_cache));
            q = context.run(&NormQkv { parts: *parts, ..op }, &inputs)?.pop().or(q);
        }
        let Some(q) = q else { bail!(Internal, "no queries among the parts of layer {index}") }; // [1, n_heads · head_dim]
        let parts = context.run(&attention, &[&q, k_cache, v_cache, state])?;
        let [sums, totals] = &parts[..] else { bail!(Internal, "attention_split has two outputs") };
        run(&attention_out, &[sums, totals, &layer.attention_output, state, &x])?;
        let norm = &layer.feed_forward_norm_planar;
        let f = match &layer.gate_up {
            GateUp::Joined(matrix) => context.run1(&gate_up, &[&x, norm, matrix])?,
            GateUp::Apart(gate, up) => {
                let op = NormMatVec { epsilon: config.norm_eps };
                let gate = context.run1(&op, &[&x, norm, gate])?; // [1, n_ff]
                let up = context.run1(&op, &[&x, norm, up])?; // [1, n_ff]
                context.run1(
                    &SwigluPlanes { activation: config.arch.activation },
                    &[&context.run1(&ConcatColumns, &[&gate, &up])?],
                )?
            }
        }; // [1, n_ff] in planes
        run(&MatVecAdd { residual: Residual::ADD }, &[&f, &layer.down, &x])?;
    }
    Ok(x)
}

/// The logits, [1, vocab_size], of what `forward` returned.
pub(super) fn logits(transformer: &Transformer, joined: &Joined, x: &Tensor) -> Result<Tensor> {
    let op = NormMatVec { epsilon: transformer.config().norm_eps };
    transformer.output().multiply(transformer.context(), &op, &[x, &joined.output_norm_planar])
}
