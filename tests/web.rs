//! The same kernels and models in a browser: `npm test -- --only web`.
#![cfg(target_arch = "wasm32")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

#[path = "support/parity.rs"]
mod parity;
#[path = "web/record.rs"]
mod record;
#[path = "support/words.rs"]
mod words;

use std::collections::BTreeSet;

use parity::Extent;
use record::AgreedRuns;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::MemorySource;
use rillm::engine::{Engine, LoadOptions};
use rillm::tensor::{Context, Device, DeviceOptions};
use rillm::text::tokenizer::{Tokenizer, TokenizerFiles};
use serde_json::{Value, json};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::*;
use words::makes_words;

wasm_bindgen_test_configure!(run_in_dedicated_worker);

macro_rules! golden {
    ($name:expr) => {
        include_bytes!(concat!("golden/", $name))
    };
}

async fn context(subgroups: bool) -> Context {
    let options = DeviceOptions { without_subgroups: !subgroups, ..Default::default() };
    Context::new(Device::request(&options).await.unwrap())
}

#[wasm_bindgen_test]
async fn the_device_has_what_the_adapter_has() {
    let context = context(true).await;
    let capabilities = context.device().capabilities();
    // SwiftShader has subgroups and storage bindings above WebGPU's default of 128 MiB.
    assert!(capabilities.subgroups.is_some_and(|(smallest, largest)| smallest >= 4 && largest >= smallest));
    assert!(capabilities.max_storage_binding_size > 128 << 20, "{capabilities:?}");
    assert!(context.device().adapter().features.contains(&"subgroups".to_owned()));
}

/// The kernels that the browser's compiler refuses, with its messages. It compiles none of them for the GPU, which is what takes time.
async fn refused(shaders: &BTreeSet<String>) -> Vec<String> {
    let check = js_sys::Function::new_with_args(
        "shaders",
        "return (async () => {
            const adapter = await navigator.gpu.requestAdapter();
            const device = await adapter.requestDevice({ requiredFeatures: ['subgroups'] });
            device.onuncapturederror = (event) => event.preventDefault();
            const infos = shaders.map((code) => device.createShaderModule({ code }).getCompilationInfo());
            const errors = (await Promise.all(infos)).map(({ messages }) => messages.filter(({ type }) => type === 'error'));
            const texts = errors.map((all, i) => all.map(({ message }) => `${message}: ${shaders[i]}`)).flat();
            device.destroy();
            return texts;
        })()",
    );
    let shaders: js_sys::Array = shaders.iter().map(JsValue::from).collect();
    let promise: js_sys::Promise = check.call1(&JsValue::NULL, &shaders).unwrap().unchecked_into();
    let texts: js_sys::Array = JsFuture::from(promise).await.unwrap().unchecked_into();
    texts.iter().filter_map(|text| text.as_string()).collect()
}

async fn report(checked: parity::Checked, least: usize) {
    let texts = refused(&checked.shaders_that_did_not_run).await;
    assert!(texts.is_empty(), "{} shaders are refused, the first: {}", texts.len(), texts[0]);
    console_log!("{}; {} shaders are valid", checked.more_than(least), checked.shaders_that_did_not_run.len());
}

#[wasm_bindgen_test]
async fn kernels_agree_with_references() {
    let record = AgreedRuns::open("kernels").await;
    report(parity::check_all(&context(true).await, Extent::NewLines(&record)).await, 100).await;
}

#[wasm_bindgen_test]
async fn variants_of_kernels_agree_with_references() {
    let options = DeviceOptions { software_kernels: Some(false), ..Default::default() };
    let context = Context::new(Device::request(&options).await.unwrap());
    let record = AgreedRuns::open("variants").await;
    report(parity::check_all_variants(&context, Extent::NewLines(&record)).await, 150).await;
}

#[wasm_bindgen_test]
async fn a_kernel_that_does_not_compile_is_a_typed_error() {
    use rillm::gpu::{Binding, Shader, Template};
    let context = context(true).await;
    let device = context.device();
    let buffer = device.buffer(256, "buffer").unwrap();
    let template = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @compute @workgroup_size(1) fn main() { x[0] = nonsense; }";
    let shader = Shader { label: "broken", template: Template::Static(template), modules: &[], defines: &[] };
    device.dispatch(&shader, &[Binding::ReadWrite(0, buffer.slice())], [1, 1, 1]).unwrap();
    let error = device.sync().await.unwrap_err();
    assert_eq!(error.code(), Code::ShaderCompilation);
    assert!(error.message().contains("broken") && error.message().contains("nonsense"), "{error}");
    device.sync().await.unwrap();
}

/// What an expression cuts a text into, and the text with `¦` in place of every match.
fn cut(lengths: &Value, text: &str) -> (Vec<String>, String) {
    let (mut pieces, mut replaced, mut rest) = (Vec::new(), String::new(), text);
    for (n, length) in lengths.as_array().unwrap().iter().enumerate() {
        let (piece, after) = rest.split_at(length.as_u64().unwrap() as usize);
        pieces.push(piece.to_owned());
        replaced.push_str(if n % 2 == 0 { piece } else { "¦" });
        rest = after;
    }
    pieces.push(rest.to_owned());
    pieces.retain(|piece| !piece.is_empty());
    (pieces, replaced + rest)
}

/// The browser's engine finds what fancy-regex finds natively.
#[wasm_bindgen_test]
fn expressions_find_what_they_find_natively() {
    let golden: Value = serde_json::from_slice(golden!("text/expressions.json")).unwrap();
    let mut n_expressions = 0;
    for (entries, texts) in [("expressions", "texts"), ("odd_expressions", "odd_texts")] {
        let texts = golden[texts].as_array().unwrap();
        for entry in golden[entries].as_array().unwrap() {
            let (mut cuts, mut replaced) = (Vec::new(), Vec::new());
            for (text, lengths) in texts.iter().zip(entry["found"].as_array().unwrap()) {
                let text = text.as_str().unwrap();
                let (pieces, whole) = cut(lengths, text);
                cuts.push((text, pieces));
                // No text has no tokens, whatever a normalizer would make of it.
                replaced.push((text, if text.is_empty() { Vec::new() } else { vec![whole] }));
            }
            let pattern = json!({"Regex": entry["expression"]});
            let split = json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false});
            makes_words(json!({"pre_tokenizer": split}), &cuts);
            makes_words(json!({"normalizer": {"type": "Replace", "pattern": pattern, "content": "¦"}}), &replaced);
            n_expressions += 1;
        }
    }
    assert!(n_expressions > 300, "{n_expressions}");
}

/// The browser's tables of Unicode.
#[wasm_bindgen_test]
fn texts_are_normalized_as_unicode_says() {
    words::check_normalizers(&serde_json::from_slice(golden!("text/normal_forms.json")).unwrap());
}

#[wasm_bindgen_test]
fn long_texts_are_cut_in_time_and_what_the_browser_refuses_is_a_typed_error() {
    let load = |expression: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
        let model = json!({"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0}});
        let bytes = json!({"pre_tokenizer": split, "model": model}).to_string();
        Tokenizer::from_files(&TokenizerFiles { tokenizer: bytes.as_bytes(), ..Default::default() })
    };
    let words = r"'s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    let tokenizer = load(words).unwrap();
    for (unit, n_words) in [("a", 1), (" ", 1), ("é", 1), ("a ", 1 << 19), ("\u{1}\u{F0000}", 1), ("👩", 1)] {
        let text = unit.repeat((1 << 20) / unit.len() / if unit == "a " { 1 } else { 2 });
        let start = js_sys::Date::now();
        let ids = tokenizer.encode(&text, false, false).unwrap();
        console_log!("{} MB of {unit:?}: {} words in {} ms", text.len() >> 20, ids.len(), js_sys::Date::now() - start);
        assert!(ids.len().abs_diff(n_words) <= 1, "{unit:?}: {} words", ids.len());
    }
    // Scripts are the browser's to know.
    let error = load(r"\p{Script=Nonsense}").err().unwrap();
    assert_eq!(error.code(), Code::UnsupportedTokenizer);
    assert!(error.message().contains("Nonsense"), "{error}");
}

/// Format, GGUF file, prompt ids and greedy tokens by format.
type Golden = (&'static str, &'static [u8], &'static [u8], &'static [u8]);

#[wasm_bindgen_test]
async fn greedy_tokens_agree() {
    let (llama_ids, llama) = (golden!("tiny_llama/tied.ids.json"), golden!("tiny_llama/tied.greedy.json"));
    let (qwen2_ids, qwen2) = (golden!("tiny_qwen2/untied.ids.json"), golden!("tiny_qwen2/untied.greedy.json"));
    let models: [Golden; 5] = [
        ("F32", golden!("tiny_llama/tied-f32.gguf"), llama_ids, llama),
        ("F16", golden!("tiny_llama/tied-f16.gguf"), llama_ids, llama),
        ("Q8_0", golden!("tiny_llama/tied-q8_0.gguf"), llama_ids, llama),
        ("Q4_0", golden!("tiny_llama/tied-q4_0.gguf"), llama_ids, llama),
        ("Q4_0", golden!("tiny_qwen2/untied-q4_0.gguf"), qwen2_ids, qwen2),
    ];
    for (format, bytes, ids, greedy) in models {
        let (ids, greedy): (Value, Value) =
            (serde_json::from_slice(ids).unwrap(), serde_json::from_slice(greedy).unwrap());
        let source = MemorySource::new(bytes.to_vec()).with_chunk_bytes(4099);
        let engine = Engine::load(&source, &LoadOptions::default(), &mut |_| Ok(())).await.unwrap();
        let wanted = greedy[format].as_array().unwrap();
        let request = json!({"prompt": ids, "max_tokens": wanted.len(), "temperature": 0, "ignore_eos": true});
        let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
        let mut tokens = vec![];
        while let Some(chunk) = generation.next().await.unwrap() {
            tokens.extend(chunk.token_ids);
        }
        assert_eq!(json!(tokens), json!(wanted), "{} {format}", engine.info().architecture);
        engine.dispose();
    }
}

/// Architectures whose kernels Llama does not have: windows, soft caps, norms of heads, experts, layer norms, ropes with a scale.
#[wasm_bindgen_test]
async fn architectures_answer_as_transformers_does() {
    macro_rules! model {
        ($name:literal) => {
            (
                $name,
                golden!(concat!("architectures/", $name, "/model.gguf")),
                golden!(concat!("architectures/", $name, "/golden.json")),
            )
        };
    }
    let models: [(&str, &[u8], &[u8]); 5] =
        [model!("gemma2"), model!("gemma3"), model!("qwen3_moe"), model!("phi4_mini"), model!("gpt2")];
    for (name, bytes, golden) in models {
        let golden: Value = serde_json::from_slice(golden).unwrap();
        let source = MemorySource::new(bytes.to_vec());
        let engine = Engine::load(&source, &LoadOptions::default(), &mut |_| Ok(())).await.unwrap();
        let request = json!({"prompt": golden["ids"], "max_tokens": 32, "temperature": 0, "ignore_eos": true});
        let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
        let mut tokens = vec![];
        while let Some(chunk) = generation.next().await.unwrap() {
            tokens.extend(chunk.token_ids);
        }
        assert_eq!(json!(tokens), golden["greedy"], "{name}");
    }
}
