//! The metadata keys of one architecture that tell what each layer has.

use super::arch::{LayerKind, LayerParts, LayerPattern};
use super::gguf::{Array, Value};
use super::keys::Keys;
use crate::error::Result;

impl Keys<'_> {
    /// The layers without those that predict further tokens, which llama.cpp's files count too.
    pub fn layers(&self, max: usize) -> Result<usize> {
        // llama.cpp's key for a decoder that has another number of layers than its encoder.
        let of_decoder =
            if self.arch.encoder.is_some() { self.optional_dim("decoder_block_count", max)? } else { None };
        let all = of_decoder.map_or_else(|| self.dim("block_count", max), Ok)?;
        let further = self.further_layers(max)?;
        if further >= all {
            bail!(InvalidMetadata, "{} is {further} of {all} layers", self.name("nextn_predict_layers"));
        }
        Ok(all - further)
    }

    /// How many of a file's last layers predict further tokens.
    pub fn further_layers(&self, max: usize) -> Result<usize> {
        Ok(self.dim_or_zero("nextn_predict_layers", max)?.unwrap_or(0))
    }

    pub fn dim_of_all_layers(&self, key: &str, n_layers: usize, max: usize) -> Result<Option<usize>> {
        let value = self.metadata.optional_u32_of_all_layers(&self.name(key), n_layers as u32)?;
        value.map(|value| self.in_range(key, value, 1, max)).transpose()
    }

    /// The same of the layers that have it, where the architecture has others: these have 0.
    pub fn dim_of_some_layers(&self, key: &str, n_layers: usize, max: usize) -> Result<Option<usize>> {
        if !self.has_zeros_in_layers() {
            return self.dim_of_all_layers(key, n_layers, max);
        }
        let mut some = self
            .metadata
            .optional_u32_of_each_layer(&self.name(key), n_layers as u32)?
            .unwrap_or_default()
            .into_iter()
            .filter(|value| *value > 0);
        let Some(first) = some.next() else { return Ok(None) };
        if let Some(other) = some.find(|value| *value != first) {
            bail!(
                UnsupportedArchitecture,
                "{} is {first} for one layer and {other} for another; layers of different shapes are not supported",
                self.name(key)
            );
        }
        self.in_range(key, first, 1, max).map(Some)
    }

    /// The same for each layer, where layers may differ. Where the architecture has layers without it, they have 0.
    pub fn dim_of_each_layer(&self, key: &str, n_layers: usize, max: usize) -> Result<Option<Vec<usize>>> {
        let least = if self.has_zeros_in_layers() { 0 } else { 1 };
        let in_range = |value: u32| self.in_range(key, value, least, max);
        let values = self.metadata.optional_u32_of_each_layer(&self.name(key), n_layers as u32)?;
        values.map(|values| values.into_iter().map(in_range).collect()).transpose()
    }

    /// Whether a length of 0 tells that a layer has no such part.
    fn has_zeros_in_layers(&self) -> bool {
        match self.arch.layers {
            LayerPattern::Attention | LayerPattern::Interval | LayerPattern::Both => false,
            LayerPattern::ByHeads | LayerPattern::OnePart | LayerPattern::Recurrent => true,
        }
    }

    /// Which layers have a window, if the metadata says so. It has an array, or a number n: then every n-th layer has none.
    pub fn windowed_layers(&self, n_layers: usize) -> Result<Option<Vec<bool>>> {
        let name = self.name("attention.sliding_window_pattern");
        match self.metadata.get(&name) {
            None => Ok(None),
            Some(Value::Array(Array::Bool(layers))) if layers.len() >= n_layers => {
                Ok(Some(layers.iter().take(n_layers).copied().collect()))
            }
            Some(Value::Array(_)) => {
                bail!(InvalidMetadata, "{name} is no array of a truth value for each of {n_layers} layers")
            }
            Some(_) => {
                let pattern = self.arch.window.with(self.metadata.u32(&name)? as usize);
                Ok(Some((0..n_layers).map(|layer| pattern.is_windowed(layer)).collect()))
            }
        }
    }

    /// What each layer has.
    pub fn layer_parts(&self, n_layers: usize) -> Result<Vec<LayerParts>> {
        let pattern = self.arch.layers;
        let all = LayerParts { attention: true, recurrent: true, feed_forward: true };
        // Beside attention or a recurrence there is a feed-forward, unless a layer has one part alone.
        let feed_forward = pattern != LayerPattern::OnePart;
        let of_kind = |kind| match kind {
            LayerKind::Attention => LayerParts { recurrent: false, feed_forward, ..all },
            LayerKind::Recurrent => LayerParts { attention: false, feed_forward, ..all },
            LayerKind::FeedForward => LayerParts { attention: false, recurrent: false, ..all },
        };
        let kinds = match (pattern, self.layer_kinds(n_layers)?) {
            (LayerPattern::Attention, _) => vec![LayerKind::Attention; n_layers],
            (LayerPattern::Both, _) => return Ok(vec![all; n_layers]),
            (LayerPattern::Recurrent, _) => {
                return Ok(vec![LayerParts { attention: false, feed_forward: false, ..all }; n_layers]);
            }
            (_, Some(kinds)) => kinds,
            (LayerPattern::Interval, None) => {
                let every = self.optional_dim("full_attention_interval", n_layers.max(4))?.unwrap_or(4);
                let has_attention = |layer: usize| (layer + 1).is_multiple_of(every);
                let kind = |layer| if has_attention(layer) { LayerKind::Attention } else { LayerKind::Recurrent };
                (0..n_layers).map(kind).collect()
            }
            (LayerPattern::ByHeads | LayerPattern::OnePart, None) => {
                let of_each = |key: &str| {
                    self.metadata
                        .optional_u32_of_each_layer(&self.name(key), n_layers as u32)?
                        .ok_or_else(|| self.missing(key))
                };
                let heads = of_each("attention.head_count_kv")?;
                let lengths = if feed_forward { vec![0; n_layers] } else { of_each("feed_forward_length")? };
                let kind = |(heads, length): (u32, u32)| match (heads, length) {
                    (0, 0) => LayerKind::Recurrent,
                    (0, _) => LayerKind::FeedForward,
                    _ => LayerKind::Attention,
                };
                heads.into_iter().zip(lengths).map(kind).collect()
            }
        };
        if !kinds.contains(&LayerKind::Attention) {
            bail!(
                UnsupportedArchitecture,
                "all {n_layers} layers of {} are recurrent; such a model without attention is not supported",
                self.arch.name
            );
        }
        Ok(kinds.into_iter().map(of_kind).collect())
    }

    /// The kind of each layer, if the metadata says it. GGUF has no such key; config.json has.
    fn layer_kinds(&self, n_layers: usize) -> Result<Option<Vec<LayerKind>>> {
        let name = self.name("layer_kinds");
        let Some(numbers) = self.metadata.optional_u32_array(&name)? else { return Ok(None) };
        let kind = |number: &u32| LayerKind::ALL.get(*number as usize).copied();
        match numbers.iter().take(n_layers).map(kind).collect::<Option<Vec<_>>>() {
            Some(kinds) if kinds.len() == n_layers => Ok(Some(kinds)),
            _ => bail!(InvalidMetadata, "{name} does not say the kind of each of {n_layers} layers"),
        }
    }

    /// Which layers have rope, if the metadata says it. GGUF has no such key; config.json has (`hugging_face/mod.rs`).
    pub fn layers_with_rope(&self, n_layers: usize) -> Result<Option<Vec<bool>>> {
        match self.metadata.optional_u32_array(&self.name("rope.layers"))? {
            Some(layers) if layers.len() < n_layers => bail!(
                InvalidMetadata,
                "of {n_layers} layers the configuration says for {} whether they have rope",
                layers.len()
            ),
            layers => Ok(layers.map(|layers| layers.into_iter().take(n_layers).map(|has| has != 0).collect())),
        }
    }
}
