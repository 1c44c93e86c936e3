//! The engine: loads a model, keeps its session and generates. The only place where model and text meet.
//!
//! Knows no browser: sources of bytes, the time zone and whatever else differs are handed in.

mod answer;
mod autotune;
mod chat_answer;
mod chat_prompt;
mod choices;
mod chunk;
mod compile_ahead;
mod constrained;
pub mod constraint;
mod context_shift;
mod decoding;
pub mod dispatch_cost;
mod draft;
mod embeddings;
mod generate;
pub mod hub;
mod info;
mod inspect;
mod load;
mod loaded;
mod logits_processor;
mod logprobs;
mod model_text;
mod options;
mod prefill_pace;
mod reasoning_budget;
pub mod request;
mod run_ahead;
mod sequences;
mod session;
mod speculating;
mod speculation;
mod verification;

pub use crate::model::{KvFormat, Precision, folder, source};
pub use answer::{FunctionDelta, MalformedToolCall, StopReason, ToolCallDelta};
pub use autotune::{Autotune, AutotuneInfo, AutotuneState};
pub use choices::Generation;
pub use chunk::{Chunk, CompletionTokensDetails, FinishReason, Timings, Usage};
pub use draft::DraftInfo;
pub use embeddings::{EmbeddingRequest, EmbeddingUsage, Embeddings, Input};
pub use info::{ModelInfo, Phase, Progress, Warning};
pub use inspect::{AdapterLimits, Inspection, Problem, inspect};
pub use load::file_bytes;
pub use loaded::{Engine, EngineTensor};
pub use logits_processor::LogitsProcessor;
pub use logprobs::{TokenLogprob, TokenLogprobs};
pub use options::LoadOptions;

// What bindings need of the layers below.
pub use crate::tensor::{AdapterInfo, DeviceOptions, HostBytes, PowerPreference};
pub use crate::text::chat::ChatTemplate;
