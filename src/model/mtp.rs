//! The head that predicts the token after the next one (multi-token prediction; DeepSeek-AI 2024, "DeepSeek-V3", 2.2; Qwen3-Next). It reads the
//! hidden state of a position, after the model's last norm, and the embedding of the token after that position: both are normed, joined
//! by a matrix, and go through one layer with attention. What follows its norm serves as the next hidden state, so it can go on from its
//! own predictions, and the model's output matrix gives the token.
//!
//! Its layer has keys and values of all positions before. A pass of the model writes them, which needs no attention and no feed-forward.

use super::Weights;
use super::attention::Attention;
use super::config::Config;
use super::feed_forward::FeedForward;
use super::fused::{Fused, FusedPass};
use super::linear::Linear;
use super::mtp_part::{PREFIX, SHARED};
use super::norm::Norm;
use super::rope::RopeTable;
use super::state::LayerStates;
use super::unfused::{Tokens, Unfused};
use crate::error::Result;
use crate::tensor::ops::{self, Add, ConcatColumns, SigmoidGate};
use crate::tensor::{Context, Tensor};

pub(super) struct MtpHead {
    config: Config,
    /// Its vectors for ops that join head norms, rope and the cache.
    fused: Fused,
    embedding_norm: Norm,
    hidden_norm: Norm,
    /// [n_embd, 2 · n_embd]: embedding, then hidden state.
    join: Linear,
    attention_norm: Norm,
    attention: Attention,
    feed_forward_norm: Norm,
    feed_forward: FeedForward,
    output_norm: Norm,
}

impl MtpHead {
    /// That of a model, if it is loaded.
    pub fn of(context: &Context, config: &Config, weights: &Weights, ropes: &[RopeTable]) -> Result<Option<Self>> {
        let Some(config) = config.mtp.as_deref() else { return Ok(None) };
        let weights = &weights.part(PREFIX, &SHARED);
        let norm = |stem: &str| Norm::of(config, weights, stem);
        let Some(attention) = Attention::of(context, config, weights, 0)? else {
            bail!(Internal, "a head that predicts tokens without attention")
        };
        Ok(Some(Self {
            fused: Fused::new(context, config, weights, ropes)?,
            embedding_norm: norm("enorm"),
            hidden_norm: norm("hnorm"),
            join: Linear::of(weights, "eh_proj")?,
            attention_norm: norm("blk.0.attn_norm"),
            attention,
            feed_forward_norm: norm("blk.0.ffn_norm"),
            feed_forward: FeedForward::new(context, config, weights, 0)?,
            output_norm: norm("output_norm"),
            config: config.clone(),
        }))
    }

    /// The input of its layer for embeddings and hidden states [n, n_embd].
    fn joined(&self, context: &Context, embeddings: &Tensor, hidden: &Tensor) -> Result<Tensor> {
        let embeddings = self.embedding_norm.run(context, embeddings)?;
        let hidden = self.hidden_norm.run(context, hidden)?;
        let both = context.run1(&ConcatColumns, &[&embeddings, &hidden])?;
        self.join.run(context, ops::linear(both.shape().dims()[0]), &[&both])
    }

    /// Writes keys and values of the normed inputs h [n, n_embd] of its layer. With `queries` it returns these, [n, n_heads · head_dim].
    fn project(&self, pass: FusedPass<'_>, h: &Tensor, queries: bool) -> Result<Option<Tensor>> {
        let product = ops::linear(h.shape().dims()[0]);
        let mut q = None;
        for (parts, linear) in &self.attention.queries_keys_values {
            if queries || parts.k || parts.v {
                let projected = linear.run(pass.context, product, &[h])?;
                q = pass.rope_and_append(&self.attention, *parts, &projected)?.or(q);
            }
        }
        Ok(q)
    }

    fn pass<'a>(&'a self, context: &'a Context, states: &'a LayerStates, state: &'a Tensor) -> Result<FusedPass<'a>> {
        let (cache, recurrent) = (states.mtp()?.kv(), states.recurrent());
        Ok(FusedPass { context, config: &self.config, fused: &self.fused, cache, recurrent, state, adapters: None })
    }

    /// The head's hidden state [1, n_embd] for that of a position, and the embedding of the token after it.
    pub fn predict(
        &self,
        context: &Context,
        embedding: &Tensor,
        hidden: &Tensor,
        (state, states): (&Tensor, &LayerStates),
    ) -> Result<Tensor> {
        let (config, layer) = (&self.config, &self.config.layers[0]);
        let product = ops::linear(1);
        let x = self.joined(context, embedding, hidden)?;
        let h = self.attention_norm.run(context, &x)?;
        let pass = self.pass(context, states, state)?;
        let Some(q) = self.project(pass, &h, true)? else { bail!(Internal, "a head without queries") };
        let attention = ops::Attention {
            heads: config.n_heads,
            kv_heads: layer.n_kv_heads,
            head_dim: layer.head_dim,
            scale: config.attention_scale,
            window: None,
            softcap: config.attention_softcap,
        };
        let (k_cache, v_cache) = pass.cache.layer(0);
        let a = context.run1(&attention, &[&q, k_cache, v_cache, state])?;
        if let Some(gate) = &self.attention.gate {
            context.run(&SigmoidGate { soa: false }, &[&a, &gate.run(context, product, &[&h])?])?;
        }
        context.run(&Add, &[&x, &self.attention.output.run(context, product, &[&a])?])?;
        let tokens = Tokens::After { states, state };
        let ops = Unfused { context, config, ropes: &[], tokens, product, adapters: None };
        let (before, after) = (&self.feed_forward_norm, Norm::none());
        self.feed_forward.add_to(&ops, &x, before, &after, config.residual_scales.feed_forward)?;
        self.output_norm.run(context, &x)
    }

    /// Writes the layer's keys and values for embeddings and hidden states [n, n_embd], where `state` says.
    pub fn append(
        &self,
        context: &Context,
        embeddings: &Tensor,
        hidden: &Tensor,
        (state, states): (&Tensor, &LayerStates),
    ) -> Result<()> {
        let x = self.joined(context, embeddings, hidden)?;
        let h = self.attention_norm.run(context, &x)?;
        self.project(self.pass(context, states, state)?, &h, false).map(|_| ())
    }
}
