//! A lock for threads that may not sleep, such as those of an allocator.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by one thread at a time. A thread that is ended by force while it holds it, holds it for good.
#[derive(Default)]
pub struct Lock(AtomicBool);

impl Lock {
    /// One that is free.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Works while nobody else does. `None` if it was not free as often as this thread looked.
    pub fn with<T>(&self, looks: u32, work: impl FnOnce() -> T) -> Option<T> {
        let mut left = looks;
        while self.0.swap(true, Ordering::Acquire) {
            left = left.checked_sub(1)?;
            spin_loop();
        }
        let made = work();
        self.0.store(false, Ordering::Release);
        Some(made)
    }
}
