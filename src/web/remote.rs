//! Files of web servers. JavaScript sends the requests and keeps what it wants to keep (`pkg-template/src/files`); here is what a
//! refusal means, and a file that was opened is a source like an application's own.

use std::rc::Rc;

use js_sys::{Object, Reflect};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::*;
use web_sys::AbortSignal;

use super::convert::{from_js, js_number};
use super::js_source::JsSource;
use super::thrown::{coded_error, js_message};
use crate::engine::hub::{FileFacts, Reference, Refused, refusal};
use crate::engine::source::ByteSource;
use crate::error::{Error, Result};

#[wasm_bindgen]
extern "C" {
    /// `RemoteFiles` of `pkg-template/src/wasm.ts`.
    #[derive(Clone)]
    pub type RemoteFiles;

    #[wasm_bindgen(method, catch)]
    async fn open(this: &RemoteFiles, request: &JsValue) -> Result<JsValue, JsValue>;
}

/// An access token and the origin that it is for.
#[derive(Clone)]
pub struct Token {
    pub value: String,
    pub origin: String,
}

/// The repository of a file, so that a refusal can say what to do.
#[derive(Clone)]
pub struct HubFile {
    pub endpoint: String,
    pub reference: Rc<Reference>,
    /// `None` for the description of the repository itself.
    pub path: Option<String>,
}

/// One file on a web server.
#[derive(Clone)]
pub struct RemoteFile {
    pub url: String,
    pub token: Option<Token>,
    pub hub: Option<HubFile>,
    /// Size and digest, if a listing told them.
    pub facts: FileFacts,
}

/// What JavaScript says of a refused request.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefusedRequest {
    status: u16,
    status_text: String,
    error_code: Option<String>,
}

impl RemoteFile {
    pub fn new(url: String) -> Self {
        Self { url, token: None, hub: None, facts: FileFacts::default() }
    }

    /// Opens the file. `None` if there is no such file.
    pub async fn open(self, files: &RemoteFiles, signal: Option<AbortSignal>) -> Result<Option<Box<dyn ByteSource>>> {
        let source = self.ask(files, None).await?;
        if source.is_null() {
            return Ok(None);
        }
        Ok(Some(Box::new(self.source(source, signal)?)))
    }

    /// The contents of a file of at most `limit` bytes. `None` if there is no such file.
    pub async fn read_whole(
        self,
        files: &RemoteFiles,
        signal: Option<AbortSignal>,
        limit: u64,
    ) -> Result<Option<Vec<u8>>> {
        let source = self.ask(files, Some(limit)).await?;
        if source.is_null() {
            return Ok(None);
        }
        let source = self.source(source, signal)?;
        let size = source.size() as usize;
        source.read(0, size).await.map(Some)
    }

    fn source(self, object: JsValue, signal: Option<AbortSignal>) -> Result<JsSource> {
        let source = JsSource::new(&self.url, object, signal)?;
        Ok(source.with_refusal(Rc::new(move |value| self.error(value))))
    }

    async fn ask(&self, files: &RemoteFiles, limit: Option<u64>) -> Result<JsValue> {
        let request = Object::new();
        let set = |name: &str, value: JsValue| {
            // Setting a property of a fresh object does not fail.
            let _ = Reflect::set(&request, &JsValue::from_str(name), &value);
        };
        set("url", JsValue::from_str(&self.url));
        if let Some(token) = &self.token {
            set("token", JsValue::from_str(&token.value));
            set("tokenOrigin", JsValue::from_str(&token.origin));
        }
        if let Some(sha256) = &self.facts.sha256 {
            set("sha256", JsValue::from_str(sha256));
        }
        if let Some(size) = self.facts.size {
            set("size", js_number(size).into());
        }
        if let Some(limit) = limit {
            set("limit", js_number(limit).into());
        }
        files.open(&request).await.map_err(|value| self.error(&value))
    }

    /// The error for what a request was rejected with.
    pub fn error(&self, value: &JsValue) -> Error {
        let refused = Reflect::get(value, &JsValue::from_str("refused")).unwrap_or(JsValue::UNDEFINED);
        if refused.is_object() {
            return match from_js::<RefusedRequest>("a refused request", refused) {
                Ok(refused) => self.refused(&refused),
                Err(error) => error,
            };
        }
        coded_error(value).unwrap_or_else(|| err!(Network, "{}: {}", self.url, js_message(value)))
    }

    /// The error for a missing file that is required.
    pub fn missing(&self) -> Error {
        match &self.hub {
            Some(hub) => {
                let refused = Refused { status: 404, code: None, with_token: self.token.is_some() };
                refusal(&hub.endpoint, &hub.reference, hub.path.as_deref(), refused)
            }
            None => err!(Http, "{}: the server has no such file; check the address", self.url),
        }
    }

    /// The error for a status of failure.
    fn refused(&self, refused: &RefusedRequest) -> Error {
        let status = refused.status;
        if let Some(hub) = &self.hub {
            let code = refused.error_code.as_deref();
            let refused = Refused { status, code, with_token: self.token.is_some() };
            return refusal(&hub.endpoint, &hub.reference, hub.path.as_deref(), refused);
        }
        let url = &self.url;
        let text = match refused.status_text.as_str() {
            "" => String::new(),
            text => format!(" {text}"),
        };
        match status {
            401 | 403 => err!(
                AccessDenied,
                "{url}: the server answered {status}{text}; the file is not public: check the rights, or pass a File"
            ),
            404 | 410 => self.missing(),
            416 => err!(
                Http,
                "{url}: the server answered {status}{text}; it has no such range: the file may be empty or have been replaced"
            ),
            429 | 500.. => err!(Http, "{url}: the server answered {status}{text}; try again later"),
            _ => err!(Http, "{url}: the server answered {status}{text}; check the address and the server"),
        }
    }
}
