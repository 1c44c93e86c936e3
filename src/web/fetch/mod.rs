//! Reads a file of a web server by HTTP range requests (RFC 9110, section 14), in a page or in a worker. Chunks of `stream` stay
//! in JavaScript's memory; only the results of `read` enter the wasm heap.
//!
//! Invariant: all parts come from one state of the file. The total size and strong entity tag of each response are compared with
//! those of the first, because mixed parts of two files would load and compute nonsense.

mod body;
mod one_pass;
mod request;

use js_sys::{Function, Promise, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

pub use self::request::{HubFile, Server, Token};

use self::body::{Body, Range};
use self::one_pass::OnePassSource;
use self::request::Answer;
use super::bytes::JsBytes;
use super::source::js_message;
use crate::engine::source::{ByteSource, Chunk, ChunkStream, LocalFuture, check_range};
use crate::error::{Code, Error, Result};

/// The length of the first request, because a file's header is always read next.
const FIRST_BLOCK_BYTES: u64 = 256 << 10;
/// How often a stream resumes with a new request after its connection broke.
const MAX_RESUMPTIONS: u32 = 3;
/// The pause before the first resumption, in milliseconds; it doubles each time.
const RESUMPTION_PAUSE_MS: i32 = 250;

/// Opens a file for reading by ranges, or in one pass if the server does not support ranges. `None` if there is no such file.
pub async fn open(server: Server) -> Result<Option<Box<dyn ByteSource>>> {
    match server.get(Some((0, FIRST_BLOCK_BYTES))).await? {
        Answer::Missing => Ok(None),
        Answer::Part(body) => Ok(Some(Box::new(FetchSource::open(server, body).await?))),
        Answer::Whole(body) => match body.left {
            Some(size) => Ok(Some(Box::new(OnePassSource::new(server.url, size, body)))),
            None => bail!(
                RangeNotSupported,
                "{}: the server does not serve ranges (it answered 200 and not 206) and does not say the file's size; serve it with \
                 Accept-Ranges: bytes and without compression, or pass a File",
                server.url
            ),
        },
    }
}

/// The contents of a file of at most `limit` bytes. `None` if there is no such file.
pub async fn read_whole(server: &Server, limit: u64) -> Result<Option<Vec<u8>>> {
    let mut body = match server.get(None).await? {
        Answer::Missing => return Ok(None),
        Answer::Whole(body) | Answer::Part(body) => body,
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await? {
        let at = bytes.len();
        let size = at + chunk.length() as usize;
        if size as u64 > limit {
            bail!(InvalidFile, "{}: the file has more than {limit} bytes", server.url);
        }
        bytes.resize(size, 0);
        chunk.copy_to(&mut bytes[at..]);
    }
    Ok(Some(bytes))
}

/// A file that is read by ranges.
pub struct FetchSource {
    server: Server,
    /// The start of the file. It stays in JavaScript's memory.
    first_block: Uint8Array,
    size: u64,
    entity_tag: Option<String>,
}

impl FetchSource {
    /// From the first response, which has the size.
    async fn open(server: Server, mut body: Body) -> Result<Self> {
        let Some(size) = body.range.size else {
            bail!(
                RangeNotSupported,
                "{}: the server answered a range request without the total size in Content-Range; if it is of another origin, it must \
                 send Access-Control-Expose-Headers: Content-Range; or pass a File",
                server.url
            );
        };
        let wanted = size.min(FIRST_BLOCK_BYTES);
        if (body.range.start, body.range.end) != (0, wanted) {
            return Err(other_range(&server.url, &body.range, 0, wanted));
        }
        let first_block = Uint8Array::new_with_length(wanted as u32);
        let mut filled = 0;
        while let Some(chunk) = body.next().await? {
            first_block.set(&chunk, filled);
            filled += chunk.length();
        }
        let entity_tag = body.entity_tag.take();
        Ok(Self { server, first_block, size, entity_tag })
    }

    /// The body of the response for a range, after a check that it is the same file.
    async fn get(&self, offset: u64, length: u64) -> Result<Body> {
        let url = &self.server.url;
        let body = match self.server.get(Some((offset, length))).await? {
            Answer::Part(body) => body,
            Answer::Missing => return Err(self.server.missing()),
            Answer::Whole(_) => bail!(
                RangeNotSupported,
                "{url}: the server answered 200 to a range request after it had answered 206; it does not serve ranges rightly, \
                 pass a File"
            ),
        };
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
            return Err(other_range(url, &body.range, offset, offset + length));
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
                // The stream never gives more than the range.
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

    /// A chunk of at least one byte. Only called before the end.
    async fn try_next(&mut self) -> Result<Uint8Array> {
        let body = match &mut self.body {
            Some(body) => body,
            none => none.insert(self.source.get(self.at, self.end - self.at).await?),
        };
        match body.next().await? {
            Some(chunk) => Ok(chunk),
            None => bail!(Network, "{}: the answer ended at byte {}", self.source.server.url, self.at),
        }
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

fn other_range(url: &str, found: &Range, start: u64, end: u64) -> Error {
    err!(
        RangeNotSupported,
        "{url}: asked for bytes {start} to {end}, the server answered with bytes {} to {}; it does not serve ranges rightly, pass a \
         File",
        found.start,
        found.end
    )
}

/// Waits; pages and workers both have `setTimeout`.
async fn pause(milliseconds: i32) -> Result<()> {
    let promise = Promise::new(&mut |resolve, reject| {
        let global = js_sys::global();
        let set_timeout = Reflect::get(&global, &JsValue::from_str("setTimeout"));
        let set_timeout = set_timeout.and_then(|function| function.dyn_into::<Function>());
        let started = set_timeout.and_then(|function| function.call2(&global, &resolve, &JsValue::from(milliseconds)));
        if let Err(value) = started {
            // A built-in function; its failure can't be handled.
            let _ = reject.call1(&JsValue::UNDEFINED, &value);
        }
    });
    JsFuture::from(promise).await.map(drop).map_err(|value| err!(Internal, "setTimeout failed: {}", js_message(&value)))
}
