//! The law of the layers (`ARCHITECTURE.md`), read off the `use` lines and paths of the source.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

use std::path::{Path, PathBuf};

/// For each layer, the other modules of the crate that it may name.
const MAY_NAME: [(&str, &[&str]); 9] = [
    ("error", &[]),
    ("gpu", &["error"]),
    ("tensor", &["error", "gpu"]),
    ("model", &["error", "tensor"]),
    ("sampler", &["error", "tensor"]),
    ("text", &["error"]),
    ("engine", &["error", "tensor", "model", "sampler", "text"]),
    ("web", &["error", "engine", "gpu", "tensor"]),
    ("native", &["error", "engine"]),
];

/// Files that may ask for the target.
const MAY_ASK_FOR_THE_TARGET: [&str; 3] = ["lib.rs", "gpu/device/mod.rs", "gpu/platform/mod.rs"];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The code of a file: without comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The names that follow `crate::`, also those in braces.
fn named(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let rest = rest.trim_start();
        match rest.strip_prefix('{') {
            None => names.push(identifier(rest)),
            Some(list) => {
                let mut depth = 0;
                let mut start = true;
                for (at, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && !c.is_whitespace() => {
                            names.push(identifier(&list[at..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn each_file(mut check: impl FnMut(&str, &str, &str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 40, "the sources were not found");
    for path in files {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let layer = file.split(['/', '.']).next().unwrap();
        check(&file, layer, &code(&path));
    }
}

#[test]
fn a_layer_uses_only_what_stands_below_it() {
    let layers: Vec<&str> = MAY_NAME.iter().map(|(layer, _)| *layer).collect();
    each_file(|file, layer, code| {
        if layer == "lib" {
            return;
        }
        let (_, allowed) = MAY_NAME
            .iter()
            .find(|(name, _)| *name == layer)
            .unwrap_or_else(|| panic!("src/{file} is in no layer that ARCHITECTURE.md names"));
        for name in named(code) {
            let is_layer = layers.contains(&name.as_str());
            assert!(
                !is_layer || name == layer || allowed.contains(&name.as_str()),
                "src/{file}: the layer {layer} must not use {name}"
            );
        }
    });
}

#[test]
fn the_target_is_asked_for_in_few_places() {
    each_file(|file, layer, code| {
        let allowed = layer == "web" || MAY_ASK_FOR_THE_TARGET.contains(&file);
        assert!(allowed || !code.contains("target_arch"), "src/{file} asks for the target");
    });
}

#[test]
fn the_model_names_no_buffer_and_no_pipeline() {
    each_file(|file, layer, code| {
        for word in ["Buffer", "Pipeline", "wgpu", "fetch"] {
            assert!(layer != "model" || !code.contains(word), "src/{file} names {word}");
        }
    });
}

#[test]
fn wgsl_stands_in_wgsl_files() {
    each_file(|file, layer, code| {
        let is_code = !file.starts_with("gpu/wgsl");
        assert!(!(is_code && layer != "lib" && code.contains("@compute")), "src/{file} holds WGSL");
    });
}

#[test]
fn names_are_found_in_braces_too() {
    let code = "use crate::{error::{Code, Error}, gpu::Device, tensor};\nlet x = crate::model::Weights;";
    assert_eq!(named(code), ["error", "gpu", "tensor", "model"]);
}
