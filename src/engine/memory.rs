//! Whose the bytes on the GPU are.

use std::fmt;

use serde::Serialize;

use crate::error::{Code, Error};
use crate::tensor::{Device, Holdings};

/// Bytes on the GPU, by what they are for. All but `total`, `peak` and the last two add up to `total`, which is what the device counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MemoryUse {
    /// The weights of the model, and of the draft model.
    pub weights: u64,
    /// Adapters (LoRA).
    pub adapters: u64,
    /// Keys and values of all sequences.
    pub kv_cache: u64,
    /// States of recurrent layers.
    pub recurrent_state: u64,
    /// Copies of them, from which earlier beginnings of a text go on.
    pub recurrent_checkpoints: u64,
    /// Texts that no request runs on any more.
    pub prompt_cache: u64,
    /// Tensors of recorded steps.
    pub arenas: u64,
    /// What waits for reuse.
    pub pools: u64,
    /// All else in use: what a prompt's pass needs, samplers, uniforms.
    pub other: u64,
    /// All of them.
    pub total: u64,
    /// The most that `total` has been since the load or the last `resetStats`.
    pub peak: u64,
    /// Bytes that were written and that the GPU is not known to have read. A browser keeps copies of them until then.
    pub unfinished_writes: u64,
    /// The most of them at one time since the load began.
    pub peak_unfinished_writes: u64,
}

/// What a model was given when it was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lasting {
    pub weights: u64,
    pub adapters: u64,
    pub kv_cache: u64,
    pub recurrent_state: u64,
    pub recurrent_checkpoints: u64,
}

impl MemoryUse {
    pub(super) fn of(device: &Device, lasting: Lasting, prompt_cache: u64) -> Self {
        let Holdings {
            live_bytes: total,
            peak_bytes: peak,
            arena_bytes: arenas,
            waiting_bytes: pools,
            unfinished_write_bytes: unfinished_writes,
            peak_unfinished_write_bytes: peak_unfinished_writes,
        } = device.holdings();
        let Lasting { weights, adapters, kv_cache, recurrent_state, recurrent_checkpoints } = lasting;
        let known =
            weights + adapters + kv_cache + recurrent_state + recurrent_checkpoints + prompt_cache + arenas + pools;
        let other = total.saturating_sub(known);
        Self {
            weights,
            adapters,
            kv_cache,
            recurrent_state,
            recurrent_checkpoints,
            prompt_cache,
            arenas,
            pools,
            other,
            total,
            peak,
            unfinished_writes,
            peak_unfinished_writes,
        }
    }

    /// The error with what is held, if memory has run out.
    pub(super) fn explain(&self, error: Error) -> Error {
        if error.code() != Code::OutOfMemory || error.message().contains(HELD) {
            return error;
        }
        Error::new(error.code(), format!("{}; {HELD} {self}", error.message()))
    }
}

/// What begins the list of what is held.
const HELD: &str = "this engine holds";

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB", self.total as f64 / 1e6)?;
        let parts = [
            ("weights", self.weights),
            ("adapters", self.adapters),
            ("KV cache", self.kv_cache),
            ("recurrent states", self.recurrent_state),
            ("checkpoints of them", self.recurrent_checkpoints),
            ("prompt cache", self.prompt_cache),
            ("arenas", self.arenas),
            ("pools", self.pools),
            ("other", self.other),
        ];
        let mut separator = ": ";
        for (name, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, "{separator}{name} {:.1}", bytes as f64 / 1e6)?;
            separator = ", ";
        }
        Ok(())
    }
}
