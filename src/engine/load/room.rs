//! How long a context there is room for. A context that the caller named is taken or refused; the default gives way.

use super::info::Warning;
use super::options::LoadOptions;
use crate::decode::{MemoryPressure, PressureAction};
use crate::error::{Code, Error};
use crate::tensor::Device;

/// A shorter context than this is not taken by itself: it would hold hardly more than a question.
const LEAST_CONTEXT: usize = 512;

/// The context to try after one of `capacity` tokens found no room.
pub(super) fn shorter(capacity: usize, error: &Error, options: &LoadOptions) -> Option<usize> {
    let gives_way = options.context_length.is_none() && error.code() == Code::OutOfMemory;
    (gives_way && capacity > LEAST_CONTEXT).then(|| (capacity / 2).max(LEAST_CONTEXT))
}

/// Tells that a context of `taken` tokens was taken in place of `wanted`.
pub(super) fn tell(
    device: &Device,
    (wanted, taken): (usize, usize),
    needed_bytes: u64,
    options: &LoadOptions,
) -> Warning {
    let message = format!(
        "{} has no room for a context of {wanted} tokens beside the weights, so it is {taken} tokens long; name a contextLength, store the \
         KV cache in fewer bytes (kvCache: \"q8_0\"), load with fewer maxSequences, or use a smaller model",
        device.place()
    );
    options.on_memory_pressure.tell(&MemoryPressure {
        action: PressureAction::ShorterContext,
        needed_bytes,
        freed_bytes: 0,
        held_bytes: device.holdings().live_bytes,
        message: message.clone(),
    });
    Warning { code: "shorter_context", message }
}
