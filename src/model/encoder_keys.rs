//! The metadata keys of encoder-decoders: how a decoder begins, distances that are learned, and what configurations leave open.

use super::buckets::Distances;
use super::keys::Keys;
use crate::error::Result;
use crate::tensor::ops::Activation;

/// From this distance on all fall into one bucket, if the metadata does not say another.
const FARTHEST: usize = 128;

/// A file with farther distances, or more buckets, is broken rather than large.
const MAX_DISTANCE: usize = 1 << 12;

impl Keys<'_> {
    /// The buckets of distances for which something is learned; the table has this number of rows.
    pub fn distances(&self, rows: usize) -> Result<Distances> {
        let buckets = self.optional_dim("attention.relative_buckets_count", MAX_DISTANCE)?.unwrap_or(rows);
        // GGUF has no such key; config.json has.
        let farthest = self.optional_dim("attention.relative_max_distance", MAX_DISTANCE)?;
        let distances = Distances { buckets, farthest: farthest.unwrap_or(FARTHEST) };
        let exact = distances.exact(self.arch.is_encoder);
        if exact == 0 || distances.farthest <= exact {
            bail!(
                InvalidMetadata,
                "{} is {buckets} for distances up to {}, wanted 4 or more and longer distances than a half of them",
                self.name("attention.relative_buckets_count"),
                distances.farthest
            );
        }
        Ok(distances)
    }

    /// Whether the feed-forward has a gate; `has_tensor`: there is a tensor of one.
    pub fn is_gated(&self, has_tensor: bool) -> Result<bool> {
        if self.arch.ungated.is_none() {
            return Ok(true);
        }
        // GGUF has no such key; config.json has.
        Ok(self.metadata.optional_bool(&self.name("feed_forward_gated"))?.unwrap_or(has_tensor))
    }

    /// The function of the feed-forward, if it may be another than the architecture's. GGUF has no such key; config.json has.
    pub fn named_activation(&self) -> Result<Option<Activation>> {
        const KEY: &str = "activation_function";
        let activation = match self.metadata.optional_str(&self.name(KEY))? {
            None => return Ok(None),
            Some("gelu") => Activation::Gelu,
            Some("relu") => Activation::Relu,
            Some("silu" | "swish") => Activation::Silu,
            Some(other) => {
                bail!(UnsupportedArchitecture, "{} is {other:?}, wanted \"gelu\", \"relu\" or \"silu\"", self.name(KEY))
            }
        };
        Ok(Some(activation))
    }

    /// Whether logits are divided by √n_embd.
    pub fn scales_tied_logits(&self, is_tied: bool) -> Result<bool> {
        if !self.arch.scales_tied_logits {
            return Ok(false);
        }
        // GGUF has no such key; config.json has.
        Ok(self.metadata.optional_bool(&self.name("scale_outputs"))?.unwrap_or(is_tied))
    }

    /// The token with which a decoder begins that has an encoder.
    pub fn decoder_start(&self, vocab_size: usize) -> Result<Option<u32>> {
        const KEY: &str = "decoder_start_token_id";
        if self.arch.encoder.is_none() {
            return Ok(None);
        }
        let start = self.metadata.optional_u32(&self.name(KEY))?.ok_or_else(|| self.missing(KEY))?;
        if start as usize >= vocab_size {
            bail!(InvalidMetadata, "{} is {start}, wanted a token below {vocab_size}", self.name(KEY));
        }
        Ok(Some(start))
    }
}
