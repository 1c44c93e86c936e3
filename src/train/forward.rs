//! A dense decoder with a low-rank adapter, on arrays: from token ids to the residual stream after the last layer, and from there to logits.

use std::rc::Rc;

use super::frozen::Frozen;
use super::low_rank::LowRank;
use crate::array::{Array, Binary, Compare, DType, Library, Logical, Norm, Scalar, Unary};
use crate::error::Result;
use crate::model::{DenseDecoder, DenseLayer, DenseProduct, RmsWeight};
use crate::tensor::ops::Activation;
use crate::tensor::{HostTensor, Tensor};

/// A model and what learns beside it.
pub(super) struct Forward {
    pub library: Library,
    pub decoder: DenseDecoder,
    pub low_rank: LowRank,
    frozen: Frozen,
}

impl Forward {
    pub fn new(library: &Library, decoder: DenseDecoder, low_rank: LowRank) -> Result<Self> {
        Ok(Self { library: library.clone(), decoder, low_rank, frozen: Frozen::new(library)? })
    }

    /// The residual stream [n, n_embd] of a text of n tokens. Of each layer only the input is kept; the way back computes it again.
    pub fn hidden(self: &Rc<Self>, ids: &[u32]) -> Result<Array> {
        let tokens = self.library.context().tensor(&HostTensor::u32(&[ids.len()], ids))?;
        let mut x = self.frozen.array(&self.decoder.embed(&tokens)?)?;
        for index in 0..self.decoder.layers.len() {
            let (own, input) = (self.clone(), x.clone());
            x = self.library.checkpoint(move || own.layer(index, &input))?;
            // What computes the next layer reads it more than once.
            x.evaluate()?;
        }
        Ok(x)
    }

    /// Rows of the residual stream [rows, n_embd] → logits [rows, vocab_size].
    pub fn logits(&self, x: &Array) -> Result<Array> {
        let config = &self.decoder.config;
        let h = self.normed(self.decoder.output_norm.as_ref(), x)?;
        let mut logits = self.frozen.product(&self.decoder.output, &h)?;
        if config.logit_scale != 1.0 {
            logits = logits.scaled(f64::from(config.logit_scale))?;
        }
        capped(logits, config.logit_softcap)
    }

    fn layer(&self, index: usize, x: &Array) -> Result<Array> {
        let Some(layer) = self.decoder.layers.get(index) else { bail!(Internal, "a layer {index}") };
        let scales = self.decoder.config.residual_scales;
        let h = self.normed(layer.attention_norm.as_ref(), x)?;
        let added = self.product(&layer.attention_output, &self.attention(layer, &h)?)?;
        let x = x.plus(&scaled(self.normed(layer.post_attention_norm.as_ref(), &added)?, scales.attention)?)?;
        let h = self.normed(layer.feed_forward_norm.as_ref(), &x)?;
        let [gate, up] = &self.products(&layer.gate_up, None, &h, &[layer.config.n_ff; 2])?[..] else {
            bail!(Internal, "gate and up are two")
        };
        let added = self.product(&layer.down, &activated(self.decoder.config.activation, gate)?.times(up)?)?;
        x.plus(&scaled(self.normed(layer.post_feed_forward_norm.as_ref(), &added)?, scales.feed_forward)?)
    }

    /// The heads' sums over the values, [n, n_heads · head_dim].
    fn attention(&self, layer: &DenseLayer, h: &Array) -> Result<Array> {
        let config = &self.decoder.config;
        let (heads, kv_heads, head_dim) = (config.n_heads, layer.config.n_kv_heads, layer.config.head_dim);
        let sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim];
        let bias = layer.queries_keys_values_bias.as_ref();
        let [q, k, v] = &self.products(&layer.queries_keys_values, bias, h, &sizes)?[..] else {
            bail!(Internal, "queries, keys and values are three")
        };
        let q = self.heads(layer, q, layer.q_norm.as_ref())?;
        let k = self.heads(layer, k, layer.k_norm.as_ref())?;
        let (n, kv, dim) = (h.dims()[0] as i64, kv_heads as i64, head_dim as i64);
        // [kv_heads, query heads of one, n, head_dim]
        let q = q.reshape(&[n, kv, (heads / kv_heads) as i64, dim])?.permute(&[1, 2, 0, 3])?;
        let of_kv = |array: &Array| array.reshape(&[n, kv, 1, dim])?.permute(&[1, 2, 0, 3]);
        let scores = q.matmul(&of_kv(&k)?.transpose(-2, -1)?)?.scaled(f64::from(config.attention_scale))?;
        let scores = capped(scores, config.attention_softcap)?;
        let hidden = self.library.full(&[], DType::F32, Scalar::Float(f64::NEG_INFINITY))?;
        let weights = self.seen(n as usize, layer.config.window)?.choose(&scores, &hidden)?.softmax(-1, false)?;
        let sums = weights.matmul(&of_kv(v)?)?; // [kv_heads, query heads of one, n, head_dim]
        sums.permute(&[2, 0, 1, 3])?.reshape(&[n, (heads * head_dim) as i64])
    }

    /// Which keys each query sees, [n, n]: itself and those before it, as far as the window reaches.
    fn seen(&self, n: usize, window: Option<usize>) -> Result<Array> {
        let places = self.library.arange(0.0, n as f64, 1.0, DType::I32)?;
        let (queries, keys) = (places.unsqueeze(1)?, places.unsqueeze(0)?);
        let seen = keys.compare(Compare::LowerEqual, &queries)?;
        match window {
            Some(window) if window < n => {
                let distance = queries.minus(&keys)?;
                let is_near = distance.compare_scalar(Compare::Lower, Scalar::Int(window as i64))?;
                seen.logical(Logical::And, &is_near)
            }
            _ => Ok(seen),
        }
    }

    /// Queries or keys, [n, heads · head_dim], normed head by head and turned.
    fn heads(&self, layer: &DenseLayer, x: &Array, norm: Option<&RmsWeight>) -> Result<Array> {
        let (dims, head_dim) = ([x.dims()[0] as i64, x.dims()[1] as i64], layer.config.head_dim);
        let x = match norm {
            Some(_) => self.normed(norm, &x.reshape(&[dims[0], -1, head_dim as i64])?)?.reshape(&dims)?,
            None => x.clone(),
        };
        match &layer.rope {
            Some(rope) => self.frozen.rope(rope, head_dim, &x),
            None => Ok(x),
        }
    }

    fn normed(&self, norm: Option<&RmsWeight>, x: &Array) -> Result<Array> {
        match norm {
            Some(RmsWeight { epsilon, weight }) => {
                x.norm(Norm::Rms, 1, Some(&self.frozen.array(weight)?), None, *epsilon)
            }
            None => Ok(x.clone()),
        }
    }

    /// The products of one input with matrices whose rows are, one below the other, parts of these sizes.
    fn products(&self, of: &[DenseProduct], bias: Option<&Tensor>, x: &Array, sizes: &[usize]) -> Result<Vec<Array>> {
        let products = of.iter().map(|product| self.product(product, x)).collect::<Result<Vec<Array>>>()?;
        if bias.is_none() && products.iter().map(|product| product.dims()[1]).eq(sizes.iter().copied()) {
            return Ok(products);
        }
        let joined = match &products[..] {
            [only] => only.clone(),
            products => Array::cat(products, 1)?,
        };
        let joined = match bias {
            Some(bias) => joined.plus(&self.frozen.array(bias)?)?,
            None => joined,
        };
        joined.split(sizes, 1)
    }

    fn product(&self, DenseProduct { matrix, bias }: &DenseProduct, x: &Array) -> Result<Array> {
        let y = self.frozen.product(matrix, x)?;
        let y = match bias {
            Some(bias) => y.plus(&self.frozen.array(bias)?)?,
            None => y,
        };
        self.low_rank.added(matrix, x, y)
    }
}

fn scaled(x: Array, factor: f32) -> Result<Array> {
    if factor == 1.0 { Ok(x) } else { x.scaled(f64::from(factor)) }
}

/// cap · tanh(x / cap).
fn capped(x: Array, cap: Option<f32>) -> Result<Array> {
    match cap.map(f64::from) {
        Some(cap) => x.scaled(1.0 / cap)?.unary(Unary::Tanh)?.scaled(cap),
        None => Ok(x),
    }
}

fn activated(activation: Activation, x: &Array) -> Result<Array> {
    match activation {
        Activation::Silu => x.unary(Unary::Silu),
        Activation::GeluTanh => x.unary(Unary::GeluTanh),
        Activation::Gelu => x.unary(Unary::Gelu),
        Activation::Relu => x.unary(Unary::Relu),
        Activation::ReluSquared => {
            let positive = x.unary(Unary::Relu)?;
            positive.binary(Binary::Mul, &positive)
        }
        Activation::ScaledSilu(factor) => x.scaled(f64::from(factor))?.unary(Unary::Silu),
    }
}
