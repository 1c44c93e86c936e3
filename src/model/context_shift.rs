//! Makes room in a full context: the first tokens stay, the oldest of the others are dropped, and the rest moves up (StreamingLLM, Xiao
//! et al. 2023; llama.cpp's context shift). Rope turns keys back as far as they move, so that attention finds them at their new positions.
//! Values stay as they were computed.

use super::Transformer;
use super::arch::RopeKind;
use super::state::{KeyRope, LayerStates, SequenceState, Shift};
use crate::error::Result;

impl Transformer {
    /// Refuses models with learned positions, which are in everything that a layer computes from a token and can't be removed, and models
    /// whose keys can't be turned back.
    pub fn check_shift(&self) -> Result<()> {
        let config = self.config();
        if self.has_learned_positions() {
            bail!(
                InvalidRequest,
                "context_shift: the positions of {} are learned, so that tokens in its context can't be moved; leave \
                 context_shift out",
                config.arch.name
            );
        }
        if config.arch.norms_heads_after_rope {
            bail!(
                InvalidRequest,
                "context_shift: {} norms its keys after rope, so that they can't be turned back to other positions; leave context_shift out",
                config.arch.name
            );
        }
        if config.layers.iter().any(|layer| layer.recurrent.is_some()) {
            bail!(
                InvalidRequest,
                "context_shift: the recurrent layers of {} have seen the tokens that would be dropped, and can't forget them; leave \
                 context_shift out",
                config.arch.name
            );
        }
        if let Some(layer) = config.layers_with_kv().find(|layer| !layer.head_dim.is_multiple_of(2)) {
            bail!(InvalidRequest, "context_shift: heads of {} numbers, wanted an even number", layer.head_dim);
        }
        Ok(())
    }

    /// Drops positions of a sequence and turns the later keys back as far as they move.
    pub fn shift(&self, states: &LayerStates, shift: Shift) -> Result<()> {
        self.check_shift()?;
        let config = self.config();
        states.shift(self.context(), shift, &|index| {
            let Some(layer) = config.layers_with_cache().nth(index) else {
                bail!(Internal, "the model has no layer {index}")
            };
            // The fused ops store each pair that rope rotates side by side.
            let interleaved =
                self.is_fused() || layer.rope.is_some_and(|rope| config.ropes[rope].kind == RopeKind::Interleaved);
            let rope = layer.rope.map(|rope| self.rope(rope)).transpose()?;
            Ok(KeyRope { frequencies: rope.map(|rope| rope.frequencies.clone()), interleaved })
        })
    }
}
