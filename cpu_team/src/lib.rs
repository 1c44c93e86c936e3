//! Products with quantised weights, feed-forwards and attention by several threads. It is a wasm of its own beside the engine's, and its memory, which holds
//! the weights, is shared: each thread is a worker with an instance of this module on it. The engine's memory stays what it is, so activations,
//! the keys and values that are seen, and results are copied between the two.
//!
//! The thread of the engine, the leader, posts a job and works on it as the others do. It never waits for a thread that has not taken a part of
//! the job, so helpers may start late, sleep or not exist at all.

mod activating;
mod attended;
mod board;
mod feed_forward;
mod job;
mod lock;
mod pieces;
mod product;
mod rounding;
mod threads;
#[cfg(target_arch = "wasm32")]
mod wasm;

pub use activating::Activating;
pub use attended::{Attended, AttentionJob};
pub use board::{Board, Outcome};
pub use feed_forward::{Between, FeedForward};
pub use job::Job;
pub use lock::Lock;
pub use product::{Matrix, Product};
pub use rounding::Rounding;
pub use threads::Threads;
