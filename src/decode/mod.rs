//! The decode loop: sequences, what they propose, what is submitted, and which results are accepted.
//!
//! This layer knows a model and its caches, tokens and samplers. It knows no text, no request and no file.

mod accept;
mod adapters;
mod batch;
mod cancel;
pub mod conflicts;
pub mod constraint;
mod decoder;
mod draft_model;
mod flight;
mod grammar;
mod known_masks;
mod mask_automaton;
mod methods;
mod prefill;
mod prefill_pace;
mod prefix_tree;
mod prepare;
mod pressure;
mod prompt_cache;
mod proposal;
mod reading;
mod recorded_step;
mod relief;
mod room;
mod run_ahead;
mod saved_sequence;
mod scheduler;
mod sequence;
mod slot;
mod slots;
mod submit;
#[cfg(test)]
mod tests;
mod verification;
mod wishes;

pub use adapters::AdapterSet;
pub use batch::MAX_SEQUENCES;
pub use cancel::Canceller;
pub use decoder::{Decoder, SequenceHandle};
pub use draft_model::DraftModel;
pub use grammar::{GrammarCursor, GrammarState};
pub use known_masks::KnownMasks;
pub use methods::{Grammar, Methods, Speculation};
pub use prefill::{Prefilled, Prompt};
pub use pressure::{MemoryPressure, PressureAction, PressureListener};
pub use proposal::lookup::{MAX_NGRAM, PromptLookup};
pub use proposal::processor::LogitsProcessor;
pub use relief::Patience;
pub use scheduler::Tokens;
pub use sequence::{ContextShift, SequenceCounts, SequenceParams};
pub use slot::{ContextShifts, PrefillResult};
pub use verification::MAX_DRAFT;
