//! The forward pass of an encoder: from the tokens of several texts to a vector for each text. Every token sees all of its own
//! text, and norms stand behind attention and feed-forward. It branches on the fields of the architecture, never on a model's
//! name.

use super::Weights;
use super::arch::RopeKind;
use super::config::Config;
use super::matrix::Matrix;
use super::plain::{Linear, NormWeights};
use super::pooling::Pooling;
use crate::error::Result;
use crate::tensor::ops::{
    Add, AttentionSpans, MatMul, MeanRows, RopePositions, SliceColumns, Swiglu, Unary, UnaryKind,
};
use crate::tensor::{Context, DType, HostTensor, Op, Tensor};

/// An encoder that is ready to run.
pub struct Encoder {
    context: Context,
    config: Config,
    token_embedding: Matrix,     // [vocab_size, n_embd]
    token_types: Option<Matrix>, // [types, n_embd]; a single text is of type 0
    positions: Option<Matrix>,   // [context_length, n_embd]
    embedding_norm: NormWeights, // [n_embd]
    frequencies: Option<Tensor>, // of rope, [rope_dim / 2]
    layers: Vec<Layer>,
    quantization: &'static str,
    weight_bytes: u64,
    parameters: u64,
}

/// The weights of one layer. q_dim is n_heads · head_dim, and kv_dim n_kv_heads · head_dim.
struct Layer {
    queries_keys_values: QueriesKeysValues,
    attention_output: Linear, // [n_embd, q_dim]
    attention_norm: NormWeights,
    gate: Option<Linear>, // [n_ff, n_embd]
    up: Linear,           // [n_ff, n_embd]
    down: Linear,         // [n_embd, n_ff]
    feed_forward_norm: NormWeights,
}

enum QueriesKeysValues {
    /// [q_dim + 2 · kv_dim, n_embd]
    One(Linear),
    /// [q_dim, n_embd], [kv_dim, n_embd], [kv_dim, n_embd]
    Three(Box<[Linear; 3]>),
}

/// Texts that go through one pass, as kernels want them.
struct Batch {
    tokens: Tensor,    // [n] u32
    positions: Tensor, // [n] u32: of each token in its text
    spans: Tensor,     // [n, 2] u32: of each token, where its text begins and ends
}

impl Encoder {
    pub fn new(context: &Context, config: Config, weights: &Weights) -> Result<Self> {
        let token_embedding = weights.matrix("token_embd.weight")?;
        let norm = |stem: &str| {
            NormWeights::optional(weights, stem)
                .ok_or_else(|| err!(MissingTensor, "the model has no tensor \"{stem}.weight\""))
        };
        let frequencies = match config.ropes.first() {
            None => None,
            Some(rope) => {
                let table = rope.table(config.context_length, |tensor| weights.vector(tensor))?;
                Some(context.tensor(&HostTensor::f32(&[table.frequencies.len()], &table.frequencies))?)
            }
        };
        let layer = |layer: usize| {
            let name = |stem: &str| format!("blk.{layer}.{stem}");
            let linear = |stem: &str| Linear::of(weights, &name(stem));
            let has = |stem: &str| weights.optional_matrix(&name(&format!("{stem}.weight"))).is_some();
            Ok::<_, crate::Error>(Layer {
                queries_keys_values: match has("attn_qkv") {
                    true => QueriesKeysValues::One(linear("attn_qkv")?),
                    false => {
                        QueriesKeysValues::Three(Box::new([linear("attn_q")?, linear("attn_k")?, linear("attn_v")?]))
                    }
                },
                attention_output: linear("attn_output")?,
                attention_norm: norm(&name("attn_output_norm"))?,
                gate: if has("ffn_gate") { Some(linear("ffn_gate")?) } else { None },
                up: linear("ffn_up")?,
                down: linear("ffn_down")?,
                feed_forward_norm: norm(&name("layer_output_norm"))?,
            })
        };
        let quantization = match weights.matrix("blk.0.ffn_down.weight")?.dtype() {
            DType::Weight(format) => format.name,
            other => other.name(),
        };
        Ok(Self {
            context: context.clone(),
            token_embedding,
            token_types: weights.optional_matrix("token_types.weight"),
            positions: weights.optional_matrix("position_embd.weight"),
            embedding_norm: norm("token_embd_norm")?,
            frequencies,
            layers: (0..config.n_layers).map(layer).collect::<Result<_>>()?,
            quantization,
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

    /// The type of the feed-forward weights, which are most of the bytes.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// Records one pass over `texts`, each of at least one token, ids below the vocabulary's size and no more than the context
    /// holds. Returns their vectors, [texts, n_embd], not normalized.
    pub fn forward(&self, texts: &[&[u32]], pooling: Pooling) -> Result<Tensor> {
        let batch = self.batch(texts)?;
        let mut x = self.embed(&batch)?; // [n, n_embd]
        for layer in &self.layers {
            x = self.layer(layer, &batch, x)?;
        }
        let spans = pooling.spans(texts.iter().map(|text| text.len()));
        let spans = self.context.tensor(&HostTensor::u32(&[texts.len(), 2], &spans))?;
        self.context.run1(&MeanRows, &[&x, &spans])
    }

    fn batch(&self, texts: &[&[u32]]) -> Result<Batch> {
        let n = texts.iter().map(|text| text.len()).sum();
        let (mut tokens, mut positions, mut spans) = (Vec::with_capacity(n), Vec::with_capacity(n), Vec::new());
        for text in texts {
            let begin = tokens.len() as u32;
            let end = begin + text.len() as u32;
            tokens.extend_from_slice(text);
            positions.extend(0..end - begin);
            spans.extend((begin..end).flat_map(|_| [begin, end]));
        }
        let u32s = |dims: &[usize], words: &[u32]| self.context.tensor(&HostTensor::u32(dims, words));
        Ok(Batch { tokens: u32s(&[n], &tokens)?, positions: u32s(&[n], &positions)?, spans: u32s(&[n, 2], &spans)? })
    }

    /// [n, n_embd]
    fn embed(&self, batch: &Batch) -> Result<Tensor> {
        let rows = |of: &Matrix, ids: &Tensor| of.embed(&self.context, ids, false);
        let x = rows(&self.token_embedding, &batch.tokens)?;
        if let Some(positions) = &self.positions {
            self.context.run(&Add, &[&x, &rows(positions, &batch.positions)?])?;
        }
        if let Some(types) = &self.token_types {
            let n = batch.tokens.shape().elements();
            let first = self.context.tensor(&HostTensor::u32(&[n], &vec![0; n]))?;
            self.context.run(&Add, &[&x, &rows(types, &first)?])?;
        }
        self.embedding_norm.run(&self.context, &self.config, &x)
    }

    fn layer(&self, layer: &Layer, batch: &Batch, x: Tensor) -> Result<Tensor> {
        let Self { context, config, .. } = self;
        let run1 = |op: &dyn Op, inputs: &[&Tensor]| context.run1(op, inputs);
        let product = |linear: &Linear, x: &Tensor| self.product(linear, x);
        let [q, k, v] = self.queries_keys_values(layer, &x)?;
        if let (Some(frequencies), Some(rope)) = (&self.frequencies, config.ropes.first()) {
            let turn = RopePositions { head_dim: config.head_dim, interleaved: rope.kind == RopeKind::Interleaved };
            context.run(&turn, &[&q, frequencies, &batch.positions])?;
            context.run(&turn, &[&k, frequencies, &batch.positions])?;
        }
        let attention = AttentionSpans {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            scale: config.attention_scale,
        };
        let a = run1(&attention, &[&q, &k, &v, &batch.spans])?; // [n, q_dim]
        let o = product(&layer.attention_output, &a)?; // [n, n_embd]
        context.run(&Add, &[&o, &x])?;
        let x = layer.attention_norm.run(context, config, &o)?; // [n, n_embd]

        let up = product(&layer.up, &x)?; // [n, n_ff]
        let h = match &layer.gate {
            Some(gate) => {
                run1(&Swiglu { activation: config.arch.activation }, &[&product(gate, &x)?, &up])? // [n, n_ff]
            }
            None => run1(&Unary { kind: UnaryKind::from(config.arch.activation) }, &[&up])?, // [n, n_ff]
        };
        let down = product(&layer.down, &h)?; // [n, n_embd]
        context.run(&Add, &[&down, &x])?;
        layer.feed_forward_norm.run(context, config, &down)
    }

    /// [n, inputs] → [n, outputs]. The kernels for few tokens are compiled for each number of them, which texts don't wait for.
    fn product(&self, linear: &Linear, x: &Tensor) -> Result<Tensor> {
        linear.run_by(&MatMul::default(), &self.context, x)
    }

    /// [n, q_dim], [n, kv_dim], [n, kv_dim]
    fn queries_keys_values(&self, layer: &Layer, x: &Tensor) -> Result<[Tensor; 3]> {
        let (q_dim, kv_dim) =
            (self.config.n_heads * self.config.head_dim, self.config.n_kv_heads * self.config.head_dim);
        let product = |linear: &Linear, x: &Tensor| self.product(linear, x);
        match &layer.queries_keys_values {
            QueriesKeysValues::Three(three) => {
                let [q, k, v] = &**three;
                Ok([product(q, x)?, product(k, x)?, product(v, x)?])
            }
            QueriesKeysValues::One(all) => {
                let all = product(all, x)?;
                let part = |first: usize, count: usize| self.context.run1(&SliceColumns { first, count }, &[&all]);
                Ok([part(0, q_dim)?, part(q_dim, kv_dim)?, part(q_dim + kv_dim, kv_dim)?])
            }
        }
    }
}
