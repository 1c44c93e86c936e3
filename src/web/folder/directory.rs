//! A folder of the File System API: one that the user chose, or one of the origin private file system (OPFS).

use js_sys::{Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Blob, FileSystemDirectoryHandle, FileSystemFileHandle};

use super::super::{blob::BlobSource, thrown::js_message};
use crate::engine::folder::{Folder, OpenFile, check_path};
use crate::engine::source::LocalFuture;
use crate::error::{Error, Result};

pub struct DirectoryHandleFolder {
    handle: FileSystemDirectoryHandle,
    name: String,
    signal: Option<AbortSignal>,
}

/// The entry of a name.
enum Entry {
    File(FileSystemFileHandle),
    Directory(FileSystemDirectoryHandle),
    Nothing,
}

impl DirectoryHandleFolder {
    pub fn new(handle: FileSystemDirectoryHandle, name: String, signal: Option<AbortSignal>) -> Self {
        Self { handle, name, signal }
    }

    async fn find(&self, path: &str) -> Result<Entry> {
        let failed = |value: JsValue| unreadable(&self.name, path, &value);
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let mut handle = self.handle.clone();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                match JsFuture::from(handle.get_file_handle(part)).await {
                    Ok(file) => return Ok(Entry::File(file.unchecked_into())),
                    Err(value) if is_error(&value, "NotFoundError") => return Ok(Entry::Nothing),
                    Err(value) if is_error(&value, "TypeMismatchError") => {}
                    Err(value) => return Err(failed(value)),
                }
            }
            handle = match JsFuture::from(handle.get_directory_handle(part)).await {
                Ok(directory) => directory.unchecked_into(),
                Err(value) if is_error(&value, "NotFoundError") || is_error(&value, "TypeMismatchError") => {
                    return Ok(Entry::Nothing);
                }
                Err(value) => return Err(failed(value)),
            };
        }
        Ok(Entry::Directory(handle))
    }
}

impl Folder for DirectoryHandleFolder {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>>> {
        Box::pin(async move {
            check_path(&path)?;
            let Entry::File(handle) = self.find(&path).await? else { return Ok(None) };
            let file =
                JsFuture::from(handle.get_file()).await.map_err(|value| unreadable(&self.name, &path, &value))?;
            Ok(Some(Box::new(BlobSource::new(file.unchecked_into::<Blob>(), self.signal.clone())) as OpenFile<'f>))
        })
    }

    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>>> {
        Box::pin(async move {
            let failed = |value: JsValue| unreadable(&self.name, "", &value);
            let keys = self.handle.keys();
            let mut names = Vec::new();
            loop {
                let next: Promise = keys.next().map_err(failed)?.unchecked_into();
                let result = JsFuture::from(next).await.map_err(failed)?;
                let field = |name| Reflect::get(&result, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
                if field("done").is_truthy() {
                    names.sort();
                    return Ok(Some(names));
                }
                names.extend(field("value").as_string());
            }
        })
    }
}

/// A path of the origin private file system: a file in its folder, or a folder.
pub async fn open_opfs(path: &str, signal: Option<AbortSignal>) -> Result<(DirectoryHandleFolder, Option<String>)> {
    let path = path.trim_matches('/');
    let failed = |value: JsValue| unreadable("opfs:", path, &value);
    let root = async {
        let get = |object: &JsValue, name: &str| Reflect::get(object, &JsValue::from_str(name));
        let storage = get(&get(&js_sys::global(), "navigator")?, "storage")?;
        let directory: js_sys::Function = get(&storage, "getDirectory")?.dyn_into()?;
        let promise: Promise = directory.call0(&storage)?.dyn_into()?;
        JsFuture::from(promise).await
    };
    let handle = root.await.map_err(failed)?.unchecked_into();
    let root = DirectoryHandleFolder::new(handle, "opfs:".to_owned(), signal.clone());
    if !path.is_empty() {
        check_path(path)?;
    }
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    match root.find(path).await? {
        Entry::Directory(handle) => Ok((DirectoryHandleFolder::new(handle, format!("opfs:{path}"), signal), None)),
        Entry::File(_) => match root.find(parent).await? {
            Entry::Directory(handle) => {
                Ok((DirectoryHandleFolder::new(handle, format!("opfs:{parent}"), signal), Some(name.to_owned())))
            }
            _ => bail!(Read, "opfs:{path}: the file's folder is gone"),
        },
        Entry::Nothing => {
            bail!(NotFound, "opfs:{path}: there is no such file or folder in the origin private file system")
        }
    }
}

fn is_error(value: &JsValue, name: &str) -> bool {
    value.dyn_ref::<js_sys::Error>().is_some_and(|error| error.name() == name)
}

fn unreadable(folder: &str, path: &str, value: &JsValue) -> Error {
    err!(Read, "{folder}/{path}: opening failed: {}; ask the user for the folder again", js_message(value))
}
