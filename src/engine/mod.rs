//! The engine: loads a model, keeps its session and generates. The only place where model and text meet.
//!
//! Knows no browser: sources of bytes, the time zone and whatever else differs are handed in.

mod api;
mod choices;
mod constrained;
pub mod constraint;
mod context_shift;
mod decoding;
#[cfg(any(test, feature = "bench"))]
pub mod dispatch_cost;
mod draft;
mod generate;
mod load;
mod loaded;
mod logits_processor;
mod prefill_pace;
mod reasoning_budget;
mod run_ahead;
mod sequences;
mod session;
mod speculating;
mod speculation;
mod verification;

pub use crate::model::{KvFormat, Precision, folder, source};
pub use api::chunk::{
    Chunk, CompletionTokensDetails, FinishReason, FunctionDelta, MalformedToolCall, StopReason, Timings, ToolCallDelta,
    Usage,
};
pub use api::embeddings::{EmbeddingRequest, EmbeddingUsage, Embeddings, Input};
pub use api::logprobs::{TokenLogprob, TokenLogprobs};
pub use api::request;
pub use choices::Generation;
pub use load::info::{AutotuneInfo, AutotuneState, DraftInfo, ModelInfo, Phase, Progress, Warning};
pub use load::inspect::{AdapterLimits, Inspection, Problem, inspect};
pub use load::options::{Autotune, LoadOptions};
pub use load::{file_bytes, hub};
pub use loaded::{Engine, EngineTensor};
pub use logits_processor::LogitsProcessor;

// What bindings need of the layers below.
pub use crate::tensor::{AdapterInfo, DeviceOptions, HostBytes, PowerPreference};
pub use crate::text::chat::ChatTemplate;
