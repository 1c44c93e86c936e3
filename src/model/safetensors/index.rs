//! The index of a model in several safetensors files (`model.safetensors.index.json`): which file holds which tensor.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::Result;
use crate::json;
use crate::model::folder::check_path;

/// The index of a very large model has about 10 MB.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
/// More files than any model has.
const MAX_FILES: usize = 10_000;

/// The index as in the file.
#[derive(Clone, Debug, Deserialize)]
pub struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    /// Parses an index. Refuses names of files that lead out of the model's folder.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let index: Self = json::from_slice(json)
            .map_err(|error| err!(InvalidFile, "the index does not follow the format: {error}"))?;
        let files = index.files();
        if files.is_empty() || files.len() > MAX_FILES {
            bail!(InvalidFile, "the index names {} files, wanted 1 to {MAX_FILES}", files.len());
        }
        for file in files {
            check_path(file)?;
            if !file.ends_with(".safetensors") {
                bail!(InvalidFile, "the index names the file {file:?}, wanted .safetensors files");
            }
        }
        Ok(index)
    }

    /// The files, sorted by name, without repetition.
    pub fn files(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }

    /// Each tensor and its file.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.weight_map.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str()))
    }
}
