//! Runs a model's layers one op at a time. For encoders, for models that the fused ops can't compute or whose matrices can't be joined, and
//! as the reference for `decode.rs` and `prefill.rs`.

use super::adapters::{ActiveAdapters, Added, Beside};
use super::arch::RopeKind;
use super::attention;
use super::config::Config;
use super::cross_attention::CrossAttention;
use super::disentangled::Disentangled;
use super::feed_forward;
use super::latent::{LatentAttention, LatentPass};
use super::layer_ops::LayerOps;
use super::linear::Linear;
use super::mixer::{RecurrentMixer, Step};
use super::mixture::{Combined, Form, Mixture, SharedExpert};
use super::norm::Norm;
use super::per_layer::PerLayerInput;
use super::rope::RopeTensor;
use super::state::LayerStates;
use crate::error::Result;
use crate::tensor::ops::{
    Add, Attention, AttentionDisentangled, AttentionPerHead, AttentionSpans, Clamp, CombineExperts, GateInput,
    GateRows, GaussianTopk, KvAppend, LowRankInput, PerHead, Rope, RopePositions, Scale, SigmoidGate, SliceColumns,
    Swiglu, SwigluFused, Unary, UnaryKind, Xielu,
};
use crate::tensor::{Context, Op, Shape, Tensor};

pub(super) struct Unfused<'a> {
    pub context: &'a Context,
    pub config: &'a Config,
    pub ropes: &'a [RopeTensor],
    pub tokens: Tokens<'a>,
    /// The op for products with matrices.
    pub product: &'static dyn Op,
    pub adapters: Option<&'a ActiveAdapters>,
}

/// Which tokens each token sees.
pub(super) enum Tokens<'a> {
    /// New tokens of a text, the first at position `state[0]`: they see each other and what the states hold.
    After { states: &'a LayerStates, state: &'a Tensor },
    /// Whole texts: each token sees its own.
    Within(Within<'a>),
}

/// The tokens of whole texts.
pub(super) struct Within<'a> {
    /// [n, 2]: where each token's text begins and ends.
    pub spans: &'a Tensor,
    /// The same for layers with a window: what of its text a token sees.
    pub windows: &'a Tensor,
    /// [n]: each token's place in its text.
    pub positions: &'a Tensor,
    /// [n_heads, 2 · reach + 1]: what the distance of two tokens adds to their score.
    pub distances: Option<&'a Tensor>,
    /// What attention compares content with besides.
    pub disentangled: Option<&'a Disentangled>,
}

impl LayerOps for Unfused<'_> {
    type Normed<'a> = Tensor; // [n, n_embd]
    type Inner = Tensor; // [n, inputs of the product]

    fn context(&self) -> &Context {
        self.context
    }

    fn normed(&self, norm: &Norm, x: &Tensor) -> Result<Tensor> {
        norm.run(self.context, x)
    }

    fn attention(&self, layer: &attention::Attention, h: &Tensor) -> Result<Tensor> {
        let Self { context, config, .. } = *self;
        let (q, new) = self.project(layer, h)?;
        if let Some(limit) = config.attention_clamp {
            for x in [&q].into_iter().chain(new.iter().flatten()) {
                context.run(&Clamp { limit }, &[x])?;
            }
        }
        let of_layer = config.layers[layer.index];
        let after_rope = config.arch.norms_heads_after_rope;
        let norm_and_rope = |mut x: Tensor, norm: &Norm| {
            if !after_rope {
                x = self.norm_heads(layer, x, norm)?;
            }
            if let Some(rope) = of_layer.rope {
                self.rope(rope, of_layer.head_dim, &x)?;
            }
            if after_rope { self.norm_heads(layer, x, norm) } else { Ok(x) }
        };
        let q = norm_and_rope(q, &layer.q_norm)?;
        // Values first: they may be the keys, which rope turns in place.
        let new = match new {
            Some([k, v]) => {
                let v = self.norm_heads(layer, v, &layer.v_norm)?;
                Some((norm_and_rope(k, &layer.k_norm)?, v))
            }
            None => None,
        };
        let (heads, kv_heads, head_dim) = (config.n_heads, of_layer.n_kv_heads, of_layer.head_dim);
        let scale = config.attention_scale;
        let a = match self.tokens {
            Tokens::After { states, state } => {
                let (k_cache, v_cache) = states.kv().layer(layer.state);
                if let Some((k, v)) = &new {
                    context.run(&KvAppend { head_dim }, &[k, v, k_cache, v_cache, state])?;
                }
                if let Some(temperature) = config.attention_temperature {
                    context.run(&temperature, &[&q, state])?;
                }
                let (window, softcap) = (of_layer.window, config.attention_softcap);
                let attention = Attention { heads, kv_heads, head_dim, scale, window, softcap };
                match &layer.per_head {
                    None => context.run1(&attention, &[&q, k_cache, v_cache, state]),
                    Some(of_heads) => {
                        let numbers = match (config.distances, config.alibi) {
                            (Some(distances), _) => PerHead::Distances { reach: distances.farthest },
                            (None, Some(_)) => PerHead::Slope,
                            (None, None) => PerHead::Sink,
                        };
                        let op = AttentionPerHead { attention, numbers };
                        context.run1(&op, &[&q, k_cache, v_cache, state, of_heads])
                    }
                }
            }
            Tokens::Within(Within { spans, windows, distances, disentangled, .. }) => {
                let Some((k, v)) = &new else { bail!(Internal, "an encoder's layer without keys and values") };
                if let Some(Disentangled { layers, buckets }) = disentangled {
                    let Some([keys, queries]) = layers.get(layer.index) else {
                        bail!(Internal, "no distances for layer {}", layer.index)
                    };
                    let op = AttentionDisentangled { heads, head_dim, scale };
                    return context.run1(&op, &[&q, k, v, spans, keys, queries, buckets]);
                }
                let spans = if of_layer.window.is_some() { windows } else { spans };
                let reach = distances.map(|distances| distances.shape().dims()[1] / 2);
                let op = AttentionSpans { heads, kv_heads, head_dim, scale, reach };
                match distances {
                    Some(distances) => context.run1(&op, &[&q, k, v, spans, distances]),
                    None => context.run1(&op, &[&q, k, v, spans]),
                }
            }
        }?;
        if let Some(gate) = &layer.gate {
            context.run(&SigmoidGate { soa: false }, &[&a, &self.product(gate, h)?])?;
        }
        layer.sub_norm.run(context, &a)
    }

    fn latent_attention(&self, layer: &LatentAttention, h: &Tensor) -> Result<Tensor> {
        let (Tokens::After { states, state }, [rope, ..]) = (&self.tokens, self.ropes) else {
            bail!(Internal, "latents of an encoder, or without rope")
        };
        let Self { context, config, product, .. } = *self;
        layer.run(&LatentPass { context, config, rope, states, state, product }, h)
    }

    fn cross_attention(&self, cross: &CrossAttention, h: &Tensor) -> Result<Tensor> {
        let Tokens::After { states, .. } = self.tokens else { bail!(Internal, "an encoder with cross-attention") };
        let (k, v, span) = states.source()?.layer(cross.state);
        let (heads, head_dim, scale) = (self.config.n_heads, cross.head_dim, self.config.attention_scale);
        let op = AttentionSpans { heads, kv_heads: heads, head_dim, scale, reach: None };
        self.context.run1(&op, &[&self.product(&cross.query, h)?, k, v, span])
    }

    fn recurrent(&self, mixer: &RecurrentMixer, h: &Tensor) -> Result<Tensor> {
        let Tokens::After { states, state } = self.tokens else { bail!(Internal, "an encoder with a recurrent layer") };
        let products = mixer.inputs.iter().map(|linear| self.product(linear, h)).collect::<Result<Vec<Tensor>>>()?;
        let (context, config, states) = (self.context, self.config, states.recurrent());
        mixer.run(&Step { context, config, products: &products, position: state, states, soa: false })
    }

    fn whole(&self, h: &Tensor, up: &Linear, down: &Linear, is_gated: bool) -> Result<Option<Tensor>> {
        feed_forward::whole(self.context, self.config.activation, self.beside(), || Ok(h.clone()), [up, down], is_gated)
    }

    fn gated(&self, h: &Tensor, gate_up: &[Linear], _: &Linear, sparsity: Option<f32>) -> Result<Tensor> {
        let activation = self.config.activation;
        let products = gate_up.iter().map(|linear| self.product(linear, h)).collect::<Result<Vec<Tensor>>>()?;
        match &products[..] {
            [gate, up] => {
                let sparse = sparsity.map(|deviations| self.context.run1(&GaussianTopk { deviations }, &[gate]));
                let sparse = sparse.transpose()?;
                self.context.run1(&Swiglu { activation }, &[sparse.as_ref().unwrap_or(gate), up])
            }
            [_] if sparsity.is_some() => bail!(Internal, "gates of which some count, and that are one matrix with up"),
            [both] => self.context.run1(&SwigluFused { activation }, &[both]),
            _ => bail!(Internal, "gate and up in {} matrices", products.len()),
        }
    }

    fn ungated(&self, h: &Tensor, up: &Linear, _: &Linear, xielu: Option<Xielu>) -> Result<Tensor> {
        let up = self.product(up, h)?;
        let kind = UnaryKind::try_from(self.config.activation)?;
        match xielu {
            Some(xielu) => self.context.run1(&xielu, &[&up]),
            None => self.context.run1(&Unary { kind }, &[&up]),
        }
    }

    fn experts(&self, h: &Tensor, routed: &Tensor, router: &Linear, experts: &Mixture) -> Result<Combined> {
        let logits = self.product(router, routed)?; // [n, experts]
        let shared = match &experts.shared {
            Some(SharedExpert { gate_up, down, gate }) => {
                let f = match &gate_up[..] {
                    [up] => self.ungated(h, up, down, None)?,
                    both => self.gated(h, both, down, None)?,
                };
                let y = self.product(down, &f)?;
                if let Some(gate) = gate {
                    self.context.run(&GateRows, &[&y, &self.product(gate, h)?])?;
                }
                Some(y)
            }
            None => None,
        };
        let combined = experts.run(self.context, self.config, h, &logits, Form::Rows, 1.0)?;
        Ok(Combined { shared, ..combined })
    }

    fn per_layer_input(&self, x: &Tensor, input: &PerLayerInput, vectors: &Tensor) -> Result<Tensor> {
        let op = GateInput { activation: self.config.activation, first: input.first, soa: false };
        self.context.run1(&op, &[&self.product(&input.gate, x)?, vectors])
    }

    fn normed_inner(&self, inner: Tensor, norm: &Norm) -> Result<Tensor> {
        norm.run(self.context, &inner)
    }

    fn add_product(&self, x: &Tensor, inner: Tensor, linear: &Linear, norm: &Norm, scale: f32) -> Result<()> {
        self.add_normed(x, &self.product(linear, &inner)?, norm, scale)
    }

    fn add_experts(&self, x: &Tensor, combined: Combined, norm: &Norm) -> Result<()> {
        let y = self.context.run1(&CombineExperts::default(), &[&combined.outputs, &combined.weights])?;
        if let Some(shared) = &combined.shared {
            self.context.run(&Add, &[&y, shared])?;
        }
        self.add_normed(x, &y, norm, self.config.residual_scales.feed_forward)
    }

    fn add_normed(&self, x: &Tensor, y: &Tensor, norm: &Norm, scale: f32) -> Result<()> {
        let mut y = norm.run(self.context, y)?;
        if scale != 1.0 {
            y = self.context.run1(&Scale { factor: scale }, &[&y])?;
        }
        self.context.run(&Add, &[x, &y]).map(|_| ())
    }
}

impl Unfused<'_> {
    /// What adapters add to products with new tokens of a text.
    fn beside(&self) -> Option<Beside<'_>> {
        let Tokens::After { state, .. } = self.tokens else { return None };
        Some(Beside { context: self.context, adapters: self.adapters, state })
    }

    /// [n, inputs] → [n, outputs]
    fn product(&self, linear: &Linear, x: &Tensor) -> Result<Tensor> {
        let y = linear.run(self.context, self.product, &[x])?;
        if let Some(beside) = self.beside() {
            beside.add(&linear.weight, &y, Added::ROWS, &LowRankInput::Rows, &[x])?;
        }
        Ok(y)
    }

    /// Queries [n, n_heads · head_dim], and keys and values [n, n_kv_heads · head_dim] if the layer has own ones.
    fn project(&self, layer: &attention::Attention, h: &Tensor) -> Result<(Tensor, Option<[Tensor; 2]>)> {
        let (q_dim, kv_dim) = (self.config.q_dim(layer.index), self.config.layers[layer.index].kv_dim());
        let products: Vec<Tensor> =
            layer.queries_keys_values.iter().map(|(_, linear)| self.product(linear, h)).collect::<Result<_>>()?;
        Ok(match &products[..] {
            [q, k, v] => (q.clone(), Some([k.clone(), v.clone()])),
            [q, k] => (q.clone(), Some([k.clone(), k.clone()])),
            [q] if self.config.layers[layer.index].reuses_kv => (q.clone(), None),
            [qkv] => {
                let slice = |first, count| self.context.run1(&SliceColumns { first, count }, &[qkv]);
                (slice(0, q_dim)?, Some([slice(q_dim, kv_dim)?, slice(q_dim + kv_dim, kv_dim)?]))
            }
            _ => bail!(Internal, "projections in {} matrices", products.len()),
        })
    }

    /// Queries or keys [n, heads · head_dim], normed head by head or over all heads.
    fn norm_heads(&self, layer: &attention::Attention, x: Tensor, norm: &Norm) -> Result<Tensor> {
        if norm.is_none() {
            return Ok(x);
        }
        if self.config.arch.norms_heads_together {
            return norm.run(self.context, &x);
        }
        let shape = x.shape();
        let head_dim = self.config.layers[layer.index].head_dim;
        let heads = x.reshaped(Shape::from([shape.elements() / head_dim, head_dim]))?;
        norm.run(self.context, &heads)?.reshaped(shape)
    }

    /// Turns queries or keys by one of the model's ropes.
    fn rope(&self, number: usize, head_dim: usize, x: &Tensor) -> Result<()> {
        let Some(RopeTensor { frequencies, scale }) = self.ropes.get(number) else {
            bail!(Internal, "the model has no rope {number}")
        };
        let interleaved = self.config.ropes[number].kind == RopeKind::Interleaved;
        match self.tokens {
            Tokens::After { state, .. } => {
                self.context.run(&Rope { head_dim, interleaved, scale: *scale }, &[x, frequencies, state])?
            }
            Tokens::Within(Within { positions, .. }) => {
                self.context.run(&RopePositions { head_dim, interleaved }, &[x, frequencies, positions])?
            }
        };
        Ok(())
    }
}
