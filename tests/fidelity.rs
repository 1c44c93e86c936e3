//! What the precision `fast` costs the demo model, by numbers: perplexity of its answers to held-out prompts, and greedy choices. And
//! where each quantisation of it stands beside llama.cpp (`scripts/fidelity/quantizations.py`).

#![cfg(not(target_arch = "wasm32"))]

mod skip;

use std::path::{Path, PathBuf};

use rillm::engine::source::FileSource;
use rillm::engine::{ChatTemplate, Engine, LoadOptions, Precision};
use rillm::model::gguf::Gguf;
use serde_json::{Value, json};

/// Prompts of the file, and so answers of about 25 tokens, that are taken.
const ANSWERS: usize = 100;

fn demo(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo").join(name)
}

fn load(file: &Path, precision: Precision) -> Engine {
    let options = LoadOptions { precision: Some(precision), ..Default::default() };
    pollster::block_on(Engine::load(&FileSource::open(file).unwrap(), &options, &mut |_| Ok(()))).unwrap()
}

/// The negative log-likelihood of the answers' tokens, and the most likely token at each of them.
fn score(engine: &Engine, texts: &[(Vec<u32>, usize)]) -> (f64, Vec<u32>) {
    let (loss, choices, _) = score_and_keep(engine, texts, 0);
    (loss, choices)
}

/// The same, and the first `keep` logits that predict the answers' tokens.
fn score_and_keep(engine: &Engine, texts: &[(Vec<u32>, usize)], keep: usize) -> (f64, Vec<u32>, Vec<f32>) {
    let (mut loss, mut choices, mut kept) = (0.0, Vec::new(), Vec::new());
    for (ids, answer) in texts {
        let logits = pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap();
        let vocabulary = logits.len() / ids.len();
        for at in *answer..ids.len() {
            let row = &logits[(at - 1) * vocabulary..at * vocabulary];
            if kept.len() < keep {
                kept.extend_from_slice(row);
            }
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
            loss += total.ln() - f64::from(row[ids[at] as usize] - largest);
            choices.push(row.iter().position(|logit| *logit == largest).unwrap() as u32);
        }
    }
    (loss, choices, kept)
}

#[test]
fn fast_precision_keeps_the_demo_models_perplexity() {
    let prompts = demo("eval-prompts.json");
    if !prompts.exists() {
        return skip::skipped("models/demo/eval-prompts.json is not there");
    }
    let prompts: Vec<Value> = serde_json::from_slice(&std::fs::read(prompts).unwrap()).unwrap();
    for format in ["q8_0", "q4_0"] {
        let file = demo(&format!("rillm-demo-{format}.gguf"));
        let source = FileSource::open(&file).unwrap();
        let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
        let template = ChatTemplate::new(gguf.metadata().str("tokenizer.chat_template").unwrap()).unwrap();
        let exact = load(&file, Precision::Exact);
        let texts: Vec<(Vec<u32>, usize)> = prompts
            .iter()
            .filter(|prompt| prompt.get("tools").is_none())
            .take(ANSWERS)
            .map(|prompt| {
                let context = json!({"messages": prompt["messages"], "add_generation_prompt": true});
                let mut ids = exact.tokenizer().encode(&template.render(&context).unwrap(), false, true).unwrap();
                let answer = ids.len();
                ids.extend(prompt["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32));
                (ids, answer)
            })
            .collect();
        let (wanted, choices) = score(&exact, &texts);
        let (loss, fast_choices) = score(&load(&file, Precision::Fast), &texts);
        let tokens = choices.len();
        let perplexity = |loss: f64| (loss / tokens as f64).exp();
        let moved = perplexity(loss) / perplexity(wanted) - 1.0;
        let same = choices.iter().zip(&fast_choices).filter(|(a, b)| a == b).count();
        println!(
            "{format}: {} answers, {tokens} tokens; perplexity exact {:.5}, fast {:.5} ({:+.3}%); {same} of {tokens} greedy choices equal",
            texts.len(),
            perplexity(wanted),
            perplexity(loss),
            moved * 100.0,
        );
        assert!(moved.abs() < 0.005, "{format}: the perplexity moved by {:.3}%", moved * 100.0);
        assert!(same * 1000 >= tokens * 995, "{format}: {same} of {tokens} greedy choices are equal");
    }
}

/// Perplexity and logits of the demo model in the quantisations that the script made, beside llama.cpp's on the same file.
#[test]
fn each_quantisation_is_as_near_as_one_percent_to_llama_cpp() {
    let Some(folder) = std::env::var_os("RILLM_QUANTIZATIONS").map(PathBuf::from) else {
        return skip::skipped("RILLM_QUANTIZATIONS names no folder of scripts/fidelity/quantizations.py");
    };
    let json = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let texts = json(&folder.join("texts.json"));
    let texts: Vec<(Vec<u32>, usize)> = texts
        .as_array()
        .unwrap()
        .iter()
        .map(|text| {
            let ids = text["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            (ids, text["answer"].as_u64().unwrap() as usize)
        })
        .collect();
    let tokens: usize = texts.iter().map(|(ids, answer)| ids.len() - answer).sum();
    let perplexity = |loss: f64| (loss / tokens as f64).exp();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    files.sort();
    assert!(!files.is_empty(), "no models in {}", folder.display());
    println!("{tokens} tokens\n| file | llama.cpp | exact | fast | exact − llama.cpp | fast − exact | logits |");
    let mut far = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_uppercase();
        let reference = perplexity(json(&file.with_extension("json"))["loss"].as_f64().unwrap());
        let wanted = std::fs::read(file.with_extension("logits")).unwrap();
        let wanted: Vec<f32> = wanted.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let (loss, _, logits) = score_and_keep(&load(&file, Precision::Exact), &texts, wanted.len());
        let exact = perplexity(loss);
        let fast = perplexity(score(&load(&file, Precision::Fast), &texts).0);
        assert_eq!(logits.len(), wanted.len(), "{name}: logits");
        let difference: f64 = logits.iter().zip(&wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let norm: f64 = wanted.iter().map(|b| f64::from(*b).powi(2)).sum();
        let (moved, error) = (exact / reference - 1.0, (difference / norm).sqrt());
        println!(
            "| {name} | {reference:.5} | {exact:.5} | {fast:.5} | {:+.3}% | {:+.3}% | {:.2}% |",
            moved * 100.0,
            (fast / exact - 1.0) * 100.0,
            error * 100.0
        );
        if !(moved.abs() < 0.01 && (fast / exact - 1.0).abs() < 0.005) {
            far.push(name);
        }
    }
    assert!(far.is_empty(), "too far from llama.cpp, or fast from exact: {far:?}");
}
