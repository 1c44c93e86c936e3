//! Real models, installed by `scripts/real_model.py` where they are not there yet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::skip;

/// The folder of all-MiniLM-L6-v2. A test that gets none skips, which is told: without Python, without pip or without a network.
pub fn minilm() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    or_skip("minilm", FOLDER.get_or_init(|| installed("minilm", "model.safetensors")))
}

/// The file of SmolLM2-135M-Instruct in Q4_1.
pub fn smollm2() -> Option<&'static Path> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = "SmolLM2-135M-Instruct.Q4_1.gguf";
    or_skip("smollm2", FILE.get_or_init(|| installed("smollm2", file).map(|folder| folder.join(file))))
}

fn or_skip(name: &str, found: &'static Option<PathBuf>) -> Option<&'static Path> {
    if found.is_none() {
        skip::skipped(&format!("scripts/real_model.py could not install {name}"));
    }
    found.as_deref()
}

fn installed(name: &str, file: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target").join(name);
    let there = || folder.join(file).exists();
    if !there() {
        let _ = Command::new("python3").arg(root.join("scripts/real_model.py")).arg(name).arg(&folder).status();
    }
    there().then_some(folder)
}
