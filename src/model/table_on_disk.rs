//! The table of per-layer embeddings where it stays in the model's files: which tensor it is, where its rows are, and how many of them a cache holds.

use super::checkpoint::{Checkpoint, TensorInfo, TensorValues};
use super::tensor_form::{format_of, matrix_of};
use crate::error::Result;
use crate::tensor::quant::Format;

/// The tensor.
pub(super) const TABLE: &str = "per_layer_token_embd.weight";

/// What the rows of a cache take on the GPU, as f32.
const CACHE_BYTES: usize = 64 << 20;
const LEAST_ROWS: usize = 256;

/// How many rows a cache of a table [vocabulary, columns] holds.
pub(super) fn rows_of_cache(vocabulary: usize, columns: usize) -> usize {
    (CACHE_BYTES / 4 / columns.max(1)).max(LEAST_ROWS).min(vocabulary)
}

/// Where the table is in the model's files.
pub(super) struct Stored {
    pub file: usize,
    pub offset: u64,
    pub vocabulary: usize,
    pub columns: usize,
    pub format: &'static Format,
    pub row_bytes: usize,
}

impl Stored {
    /// Of the table in the file.
    pub fn bytes(&self) -> u64 {
        self.vocabulary as u64 * self.row_bytes as u64
    }
}

/// The table of a checkpoint; an error says why it can't be read by rows.
pub(super) fn stored(checkpoint: &Checkpoint<'_>) -> Result<Stored> {
    let Some(tensor) = checkpoint.tensor(TABLE) else { bail!(MissingTensor, "the model has no tensor {TABLE:?}") };
    stored_of(tensor)
}

fn stored_of(tensor: &TensorInfo) -> Result<Stored> {
    let (vocabulary, columns) = matrix_of(tensor)?;
    let format = format_of(tensor)?;
    let row_bytes = format.row_bytes(columns)?;
    if vocabulary == 0 || columns == 0 {
        bail!(ShapeMismatch, "{TABLE:?} is empty");
    }
    match &tensor.values {
        TensorValues::Stored { parts, transform: None } if parts.len() == 1 => {
            let part = parts[0];
            Ok(Stored { file: part.file, offset: part.offset, vocabulary, columns, format, row_bytes })
        }
        _ => bail!(
            UnsupportedTensorType,
            "perLayerEmbeddings is \"disk\", and the rows of {TABLE:?} don't lie in one piece in the files; leave the option out"
        ),
    }
}
