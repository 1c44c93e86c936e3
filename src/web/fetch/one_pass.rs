//! A file of a server that does not support ranges: its single response is read from front to back. Bytes can't be read twice, except
//! the start, which is kept until the weights are streamed.

use std::cell::RefCell;
use std::collections::VecDeque;

use js_sys::Uint8Array;

use super::super::bytes::JsBytes;
use super::body::Body;
use crate::engine::source::{ByteSource, Chunk, ChunkStream, LocalFuture, check_range};
use crate::error::{Error, Result};

/// The most bytes that are kept. A header with a large vocabulary has about 30 MB.
const MAX_KEPT_BYTES: u64 = 256 << 20;

pub struct OnePassSource {
    url: String,
    size: u64,
    /// `None` while a read or a stream works on it.
    passed: RefCell<Option<Passed>>,
}

struct Passed {
    body: Body,
    /// The kept chunks, without gaps; they stay in JavaScript's memory.
    kept: VecDeque<Uint8Array>,
    /// The range of the file in `kept`.
    start: u64,
    end: u64,
}

impl OnePassSource {
    /// For the whole body of a response with a length.
    pub fn new(url: String, size: u64, body: Body) -> Self {
        let passed = Passed { body, kept: VecDeque::new(), start: 0, end: 0 };
        Self { url, size, passed: RefCell::new(Some(passed)) }
    }

    fn take(&self) -> Result<Passed> {
        match self.passed.borrow_mut().take() {
            Some(passed) => Ok(passed),
            None => bail!(RangeNotSupported, "{}: {ADVICE}; two parts of it were asked for at once", self.url),
        }
    }

    fn too_late(&self, offset: u64, passed: &Passed) -> Error {
        err!(
            RangeNotSupported,
            "{}: {ADVICE}, and the model asks for byte {offset} after byte {}",
            self.url,
            passed.start
        )
    }

    async fn read_range(&self, passed: &mut Passed, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset + out.len() as u64;
        if offset < passed.start {
            return Err(self.too_late(offset, passed));
        }
        if end - passed.start > MAX_KEPT_BYTES {
            bail!(RangeNotSupported, "{}: {ADVICE}, and what the model asks for first is far into the file", self.url);
        }
        while passed.end < end {
            passed.more(&self.url).await?;
        }
        let mut at = passed.start;
        for chunk in &passed.kept {
            let chunk_end = at + u64::from(chunk.length());
            let (from, to) = (offset.max(at), end.min(chunk_end));
            if from < to {
                let part = chunk.subarray((from - at) as u32, (to - at) as u32);
                part.copy_to(&mut out[(from - offset) as usize..(to - offset) as usize]);
            }
            at = chunk_end;
        }
        Ok(())
    }
}

const ADVICE: &str = "the server does not serve ranges (it answered 200 and not 206), so the file can be read once from front to \
                      back; serve it with Accept-Ranges: bytes, or pass a File";

impl Passed {
    async fn more(&mut self, url: &str) -> Result<()> {
        match self.body.next().await? {
            Some(chunk) => {
                self.end += u64::from(chunk.length());
                self.kept.push_back(chunk);
                Ok(())
            }
            None => bail!(Network, "{url}: the answer ended at byte {}", self.end),
        }
    }
}

impl ByteSource for OnePassSource {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            check_range(&self.url, self.size, offset, length as u64)?;
            let mut bytes = vec![0; length];
            let mut passed = self.take()?;
            let read = self.read_range(&mut passed, offset, &mut bytes).await;
            self.passed.replace(Some(passed));
            read.map(|()| bytes)
        })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            check_range(&self.url, self.size, offset, length)?;
            let passed = self.take()?;
            if offset < passed.start {
                let error = self.too_late(offset, &passed);
                self.passed.replace(Some(passed));
                return Err(error);
            }
            let stream = OnePassStream { source: self, passed: Some(passed), at: offset, end: offset + length };
            Ok(Box::new(stream) as Box<dyn ChunkStream + 'a>)
        })
    }
}

/// Puts the body back when it is dropped, at its current position.
struct OnePassStream<'s> {
    source: &'s OnePassSource,
    passed: Option<Passed>,
    at: u64,
    end: u64,
}

impl ChunkStream for OnePassStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move {
            let Some(passed) = &mut self.passed else { return Ok(None) };
            while self.at < self.end {
                let Some(chunk) = passed.kept.pop_front() else {
                    passed.more(&self.source.url).await?;
                    continue;
                };
                let (start, chunk_end) = (passed.start, passed.start + u64::from(chunk.length()));
                if chunk_end <= self.at {
                    passed.start = chunk_end;
                    continue;
                }
                let to = chunk_end.min(self.end);
                let part = chunk.subarray((self.at - start) as u32, (to - start) as u32);
                if to < chunk_end {
                    passed.kept.push_front(chunk.subarray((to - start) as u32, chunk.length()));
                }
                passed.start = to;
                self.at = to;
                return Ok(Some(Box::new(JsBytes::new(part)) as Chunk));
            }
            Ok(None)
        })
    }
}

impl Drop for OnePassStream<'_> {
    fn drop(&mut self) {
        self.source.passed.replace(self.passed.take());
    }
}
