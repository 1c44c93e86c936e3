//! The sizes of multi-head latent attention (`model/latent.rs`), read from a model's metadata and checked.

use super::keys::{Keys, MAX_HEAD_DIM};
use super::tensor_sizes::MAX_WIDTH;
use crate::error::{Error, Result};
use crate::tensor::ops::HeadProducts;

/// The sizes of attention over latents (`model/latent.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// The numbers by way of which queries are made; `None` if they come from one product.
    pub query_rank: Option<usize>,
    /// The length of a latent.
    pub rank: usize,
    /// The numbers of a query, and of a position's key, that rope turns.
    pub turned: usize,
    /// The numbers of a query, and of a head's key, that it does not.
    pub plain: usize,
    /// The length of a head's value.
    pub value: usize,
}

impl Latent {
    /// The length of a head's query and key.
    pub fn key(&self) -> usize {
        self.plain + self.turned
    }

    /// The numbers that a layer keeps of a token: the part of its key that rope turned, then the latent.
    pub fn row(&self) -> usize {
        self.turned + self.rank
    }
}

/// The sizes of attention over latents, if the architecture has it.
pub(super) fn latent(keys: &Keys, n_embd: usize, n_heads: usize) -> Result<Option<Latent>> {
    if !keys.arch.has_latents {
        return Ok(None);
    }
    let rank = keys.dim("attention.kv_lora_rank", MAX_WIDTH)?;
    let turned = keys.dim("rope.dimension_count", MAX_HEAD_DIM)?;
    // In new files the keys without an ending are of the latents.
    let length = |key: &str| match keys.dim_or_zero(&format!("{key}_mla"), MAX_HEAD_DIM)?.filter(|length| *length > 0) {
        Some(length) => Ok::<_, Error>(Some(length)),
        None => keys.dim_or_zero(key, MAX_HEAD_DIM),
    };
    let Some(key) = length("attention.key_length")? else { return Err(keys.missing("attention.key_length")) };
    let value = length("attention.value_length")?.unwrap_or(n_embd / n_heads);
    let plain = key.saturating_sub(turned);
    let fits = turned.is_multiple_of(2) && rank.is_multiple_of(2) && plain > 0 && value > 0;
    if !fits || rank.max(plain) > HeadProducts::MAX_COLUMNS {
        bail!(
            UnsupportedArchitecture,
            "attention over latents of {rank} numbers ({}), with keys of {key} ({}), of which rope turns {turned} ({}), and values of \
             {value} ({}); supported are latents of an even length, and rope on an even part of the key that leaves some of it, each up to \
             {} numbers",
            keys.name("attention.kv_lora_rank"),
            keys.name("attention.key_length"),
            keys.name("rope.dimension_count"),
            keys.name("attention.value_length"),
            HeadProducts::MAX_COLUMNS
        );
    }
    let query_rank = keys.dim_or_zero("attention.q_lora_rank", MAX_WIDTH)?.filter(|rank| *rank > 0);
    Ok(Some(Latent { query_rank, rank, turned, plain, value }))
}

/// The factor of the scores: YaRN multiplies queries and keys besides, and llama.cpp's files have a tenth of its weight. Folders have the factor
/// itself (`hugging_face/rope.rs`).
pub(super) fn attention_scale(keys: &Keys, latent: &Latent) -> Result<f32> {
    const TENTH: &str = "rope.scaling.yarn_log_multiplier";
    if let Some(scale) = keys.positive_or_none("attention.scale")? {
        return Ok(scale);
    }
    let plain = 1.0 / (latent.key() as f32).sqrt();
    if keys.metadata.optional_str(&keys.name("rope.scaling.type"))? != Some("yarn") {
        return Ok(plain);
    }
    let Some(tenth) = keys.positive_or_none(TENTH)? else {
        bail!(
            UnsupportedArchitecture,
            "rope is stretched by YaRN, and the metadata has no {:?}: what attention is scaled by is not known",
            keys.name(TENTH)
        )
    };
    let factor = keys.positive_or_none("rope.scaling.factor")?.unwrap_or(1.0);
    Ok((1.0 + tenth * factor.max(1.0).ln()).powi(2) * plain)
}
