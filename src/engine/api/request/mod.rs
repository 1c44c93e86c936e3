//! Requests in the shapes of OpenAI's API (https://platform.openai.com/docs/api-reference): their fields, and how these are checked.
//!
//! A request is groups of fields. Each group is a file with its struct, its fields and their checks; `GenerationFields` has the groups
//! that chats and completions share. So a new field is a line in its group, and a new group a line here. A field of no group is refused
//! by name: to ignore it would give another answer than the caller asked for.

mod adapters;
mod chat;
mod choices;
mod classify;
mod completion;
mod context;
mod dry_breakers;
mod embedding;
mod ending;
mod fields;
mod logprobs;
mod penalties;
mod reasoning;
mod rerank;
mod sampling;
mod speculation;
mod structured;
mod tokenize;

pub use adapters::AdapterFields;
pub use chat::{ChatFields, ChatRequest};
pub use choices::ChoicesFields;
pub use classify::{ClassifyInput, ClassifyRequest, ClassifyText, TextPair};
pub use completion::{CompletionFields, CompletionRequest, ForcedBos, Prompt};
pub use context::{ContextFields, ContextShiftRequest, Sinks};
pub use dry_breakers::dry_breakers;
pub use embedding::{EmbeddingRequest, Input};
pub use ending::{EndingFields, Stop};
pub use logprobs::{ChatLogprobsFields, CompletionLogprobsFields};
pub use penalties::PenaltyFields;
pub use reasoning::{ReasoningFields, ReasoningFormat};
pub use rerank::{DocumentText, RerankDocument, RerankRequest};
pub use sampling::SamplingFields;
pub use speculation::{Drafters, SpeculationFields, SpeculationRequest};
pub use structured::{NamedSchema, ResponseFormat, StructuredFields, StructuredOutputs};
pub use tokenize::TokenizeOptions;

pub(super) use fields::{Fields, Group, group};
pub(in crate::engine) use structured::{FREE_CALLS, GrammarRequest};

use crate::error::Result;

/// What chats and completions have in common.
#[derive(Clone, Debug)]
pub struct GenerationFields {
    /// Temperature, truncation and seed.
    pub sampling: SamplingFields,
    /// Biases, bans, penalties and DRY.
    pub penalties: PenaltyFields,
    /// The longest answer, and what ends it earlier.
    pub ending: EndingFields,
    /// The form of the answer.
    pub structured: StructuredFields,
    /// Drafts.
    pub speculation: SpeculationFields,
    /// What a full context does.
    pub context: ContextFields,
    /// The number of answers.
    pub choices: ChoicesFields,
    /// What adds to the model's weights.
    pub adapters: AdapterFields,
}

impl GenerationFields {
    fn take(fields: &mut Fields) -> Result<Self> {
        Ok(Self {
            sampling: fields.group()?,
            penalties: fields.group()?,
            ending: fields.group()?,
            structured: fields.group()?,
            speculation: fields.group()?,
            context: fields.group()?,
            choices: fields.group()?,
            adapters: fields.group()?,
        })
    }
}
