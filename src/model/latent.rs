//! Multi-head latent attention, MLA (DeepSeek-AI 2024, "DeepSeek-V2"): its weights and its steps. Of a token the cache keeps a latent, from
//! which keys and values of all heads would follow, and a part of the key that rope turned.
//!
//! The matrices that would make keys and values are applied to the queries, and to the sums over latents: nothing is ever expanded.

use super::Weights;
use super::arch::RopeKind;
use super::config::Config;
use super::latent_config::Latent;
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::Norm;
use super::rope::RopeTensor;
use super::state::LayerStates;
use crate::error::Result;
use crate::tensor::ops::{self, HeadProducts, LatentAppend, RowNorm};
use crate::tensor::{Context, Desc, Op, Tensor};

/// ε of the norms of latents. No configuration has it: it is the default of transformers' norms.
const EPSILON: f32 = 1e-6;

/// The weights of a layer's attention.
pub(super) struct LatentAttention {
    /// The number of its layer.
    index: usize,
    /// Which latents it has, among those that layers keep.
    state: usize,
    /// Queries are made by way of fewer numbers, which are normed.
    query_down: Option<(Linear, Norm)>,
    /// The product that makes them, [heads · (plain + turned), n_embd or those numbers].
    query: Linear,
    /// A latent, then the part of the key for rope: [rank + turned, n_embd].
    compress: Linear,
    norm: Tensor, // [rank]
    keys: HeadMatrices,
    values: HeadMatrices,
    pub output: Linear, // [n_embd, n_heads · value]
}

/// A matrix of each head, stacked.
struct HeadMatrices {
    stack: Matrix,
    transposed: bool,
}

/// What a pass runs with.
pub(super) struct LatentPass<'a> {
    pub context: &'a Context,
    pub config: &'a Config,
    pub rope: &'a RopeTensor,
    pub states: &'a LayerStates,
    pub state: &'a Tensor,
    /// The op for products with matrices.
    pub product: &'static dyn Op,
}

impl LatentAttention {
    /// That of a layer, if the model has such.
    pub fn of(config: &Config, weights: &Weights, index: usize) -> Result<Option<Self>> {
        let Some(state) = config.layers[index].attention.filter(|_| config.latent.is_some()) else { return Ok(None) };
        let name = |stem: &str| format!("blk.{index}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let (query_down, query) = match weights.optional_matrix(&name("attn_q_a.weight")) {
            None => (None, linear("attn_q")?),
            Some(_) => {
                let mut norm = Norm::of(config, weights, &name("attn_q_a_norm"));
                norm.kind = RowNorm::Rms { epsilon: EPSILON };
                (Some((linear("attn_q_a")?, norm)), linear("attn_q_b")?)
            }
        };
        let norm = name("attn_kv_a_norm.weight");
        let Some(norm) = weights.optional(&norm).cloned() else {
            bail!(MissingTensor, "the model has no vector {norm:?}")
        };
        let keys = match weights.optional_matrix(&name("attn_k_up.weight")) {
            Some(stack) => HeadMatrices { stack, transposed: true },
            None => HeadMatrices { stack: weights.matrix(&name("attn_k_b.weight"))?, transposed: false },
        };
        Ok(Some(Self {
            index,
            state,
            query_down,
            query,
            compress: linear("attn_kv_a_mqa")?,
            norm,
            keys,
            values: HeadMatrices { stack: weights.matrix(&name("attn_v_b.weight"))?, transposed: false },
            output: linear("attn_output")?,
        }))
    }

    /// From the normed tokens `h` [n, n_embd], the heads' sums over values [n, n_heads · value]. The state tells the first token's position.
    pub fn run(&self, pass: &LatentPass<'_>, h: &Tensor) -> Result<Tensor> {
        let LatentPass { context, config, rope, states, state, product } = *pass;
        let Some(Latent { rank, turned, plain, value, .. }) = config.latent else {
            bail!(Internal, "a layer has latents and the model none")
        };
        let heads = config.n_heads;
        let run = |linear: &Linear, x: &Tensor| linear.run(context, product, &[x]);
        let q = match &self.query_down {
            None => run(&self.query, h)?,
            Some((down, norm)) => run(&self.query, &norm.run(context, &run(down, h)?)?)?,
        }; // [n, heads · (plain + turned)]
        let kv = run(&self.compress, h)?; // [n, rank + turned]
        let n = h.shape().dims()[0];
        let queries = context.empty(Desc::f32(&[n, heads * (turned + rank)]), "latent_queries")?;
        let of_keys = HeadProducts {
            heads,
            first_head: 0,
            columns: plain,
            rows: rank,
            out_first: turned,
            transposed: self.keys.transposed,
        };
        self.keys.multiply(context, of_keys, &q, &queries)?;
        let Some(cache) = states.latents().layer(self.state) else {
            bail!(Internal, "the states have no latents of layer {}", self.index)
        };
        let interleaved = config.ropes.first().is_some_and(|rope| rope.kind == RopeKind::Interleaved);
        let append = LatentAppend { rank, heads, interleaved, scale: rope.scale, epsilon: EPSILON };
        context.run(&append, &[&kv, &self.norm, &rope.frequencies, &q, state, cache, &queries])?;
        let window = config.layers[self.index].window;
        let attention = ops::LatentAttention { heads, rank, turned, scale: config.attention_scale, window };
        let sums = context.run1(&attention, &[&queries, cache, state])?; // [n, heads · rank]
        let values = context.empty(Desc::f32(&[n, heads * value]), "latent_values")?;
        let of_values =
            HeadProducts { heads, first_head: 0, columns: rank, rows: value, out_first: 0, transposed: false };
        self.values.multiply(context, of_values, &sums, &values)?;
        Ok(values)
    }
}

impl HeadMatrices {
    /// A part of the stack holds whole heads, and writes theirs.
    fn multiply(&self, context: &Context, op: HeadProducts, x: &Tensor, out: &Tensor) -> Result<()> {
        let of_head = if self.transposed { op.columns } else { op.rows };
        for (first_row, part) in self.stack.parts() {
            context.run(&HeadProducts { first_head: first_row / of_head, ..op }, &[x, part, out])?;
        }
        Ok(())
    }
}
