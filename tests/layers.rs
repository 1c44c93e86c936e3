//! The law of the layers (`ARCHITECTURE.md`), read off the `use` lines and paths of the source.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

use std::path::{Path, PathBuf};

/// For each layer, the other modules of the crate that it may name.
const MAY_NAME: [(&str, &[&str]); 13] = [
    ("error", &[]),
    ("json", &[]),
    ("gpu", &["error"]),
    ("tensor", &["error", "json", "gpu"]),
    ("array", &["error", "gpu", "tensor"]),
    ("model", &["error", "json", "tensor"]),
    ("sampler", &["error", "tensor"]),
    ("text", &["error", "json"]),
    ("decode", &["error", "tensor", "model", "sampler"]),
    ("engine", &["error", "json", "tensor", "model", "sampler", "text", "decode"]),
    ("train", &["error", "json", "tensor", "array", "model", "text", "engine"]),
    ("web", &["error", "array", "engine", "gpu", "tensor"]),
    ("native", &["error", "engine"]),
];

/// Files that may import one another in a circle, and why. Everything else is a tree.
const CIRCLES: [(&[&str], &str); 3] = [
    (&["tensor/on_cpu.rs", "tensor/op.rs"], "an op runs on the CPU by its reference, unless it says how"),
    (&["tensor/autotune/mod.rs", "tensor/tuning.rs"], "a tuning names the variants that autotuning compares"),
    (
        &["text/tokenizer/special.rs", "text/tokenizer/vocabulary.rs"],
        "special tokens are part of the vocabulary that finds them",
    ),
];

/// Files that may ask for the target.
const MAY_ASK_FOR_THE_TARGET: [&str; 6] = [
    "gpu/shader_text.rs",
    "lib.rs",
    "gpu/device/mod.rs",
    "gpu/platform/mod.rs",
    "text/tokenizer/normal_form.rs",
    "text/tokenizer/pattern/mod.rs",
];

/// Files that may ask for a cargo feature: those that leave out layers, bindings, the benchmark of dispatches and the CPU's device, or shaders.
const MAY_ASK_FOR_A_FEATURE: [&str; 6] =
    ["lib.rs", "gpu/mod.rs", "gpu/shader_text.rs", "tensor/mod.rs", "tensor/op.rs", "web/mod.rs"];

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
fn features_are_asked_for_in_few_places() {
    each_file(|file, _, code| {
        let asks = code.contains("feature = ");
        assert!(!asks || MAY_ASK_FOR_A_FEATURE.contains(&file), "src/{file} asks for a cargo feature");
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

/// Proposers and acceptors decide about a sequence, and whoever drives sequences is none of their business.
#[test]
fn proposers_and_acceptors_know_no_scheduler() {
    each_file(|file, _, code| {
        if file.starts_with("decode/proposal/") || file.starts_with("decode/accept/") {
            for word in ["scheduler", "decoder", "submit", "engine"] {
                let path = format!("::{word}");
                let named = code.contains(&format!("{path}::")) || code.contains(&format!("{path};"));
                assert!(!named, "src/{file} names {word}");
            }
        }
    });
}

#[test]
fn imports_have_no_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let circles = circles::of(&root, &files);
    let is_known = |circle: &&Vec<String>| {
        CIRCLES.iter().any(|(known, _)| known.iter().all(|file| circle.iter().any(|of| of == file)))
    };
    let new: Vec<String> = circles.iter().filter(|circle| !is_known(circle)).map(|circle| circle.join(", ")).collect();
    assert!(new.is_empty(), "these files import one another in a circle:\n{}", new.join("\n"));
    assert_eq!(circles.len(), CIRCLES.len(), "a circle of the list is gone: take it out");
}

/// Circles between files, by their `use` lines.
mod circles {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    type Graph = BTreeMap<String, BTreeSet<String>>;

    /// The files of each circle.
    pub fn of(root: &Path, files: &[PathBuf]) -> Vec<Vec<String>> {
        let names: Vec<String> =
            files.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect();
        let by_module: BTreeMap<Vec<String>, &String> = names.iter().map(|name| (module(name), name)).collect();
        let graph: Graph = names
            .iter()
            .zip(files)
            .filter(|(name, _)| !name.ends_with("tests.rs") && !name.contains("/tests/"))
            .map(|(name, path)| (name.clone(), imports(name, &super::code(path), &by_module)))
            .collect();
        // What each file reaches, by walking from it: two files that reach each other are in one circle.
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            graph.keys().map(|from| (from, reach(&graph, from))).collect();
        let mut circles: Vec<Vec<String>> = Vec::new();
        for file in graph.keys().filter(|file| reached[file].contains(file)) {
            if !circles.iter().any(|circle| circle.contains(file)) {
                let of_one =
                    graph.keys().filter(|other| reached[file].contains(other) && reached[other].contains(file));
                circles.push(of_one.cloned().collect());
            }
        }
        circles
    }

    fn module(name: &str) -> Vec<String> {
        let parts = name.trim_end_matches(".rs").split('/').filter(|part| !["mod", "lib"].contains(part));
        parts.map(str::to_owned).collect()
    }

    fn reach<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g String> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in graph.get(file).into_iter().flatten() {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    }

    fn imports(name: &str, code: &str, by_module: &BTreeMap<Vec<String>, &String>) -> BTreeSet<String> {
        let code = code.split("#[cfg(test)]\nmod ").next().unwrap();
        let mut found = BTreeSet::new();
        // What is handed on by `pub use` counts, too: whoever reads the one file has to know the other.
        let mut uses: Vec<String> = Vec::new();
        let mut is_open = false;
        for line in code.lines().map(str::trim) {
            let tree = line
                .strip_prefix("use ")
                .or_else(|| line.strip_prefix("pub").and_then(|_| Some(line.split_once("use ")?.1)));
            match (is_open, tree) {
                (false, Some(tree)) => uses.push(tree.to_owned()),
                (true, _) => {
                    if let Some(tree) = uses.last_mut() {
                        tree.push(' ');
                        tree.push_str(line);
                    }
                }
                (false, None) => continue,
            }
            is_open = !line.contains(';');
        }
        for tree in uses {
            for path in expand(tree.split(';').next().unwrap()) {
                let parts: Vec<&str> = path.split("::").map(str::trim).collect();
                if let Some(target) = resolve(name, &parts, by_module)
                    && target != name
                {
                    found.insert(target.to_owned());
                }
            }
        }
        found
    }

    /// The file that a path begins in.
    fn resolve<'m>(name: &str, parts: &[&str], by_module: &BTreeMap<Vec<String>, &'m String>) -> Option<&'m str> {
        let (mut base, mut rest) = match parts.first() {
            Some(&"crate") => (Vec::new(), &parts[1..]),
            Some(&"self") => (module(name), &parts[1..]),
            Some(&"super") => (module(name), parts),
            _ => return None,
        };
        while let Some((&"super", after)) = rest.split_first() {
            base.pop();
            rest = after;
        }
        base.extend(rest.iter().map(|part| (*part).to_owned()));
        (1..=base.len()).rev().find_map(|length| by_module.get(&base[..length]).map(|name| name.as_str()))
    }

    /// The paths of a use tree.
    fn expand(tree: &str) -> Vec<String> {
        let tree = tree.trim();
        let Some((before, list)) = tree.split_once('{') else {
            return vec![tree.split(" as ").next().unwrap().to_owned()];
        };
        let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
        let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if c == ',' && depth == 0 {
                parts.push(std::mem::take(&mut part));
            } else {
                part.push(c);
            }
        }
        parts.push(part);
        let parts = parts.iter().filter(|part| !part.trim().is_empty());
        parts.flat_map(|part| expand(&format!("{before}{}", part.trim()))).collect()
    }

    #[test]
    fn a_circle_is_found() {
        let names = ["a.rs", "b/mod.rs", "b/c.rs", "d.rs"].map(str::to_owned);
        let by_module = names.iter().map(|name| (module(name), name)).collect();
        let of = |name: &str, code: &str| imports(name, code, &by_module).into_iter().collect::<Vec<_>>();
        assert_eq!(
            of("a.rs", "//! x\nuse crate::b::{c::C, B};\npub use crate::d::D;\n"),
            ["b/c.rs", "b/mod.rs", "d.rs"]
        );
        assert_eq!(of("b/c.rs", "use std::fmt;\nuse super::super::a::A as X;\nfn f() {}\n"), ["a.rs"]);
        assert_eq!(of("b/mod.rs", "mod c;\n\nuse self::c::C;\n"), ["b/c.rs"]);
        let graph = Graph::from([
            ("a".to_owned(), BTreeSet::from(["b".to_owned()])),
            ("b".to_owned(), BTreeSet::from(["a".to_owned()])),
        ]);
        assert!(reach(&graph, "a").contains(&"a".to_owned()));
    }
}
