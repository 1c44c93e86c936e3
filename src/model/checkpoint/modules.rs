//! The steps of a model of sentence-transformers after its tokens' vectors (`modules.json`), each with the configuration in its folder.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Part, TensorInfo, TensorValues};
use crate::error::Result;
use crate::json;
use crate::model::arch::FIRST_DENSE;
use crate::model::folder::{Folder, check_path};
use crate::model::safetensors::TensorEntry;

/// More than any model has.
const MAX_MODULES: usize = 64;
/// More than any configuration has.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its class, without the package.
    pub kind: String,
    /// Its folder; empty for that of the model.
    pub path: String,
    /// Its `config.json`, if it has a folder of its own and a file in it.
    pub config: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    path: String,
}

/// The steps that `modules.json` names, without their configurations.
pub fn parse(bytes: &[u8]) -> Result<Vec<Module>> {
    let entries: Vec<Entry> = json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "modules.json: {cause}"))?;
    if entries.len() > MAX_MODULES {
        bail!(InvalidFile, "modules.json has {} modules, wanted at most {MAX_MODULES}", entries.len());
    }
    let module = |Entry { kind, path }| Module {
        kind: kind.rsplit('.').next().unwrap_or_default().to_owned(),
        path,
        config: None,
    };
    Ok(entries.into_iter().map(module).collect())
}

/// The steps with their configurations. Files that were read already are in `files`.
pub(super) async fn read(folder: &dyn Folder, files: &BTreeMap<&'static str, Vec<u8>>) -> Result<Option<Vec<Module>>> {
    let Some(bytes) = files.get("modules.json") else { return Ok(None) };
    let mut modules = parse(bytes)?;
    for module in modules.iter_mut().filter(|module| !module.path.is_empty()) {
        let name = format!("{}/config.json", module.path);
        check_path(&name)?;
        module.config = match files.get(name.as_str()) {
            Some(bytes) => Some(bytes.clone()),
            None => folder.read(name, MAX_CONFIG_BYTES).await?,
        };
    }
    Ok(Some(modules))
}

/// The tensors of a layer after the pooling, which is the number-th such layer and has the file with this index.
pub(super) fn dense_tensors(number: usize, file: usize, entries: &[TensorEntry]) -> Result<Vec<TensorInfo>> {
    let tensor = |entry: &TensorEntry| {
        let (Some(end), Some(ty)) = (entry.name.strip_prefix("linear."), entry.dtype.ggml_type()) else {
            bail!(
                UnsupportedArchitecture,
                "a Dense of modules.json has the tensor {:?} of type {}, wanted linear.weight and linear.bias of F32, F16 or BF16",
                entry.name,
                entry.dtype.name()
            );
        };
        Ok(TensorInfo {
            name: format!("dense_{}.{end}", number + FIRST_DENSE),
            dims: entry.shape.iter().rev().copied().collect(),
            ty,
            values: TensorValues::Stored {
                parts: vec![Part { file, offset: entry.offset, bytes: entry.bytes }],
                transform: None,
            },
        })
    };
    entries.iter().map(tensor).collect()
}
