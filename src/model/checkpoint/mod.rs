//! A model as it lies in files, of whichever format: metadata in the words of GGUF, tensors under the names of llama.cpp's files, and
//! where in which file their bytes are. Everything above reads models only through this; formats are told apart here.
//!
//! A checkpoint is read by headers alone. It borrows the folder, whose files stay open.

mod open;
pub(super) mod origin;

pub use open::tensors_of_gguf;
pub use origin::Origin;

use std::collections::BTreeMap;

use super::arch::Change;
use super::folder::OpenFile;
use super::gguf::{GgmlType, Metadata};

/// A model's files, open, and what their headers say.
pub struct Checkpoint<'f> {
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// The files that hold the tensors.
    pub files: Vec<OpenFile<'f>>,
    pub origin: Origin,
    /// Files about text and its use, as they stand in the folder, by their names of [`TEXT_FILES`], and its config.json. A GGUF file has all of that
    /// in its metadata, so there it is empty.
    pub text_files: BTreeMap<&'static str, Vec<u8>>,
}

/// Files of a Hugging Face folder that are handed on as they are, each if it is there.
pub const TEXT_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    // Of models for embeddings: what follows the encoder.
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
];

/// A tensor: what it is, and where its values are.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// As in llama.cpp's files: `blk.0.attn_q.weight`.
    pub name: String,
    /// In GGUF's order: the first is the length of a row, so a matrix [rows, columns] has [columns, rows].
    pub dims: Vec<u64>,
    pub ty: GgmlType,
    pub values: TensorValues,
}

/// Where a tensor's values are.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorValues {
    /// In files, in one part or in several of equal size that follow each other (a matrix for each expert).
    Stored { parts: Vec<Part>, change: Option<Change> },
    /// They follow from the configuration. F32.
    Computed(Vec<f32>),
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which of the checkpoint's files.
    pub file: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl TensorInfo {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product() // the formats' readers checked that it does not overflow
    }

    /// Bytes in the files.
    pub fn bytes(&self) -> u64 {
        match &self.values {
            TensorValues::Stored { parts, .. } => parts.iter().map(|part| part.bytes).sum(),
            TensorValues::Computed(_) => 0,
        }
    }
}

impl Checkpoint<'_> {
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The size of all files that hold tensors.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size()).sum()
    }

    /// What the model is called in messages: the name of its first file.
    pub fn name(&self) -> String {
        self.files.first().map(|file| file.name()).unwrap_or_default()
    }
}
