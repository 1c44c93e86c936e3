//! The law of the layers (`ARCHITECTURE.md`), read off the `use` lines and paths of the source.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

use std::collections::{BTreeMap, BTreeSet};
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

/// Layers in which no file imports itself by way of others. `pub use` hands a name on and is no import.
const FREE_OF_CIRCLES: [&str; 3] = ["error", "gpu", "native"];

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

/// The path of a file's module: `gpu/recorder/mod.rs` is `gpu::recorder`.
fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    path.map(str::to_owned).collect()
}

/// The paths of a use tree, without its braces.
fn paths(tree: &str) -> Vec<String> {
    let Some((start, list)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let list = &list[..list.rfind('}').unwrap()];
    let (mut all, mut depth, mut part) = (Vec::new(), 0, String::new());
    for c in list.chars().chain([',']) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            let part = std::mem::take(&mut part);
            let parts = paths(&part).into_iter().filter(|path| !path.is_empty());
            all.extend(parts.map(|path| format!("{}{path}", start.trim())));
        } else {
            part.push(c);
        }
    }
    all
}

/// Which of `files` (by module) a file imports by its `use` lines. Its tests may import what they like.
fn imports(file: &str, code: &str, files: &BTreeMap<Vec<String>, String>) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut found = BTreeSet::new();
    for statement in code.split(';') {
        let Some(at) = statement.lines().position(|line| line.trim_start().starts_with("use ")) else { continue };
        let tree = statement.lines().skip(at).collect::<Vec<_>>().join(" ");
        for path in paths(tree.trim_start().trim_start_matches("use ")) {
            let mut names: Vec<&str> = path.split("::").map(str::trim).collect();
            let mut from = module(file);
            match names[0] {
                "crate" => from.clear(),
                "super" | "self" => {}
                _ => continue,
            }
            while matches!(names.first(), Some(&"crate" | &"super" | &"self")) {
                if names.remove(0) == "super" {
                    from.pop();
                }
            }
            from.extend(names.into_iter().map(str::to_owned));
            let target = (1..=from.len()).rev().find_map(|length| files.get(&from[..length]));
            found.extend(target.filter(|target| *target != file).cloned());
        }
    }
    found
}

/// A way by which a file imports itself.
fn circle(sources: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let files = sources.keys().map(|file| (module(file), file.clone())).collect();
    let edges: BTreeMap<&str, _> =
        sources.iter().map(|(file, code)| (file.as_str(), imports(file, code, &files))).collect();
    for start in sources.keys() {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop() {
            for next in &edges[way[way.len() - 1].as_str()] {
                let longer = [&way[..], std::slice::from_ref(next)].concat();
                if next == start {
                    return Some(longer);
                }
                if seen.insert(next.clone()) {
                    ways.push(longer);
                }
            }
        }
    }
    None
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    for free in FREE_OF_CIRCLES {
        let mut sources = BTreeMap::new();
        each_file(|file, layer, code| {
            if layer == free {
                sources.insert(file.to_owned(), code.to_owned());
            }
        });
        assert!(!sources.is_empty(), "there is no layer {free}");
        let circle = circle(&sources);
        assert!(circle.is_none(), "an import circle: {}", circle.unwrap().join(" → "));
    }
}

#[test]
fn circles_are_found() {
    let sources = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(file, code)| ((*file).to_owned(), (*code).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let top = ("gpu/mod.rs", "mod a;\npub use a::A;");
    let a = ("gpu/a.rs", "use std::rc::Rc;\nuse super::{\n    b::{B, c::C},\n    stats::add,\n};\nstruct A;");
    let b =
        ("gpu/b/mod.rs", "use crate::error::Result;\nstruct B;\n#[cfg(test)]\nmod tests { use super::super::a::A; }");
    let c = ("gpu/b/c.rs", "struct C;");
    assert_eq!(circle(&sources(&[top, a, b, c])), None);
    let c = ("gpu/b/c.rs", "struct C;\nuse super::super::a::A;");
    assert_eq!(circle(&sources(&[top, a, b, c])).unwrap(), ["gpu/a.rs", "gpu/b/c.rs", "gpu/a.rs"]);
    let b = ("gpu/b/mod.rs", "mod c;\nuse self::c::C;");
    let c = ("gpu/b/c.rs", "use super::*;");
    assert_eq!(circle(&sources(&[top, a, b, c])).unwrap(), ["gpu/b/c.rs", "gpu/b/mod.rs", "gpu/b/c.rs"]);
}
