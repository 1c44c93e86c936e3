//! all-MiniLM-L6-v2 as its Hugging Face folder, installed by `scripts/minilm.py` where it is not there yet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder, or none where the model can't be had: without Python, without pip or without a network.
pub fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let install = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("target/minilm");
        let there = || folder.join("model.safetensors").exists();
        if !there() {
            let _ = Command::new("python3").arg(root.join("scripts/minilm.py")).arg(&folder).status();
        }
        there().then(|| folder.clone())
    };
    FOLDER.get_or_init(install).as_deref()
}
