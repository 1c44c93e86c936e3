//! From the package's source of a model (`ModelSource` of `pkg-template/src/source.ts`) to a folder and one of its files. Converts and
//! reports; knows nothing of formats.

use js_sys::Reflect;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::AbortSignal;

use super::convert::from_js;
use super::folder::{Choose, DirectoryHandleFolder, FilesFolder, UrlFolder, open_hub, open_opfs};
use super::remote::RemoteFiles;
use crate::engine::folder::Folder;
use crate::engine::hub::{choose, choose_adapter};
use crate::error::Result;

/// Opens the source of a model: an object with `kind` and its fields; `files` reads from servers. The signal applies to the opening and to every
/// later read.
pub async fn open(
    source: &JsValue,
    files: RemoteFiles,
    signal: Option<AbortSignal>,
) -> Result<(Box<dyn Folder>, Option<String>)> {
    open_as(source, files, signal, choose).await
}

/// The same for the source of an adapter.
pub async fn open_adapter(source: &JsValue, files: RemoteFiles) -> Result<(Box<dyn Folder>, Option<String>)> {
    open_as(source, files, None, choose_adapter).await
}

async fn open_as(
    source: &JsValue,
    files: RemoteFiles,
    signal: Option<AbortSignal>,
    choose: Choose,
) -> Result<(Box<dyn Folder>, Option<String>)> {
    let field = |name: &str| Reflect::get(source, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
    let text = |name: &str| match field(name).as_string() {
        Some(text) => Ok(text),
        None => bail!(InvalidRequest, "the source of a model has no text {name:?}"),
    };
    let file = field("file").as_string();
    match field("kind").as_string().as_deref() {
        Some("url") => {
            let folder = UrlFolder::new(&text("url")?, files, signal)?;
            let file = folder.file().map(str::to_owned).or(file);
            Ok((Box::new(folder), file))
        }
        Some("hub") => {
            let options = from_js("the option hub", field("hub"))?;
            open_hub(&text("reference")?, options, choose, files, signal).await
        }
        Some("opfs") => {
            let (folder, found) = open_opfs(&text("path")?, signal).await?;
            Ok((Box::new(folder), found.or(file)))
        }
        Some("directory") => {
            let name =
                Reflect::get(&field("handle"), &JsValue::from_str("name")).ok().and_then(|name| name.as_string());
            let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "folder".to_owned());
            Ok((Box::new(DirectoryHandleFolder::new(field("handle").unchecked_into(), name, signal)), file))
        }
        Some("files") => Ok((Box::new(FilesFolder::new(&field("files"), signal)?), file)),
        _ => bail!(InvalidRequest, "the source of a model is of an unknown kind"),
    }
}
