//! What the precision `fast` costs the demo model, by numbers: perplexity of its answers to held-out prompts, and greedy choices.

#![cfg(not(target_arch = "wasm32"))]

mod skip;

use std::path::PathBuf;

use rillm::engine::source::FileSource;
use rillm::engine::{ChatTemplate, Engine, LoadOptions, Precision};
use rillm::model::gguf::Gguf;
use serde_json::{Value, json};

/// Prompts of the file, and so answers of about 25 tokens, that are taken.
const ANSWERS: usize = 100;

fn demo(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo").join(name)
}

/// The negative log-likelihood of the answers' tokens, and the most likely token at each of them.
fn score(engine: &Engine, texts: &[(Vec<u32>, usize)]) -> (f64, Vec<u32>) {
    let (mut loss, mut choices) = (0.0, Vec::new());
    for (ids, answer) in texts {
        let logits = pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap();
        let vocabulary = logits.len() / ids.len();
        for at in *answer..ids.len() {
            let row = &logits[(at - 1) * vocabulary..at * vocabulary];
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
            loss += total.ln() - f64::from(row[ids[at] as usize] - largest);
            choices.push(row.iter().position(|logit| *logit == largest).unwrap() as u32);
        }
    }
    (loss, choices)
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
        let source = FileSource::open(file.clone()).unwrap();
        let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
        let template = ChatTemplate::new(gguf.metadata().str("tokenizer.chat_template").unwrap()).unwrap();
        let load = |precision| {
            let options = LoadOptions { precision: Some(precision), ..Default::default() };
            let source = FileSource::open(file.clone()).unwrap();
            pollster::block_on(Engine::load(&source, &options, &mut |_| Ok(()))).unwrap()
        };
        let exact = load(Precision::Exact);
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
        let (loss, fast_choices) = score(&load(Precision::Fast), &texts);
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
