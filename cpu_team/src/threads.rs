//! What threads need of their host.

use std::sync::atomic::AtomicU32;

/// How threads wait for each other.
pub trait Threads {
    /// Waits until the word is another than `seen`, somebody calls `wake`, or that time has passed. It may return sooner, and where a thread
    /// must not sleep, at once.
    fn wait(&self, word: &AtomicU32, seen: u32, milliseconds: u32);

    /// Wakes up to `count` threads that wait for the word.
    fn wake(&self, word: &AtomicU32, count: u32);
}
