//! The body of a response, chunk by chunk.

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, AbortSignal, ReadableStreamDefaultReader, Response};

use super::super::source::check_abort;
use super::request::{Server, failed};
use crate::error::Result;

/// The part of the file in a response, by its headers: bytes `start` to `end` (exclusive).
#[derive(Clone, Copy)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    /// Of the file.
    pub size: Option<u64>,
}

impl Range {
    /// `bytes FIRST-LAST/SIZE`, where SIZE may be `*`.
    fn parse(text: &str) -> Option<Self> {
        let (range, size) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (start, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let size = if size.trim() == "*" { None } else { Some(size.trim().parse().ok()?) };
        let end = last.checked_add(1)?;
        (start < end && size.is_none_or(|size| end <= size)).then_some(Self { start, end, size })
    }
}

/// The body of a response. Dropping it ends the request.
pub struct Body {
    url: String,
    reader: Option<ReadableStreamDefaultReader>,
    pub range: Range,
    /// The strong entity tag: a weak one may be the same for different bytes.
    pub entity_tag: Option<String>,
    /// The number of missing bytes; `None` if the server does not say it.
    pub left: Option<u64>,
    cancel: Cancel,
}

impl Body {
    /// Of a response 206.
    pub(super) fn of_range(
        server: &Server,
        response: &Response,
        cancel: Cancel,
        asked: Option<(u64, u64)>,
    ) -> Result<Self> {
        let range = match (header(response, "content-range"), asked) {
            (Some(text), _) => match Range::parse(&text) {
                Some(range) => range,
                None => bail!(
                    RangeNotSupported,
                    "{}: the server sent Content-Range: {text:?}, wanted bytes FIRST-LAST/SIZE",
                    server.url
                ),
            },
            // The header of another origin may be hidden from scripts; 206 still means that the range is the requested one.
            (None, Some((offset, length))) => Range { start: offset, end: offset + length, size: None },
            (None, None) => bail!(Network, "{}: the server answered 206 to a request without a range", server.url),
        };
        Self::new(server, response, cancel, range, Some(range.end - range.start))
    }

    /// Of a response 200.
    pub(super) fn of_whole(server: &Server, response: &Response, cancel: Cancel) -> Result<Self> {
        // With a content coding, the length is that of the encoded bytes.
        let coded = header(response, "content-encoding").is_some_and(|coding| coding != "identity");
        let length = header(response, "content-length").and_then(|text| text.trim().parse().ok());
        let size = length.filter(|_| !coded);
        Self::new(server, response, cancel, Range { start: 0, end: size.unwrap_or(0), size }, size)
    }

    fn new(server: &Server, response: &Response, cancel: Cancel, range: Range, left: Option<u64>) -> Result<Self> {
        let reader = match response.body() {
            Some(stream) => {
                let reader = ReadableStreamDefaultReader::new(&stream).map_err(|value| server.failed(&value))?;
                Some(reader)
            }
            None if left.unwrap_or(0) == 0 => None,
            None => bail!(Network, "{}: the server answered {} without a body", server.url, response.status()),
        };
        let entity_tag = header(response, "etag").filter(|tag| tag.starts_with('"'));
        Ok(Self { url: server.url.clone(), reader, range, entity_tag, left, cancel })
    }

    /// The next chunk, of at least one byte, or `None` at the end. `Code::Network` if the body ends before its length.
    pub async fn next(&mut self) -> Result<Option<Uint8Array>> {
        let Some(reader) = &self.reader else { return Ok(None) };
        if self.left == Some(0) {
            return Ok(None);
        }
        let signal = self.cancel.outer.as_ref();
        loop {
            let result = JsFuture::from(reader.read()).await;
            let result = result.map_err(|value| failed(&self.url, signal, &value))?;
            check_abort(signal, &self.url)?;
            let field = |name| Reflect::get(&result, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
            if field("done").is_truthy() {
                match self.left {
                    None => return Ok(None),
                    Some(left) => bail!(Network, "{}: the answer ended {left} bytes before its end", self.url),
                }
            }
            let Ok(chunk) = field("value").dyn_into::<Uint8Array>() else {
                bail!(Internal, "{}: a chunk of a body is not a Uint8Array", self.url);
            };
            let length = u64::from(chunk.length());
            if let Some(left) = &mut self.left {
                if length > *left {
                    bail!(InvalidFile, "{}: the server sent more bytes than it announced", self.url);
                }
                *left -= length;
            }
            if length > 0 {
                return Ok(Some(chunk));
            }
        }
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).ok().flatten()
}

/// Ends a request when it is dropped or when the caller's signal aborts. `AbortSignal.any` could do the latter, but the first
/// browsers with WebGPU don't have it.
pub struct Cancel {
    pub(super) controller: AbortController,
    outer: Option<AbortSignal>,
    on_abort: Closure<dyn FnMut()>,
}

impl Cancel {
    pub(super) fn new(outer: Option<&AbortSignal>) -> Result<Self, JsValue> {
        let controller = AbortController::new()?;
        let inner = controller.clone();
        let on_abort = Closure::<dyn FnMut()>::new(move || inner.abort());
        if let Some(signal) = outer {
            signal.add_event_listener_with_callback("abort", on_abort.as_ref().unchecked_ref())?;
        }
        Ok(Self { controller, outer: outer.cloned(), on_abort })
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(signal) = &self.outer {
            // It only fails for arguments of wrong types.
            let _ = signal.remove_event_listener_with_callback("abort", self.on_abort.as_ref().unchecked_ref());
        }
        self.controller.abort(); // no effect on a request that is complete
    }
}
