//! Attention over keys and values.

use super::elementwise::Scalar;
use crate::array::dtype::{DType, promote};
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::ops;

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
    pub fn flash_attention(&self, k: &Array, v: &Array, options: Attention) -> Result<Array> {
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
