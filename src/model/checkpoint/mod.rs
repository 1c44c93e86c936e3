//! A model in files of any format: metadata with GGUF's keys, tensors with llama.cpp's names, and where their bytes are. Everything above
//! reads models only through this, and only this knows the formats.
//!
//! Reads only the headers. A checkpoint borrows the folder, whose files stay open.

mod coders;
mod completed;
mod modules;
mod open;
pub(super) mod origin;
mod packed;
mod rows;

pub use modules::{Module, parse as parse_modules};
pub use open::tensors_of_gguf;
pub use origin::Origin;
pub use packed::{Groups, Order, Packed, PackedMatrix, Places, Side, SidePart, Zeros};

use std::collections::BTreeMap;

use super::arch::WeightTransform;
use super::folder::OpenFile;
use super::gguf::{GgmlType, Metadata};
use crate::error::Result;

/// A model's files, open, and what their headers say.
pub struct Checkpoint<'f> {
    /// The keys and values of a GGUF file, or the same translated from a Hugging Face folder.
    pub metadata: Metadata,
    /// All tensors.
    pub tensors: Vec<TensorInfo>,
    /// The files that hold the tensors.
    pub files: Vec<OpenFile<'f>>,
    /// The kind of files.
    pub origin: Origin,
    /// The bytes of the folder's [`TEXT_FILES`] and of its config.json, by name. Empty for a GGUF file, whose metadata holds the same.
    pub text_files: BTreeMap<&'static str, Vec<u8>>,
    /// The steps of a model of sentence-transformers, if the folder has its `modules.json`.
    pub modules: Option<Vec<Module>>,
}

/// Files of a Hugging Face folder that are passed on unread, if they exist.
pub const TEXT_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    // For embedding models: the steps after the encoder.
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
];

/// The same of Marian's folders, which have them in place of tokenizer.json.
pub const MARIAN_FILES: &[&str] = &["source.spm", "vocab.json"];

/// The metadata key for the head of another task that nothing reads: its name. GGUF files have no such key.
pub const IGNORED_HEAD: &str = "general.ignored_head";

/// The metadata key of a decoder without a matrix that gives logits. GGUF files have no such key.
pub const WITHOUT_OUTPUT: &str = "general.without_output";

/// The metadata key for the parts of a model besides its text model, which nothing reads: their tensors' prefixes. GGUF files have no such key.
pub const IGNORED_PARTS: &str = "general.ignored_parts";

/// A tensor: what it is, and where its values are.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// As in llama.cpp's files: `blk.0.attn_q.weight`.
    pub name: String,
    /// In GGUF's order: the first is the length of a row, so a matrix [rows, columns] has [columns, rows].
    pub dims: Vec<u64>,
    /// The type of the elements in the files.
    pub ty: GgmlType,
    /// Where its values are.
    pub values: TensorValues,
}

/// Where a tensor's values are.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorValues {
    /// In files, in one part or in several, whose rows follow each other (a matrix for each expert, rows of a file's tensor).
    Stored {
        /// At least one.
        parts: Vec<Part>,
        /// How to transform the file's values into those of llama.cpp's files.
        transform: Option<WeightTransform>,
    },
    /// In two ranges of files, as gpt-oss' folders hold MXFP4: pairs of neighbours as bytes, and an exponent for each 32 weights.
    Mxfp4 {
        /// 16 bytes for 32 weights.
        blocks: Part,
        /// One byte for 32 weights.
        exponents: Part,
    },
    /// In ranges of files, as libraries of quantisation pack them.
    Packed(Box<Packed>),
    /// In a range of a file, as BitNet's folders hold ternary weights: two bits for a weight, less one, and a factor of them all. They become Q4_0.
    Ternary {
        /// Each byte has weights of four rows, which are a quarter of all apart.
        packed: Part,
        /// One number.
        factor: Part,
        /// Its type.
        factor_ty: GgmlType,
    },
    /// Computed from the configuration. F32.
    Computed(Vec<f32>),
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which of the checkpoint's files.
    pub file: usize,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product() // the formats' readers checked that it does not overflow
    }

    /// The type of the elements in the files, for people: `BF16`, `GPTQ`.
    pub fn type_name(&self) -> &'static str {
        match &self.values {
            TensorValues::Packed(packed) => packed.method,
            _ => self.ty.name(),
        }
    }

    /// Bytes in the files.
    pub fn bytes(&self) -> u64 {
        match &self.values {
            TensorValues::Stored { parts, .. } => parts.iter().map(|part| part.bytes).sum(),
            TensorValues::Mxfp4 { blocks, exponents } => blocks.bytes + exponents.bytes,
            TensorValues::Packed(packed) => packed.matrices.iter().map(PackedMatrix::bytes).sum(),
            TensorValues::Ternary { packed, factor, .. } => packed.bytes + factor.bytes,
            TensorValues::Computed(_) => 0,
        }
    }
}

impl Checkpoint<'_> {
    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The head for another task, such as a classifier's, that the model was trained with and that nothing here computes.
    pub fn ignored_head(&self) -> Result<Option<&str>> {
        self.metadata.optional_str(IGNORED_HEAD)
    }

    /// Whether a decoder has no matrix that gives logits of tokens.
    pub fn is_without_output(&self) -> Result<bool> {
        Ok(self.metadata.optional_bool(WITHOUT_OUTPUT)?.unwrap_or(false))
    }

    /// The parts of a folder that nothing computes, such as a vision model.
    pub fn ignored_parts(&self) -> Result<Option<&str>> {
        self.metadata.optional_str(IGNORED_PARTS)
    }

    /// The size of all files that hold tensors.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size()).sum()
    }

    /// The model's name in messages: the name of its first file.
    pub fn name(&self) -> String {
        self.files.first().map(|file| file.name()).unwrap_or_default()
    }
}
