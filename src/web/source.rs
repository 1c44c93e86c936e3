//! From what JavaScript calls a model's source (a URL, a File, a Blob) to a `ByteSource`, and what the browser's sources
//! share. Converts and reports; knows nothing of formats.

use wasm_bindgen::{JsCast, JsValue};
use web_sys::{AbortSignal, Blob, Url};

use super::{blob::BlobSource, fetch::FetchSource};
use crate::{
    engine::source::ByteSource,
    error::{Error, Result},
};

/// Opens a string or URL (fetched by ranges; a relative one counts from the page's or worker's address), or a Blob or
/// File. The signal holds for the opening and for every later read.
pub async fn open(source: &JsValue, signal: Option<AbortSignal>) -> Result<Box<dyn ByteSource>> {
    if let Some(blob) = source.dyn_ref::<Blob>() {
        return Ok(Box::new(BlobSource::new(blob.clone(), signal)));
    }
    let url = source.as_string().or_else(|| source.dyn_ref::<Url>().map(Url::href));
    match url {
        Some(url) => Ok(Box::new(FetchSource::open(&url, signal).await?)),
        None => bail!(
            InvalidRequest,
            "the source of a model is {}, wanted a URL (string or URL), a File or a Blob",
            source.js_typeof().as_string().unwrap_or_default()
        ),
    }
}

/// What a promise was rejected with, in words.
pub(super) fn js_message(value: &JsValue) -> String {
    match value.dyn_ref::<js_sys::Error>() {
        Some(error) => format!("{}: {}", String::from(error.name()), String::from(error.message())),
        None => format!("{value:?}"),
    }
}

/// The number of a JavaScript API that takes and gives sizes as doubles; files are far below 2^53 bytes.
pub(super) fn js_number(bytes: u64) -> f64 {
    bytes as f64
}

pub(super) fn aborted(name: &str) -> Error {
    err!(Aborted, "{name}: the caller aborted")
}

/// `Code::Aborted` if the caller has aborted.
pub(super) fn check_abort(signal: Option<&AbortSignal>, name: &str) -> Result<()> {
    if signal.is_some_and(AbortSignal::aborted) { Err(aborted(name)) } else { Ok(()) }
}
