//! Engines of golden models.

use std::path::Path;

use rillm::Result;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, LoadOptions};

use super::files::golden;

/// The model of a file, which lies in `tests/golden` if the path does not begin at the root.
pub fn try_load(file: impl AsRef<Path>, options: &LoadOptions) -> Result<Engine> {
    pollster::block_on(Engine::load(&FileSource::open(golden(file))?, options, &mut |_| Ok(())))
}

pub fn load(file: impl AsRef<Path>, options: &LoadOptions) -> Engine {
    try_load(file, options).unwrap()
}

/// A golden model that decodes at most so many sequences at once.
pub fn engine(name: &str, max_sequences: usize) -> Engine {
    load(name, &LoadOptions { max_sequences: Some(max_sequences), ..Default::default() })
}
