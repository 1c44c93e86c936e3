//! Where the bytes of a model come from: asynchronous ranged reads, and streams of chunks on their way to the GPU.
//!
//! Knows nothing of GGUF, tensors' shapes, URLs or browsers; the browser's sources implement the same traits in `web`. Futures are not
//! `Send`: in the browser everything is on one thread, and JavaScript values can't leave it.

use std::{
    fs::File,
    future::Future,
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
};

use crate::{error::Result, tensor::HostBytes};

/// A piece of a stream. It may be Rust memory or a JavaScript array that never enters the wasm heap.
pub type Chunk = Box<dyn HostBytes>;

/// A boxed future that stays on its thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The default length of a chunk of [`MemorySource`] and [`FileSource`].
pub const CHUNK_BYTES: usize = 4 << 20;

/// Bytes that can be read by range. The size is known once the source is open.
pub trait ByteSource {
    /// A file name or an address, for messages.
    fn name(&self) -> String;

    /// Length in bytes.
    fn size(&self) -> u64;

    /// Exactly `length` bytes from `offset`, or an error; a range beyond the end is `Code::Truncated`.
    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>>;

    /// A stream of `length` bytes from `offset`. A range beyond the end is `Code::Truncated`.
    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>>;

    /// The same bytes for reads of a few of them at any later time, of which `length` from `offset` on are wanted. `None` if they are not at hand: not on
    /// this device, or not for as long.
    fn lasting<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        let _ = (offset, length);
        Box::pin(async { Ok(None) })
    }
}

impl<S: ByteSource + ?Sized> ByteSource for &S {
    fn name(&self) -> String {
        (**self).name()
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        (**self).read(offset, length)
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        (**self).stream(offset, length)
    }

    fn lasting<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        (**self).lasting(offset, length)
    }
}

/// Chunks in order, then `None`. Each has at least one byte, and together they have exactly the requested length. A source that ends early
/// returns an error, never a short stream. Dropping the stream cancels its request.
pub trait ChunkStream {
    /// The next chunk, or `None` at the end.
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>>;
}

/// The check that every source makes before it reads: the range lies within the source.
pub fn check_range(name: &str, size: u64, offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => bail!(
            Truncated,
            "{name}: wanted {length} bytes at offset {offset}, but it ends after {size} bytes; it may be cut off, \
             download it again"
        ),
    }
}

/// A model in memory.
#[derive(Clone)]
pub struct MemorySource {
    name: String,
    bytes: Rc<Vec<u8>>,
    chunk_bytes: usize,
}

impl MemorySource {
    /// A source named "memory".
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { name: "memory".to_owned(), bytes: Rc::new(bytes), chunk_bytes: CHUNK_BYTES }
    }

    /// The same with a name for messages, which is also the file's name in `OneFile`.
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the length of the chunks (the last one of a stream may be shorter). Zero counts as one.
    pub fn with_chunk_bytes(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes: chunk_bytes.max(1), ..self }
    }

    /// The bytes that it was made of.
    pub fn into_bytes(self) -> Vec<u8> {
        Rc::unwrap_or_clone(self.bytes)
    }

    fn slice(&self, offset: u64, length: u64) -> Result<&[u8]> {
        check_range(&self.name, self.size(), offset, length)?;
        // The range is inside of a slice, so both numbers fit usize.
        Ok(&self.bytes[offset as usize..][..length as usize])
    }
}

impl ByteSource for MemorySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move { Ok(self.slice(offset, length as u64)?.to_vec()) })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            let chunks = self.slice(offset, length)?.chunks(self.chunk_bytes);
            Ok(Box::new(MemoryStream { chunks }) as Box<dyn ChunkStream + 'a>)
        })
    }

    fn lasting<'a>(&'a self, _: u64, _: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        Box::pin(async move { Ok(Some(Rc::new(self.clone()) as Rc<dyn ByteSource>)) })
    }
}

struct MemoryStream<'s> {
    chunks: std::slice::Chunks<'s, u8>,
}

impl ChunkStream for MemoryStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move { Ok(self.chunks.next().map(|chunk| Box::new(chunk.to_vec()) as Chunk)) })
    }
}

/// A file of the operating system. Its reads block; in a browser there are no such files and opening one fails.
pub struct FileSource {
    path: PathBuf,
    file: File,
    size: u64,
    chunk_bytes: usize,
}

impl FileSource {
    /// Opens a file. `Code::Read` if it can't be opened or is a folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let failed = |error| err!(Read, "{}: the file can't be opened: {error}", path.display());
        let file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            bail!(Read, "{}: wanted a file, found a folder or a device", path.display());
        }
        Ok(Self { file, size: metadata.len(), path, chunk_bytes: CHUNK_BYTES })
    }

    /// Sets the length of the chunks (the last one of a stream may be shorter). Zero counts as one.
    pub fn with_chunk_bytes(self, chunk_bytes: usize) -> Self {
        Self { chunk_bytes: chunk_bytes.max(1), ..self }
    }

    fn read_now(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        check_range(&self.name(), self.size, offset, length as u64)?;
        let mut bytes = vec![0; length];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut bytes)).map_err(|error| {
            match error.kind() {
                ErrorKind::UnexpectedEof => err!(
                    Truncated,
                    "{}: had {} bytes when it was opened and now ends before offset {}; something else is writing it",
                    self.name(),
                    self.size,
                    offset + length as u64
                ),
                _ => err!(Read, "{}: reading {length} bytes at offset {offset} failed: {error}", self.name()),
            }
        })?;
        Ok(bytes)
    }
}

impl ByteSource for FileSource {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move { self.read_now(offset, length) })
    }

    fn stream<'a>(&'a self, offset: u64, length: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>>> {
        Box::pin(async move {
            check_range(&self.name(), self.size, offset, length)?;
            Ok(Box::new(FileStream { source: self, at: offset, end: offset + length }) as Box<dyn ChunkStream + 'a>)
        })
    }

    fn lasting<'a>(&'a self, _: u64, _: u64) -> LocalFuture<'a, Result<Option<Rc<dyn ByteSource>>>> {
        Box::pin(async move { Ok(Some(Rc::new(Self::open(&self.path)?) as Rc<dyn ByteSource>)) })
    }
}

struct FileStream<'s> {
    source: &'s FileSource,
    at: u64,
    end: u64,
}

impl ChunkStream for FileStream<'_> {
    fn next<'a>(&'a mut self) -> LocalFuture<'a, Result<Option<Chunk>>> {
        Box::pin(async move {
            let length = (self.end - self.at).min(self.source.chunk_bytes as u64);
            if length == 0 {
                return Ok(None);
            }
            let bytes = self.source.read_now(self.at, length as usize)?;
            self.at += length;
            Ok(Some(Box::new(bytes) as Chunk))
        })
    }
}
