//! Reads a file of a web server by HTTP range requests (RFC 9110, section 14), in a page and in a worker alike. What
//! `stream` gives stays in JavaScript's memory; only what `read` returns enters the wasm heap.
//!
//! Invariant: all parts come from one state of the file. Each answer's total size and strong entity tag are held
//! against the first one's, since mixed parts of two files would load and compute nonsense.

use js_sys::{Function, Promise, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, AbortSignal, Headers, ReadableStreamDefaultReader, RequestInit, Response};

use super::{
    bytes::JsBytes,
    source::{aborted, check_abort, js_message},
};
use crate::{
    engine::source::{ByteSource, Chunk, ChunkStream, LocalFuture, check_range},
    error::{Code, Error, Result},
};

/// The first request asks for this much, since a file's header is wanted next in any case.
const FIRST_BLOCK_BYTES: u64 = 256 << 10;
/// How often one stream goes on by a new request after its connection broke.
const MAX_RESUMPTIONS: u32 = 3;
/// The pause before the first resumption; each further one is twice as long.
const RESUMPTION_PAUSE_MS: i32 = 250;

pub struct FetchSource {
    server: Server,
    /// The start of the file. It stays in JavaScript's memory.
    first_block: Uint8Array,
    size: u64,
    entity_tag: Option<String>,
}

impl FetchSource {
    /// Asks for the first block and learns the size from the answer.
    pub async fn open(url: &str, signal: Option<AbortSignal>) -> Result<Self> {
        let server = Server { url: url.to_owned(), signal };
        let mut body = server.get(0, FIRST_BLOCK_BYTES).await?;
        let Some(size) = body.range.size else {
            bail!(
                RangeNotSupported,
                "{url}: the server answered a range request without the total size in Content-Range; if it is of \
                 another origin, it must send Access-Control-Expose-Headers: Content-Range; or pass a File"
            );
        };
        let wanted = size.min(FIRST_BLOCK_BYTES);
        if (body.range.start, body.range.end) != (0, wanted) {
            return Err(server.other_range(&body.range, 0, wanted));
        }
        let first_block = Uint8Array::new_with_length(wanted as u32);
        let mut filled = 0;
        while body.left > 0 {
            let chunk = body.next().await?;
            first_block.set(&chunk, filled);
            filled += chunk.length();
        }
        let entity_tag = body.entity_tag.take();
        Ok(Self { server, first_block, size, entity_tag })
    }

    /// The body of the range's answer, which is checked to be of the same file.
    async fn get(&self, offset: u64, length: u64) -> Result<Body> {
        let body = self.server.get(offset, length).await?;
        let url = &self.server.url;
        if let Some(size) = body.range.size.filter(|&size| size != self.size) {
            bail!(
                InvalidFile,
                "{url}: the file had {} bytes when it was opened and has {size} bytes now; it was replaced on the \
                 server, load it again",
                self.size
            );
        }
        match (&self.entity_tag, &body.entity_tag) {
            (Some(then), Some(now)) if then != now => bail!(
                InvalidFile,
                "{url}: the file had the entity tag {then} when it was opened and has {now} now; it was replaced on \
                 the server, load it again"
            ),
            _ => {}
        }
        if (body.range.start, body.range.end) != (offset, offset + length) {
            return Err(self.server.other_range(&body.range, offset, offset + length));
        }
        Ok(body)
    }

    fn stream_range(&self, offset: u64, length: u64) -> FetchStream<'_> {
        FetchStream { source: self, at: offset, end: offset + length, body: None, resumptions: 0 }
    }
}

impl ByteSource for FetchSource {
    fn name(&self) -> String {
        self.server.url.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            check_range(&self.server.url, self.size, offset, length as u64)?;
            let mut bytes = vec![0; length];
            let mut filled = 0;
            let block_bytes = u64::from(self.first_block.length());
            if offset < block_bytes {
                let end = block_bytes.min(offset + length as u64);
                filled = (end - offset) as usize;
                self.first_block.subarray(offset as u32, end as u32).copy_to(&mut bytes[..filled]);
            }
            let mut stream = self.stream_range(offset + filled as u64, (length - filled) as u64);
            while let Some(chunk) = stream.next_array().await? {
                // The stream gives no more than the range asks for.
                let end = filled + chunk.length() as usize;
                chunk.copy_to(&mut bytes[filled..end]);
                filled = end;
            }
            Ok(bytes)
        })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            check_range(&self.server.url, self.size, offset, length)?;
            Ok(Box::new(self.stream_range(offset, length)) as Box<dyn ChunkStream + 'a>)
        })
    }
}

struct FetchStream<'s> {
    source: &'s FetchSource,
    at: u64,
    end: u64,
    /// `None` before the first request and while the connection is broken.
    body: Option<Body>,
    resumptions: u32,
}

impl FetchStream<'_> {
    async fn next_array(&mut self) -> Result<Option<Uint8Array>> {
        loop {
            if self.at == self.end {
                self.body = None;
                return Ok(None);
            }
            match self.try_next().await {
                Ok(chunk) => {
                    self.at += u64::from(chunk.length());
                    return Ok(Some(chunk));
                }
                Err(error) if error.code() == Code::Network && self.resumptions < MAX_RESUMPTIONS => {
                    self.body = None;
                    pause(RESUMPTION_PAUSE_MS << self.resumptions).await?;
                    self.resumptions += 1;
                }
                Err(error) if error.code() == Code::Network => {
                    return Err(error.context(format_args!(
                        "the connection broke at byte {} of {} and {MAX_RESUMPTIONS} new requests did not help",
                        self.at, self.source.size
                    )));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A chunk of at least one byte; asked for only before the end.
    async fn try_next(&mut self) -> Result<Uint8Array> {
        let body = match &mut self.body {
            Some(body) => body,
            none => none.insert(self.source.get(self.at, self.end - self.at).await?),
        };
        body.next().await
    }
}

impl ChunkStream for FetchStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move {
            let chunk = self.next_array().await?;
            Ok(chunk.map(|chunk| Box::new(JsBytes::new(chunk)) as Chunk))
        })
    }
}

/// Who is asked, and who may stop it.
struct Server {
    url: String,
    signal: Option<AbortSignal>,
}

impl Server {
    /// Sends a GET for a range (`length` ≥ 1) and gives its answer's body once the headers are there and are right.
    async fn get(&self, offset: u64, length: u64) -> Result<Body> {
        let url = &self.url;
        check_abort(self.signal.as_ref(), url)?;
        let cancel = Cancel::new(self.signal.as_ref()).map_err(|value| self.failed(&value))?;
        let response = self.fetch(&cancel, &format!("bytes={offset}-{}", offset + length - 1)).await;
        let response = response.map_err(|value| self.failed(&value))?;
        match response.status() {
            206 => {}
            200 => bail!(
                RangeNotSupported,
                "{url}: the server answered 200 to a range request, wanted 206; serve the file with Accept-Ranges: \
                 bytes, or pass a File"
            ),
            status => {
                let advice = match status {
                    401 | 403 => "the file is not public: check the rights, or pass a File",
                    404 | 410 => "check the address",
                    416 => "the server has no such range: the file may be empty or have been replaced",
                    429 | 500.. => "try again later",
                    _ => "check the address and the server",
                };
                let text = response.status_text();
                bail!(
                    Http,
                    "{url}: the server answered {status}{}{text}; {advice}",
                    if text.is_empty() { "" } else { " " }
                );
            }
        }
        let headers = response.headers();
        let header = |name| headers.get(name).ok().flatten();
        let range = match header("content-range") {
            Some(text) => Range::parse(&text).ok_or_else(|| {
                err!(RangeNotSupported, "{url}: the server sent Content-Range: {text:?}, wanted bytes FIRST-LAST/SIZE")
            })?,
            // Of another origin and not exposed to scripts; 206 still says that the range is the asked one.
            None => Range { start: offset, end: offset + length, size: None },
        };
        let Some(stream) = response.body() else {
            bail!(Network, "{url}: the server answered 206 without a body");
        };
        let reader = ReadableStreamDefaultReader::new(&stream).map_err(|value| self.failed(&value))?;
        // A weak tag may be the same for different bytes.
        let entity_tag = header("etag").filter(|tag| tag.starts_with('"'));
        let left = range.end - range.start;
        Ok(Body { url: url.clone(), reader, range, entity_tag, left, cancel })
    }

    async fn fetch(&self, cancel: &Cancel, range: &str) -> Result<Response, JsValue> {
        let headers = Headers::new()?;
        headers.set("range", range)?;
        let init = RequestInit::new();
        init.set_headers(&headers);
        init.set_signal(Some(&cancel.controller.signal()));
        // The global object of a page and that of a worker have no common type that has `fetch`.
        let global = js_sys::global();
        let fetch: Function = Reflect::get(&global, &JsValue::from_str("fetch"))?.dyn_into()?;
        let promise: Promise = fetch.call2(&global, &JsValue::from_str(&self.url), &init)?.dyn_into()?;
        JsFuture::from(promise).await?.dyn_into()
    }

    fn failed(&self, value: &JsValue) -> Error {
        failed(&self.url, self.signal.as_ref(), value)
    }

    fn other_range(&self, found: &Range, start: u64, end: u64) -> Error {
        err!(
            RangeNotSupported,
            "{}: asked for bytes {start} to {end}, the server answered with bytes {} to {}; it does not serve ranges \
             rightly, pass a File",
            self.url,
            found.start,
            found.end
        )
    }
}

/// What `fetch` or a body was rejected with.
fn failed(url: &str, signal: Option<&AbortSignal>, value: &JsValue) -> Error {
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

/// What an answer says about its part of the file: bytes `start` to `end` (exclusive).
struct Range {
    start: u64,
    end: u64,
    size: Option<u64>,
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

/// The body of an answer. Dropping it ends the request.
struct Body {
    url: String,
    reader: ReadableStreamDefaultReader,
    range: Range,
    entity_tag: Option<String>,
    /// How many bytes of the range are still to come.
    left: u64,
    cancel: Cancel,
}

impl Body {
    /// The next chunk, of at least one byte; asked for only while something is left. A body that ends early is
    /// `Code::Network`.
    async fn next(&mut self) -> Result<Uint8Array> {
        let signal = self.cancel.outer.as_ref();
        loop {
            let result = JsFuture::from(self.reader.read()).await;
            let result = result.map_err(|value| failed(&self.url, signal, &value))?;
            check_abort(signal, &self.url)?;
            let field = |name| Reflect::get(&result, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
            if field("done").is_truthy() {
                bail!(
                    Network,
                    "{}: the answer ended {} bytes before the end of its range {} to {}",
                    self.url,
                    self.left,
                    self.range.start,
                    self.range.end
                );
            }
            let Ok(chunk) = field("value").dyn_into::<Uint8Array>() else {
                bail!(Internal, "{}: a chunk of a body is no Uint8Array", self.url);
            };
            let length = u64::from(chunk.length());
            if length > self.left {
                bail!(
                    InvalidFile,
                    "{}: the server sent more than the range {} to {} that it announced",
                    self.url,
                    self.range.start,
                    self.range.end
                );
            }
            self.left -= length;
            if length > 0 {
                return Ok(chunk);
            }
        }
    }
}

/// Ends a request when it is dropped or when the caller's signal says so. `AbortSignal.any` would do the second, but
/// the first browsers with WebGPU don't have it.
struct Cancel {
    controller: AbortController,
    outer: Option<AbortSignal>,
    on_abort: Closure<dyn FnMut()>,
}

impl Cancel {
    fn new(outer: Option<&AbortSignal>) -> Result<Self, JsValue> {
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
            // It can only fail for arguments of wrong types.
            let _ = signal.remove_event_listener_with_callback("abort", self.on_abort.as_ref().unchecked_ref());
        }
        self.controller.abort(); // no effect on a request that is complete
    }
}

/// Waits; pages and workers both have `setTimeout`.
async fn pause(milliseconds: i32) -> Result<()> {
    let promise = Promise::new(&mut |resolve, reject| {
        let global = js_sys::global();
        let set_timeout = Reflect::get(&global, &JsValue::from_str("setTimeout"));
        let set_timeout = set_timeout.and_then(|function| function.dyn_into::<Function>());
        let started = set_timeout.and_then(|function| function.call2(&global, &resolve, &JsValue::from(milliseconds)));
        if let Err(value) = started {
            // A function of the engine's own; nothing can be done about its failing.
            let _ = reject.call1(&JsValue::UNDEFINED, &value);
        }
    });
    JsFuture::from(promise).await.map(drop).map_err(|value| err!(Internal, "setTimeout failed: {}", js_message(&value)))
}
