//! Where the files that tests read are.

use std::path::{Path, PathBuf};

/// A file or folder of `tests/golden`.
pub fn golden(name: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The demo model, which speaks a little English and calls functions.
pub fn demo_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo/rillm-demo-q4_0.gguf")
}
