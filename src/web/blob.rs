//! Reads a Blob or File by slices. Only the results of `read` enter the wasm heap.

use std::rc::Rc;

use js_sys::{Reflect, Uint8Array};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Blob};

use super::{abort::check_abort, bytes::JsBytes, convert::js_number, thrown::js_message};
use crate::{
    engine::source::{ByteSource, CHUNK_BYTES, Chunk, ChunkStream, LocalFuture, check_range},
    error::{Error, Result},
};

pub struct BlobSource {
    blob: Blob,
    name: String,
    size: u64,
    signal: Option<AbortSignal>,
}

impl BlobSource {
    pub fn new(blob: Blob, signal: Option<AbortSignal>) -> Self {
        // A File has a name, other Blobs have none.
        let name = Reflect::get(&blob, &JsValue::from_str("name")).ok().and_then(|name| name.as_string());
        let size = blob.size() as u64;
        Self { blob, name: name.unwrap_or_else(|| "Blob".to_owned()), size, signal }
    }

    /// The bytes of a range of the Blob, in JavaScript's memory.
    async fn slice(&self, offset: u64, length: u64) -> Result<Uint8Array> {
        check_abort(self.signal.as_ref(), &self.name)?;
        let failed = |value: JsValue| self.failed(offset, length, &value);
        let end = js_number(offset + length);
        let slice = self.blob.slice_with_f64_and_f64(js_number(offset), end).map_err(failed)?;
        let buffer = JsFuture::from(slice.array_buffer()).await.map_err(failed)?;
        check_abort(self.signal.as_ref(), &self.name)?;
        let bytes = Uint8Array::new(&buffer);
        if u64::from(bytes.length()) != length {
            bail!(
                Truncated,
                "{}: wanted {length} bytes at offset {offset}, found {}; the file has changed, open it again",
                self.name,
                bytes.length()
            );
        }
        Ok(bytes)
    }

    fn failed(&self, offset: u64, length: u64, value: &JsValue) -> Error {
        err!(
            Read,
            "{}: reading {length} bytes at offset {offset} failed: {}; if the file was changed or moved, choose it again",
            self.name,
            js_message(value)
        )
    }
}

impl ByteSource for BlobSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            check_range(&self.name, self.size, offset, length as u64)?;
            Ok(self.slice(offset, length as u64).await?.to_vec())
        })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            check_range(&self.name, self.size, offset, length)?;
            Ok(Box::new(BlobStream { source: self, at: offset, end: offset + length }) as Box<dyn ChunkStream + 'a>)
        })
    }

    fn lasting<'a>(&'a self, _: u64, _: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        // The signal is the load's.
        Box::pin(async move { Ok(Some(Rc::new(Self::new(self.blob.clone(), None)) as Rc<dyn ByteSource>)) })
    }
}

struct BlobStream<'s> {
    source: &'s BlobSource,
    at: u64,
    end: u64,
}

impl ChunkStream for BlobStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move {
            let length = (self.end - self.at).min(CHUNK_BYTES as u64);
            if length == 0 {
                return Ok(None);
            }
            let bytes = self.source.slice(self.at, length).await?;
            self.at += length;
            Ok(Some(Box::new(JsBytes::new(bytes)) as Chunk))
        })
    }
}
