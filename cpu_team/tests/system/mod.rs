//! Threads of the system in place of a browser's workers.

#[allow(dead_code, reason = "attention has no matrices")]
pub mod aligned;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rillm_cpu_team::Threads;

/// They look from time to time.
pub struct System;

impl Threads for System {
    fn wait(&self, word: &AtomicU32, seen: u32, milliseconds: u32) {
        let end = Instant::now() + Duration::from_millis(milliseconds.into());
        while word.load(SeqCst) == seen && Instant::now() < end {
            sleep(Duration::from_micros(20));
        }
    }

    fn wake(&self, _: &AtomicU32, _: u32) {}
}
