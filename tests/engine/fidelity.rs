//! What the precision `fast` costs the demo model, by numbers: perplexity of its answers to held-out prompts, and greedy choices. And
//! where quantised models stand beside llama.cpp on the same weights (`scripts/fidelity/quantizations.py`).

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::support::engines::exact_on_cpu;
use crate::support::skip;
use crate::support::soak::is_soak;
use rillm::engine::source::FileSource;
use rillm::engine::{ChatTemplate, DeviceKind, Engine, KvFormat, LoadOptions, Precision};
use rillm::model::gguf::Gguf;
use serde_json::{Value, json};

/// Prompts of the file, and so answers of about 25 tokens, that are taken.
fn answers() -> usize {
    if is_soak() { 100 } else { 20 }
}

/// Where formats of the KV cache are compared, one answer of so many of them.
const KV_CACHE_EVERY: usize = 3;

fn demo(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo").join(name)
}

fn load(file: &Path, precision: Precision) -> Engine {
    load_with(file, &LoadOptions { precision: Some(precision), ..Default::default() })
}

fn load_with(file: &Path, options: &LoadOptions) -> Engine {
    pollster::block_on(Engine::load(&FileSource::open(file).unwrap(), &exact_on_cpu(options), &mut |_| Ok(()))).unwrap()
}

/// The demo model in q8_0, exactly and with a KV cache of floats: the texts of all answers, and how it scores each. The tests share this.
struct Exact {
    texts: Vec<(Vec<u32>, usize)>,
    scores: Vec<(f64, Vec<u32>)>,
}

static EXACT: LazyLock<Exact> = LazyLock::new(|| {
    let file = demo("rillm-demo-q8_0.gguf");
    let options =
        LoadOptions { precision: Some(Precision::Exact), kv_cache: Some(KvFormat::F32), ..Default::default() };
    let engine = load_with(&file, &options);
    let texts = texts_of(&file, &engine, &read_prompts());
    let scores = texts.iter().map(|text| score(&engine, std::slice::from_ref(text))).collect();
    Exact { texts, scores }
});

/// The sum of losses, and all choices.
fn summed<'a>(scores: impl Iterator<Item = &'a (f64, Vec<u32>)>) -> (f64, Vec<u32>) {
    scores.fold((0.0, Vec::new()), |(loss, choices), (more, others)| (loss + more, [&choices[..], others].concat()))
}

fn read_prompts() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(demo("eval-prompts.json")).unwrap()).unwrap()
}

/// The negative log-likelihood of the answers' tokens, and the most likely token at each of them.
fn score(engine: &Engine, texts: &[(Vec<u32>, usize)]) -> (f64, Vec<u32>) {
    let (loss, choices, _) = score_and_keep(engine, texts);
    (loss, choices)
}

/// The same, and the logits that predict the answers' tokens.
fn score_and_keep(engine: &Engine, texts: &[(Vec<u32>, usize)]) -> (f64, Vec<u32>, Vec<f32>) {
    let (mut loss, mut choices, mut kept) = (0.0, Vec::new(), Vec::new());
    for (ids, answer) in texts {
        let logits = pollster::block_on(async { engine.forward(ids).await?.readback().await }).unwrap();
        let vocabulary = logits.len() / ids.len();
        for at in *answer..ids.len() {
            let row = &logits[(at - 1) * vocabulary..at * vocabulary];
            kept.extend_from_slice(row);
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
            loss += total.ln() - f64::from(row[ids[at] as usize] - largest);
            choices.push(row.iter().position(|logit| *logit == largest).unwrap() as u32);
        }
    }
    (loss, choices, kept)
}

/// Prompts and answers as token ids, and where the answers begin.
fn texts_of(file: &Path, engine: &Engine, prompts: &[Value]) -> Vec<(Vec<u32>, usize)> {
    let source = FileSource::open(file).unwrap();
    let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
    let template = ChatTemplate::new(gguf.metadata().str("tokenizer.chat_template").unwrap()).unwrap();
    prompts
        .iter()
        .filter(|prompt| prompt.get("tools").is_none())
        .take(answers())
        .map(|prompt| {
            let context = json!({"messages": prompt["messages"], "add_generation_prompt": true});
            let mut ids = engine.tokenizer().encode(&template.render(&context).unwrap(), false, true).unwrap();
            let answer = ids.len();
            ids.extend(prompt["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32));
            (ids, answer)
        })
        .collect()
}

/// That after each beginning of the reference's answers the choice is the reference's, where it is not nearly a tie: sums of floats in
/// another order can turn such a choice round.
fn check_greedy_choices(prompts: &[Value], choices: &[u32]) {
    const NEAR_TIE: f64 = 0.05;
    let taken = prompts.iter().filter(|prompt| prompt.get("tools").is_none()).take(answers());
    let wanted =
        taken.flat_map(|prompt| ids(&prompt["token_ids"]).into_iter().zip(prompt["margins"].as_array().unwrap()));
    let wanted: Vec<(u32, f64)> = wanted.map(|(id, margin)| (id, margin.as_f64().unwrap())).collect();
    assert_eq!(wanted.len(), choices.len());
    let others: Vec<_> = wanted.iter().zip(choices).filter(|((id, _), choice)| id != *choice).collect();
    assert!(others.iter().all(|((_, margin), _)| *margin < NEAR_TIE), "(reference, margin) and our choice: {others:?}");
    assert!(others.len() * 100 <= choices.len(), "{} of {} choices are others", others.len(), choices.len());
}

#[test]
fn fast_precision_keeps_the_demo_models_perplexity() {
    if !demo("eval-prompts.json").exists() {
        return skip::skipped("models/demo/eval-prompts.json is not there");
    }
    let texts = &EXACT.texts;
    for format in ["q8_0", "q4_0"] {
        let file = demo(&format!("rillm-demo-{format}.gguf"));
        let (wanted, choices) = if format == "q8_0" {
            let (wanted, choices) = summed(EXACT.scores.iter());
            check_greedy_choices(&read_prompts(), &choices);
            (wanted, choices)
        } else {
            score(&load(&file, Precision::Exact), texts)
        };
        let (loss, fast_choices) = score(&load(&file, Precision::Fast), texts);
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

/// The same on the CPU, where it is all products that round activations.
#[test]
fn fast_precision_on_the_cpu_keeps_the_demo_models_perplexity() {
    if !demo("eval-prompts.json").exists() {
        return skip::skipped("models/demo/eval-prompts.json is not there");
    }
    // Natively the loops for wasm are several times as slow as there.
    let (formats, taken) = if is_soak() { (&["q8_0", "q4_0"][..], answers()) } else { (&["q4_0"][..], 1) };
    for format in formats {
        let file = demo(&format!("rillm-demo-{format}.gguf"));
        let [exact, fast] = [Precision::Exact, Precision::Fast].map(|precision| {
            let options = LoadOptions {
                precision: Some(precision),
                kv_cache: Some(KvFormat::F32),
                device_kind: DeviceKind::Cpu,
                ..Default::default()
            };
            load_with(&file, &options)
        });
        assert_eq!(fast.info().precision, Precision::Fast);
        assert!(fast.info().weight_bytes > exact.info().weight_bytes, "scales are floats where weights are packed");
        let texts: Vec<_> = texts_of(&file, &exact, &read_prompts()).into_iter().step_by(answers() / taken).collect();
        let [(wanted, choices), (loss, fast_choices)] = [&exact, &fast].map(|engine| score(engine, &texts));
        let tokens = choices.len();
        let perplexity = |loss: f64| (loss / tokens as f64).exp();
        let moved = perplexity(loss) / perplexity(wanted) - 1.0;
        let same = choices.iter().zip(&fast_choices).filter(|(a, b)| a == b).count();
        println!(
            "{format} on the CPU: {} answers, {tokens} tokens; perplexity exact {:.5}, fast {:.5} ({:+.3}%); {same} of {tokens} greedy choices equal",
            texts.len(),
            perplexity(wanted),
            perplexity(loss),
            moved * 100.0,
        );
        assert!(moved != 0.0, "{format}: nothing was rounded");
        // One answer alone moves more than all of them.
        let most = if is_soak() { 0.005 } else { 0.01 };
        assert!(moved.abs() < most, "{format}: the perplexity moved by {:.3}%", moved * 100.0);
        assert!(
            same * 100 >= tokens * if is_soak() { 99 } else { 97 },
            "{format}: {same} of {tokens} greedy choices are equal"
        );
    }
}

/// ‖a − b‖ / ‖b‖
fn apart(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let norm: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
    (difference / norm).sqrt()
}

fn floats(file: &Path) -> Vec<f32> {
    let bytes = std::fs::read(file).unwrap_or_else(|cause| panic!("{}: {cause}", file.display()));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn read_json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Logits of committed quantised models, against llama.cpp's on the same weights in f32, where it rounds nothing.
#[test]
fn logits_of_quantised_models_are_llama_cpps_on_the_same_weights() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("tests/golden/llama_cpp");
    let golden = read_json(&folder.join("golden.json"));
    let positions = golden["positions"].as_u64().unwrap() as usize;
    for name in ["mixed-q4_k", "demo-q8_0", "demo-q4_0"] {
        let model = root.join(golden[name]["model"].as_str().unwrap());
        if !model.exists() {
            skip::skipped(&format!("{} is not there", model.display()));
            continue;
        }
        let wanted = floats(&folder.join(format!("{name}.logits")));
        let prompt = ids(&golden[name]["ids"]);
        let engine = load(&model, Precision::Exact);
        let logits = pollster::block_on(async { engine.forward(&prompt).await?.readback().await }).unwrap();
        let vocabulary = logits.len() / prompt.len();
        assert_eq!(wanted.len(), positions * vocabulary, "{name}");
        let error = apart(&logits[(prompt.len() - positions) * vocabulary..], &wanted);
        let rounding = golden[name]["rounding"].as_f64().unwrap();
        println!("{name}: {error:.1e}; llama.cpp with activations of 8 bits {rounding:.1e}");
        assert!(
            error < 1e-4 && error * 10.0 < rounding,
            "{name}: {error:.1e} off, llama.cpp's rounding {rounding:.1e}"
        );
    }
}

/// The same of the formats that keys and values may have.
#[test]
fn kv_cache_formats_keep_the_demo_models_perplexity() {
    if !demo("eval-prompts.json").exists() {
        return skip::skipped("models/demo/eval-prompts.json is not there");
    }
    let file = demo("rillm-demo-q8_0.gguf");
    let engine = |kv_cache: KvFormat| {
        load_with(
            &file,
            &LoadOptions { precision: Some(Precision::Exact), kv_cache: Some(kv_cache), ..Default::default() },
        )
    };
    let texts: Vec<(Vec<u32>, usize)> = EXACT.texts.iter().step_by(KV_CACHE_EVERY).cloned().collect();
    let (wanted, choices) = summed(EXACT.scores.iter().step_by(KV_CACHE_EVERY));
    let tokens = choices.len();
    let perplexity = |loss: f64| (loss / tokens as f64).exp();
    println!("{} answers, {tokens} tokens; perplexity with f32 {:.5}", texts.len(), perplexity(wanted));
    for (kv_cache, most) in [(KvFormat::F16, 0.0005), (KvFormat::Q8_0, 0.005)] {
        let (loss, other_choices) = score(&engine(kv_cache), &texts);
        let moved = perplexity(loss) / perplexity(wanted) - 1.0;
        let same = choices.iter().zip(&other_choices).filter(|(a, b)| a == b).count();
        println!(
            "{kv_cache:?}: {:.5} ({:+.3}%); {same} of {tokens} greedy choices equal",
            perplexity(loss),
            moved * 100.0
        );
        assert!(moved.abs() < most, "{kv_cache:?}: the perplexity moved by {:.3}%", moved * 100.0);
        assert!(same * 1000 >= tokens * 990, "{kv_cache:?}: {same} of {tokens} greedy choices are equal");
    }
}

/// Perplexity and logits of the demo model in the quantisations that the script made, beside llama.cpp's: on the same file, where it
/// rounds activations to 8 bits, and on the same weights in f32.
#[test]
fn each_quantisation_is_as_near_as_one_percent_to_llama_cpp() {
    let Some(folder) = std::env::var_os("RILLM_QUANTIZATIONS").map(PathBuf::from) else {
        return skip::skipped("RILLM_QUANTIZATIONS names no folder of scripts/fidelity/quantizations.py");
    };
    let texts = read_json(&folder.join("texts.json"));
    let texts = texts.as_array().unwrap().iter();
    let texts: Vec<(Vec<u32>, usize)> =
        texts.map(|text| (ids(&text["ids"]), text["answer"].as_u64().unwrap() as usize)).collect();
    let tokens: usize = texts.iter().map(|(ids, answer)| ids.len() - answer).sum();
    let perplexity = |loss: f64| (loss / tokens as f64).exp();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    files.sort();
    assert!(!files.is_empty(), "no models in {}", folder.display());
    println!("{} answers, {tokens} tokens", texts.len());
    println!(
        "| file | perplexity: here | llama.cpp, same file | llama.cpp, f32 | fast | logits: to f32 | to same file | llama.cpp to itself |"
    );
    let mut far = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_uppercase();
        let losses = read_json(&file.with_extension("json"));
        let reference = |key: &str| perplexity(losses[key].as_f64().unwrap());
        let (own, widened) = (floats(&file.with_extension("logits")), floats(&file.with_extension("f32.logits")));
        let (loss, _, logits) = score_and_keep(&load(&file, Precision::Exact), &texts);
        let exact = perplexity(loss);
        let fast = perplexity(score(&load(&file, Precision::Fast), &texts).0);
        let percent = |value: f64, of: f64| (value / of - 1.0) * 100.0;
        let error = apart(&logits, &widened);
        println!(
            "| {name} | {exact:.5} | {:.5} ({:+.3}%) | {:.5} ({:+.4}%) | {fast:.5} ({:+.3}%) | {error:.1e} | {:.2}% | {:.2}% |",
            reference("loss"),
            percent(exact, reference("loss")),
            reference("f32_loss"),
            percent(exact, reference("f32_loss")),
            percent(fast, exact),
            apart(&logits, &own) * 100.0,
            apart(&own, &widened) * 100.0,
        );
        if percent(exact, reference("loss")).abs() > 1.0 || percent(fast, exact).abs() > 0.5 || error > 1e-3 {
            far.push(name);
        }
    }
    assert!(far.is_empty(), "too far from llama.cpp, or fast from exact: {far:?}");
}
