//! Engines of golden models.

use std::path::Path;

use rillm::Result;
use rillm::engine::source::FileSource;
use rillm::engine::{Engine, LoadOptions, Precision};

use super::files::golden;

/// The options of tests that compare with references: where engines are on the CPU without being told so (`RILLM_DEVICE`), they are exact unless a
/// precision is named, as on the software adapters of other tests.
pub fn exact_on_cpu(options: &LoadOptions) -> LoadOptions {
    let is_on_cpu = std::env::var_os("RILLM_DEVICE").is_some_and(|device| device == "cpu");
    let precision = options.precision.or(is_on_cpu.then_some(Precision::Exact));
    LoadOptions { precision, ..options.clone() }
}

/// The model of a file, which lies in `tests/golden` if the path does not begin at the root.
pub fn try_load(file: impl AsRef<Path>, options: &LoadOptions) -> Result<Engine> {
    pollster::block_on(Engine::load(&FileSource::open(golden(file))?, &exact_on_cpu(options), &mut |_| Ok(())))
}

pub fn load(file: impl AsRef<Path>, options: &LoadOptions) -> Engine {
    try_load(file, options).unwrap()
}

/// A golden model that decodes at most so many sequences at once.
pub fn engine(name: &str, max_sequences: usize) -> Engine {
    load(name, &LoadOptions { max_sequences: Some(max_sequences), ..Default::default() })
}
