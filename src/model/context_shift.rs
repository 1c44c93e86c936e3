//! Makes room in a context that is full: its first tokens stay, of the rest the older ones go, and the others move up (StreamingLLM,
//! Xiao et al. 2023; llama.cpp's context shift). Their keys are turned back by rope as far as they move, so that attention finds them
//! where they stand now; what they say, and values, stay as they were computed.

use super::arch::RopeKind;
use super::{KvCache, Transformer};
use crate::error::Result;
use crate::tensor::ops::KvShift;

impl Transformer {
    /// Refuses what can't be: positions that are learned are in all that a layer makes of a token, and not to be taken out of it.
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
        if !config.head_dim.is_multiple_of(2) {
            bail!(InvalidRequest, "context_shift: heads of {} numbers, wanted an even number", config.head_dim);
        }
        Ok(())
    }

    /// Of the first `length` positions of a cache, those from `sinks` on drop the first `dropped`: what stands behind moves up.
    pub fn shift(&self, cache: &KvCache, sinks: usize, dropped: usize, length: usize) -> Result<()> {
        self.check_shift()?;
        let (context, config) = (self.context(), self.config());
        if dropped == 0 || length > cache.capacity() || sinks + dropped > length {
            bail!(Internal, "a shift of {dropped} positions behind {sinks} of {length}");
        }
        for (index, layer) in config.layers.iter().enumerate() {
            let (k_cache, v_cache) = cache.layer(index);
            // The fused ops keep the numbers that rope turns together side by side.
            let interleaved =
                self.is_fused() || layer.rope.is_some_and(|rope| config.ropes[rope].kind == RopeKind::Interleaved);
            let rope = layer.rope.map(|rope| self.rope(rope)).transpose()?;
            let mut first_to = sinks;
            while first_to + dropped < length {
                // No more at once than the gap has room for: what is read is not what is written.
                let rows = dropped.min(length - dropped - first_to);
                let op =
                    KvShift { head_dim: config.head_dim, first_from: first_to + dropped, first_to, rows, interleaved };
                let mut keys = vec![k_cache];
                keys.extend(rope.map(|rope| &rope.frequencies));
                context.run(&op, &keys)?;
                context.run(&op, &[v_cache])?;
                first_to += rows;
            }
        }
        Ok(())
    }
}
