//! The formats of tool calls: one file for each family, and the list.

mod deepseek;
mod function_gemma;
mod gemma;
mod generic;
mod glm;
mod harmony;
mod hermes;
mod kimi;
mod lfm2;
mod llama3;
mod minimax;
mod mistral;
mod phi;
mod qwen3_coder;

use super::format::ToolFormat;

impl ToolFormat {
    /// Every format. A new one is a constant in a file of this folder and a line here, before any format whose words are also in its
    /// templates.
    pub const ALL: &'static [&'static Self] = &[
        &harmony::HARMONY,
        &function_gemma::FUNCTION_GEMMA,
        &function_gemma::GEMMA4,
        &deepseek::DEEPSEEK_V32,
        &deepseek::DEEPSEEK_V4,
        &deepseek::DEEPSEEK,
        &mistral::MISTRAL,
        &qwen3_coder::SEED,
        &minimax::MINIMAX,
        &glm::GLM,
        &qwen3_coder::QWEN3_CODER,
        &kimi::KIMI,
        &hermes::JAMBA,
        &hermes::COHERE,
        &hermes::NEMOTRON,
        &lfm2::LFM2,
        &hermes::HERMES,
        &phi::PHI,
        &llama3::LLAMA3,
        &gemma::GEMMA,
        Self::GENERIC,
    ];

    /// The format of models that match no other format.
    pub const GENERIC: &'static Self = &generic::GENERIC;

    /// The format for a chat template: the first of the list that matches.
    pub fn of_template(source: &str) -> &'static Self {
        let fits = |format: &&&Self| format.signs.iter().any(|words| words.iter().all(|word| source.contains(word)));
        Self::ALL.iter().find(fits).copied().unwrap_or(Self::GENERIC)
    }
}
