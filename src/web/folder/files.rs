//! A list of files with their names: Files, Blobs, and sources of the application's own.

use js_sys::{Array, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{AbortSignal, Blob};

use super::super::{blob::BlobSource, js_source::JsSource};
use crate::engine::folder::{Folder, OpenFile};
use crate::engine::source::LocalFuture;
use crate::error::Result;

pub struct FilesFolder {
    files: Vec<(String, JsValue)>,
    signal: Option<AbortSignal>,
}

impl FilesFolder {
    /// Of an array of `{name, data}`.
    pub fn new(files: &JsValue, signal: Option<AbortSignal>) -> Result<Self> {
        let Some(files) = files.dyn_ref::<Array>() else { bail!(InvalidRequest, "wanted an array of files") };
        let file = |file: JsValue| {
            let field = |name: &str| Reflect::get(&file, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
            match field("name").as_string() {
                Some(name) => Ok((name, field("data"))),
                None => bail!(InvalidRequest, "a file of the model has no name"),
            }
        };
        let mut files = files.iter().map(file).collect::<Result<Vec<_>>>()?;
        // If a folder was chosen in a page, all names begin with its own name.
        let first = files.first().and_then(|(name, _)| name.split_once('/')).map(|(folder, _)| format!("{folder}/"));
        if let Some(folder) = first.filter(|folder| files.iter().all(|(name, _)| name.starts_with(folder.as_str()))) {
            files.iter_mut().for_each(|(name, _)| drop(name.drain(..folder.len())));
        }
        Ok(Self { files, signal })
    }
}

impl Folder for FilesFolder {
    fn name(&self) -> String {
        match &self.files[..] {
            [(name, _)] => name.clone(),
            files => format!("{} files", files.len()),
        }
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move {
            let Some((name, data)) = self.files.iter().find(|(name, _)| *name == path) else { return Ok(None) };
            Ok(Some(match data.dyn_ref::<Blob>() {
                Some(blob) => Box::new(BlobSource::new(blob.clone(), self.signal.clone())) as OpenFile<'f>,
                None => Box::new(JsSource::new(name, data.clone(), self.signal.clone())?),
            }))
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async { Ok(Some(self.files.iter().map(|(name, _)| name.clone()).collect())) })
    }
}
