//! One file on a web server: sends the requests, and interprets ranges and refusals.
//!
//! A token is sent only to its own origin. If a request was redirected, later ones go directly to the new address, without the token;
//! such addresses expire, and then the first address is used again.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Function, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Headers, RequestInit, Response, Url};

use super::super::source::{aborted, check_abort, js_message};
use super::body::{Body, Cancel};
use crate::engine::hub::{Reference, Refused, refusal};
use crate::error::{Error, Result};

/// An access token and the origin that it is for.
#[derive(Clone)]
pub struct Token {
    pub value: String,
    pub origin: String,
}

/// The repository of the file, so that a refusal can say what to do.
#[derive(Clone)]
pub struct HubFile {
    pub endpoint: String,
    pub reference: Rc<Reference>,
    /// `None` for the description of the repository itself.
    pub path: Option<String>,
}

/// The server of a file, with the caller's abort signal.
pub struct Server {
    pub url: String,
    pub signal: Option<AbortSignal>,
    pub token: Option<Token>,
    pub hub: Option<HubFile>,
    /// The address that the last request was redirected to.
    direct: RefCell<Option<String>>,
}

/// The result of a request.
pub enum Answer {
    /// The requested range, or the server's version of it.
    Part(Body),
    /// The whole file.
    Whole(Body),
    /// 404 or 410.
    Missing,
}

impl Server {
    pub fn new(url: String, signal: Option<AbortSignal>) -> Self {
        Self { url, signal, token: None, hub: None, direct: RefCell::new(None) }
    }

    /// Sends a GET for a range (at least one byte) or for the whole file. Resolves when the headers have arrived.
    pub async fn get(&self, range: Option<(u64, u64)>) -> Result<Answer> {
        check_abort(self.signal.as_ref(), &self.url)?;
        let direct = self.direct.borrow().clone();
        if let Some(direct) = direct {
            let (response, cancel) = self.send(&direct, range).await?;
            if response.ok() {
                return self.answer(response, cancel, range);
            }
            self.direct.replace(None);
        }
        let (response, cancel) = self.send(&self.url, range).await?;
        if response.ok() && response.redirected() {
            self.direct.replace(Some(response.url()));
        }
        self.answer(response, cancel, range)
    }

    async fn send(&self, url: &str, range: Option<(u64, u64)>) -> Result<(Response, Cancel)> {
        let sent = async {
            let cancel = Cancel::new(self.signal.as_ref())?;
            let headers = Headers::new()?;
            if let Some((offset, length)) = range {
                headers.set("range", &format!("bytes={offset}-{}", offset + length - 1))?;
            }
            if let Some(token) = &self.token
                && Url::new(url).is_ok_and(|url| url.origin() == token.origin)
            {
                headers.set("authorization", &format!("Bearer {}", token.value))?;
            }
            let init = RequestInit::new();
            init.set_headers(&headers);
            init.set_signal(Some(&cancel.controller.signal()));
            // The global object of a page and that of a worker have no common type that has `fetch`.
            let global = js_sys::global();
            let fetch: Function = Reflect::get(&global, &JsValue::from_str("fetch"))?.dyn_into()?;
            let promise: Promise = fetch.call2(&global, &JsValue::from_str(url), &init)?.dyn_into()?;
            let response: Response = JsFuture::from(promise).await?.dyn_into()?;
            Ok((response, cancel))
        };
        sent.await.map_err(|value: JsValue| self.failed(&value))
    }

    fn answer(&self, response: Response, cancel: Cancel, range: Option<(u64, u64)>) -> Result<Answer> {
        match response.status() {
            206 if range.is_some() => Ok(Answer::Part(Body::of_range(self, &response, cancel, range)?)),
            200 => Ok(Answer::Whole(Body::of_whole(self, &response, cancel)?)),
            404 | 410 => Ok(Answer::Missing),
            status => Err(self.refused(status, &response)),
        }
    }

    /// The error for a status of failure.
    fn refused(&self, status: u16, response: &Response) -> Error {
        let code = response.headers().get("x-error-code").ok().flatten();
        if let Some(hub) = &self.hub {
            let refused = Refused { status, code: code.as_deref(), with_token: self.token.is_some() };
            return refusal(&hub.endpoint, &hub.reference, hub.path.as_deref(), refused);
        }
        let url = &self.url;
        let text = response.status_text();
        let text = if text.is_empty() { text } else { format!(" {text}") };
        match status {
            401 | 403 => err!(
                AccessDenied,
                "{url}: the server answered {status}{text}; the file is not public: check the rights, or pass a File"
            ),
            416 => err!(
                Http,
                "{url}: the server answered {status}{text}; it has no such range: the file may be empty or have been replaced"
            ),
            429 | 500.. => err!(Http, "{url}: the server answered {status}{text}; try again later"),
            _ => err!(Http, "{url}: the server answered {status}{text}; check the address and the server"),
        }
    }

    /// The error for a missing file that is required.
    pub fn missing(&self) -> Error {
        match &self.hub {
            Some(hub) => {
                let refused = Refused { status: 404, code: None, with_token: self.token.is_some() };
                refusal(&hub.endpoint, &hub.reference, hub.path.as_deref(), refused)
            }
            None => err!(Http, "{}: the server answered 404 or 410; check the address", self.url),
        }
    }

    /// What `fetch` or a body was rejected with.
    pub fn failed(&self, value: &JsValue) -> Error {
        failed(&self.url, self.signal.as_ref(), value)
    }
}

/// What `fetch` or a body was rejected with.
pub(super) fn failed(url: &str, signal: Option<&AbortSignal>, value: &JsValue) -> Error {
    if signal.is_some_and(AbortSignal::aborted) {
        return aborted(url);
    }
    err!(
        Network,
        "{url}: the request failed ({}); check the address and the connection; a server of another origin must send \
         Access-Control-Allow-Origin",
        js_message(value)
    )
}
