//! The first half of an encoder-decoder: the encoder reads a text once, and each layer of the decoder keeps the keys and values that its
//! cross-attention makes of the result.

use super::encoder::EncoderText;
use super::state::LayerStates;
use super::transformer::Transformer;
use crate::error::Result;
use crate::tensor::HostTensor;
use crate::tensor::ops::{Epilogue, KvAppend, MatMul};

impl Transformer {
    /// Whether what it writes depends on a text that an encoder reads.
    pub fn has_encoder(&self) -> bool {
        self.encoder().is_some()
    }

    /// Records the encoder's pass over `ids`, at least one and no more than the states have room for, and writes the keys and values of
    /// all layers. `SourceStates::set_length` says how many there are.
    pub fn encode(&self, ids: &[u32], states: &LayerStates) -> Result<()> {
        let (context, config) = (self.context(), self.config());
        let Some(encoder) = self.encoder() else { bail!(Internal, "{} has no encoder", config.arch.name) };
        let x = encoder.states(&[EncoderText { ids, types: &[] }])?; // [ids, n_embd of the encoder]
        let start = context.tensor(&HostTensor::u32(&[4], &[0; 4]))?;
        for cross in self.cross_attentions() {
            let product = &MatMul { epilogue: Epilogue::NONE };
            let k = cross.key.run(context, product, &[&x])?;
            let v = cross.value.run(context, product, &[&x])?;
            let (k_cache, v_cache, _) = states.source()?.layer(cross.state);
            context.run(&KvAppend { head_dim: cross.head_dim }, &[&k, &v, k_cache, v_cache, &start])?;
        }
        Ok(())
    }
}
