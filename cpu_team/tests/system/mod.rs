//! Threads of the system in place of a browser's workers.

#[allow(dead_code, reason = "attention has no matrices")]
pub mod aligned;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rillm_cpu_team::{Board, Threads};

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

/// Boards that let helpers end, also if the test fails: it would wait for them without end.
pub struct Team<'a>(pub Vec<&'a Board>);

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|board| board.end(&System));
    }
}

/// One more thread that helps, until the team ends.
#[allow(unsafe_code, reason = "jobs name memory by addresses")]
pub fn helped(board: &Board) {
    board.join();
    // SAFETY: who posts jobs keeps what they need.
    let other = unsafe { board.help(&System) };
    assert_eq!(other, None, "there is one board");
}
