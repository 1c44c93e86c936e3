//! The forward pass of a decoder: from token ids to logits. It branches on the fields of the architecture, never on a
//! model's name. One token goes through `decode.rs`, which joins these ops to fewer.

use super::KvCache;
use super::Weights;
use super::arch::RopeKind;
use super::config::Config;
use super::decode::Decode;
use crate::error::Result;
use crate::tensor::ops::{self, Add, AddRow, Attention, Embedding, KvAppend, RmsNorm, Rope, SliceRows, Swiglu};
use crate::tensor::{Context, HostTensor, Tensor};

/// A model that is ready to run.
pub struct Transformer {
    context: Context,
    config: Config,
    token_embedding: Tensor, // [vocab_size, n_embd]
    layers: Vec<Layer>,
    output_norm: Tensor, // [n_embd]
    output: Tensor,      // [vocab_size, n_embd]; the embedding again when tied
    /// Rope's frequency of each pair of a head, [rope_dim / 2].
    frequencies: Tensor,
    decode: Option<Decode>,
    weight_bytes: u64,
    parameters: u64,
}

/// The weights of one layer; matrices are [outputs, inputs].
struct Layer {
    attention_norm: Tensor,    // [n_embd]
    q: Tensor,                 // [n_heads · head_dim, n_embd]
    k: Tensor,                 // [n_kv_heads · head_dim, n_embd]
    v: Tensor,                 // [n_kv_heads · head_dim, n_embd]
    q_bias: Option<Tensor>,    // [n_heads · head_dim]
    k_bias: Option<Tensor>,    // [n_kv_heads · head_dim]
    v_bias: Option<Tensor>,    // [n_kv_heads · head_dim]
    attention_output: Tensor,  // [n_embd, n_heads · head_dim]
    feed_forward_norm: Tensor, // [n_embd]
    gate: Tensor,              // [n_ff, n_embd]
    up: Tensor,                // [n_ff, n_embd]
    down: Tensor,              // [n_embd, n_ff]
}

/// Whose logits a forward pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// Of no token: the pass only fills the KV cache.
    None,
    Last,
    All,
}

impl Transformer {
    /// `plain` takes one op at a time for single tokens too, to compare.
    pub fn new(context: &Context, config: Config, weights: &Weights, plain: bool) -> Result<Self> {
        let layers = (0..config.n_layers)
            .map(|layer| {
                let get =
                    |name: &str| Ok::<_, crate::Error>(weights.get(&format!("blk.{layer}.{name}.weight"))?.clone());
                let bias = |name: &str| weights.optional(&format!("blk.{layer}.{name}.bias")).cloned();
                Ok(Layer {
                    attention_norm: get("attn_norm")?,
                    q: get("attn_q")?,
                    k: get("attn_k")?,
                    v: get("attn_v")?,
                    q_bias: bias("attn_q"),
                    k_bias: bias("attn_k"),
                    v_bias: bias("attn_v"),
                    attention_output: get("attn_output")?,
                    feed_forward_norm: get("ffn_norm")?,
                    gate: get("ffn_gate")?,
                    up: get("ffn_up")?,
                    down: get("ffn_down")?,
                })
            })
            .collect::<Result<_>>()?;
        let token_embedding = weights.get("token_embd.weight")?.clone();
        let output =
            if config.tie_embeddings { token_embedding.clone() } else { weights.get("output.weight")?.clone() };
        let factors = match &config.rope_factors {
            Some(name) => weights.vector(name)?,
            None => &[],
        };
        let frequencies: Vec<f32> = (0..config.rope_dim / 2)
            .map(|i| {
                let exponent = -2.0 * i as f64 / config.rope_dim as f64;
                let factor = factors.get(i).copied().unwrap_or(1.0);
                (f64::from(config.rope_theta).powf(exponent) / f64::from(factor)) as f32
            })
            .collect();
        let decode = if plain { None } else { Decode::new(context, &config, weights, &frequencies)? };
        Ok(Self {
            context: context.clone(),
            decode,
            token_embedding,
            layers,
            output_norm: weights.get("output_norm.weight")?.clone(),
            output,
            frequencies: context.tensor(&HostTensor::f32(&[frequencies.len()], &frequencies))?,
            weight_bytes: weights.bytes(),
            parameters: weights.parameters(),
            config,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// The type of most of the weights, by bytes.
    pub fn quantization(&self) -> &'static str {
        self.layers.first().map_or("f32", |layer| layer.down.dtype().name())
    }

    /// Records one forward pass over `tokens` [n], whose first stands at position `state[0]`; their keys and values are
    /// appended to the cache. Returns logits [1 or n, vocab_size].
    ///
    /// Nothing in it depends on the position but what kernels read from `state`, so the commands for one token are the same
    /// at every step.
    pub fn forward(&self, tokens: &Tensor, state: &Tensor, cache: &KvCache, logits: Logits) -> Result<Option<Tensor>> {
        let run1 = |op: &dyn crate::tensor::Op, inputs: &[&Tensor]| self.context.run1(op, inputs);
        let run = |op: &dyn crate::tensor::Op, inputs: &[&Tensor]| self.context.run(op, inputs).map(|_| ());
        let config = &self.config;
        let n = tokens.shape().elements();
        if let Some(decode) = self.decode.as_ref().filter(|_| n == 1) {
            let x = decode.forward(&self.context, config, &self.token_embedding, tokens, state, cache)?;
            return match logits {
                Logits::None => Ok(None),
                _ => Ok(Some(decode.logits(&self.context, config, &self.output, &x)?)),
            };
        }
        let norm = RmsNorm { epsilon: config.rms_eps };
        let rope = Rope { head_dim: config.head_dim, interleaved: config.arch.rope == RopeKind::Interleaved };
        let attention = Attention {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
        };
        let linear = ops::linear(n);

        let mut x = run1(&Embedding { planar: false }, &[tokens, &self.token_embedding])?; // [n, n_embd]
        for (index, layer) in self.layers.iter().enumerate() {
            let (k_cache, v_cache) = cache.layer(index);

            let h = run1(&norm, &[&x, &layer.attention_norm])?; // [n, n_embd]
            let q = run1(linear, &[&h, &layer.q])?; // [n, n_heads · head_dim]
            let k = run1(linear, &[&h, &layer.k])?; // [n, n_kv_heads · head_dim]
            let v = run1(linear, &[&h, &layer.v])?; // [n, n_kv_heads · head_dim]
            for (x, bias) in [(&q, &layer.q_bias), (&k, &layer.k_bias), (&v, &layer.v_bias)] {
                if let Some(bias) = bias {
                    run(&AddRow, &[x, bias])?;
                }
            }
            run(&rope, &[&q, &self.frequencies, state])?;
            run(&rope, &[&k, &self.frequencies, state])?;
            run(&KvAppend, &[&k, &v, k_cache, v_cache, state])?;
            let a = run1(&attention, &[&q, k_cache, v_cache, state])?; // [n, n_heads · head_dim]
            let o = run1(linear, &[&a, &layer.attention_output])?; // [n, n_embd]
            run(&Add, &[&x, &o])?;

            let h = run1(&norm, &[&x, &layer.feed_forward_norm])?; // [n, n_embd]
            let gate = run1(linear, &[&h, &layer.gate])?; // [n, n_ff]
            let up = run1(linear, &[&h, &layer.up])?; // [n, n_ff]
            let f = run1(&Swiglu, &[&gate, &up])?; // [n, n_ff]
            let down = run1(linear, &[&f, &layer.down])?; // [n, n_embd]
            run(&Add, &[&x, &down])?;
        }
        if logits == Logits::None {
            return Ok(None);
        }
        if logits == Logits::Last && n > 1 {
            x = run1(&SliceRows { first: n - 1, count: 1 }, &[&x])?; // [1, n_embd]
        }
        let rows = x.shape().dims()[0];
        let h = run1(&norm, &[&x, &self.output_norm])?; // [rows, n_embd]
        Ok(Some(run1(ops::linear(rows), &[&h, &self.output])?)) // [rows, vocab_size]
    }
}
