//! The engine: loads a model and answers requests. The only place where model and text meet.
//!
//! It knows no browser: callers hand in sources of bytes, the time zone and whatever else differs.

mod adapters;
mod api;
mod choice;
mod compiled_grammars;
#[expect(clippy::module_inception, reason = "the file of the type Engine")]
mod engine;
mod generation;
pub mod grammars;
mod load;
mod memory;
mod reasoning_budget;
mod replay;
mod scoring;

pub use crate::decode::{Canceller, LogitsProcessor, MemoryPressure, PressureAction, PressureListener};
pub use crate::model::adapters::AdapterFormat;
pub use crate::model::{KvFormat, Precision, folder, source};
pub use adapters::{AdapterOptions, LoadedAdapter, SessionAdapter};
pub use api::chunk::{
    Chunk, CompletionTokensDetails, FinishReason, FunctionDelta, MalformedToolCall, StopReason, Timings, ToolCallDelta,
    Usage,
};
pub use api::embeddings::{EmbeddingUsage, Embeddings};
pub use api::logprobs::{TokenLogprob, TokenLogprobs};
pub use api::request;
pub use api::request::{ClassifyRequest, EmbeddingRequest, Input, RerankRequest};
pub use api::scores::{Classification, ClassifiedText, RankedDocument, Ranking};
pub use api::session::{Session, SessionModel};
#[cfg(test)]
pub(crate) use api::typescript;
pub use engine::{Engine, EngineStats, EngineTensor};
pub use generation::Generation;
pub use load::info::{AutotuneInfo, AutotuneState, DraftInfo, ModelInfo, Phase, Progress, Warning};
pub use load::inspect::{AdapterLimits, Inspection, Problem, inspect};
pub use load::options::{Autotune, DeviceReason, LoadOptions, PerLayerEmbeddings, Smoothness};
pub use load::{file_bytes, hub};
pub use memory::MemoryUse;
pub use replay::{Replay, ReplayedChoice};

// Types of lower layers that the bindings need.
pub use crate::tensor::{AdapterInfo, DeviceKind, DeviceOptions, PowerPreference};
pub use crate::text::chat::ChatTemplate;
