//! Loads and unloads adapters (LoRA), and says with which a request runs.

use std::collections::BTreeMap;

use crate::decode::AdapterSet;
use crate::engine::adapters::{AdapterOptions, LoadedAdapter, checked_scale};
use crate::engine::engine::{Engine, Inner, Model};
use crate::engine::load::about;
use crate::error::Result;
use crate::model::adapters::AdapterFile;
use crate::model::folder::Folder;

impl Engine {
    /// Loads an adapter from a folder: `file`, or the only one in it. It is checked against the model before its numbers are read.
    /// `progress` gets the bytes read and those to read, and may end the load with an error. If it ends, nothing has changed.
    pub async fn load_adapter(
        &self,
        folder: &dyn Folder,
        file: Option<&str>,
        options: &AdapterOptions,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<LoadedAdapter> {
        let inner = &self.0;
        let decoder = match &inner.model {
            Model::Decoder(decoder) => decoder,
            Model::Encoder(_) => bail!(
                UnsupportedAdapter,
                "the model ({}) is an encoder, and adapters for those are not supported",
                inner.info.architecture
            ),
        };
        let name = options.name.clone().unwrap_or_else(|| default_name(&folder.name(), file));
        let scale = checked_scale(&name, options.scale.unwrap_or(1.0))?;
        inner.adapters.check_free(&name)?;
        let opened = AdapterFile::open(folder, file, decoder.transformer.config()).await;
        let opened = opened.map_err(|error| about(&folder.name(), error))?;
        let adapter = decoder.load_adapter(&opened, progress).await.map_err(|error| inner.explain(error))?;
        // Another load may have taken it meanwhile.
        inner.adapters.check_free(&name)?;
        Ok(inner.adapters.push(name, scale, adapter))
    }

    /// Sets the scale of an adapter in requests that say nothing of adapters; 0 is off. Requests that run keep theirs.
    pub fn set_adapter_scale(&self, name: &str, scale: f32) -> Result<()> {
        self.0.adapters.set_scale(name, scale)
    }

    /// Unloads an adapter. Requests that run with it go on with it to their end; then its memory is free.
    pub fn unload_adapter(&self, name: &str) -> Result<()> {
        let adapter = self.0.adapters.remove(name)?;
        if let Model::Decoder(decoder) = &self.0.model {
            decoder.unload_adapter(&adapter);
        }
        Ok(())
    }

    /// The adapters that are loaded, in the order in which they were.
    pub fn adapters(&self) -> Vec<LoadedAdapter> {
        self.0.adapters.list()
    }
}

impl Inner {
    /// The adapters that a request asks for, by name, or those of the engine.
    pub(in crate::engine) fn adapter_set(&self, asked: Option<&BTreeMap<String, f32>>) -> Result<AdapterSet> {
        match &self.model {
            Model::Decoder(decoder) => self.adapters.set(decoder, asked),
            Model::Encoder(_) => Ok(AdapterSet::default()),
        }
    }
}

/// The last part of a path or an address, without what tells a file's type; of PEFT's file the folder's.
fn default_name(folder: &str, file: Option<&str>) -> String {
    let path = match file {
        Some(file) if !file.ends_with(".safetensors") => file,
        _ => folder,
    };
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
    let last = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let name = last.strip_suffix(".gguf").unwrap_or(last);
    if name.is_empty() { "adapter".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_called_like_its_file_or_folder() {
        for (folder, file, name) in [
            ("/models/word-game", None, "word-game"),
            ("https://host/a/word-game/?token=1", None, "word-game"),
            ("memory", Some("sub/pirate.gguf"), "pirate"),
            ("pirate.gguf", None, "pirate"),
            ("folder", Some("adapter_model.safetensors"), "folder"),
            ("/", None, "adapter"),
        ] {
            assert_eq!(default_name(folder, file), name, "{folder} {file:?}");
        }
    }
}
