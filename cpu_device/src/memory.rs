//! Buffers in Rust memory.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit of memory: its alignment is what any element and any vector of a CPU asks for.
#[derive(Clone, Copy, Default, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(16))]
struct Chunk([u8; 16]);

/// The bytes of a buffer. Cloning clones the handle.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<Vec<Chunk>>>);

/// The bytes, while nobody else sees them.
pub struct Locked<'a>(MutexGuard<'a, Vec<Chunk>>);

impl Memory {
    /// `size` zeros; `None` if there is no room.
    pub fn new(size: u64) -> Option<Self> {
        let chunks = usize::try_from(size.div_ceil(16)).ok()?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(chunks).ok()?;
        memory.resize(chunks, Chunk::default());
        Some(Self(Arc::new(Mutex::new(memory))))
    }

    /// Of no length, for a buffer that does not work.
    pub fn none() -> Self {
        Self(Arc::default())
    }

    pub fn lock(&self) -> Locked<'_> {
        Locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the bytes back.
    pub fn free(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }

    /// What tells it from all others that exist.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Locked<'_> {
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Copies bytes between two buffers; `None` if they have no such ranges.
pub fn copy(source: &Memory, from: Range<usize>, target: &Memory, at: usize) -> Option<()> {
    let length = from.len();
    if source.address() == target.address() {
        let mut locked = source.lock();
        let bytes = locked.bytes_mut();
        let fits = bytes.len() >= from.end && bytes.len() >= at.checked_add(length)?;
        return fits.then(|| bytes.copy_within(from, at));
    }
    let (source, mut target) = (source.lock(), target.lock());
    let to = target.bytes_mut().get_mut(at..at.checked_add(length)?)?;
    to.copy_from_slice(source.bytes().get(from)?);
    Some(())
}
