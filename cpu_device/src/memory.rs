//! Buffers in Rust memory, and those of weights in a team's.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::team::{Team, TeamBytes};
use super::twin::Twins;

/// The unit of memory: its alignment is what any element and any vector of a CPU asks for.
#[derive(Clone, Copy, Default, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(16))]
struct Chunk([u8; 16]);

enum Place {
    Own(Vec<Chunk>, RefCell<Twins>),
    Team(TeamBytes),
}

impl Default for Place {
    fn default() -> Self {
        Self::Own(Vec::new(), RefCell::default())
    }
}

/// The bytes of a buffer. Cloning clones the handle.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<Place>>);

/// The bytes, while nobody else sees them.
pub struct Locked<'a>(MutexGuard<'a, Place>);

impl Memory {
    /// `size` zeros; `None` if there is no room.
    pub fn new(size: u64) -> Option<Self> {
        let chunks = usize::try_from(size.div_ceil(16)).ok()?;
        // Memory that is new has zeros already: nothing is written.
        let memory = bytemuck::allocation::try_zeroed_vec(chunks).ok()?;
        Some(Self(Arc::new(Mutex::new(Place::Own(memory, RefCell::default())))))
    }

    /// The same in a team's memory, for what only kernels use.
    pub fn of_team(team: &Arc<dyn Team>, size: u64) -> Option<Self> {
        let bytes = TeamBytes::new(team, usize::try_from(size).ok()?)?;
        Some(Self(Arc::new(Mutex::new(Place::Team(bytes)))))
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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Place::default();
    }

    /// What tells it from all others that exist.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Locked<'_> {
    /// Of a team's memory none.
    pub fn bytes(&self) -> &[u8] {
        match &*self.0 {
            Place::Own(memory, _) => bytemuck::cast_slice(memory),
            Place::Team(_) => &[],
        }
    }

    /// Bytes to overwrite. `None` if there are none of such a range.
    pub fn part_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        let (bytes, twins) = self.all_mut()?;
        let part = bytes.get_mut(range.clone())?;
        twins.borrow_mut().changed(range);
        Some(part)
    }

    /// All bytes, and their twins, which whoever writes has to tell. Of a team's memory none.
    pub fn all_mut(&mut self) -> Option<(&mut [u8], &RefCell<Twins>)> {
        match &mut *self.0 {
            Place::Own(memory, twins) => Some((bytemuck::cast_slice_mut(memory), twins)),
            Place::Team(_) => None,
        }
    }

    /// Of a team's memory none.
    pub fn twins(&self) -> Option<&RefCell<Twins>> {
        match &*self.0 {
            Place::Own(_, twins) => Some(twins),
            Place::Team(_) => None,
        }
    }

    /// If they are in a team's memory, those.
    pub fn of_team(&self) -> Option<&TeamBytes> {
        match &*self.0 {
            Place::Own(..) => None,
            Place::Team(bytes) => Some(bytes),
        }
    }
}

/// Copies bytes between two buffers; `None` if they have no such ranges.
pub fn copy(source: &Memory, from: Range<usize>, target: &Memory, at: usize) -> Option<()> {
    let length = from.len();
    if source.address() == target.address() {
        let mut locked = source.lock();
        let end = at.checked_add(length)?;
        let (bytes, twins) = locked.all_mut()?;
        if bytes.len() < from.end.max(end) {
            return None;
        }
        bytes.copy_within(from, at);
        twins.borrow_mut().changed(at..end);
        return Some(());
    }
    let (source, mut target) = (source.lock(), target.lock());
    let to = target.part_mut(at..at.checked_add(length)?)?;
    to.copy_from_slice(source.bytes().get(from)?);
    Some(())
}
