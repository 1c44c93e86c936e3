//! Attention over keys and values.

use super::functions::{Compare, Scalar};
use super::reductions::Reduce;
use crate::array::dtype::{DType, promote};
use crate::array::graph::node::{Array, State};
use crate::array::layout::Layout;
use crate::error::Result;
use crate::tensor::{Shape, ops};

/// How queries attend.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Query i sees the keys up to i + kv_len − q_len, so that the last query sees all.
    pub causal: bool,
    /// Scores are multiplied with it; by default 1 / √head_dim.
    pub scale: Option<f32>,
}

impl Array {
    /// softmax(q · kᵀ · scale) · v without storing a score (FlashAttention, Dao et al. 2022). `self` is the queries [batch, q_len, heads,
    /// head_dim]; k and v are [batch, kv_len, kv_heads, head_dim], and `heads` is a multiple of `kv_heads`. The heads of v may have another
    /// number of dimensions, which is that of the result. At most 256.
    ///
    /// The gradients are computed with the scores, whose memory grows with the product of both lengths.
    pub fn flash_attention(&self, k: &Array, v: &Array, options: Attention) -> Result<Array> {
        let result = self.detached().attended(&k.detached(), &v.detached(), options)?;
        result.derived("attention", &[self, k, v], &[Some(self), Some(k), Some(v)], move |pull| {
            attention_gradients([pull.saved(0)?, pull.saved(1)?, pull.saved(2)?], &pull.gradient, options)
        })
    }

    fn attended(&self, k: &Array, v: &Array, options: Attention) -> Result<Array> {
        let dtype = [k, v].iter().map(|array| array.dtype()).fold(self.dtype(), promote);
        if !dtype.is_float() {
            bail!(DtypeMismatch, "attention: q, k and v are {}, wanted floats", dtype.name());
        }
        let ([batch, q_len, heads, head_dim], [.., v_dim]) = (self.dims(), v.dims()) else {
            bail!(ShapeMismatch, "attention: q is {}, wanted [batch, q_len, heads, head_dim]", self.shape())
        };
        let dims = [*batch, *q_len, *heads, *v_dim];
        if self.elements() == 0 || k.elements() == 0 || v.elements() == 0 {
            // Queries without keys see nothing.
            return self.library().constant(&dims, dtype, 0);
        }
        let scale = options.scale.unwrap_or(1.0 / (*head_dim as f32).sqrt());
        let op = ops::FlashAttention { causal: options.causal, scale };
        // Zeros add nothing to a score, and are cut off the result.
        let widest = *head_dim.max(v_dim) as i64;
        let wide = |array: &Array| {
            let missing = array.dims().last().map_or(0, |own| widest - *own as i64);
            let padded = if missing > 0 { array.pad(&[0, missing], Scalar::Int(0))? } else { array.clone() };
            padded.cast(DType::F32)?.wide(padded.dims())
        };
        let out = self.library().context().run1(&op, &[&wide(self)?, &wide(k)?, &wide(v)?])?;
        let out = self.narrowed(&out, &[*batch, *q_len, *heads, widest as usize], dtype)?;
        out.slice(-1, None, Some(*v_dim as i64), 1)
    }
}

/// The gradients of queries, keys and values: with P = softmax(S), S = q · kᵀ · scale, of v it is Pᵀ · g, of P it is g · vᵀ, and of S it is
/// P · (of P − Σ P · of P).
fn attention_gradients([q, k, v]: [&Array; 3], gradient: &Array, options: Attention) -> Result<Vec<Option<Array>>> {
    let ([batch, q_len, heads, head_dim], [_, kv_len, kv_heads, _]) = (q.dims(), k.dims()) else {
        bail!(Internal, "the shapes of attention were checked")
    };
    let (batch, q_len, heads, kv_len, kv_heads) = (*batch, *q_len, *heads, *kv_len, *kv_heads);
    let scale = f64::from(options.scale.unwrap_or(1.0 / (*head_dim as f32).sqrt()));
    if gradient.elements() == 0 || q.elements() == 0 || k.elements() == 0 || v.elements() == 0 {
        return [q, k, v].iter().map(|array| array.zeros(array.dims()).map(Some)).collect();
    }
    // [batch, kv_heads, queries' heads of one, length, dim]
    let split = |array: &Array, length: usize| {
        let dim = array.dims()[3];
        array.viewed(Shape::from([batch, length, kv_heads, array.dims()[2] / kv_heads, dim]))?.permute(&[0, 2, 3, 1, 4])
    };
    let joined = |array: &Array| {
        let [_, _, _, length, dim] = array.dims() else { bail!(Internal, "a split array has five dimensions") };
        let (length, dim) = (*length, *dim);
        array.permute(&[0, 3, 1, 2, 4])?.viewed(Shape::from([batch, length, array.dims()[1] * array.dims()[2], dim]))
    };
    let (q, gradient) = (split(q, q_len)?, split(gradient, q_len)?);
    let (k, v) = (split(k, kv_len)?, split(v, kv_len)?);
    let scores = q.matmul(&k.transpose(-2, -1)?)?.scaled(scale)?;
    let seen = if options.causal {
        // Key less query.
        let matrix = Shape::from([q_len, kv_len]);
        let places = State::Places(Layout::strided(matrix, &[-1, 1], 0));
        let places = Array::new(q.library(), matrix, DType::I32, places);
        Some(places.compare_scalar(Compare::LowerEqual, Scalar::Int(kv_len as i64 - q_len as i64))?)
    } else {
        None
    };
    let weights = match &seen {
        Some(seen) => {
            let hidden = q.library().full(&[], DType::F32, Scalar::Float(f64::NEG_INFINITY))?;
            // A query that sees nothing has no weights.
            seen.choose(&scores, &hidden)?.softmax(-1, false)?.kept_where(seen)?
        }
        None => scores.softmax(-1, false)?,
    };
    let of_v = weights.transpose(-2, -1)?.matmul(&gradient)?;
    let of_weights = gradient.matmul(&v.transpose(-2, -1)?)?;
    let mean = weights.times(&of_weights)?.over_dims(Reduce::Sum, &[-1])?;
    let of_scores = weights.times(&of_weights.minus(&mean)?)?.scaled(scale)?;
    let of_q = joined(&of_scores.matmul(&k)?)?;
    let over_heads = |array: Array| if heads == kv_heads { Ok(array) } else { array.over_dims(Reduce::Sum, &[2]) };
    let of_k = joined(&over_heads(of_scores.transpose(-2, -1)?.matmul(&q)?)?)?;
    Ok(vec![Some(of_q), Some(of_k), Some(joined(&over_heads(of_v)?)?)])
}
