//! A source of the application, or a file of a server that JavaScript opened: an object with `size` and `read(offset, length)`.

use std::rc::Rc;

use js_sys::{ArrayBuffer, Function, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::AbortSignal;

use super::{
    abort::{aborted, check_abort},
    bytes::JsBytes,
    convert::js_number,
    thrown::{coded_error, js_message},
};
use crate::{
    engine::source::{ByteSource, CHUNK_BYTES, Chunk, ChunkStream, LocalFuture, check_range},
    error::{Error, Result},
};

/// From what a read was rejected with to its error.
pub type Refusal = dyn Fn(&JsValue) -> Error;

pub struct JsSource {
    name: String,
    object: JsValue,
    read: Function,
    size: u64,
    signal: Option<AbortSignal>,
    /// What it means that a read was rejected; `None` for a source of the application.
    refusal: Option<Rc<Refusal>>,
}

impl JsSource {
    pub fn new(name: &str, object: JsValue, signal: Option<AbortSignal>) -> Result<Self> {
        let field = |key: &str| Reflect::get(&object, &JsValue::from_str(key)).unwrap_or(JsValue::UNDEFINED);
        let size = field("size").as_f64();
        let read = field("read").dyn_into::<Function>();
        let (Some(size), Ok(read)) = (size, read) else {
            bail!(
                InvalidRequest,
                "{name}: wanted a Blob, or an object with a number size and a function read(offset, length)"
            );
        };
        // Above this, JavaScript's numbers have gaps.
        if !(0.0..=9007199254740991.0).contains(&size) || size.fract() != 0.0 {
            bail!(InvalidRequest, "{name}: its size is {size}, wanted a whole number of bytes");
        }
        Ok(Self { name: name.to_owned(), object, read, size: size as u64, signal, refusal: None })
    }

    /// Sets what it means that a read was rejected.
    pub fn with_refusal(self, refusal: Rc<Refusal>) -> Self {
        Self { refusal: Some(refusal), ..self }
    }

    /// Starts reading; the promise resolves to a `Uint8Array` or an `ArrayBuffer`.
    fn start(&self, offset: u64, length: u64) -> Result<Promise> {
        check_abort(self.signal.as_ref(), &self.name)?;
        let (offset, length) = (js_number(offset).into(), js_number(length).into());
        match self.read.call2(&self.object, &offset, &length) {
            Ok(value) => Ok(Promise::resolve(&value)),
            Err(value) => bail!(Read, "{}: read() threw: {}", self.name, js_message(&value)),
        }
    }

    async fn finish(&self, read: Promise, offset: u64, length: u64) -> Result<Uint8Array> {
        let value = JsFuture::from(read).await.map_err(|value| {
            if self.signal.as_ref().is_some_and(AbortSignal::aborted) {
                return aborted(&self.name);
            }
            match (&self.refusal, coded_error(&value)) {
                (Some(refusal), _) => refusal(&value),
                (None, Some(error)) => error,
                (None, None) => {
                    err!(
                        Read,
                        "{}: reading {length} bytes at offset {offset} failed: {}",
                        self.name,
                        js_message(&value)
                    )
                }
            }
        })?;
        check_abort(self.signal.as_ref(), &self.name)?;
        let bytes = match (value.dyn_ref::<Uint8Array>(), value.dyn_ref::<ArrayBuffer>()) {
            (Some(bytes), _) => bytes.clone(),
            (None, Some(buffer)) => Uint8Array::new(buffer),
            (None, None) => bail!(
                Read,
                "{}: read() gave {}, wanted a Uint8Array or an ArrayBuffer",
                self.name,
                value.js_typeof().as_string().unwrap_or_default()
            ),
        };
        if u64::from(bytes.length()) != length {
            bail!(Truncated, "{}: read() gave {} bytes at offset {offset}, wanted {length}", self.name, bytes.length());
        }
        Ok(bytes)
    }
}

impl ByteSource for JsSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            check_range(&self.name, self.size, offset, length as u64)?;
            if length == 0 {
                return Ok(Vec::new());
            }
            let read = self.start(offset, length as u64)?;
            Ok(self.finish(read, offset, length as u64).await?.to_vec())
        })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            check_range(&self.name, self.size, offset, length)?;
            let stream = JsStream { source: self, at: offset, end: offset + length, ahead: None };
            Ok(Box::new(stream) as Box<dyn ChunkStream + 'a>)
        })
    }

    fn lasting<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        Box::pin(async move {
            let object = match &self.refusal {
                None => self.object.clone(),
                Some(refusal) => {
                    let opened =
                        self.object.unchecked_ref::<OpenedFile>().lasting(js_number(offset), js_number(length));
                    opened.await.map_err(|value| refusal(&value))?
                }
            };
            if object.is_null() {
                return Ok(None);
            }
            // The signal is the load's.
            let lasting = Self { refusal: self.refusal.clone(), ..Self::new(&self.name, object, None)? };
            Ok(Some(Rc::new(lasting) as Rc<dyn ByteSource>))
        })
    }
}

#[wasm_bindgen]
extern "C" {
    /// `OpenedFile` of `pkg-template/src/files/remote_files.ts`.
    type OpenedFile;

    #[wasm_bindgen(method, catch)]
    async fn lasting(this: &OpenedFile, offset: f64, length: f64) -> Result<JsValue, JsValue>;
}

struct JsStream<'s> {
    source: &'s JsSource,
    at: u64,
    end: u64,
    /// The chunk at `at` is being read while the one before it is used.
    ahead: Option<Promise>,
}

impl JsStream<'_> {
    fn start(&self) -> Result<Option<Promise>> {
        match (self.end - self.at).min(CHUNK_BYTES as u64) {
            0 => Ok(None),
            length => self.source.start(self.at, length).map(Some),
        }
    }
}

impl ChunkStream for JsStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move {
            let read = match self.ahead.take() {
                Some(read) => Some(read),
                None => self.start()?,
            };
            let Some(read) = read else { return Ok(None) };
            let length = (self.end - self.at).min(CHUNK_BYTES as u64);
            let bytes = self.source.finish(read, self.at, length).await?;
            self.at += length;
            self.ahead = self.start()?;
            Ok(Some(Box::new(JsBytes::new(bytes)) as Chunk))
        })
    }
}

impl Drop for JsStream<'_> {
    fn drop(&mut self) {
        // An error of a read that was dropped is ignored, and must not become an unhandled rejection.
        if let Some(read) = self.ahead.take() {
            wasm_bindgen_futures::spawn_local(async move { drop(JsFuture::from(read).await) });
        }
    }
}
