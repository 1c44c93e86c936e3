//! Models that somebody made up to break what reads them: each ends in a typed error that says what is wrong, for an inspection as for a
//! load.

use rillm::error::Code;
use serde_json::{Value, json};

use super::writer::{config, files as small, safetensors, sharded, tensors, with_header};
use crate::gguf::writer::{ARRAY, STRING, U32, Writer, array, llama, strings};
use crate::mutations::{Files, check, files, refused};

fn gguf(writer: &Writer) -> Files {
    vec![("model.gguf".to_owned(), writer.bytes())]
}

const FOLDER: &[&str] =
    &["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"];

/// A folder that is sound but for one file.
fn with_file(name: &str, text: impl Into<Vec<u8>>) -> Files {
    let mut files = files("folders/qwen2_bf16", FOLDER);
    files.retain(|(other, _)| other != name);
    files.push((name.to_owned(), text.into()));
    files
}

#[test]
fn numbers_that_no_model_has_are_refused() {
    for (key, value, code, word) in [
        ("hidden_size", json!(0), Code::InvalidMetadata, "0"),
        ("num_attention_heads", json!(0), Code::InvalidMetadata, "head_count is 0"),
        ("num_attention_heads", json!(3), Code::InvalidMetadata, "multiple"),
        ("num_key_value_heads", json!(0), Code::InvalidMetadata, "head_count_kv is 0"),
        ("head_dim", json!(3), Code::InvalidMetadata, "3"),
        ("head_dim", json!(-4), Code::InvalidMetadata, "-4"),
        ("num_hidden_layers", json!(1_000_000_000), Code::InvalidMetadata, "block_count is 1000000000"),
        ("intermediate_size", json!(0), Code::InvalidMetadata, "feed_forward_length is 0"),
        ("vocab_size", json!(4), Code::ShapeMismatch, "4 tokens"),
        ("vocab_size", json!(1u64 << 31), Code::ShapeMismatch, "2147483648 tokens"),
        ("rms_norm_eps", json!(0), Code::InvalidMetadata, "epsilon"),
        ("rms_norm_eps", json!(1e308), Code::InvalidMetadata, "epsilon"),
        ("max_position_embeddings", json!(0), Code::InvalidMetadata, "context_length is 0"),
        ("max_position_embeddings", json!(1u64 << 40), Code::InvalidMetadata, "context_length"),
        ("rope_theta", json!(1e-300), Code::InvalidMetadata, "freq_base"),
        ("num_local_experts", json!(u32::MAX), Code::InvalidMetadata, "expert_count"),
    ] {
        let mut config = config();
        config.insert(key.to_owned(), value.clone());
        let (found, message) = check(&small(&config, &tensors())).expect("this model must be refused");
        assert!(found == code.as_str() && message.contains(word), "{key}: {value}: {found}: {message}");
    }
}

#[test]
fn valid_json_of_another_shape_is_an_error_or_right() {
    for name in FOLDER.iter().filter(|name| name.ends_with(".json")) {
        for text in ["null", "7", "\"x\"", "[]", "{}", "[[]]", "[{}]", "{\"model\": {}}", "{\"eos_token_id\": {}}"] {
            let told = check(&with_file(name, text));
            assert!(told.is_some() || !name.starts_with("config"), "{name}: {text}");
        }
    }
    // Too many values for the little text that they are.
    let many = format!("{{\"model_type\": \"qwen2\", \"a\": [{}0]}}", "0,".repeat(1 << 18));
    refused(&with_file("config.json", many), Code::InvalidFile, &["config.json", "262148 values"]);
}

#[test]
fn an_index_that_does_not_fit_its_files_is_refused() {
    let index = "model.safetensors.index.json";
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut files = sharded();
        let at = files.iter().position(|(name, _)| name == index).unwrap();
        let mut value: Value = serde_json::from_slice(&files[at].1).unwrap();
        change(&mut value["weight_map"]);
        files[at].1 = value.to_string().into_bytes();
        files
    };
    let other = |name: &'static str| changed(&move |map| map["model.norm.weight"] = json!(name));
    refused(&other("not-there.safetensors"), Code::InvalidFile, &["not-there.safetensors"]);
    refused(&other("../elsewhere.safetensors"), Code::InvalidFile, &["../elsewhere.safetensors"]);
    refused(&changed(&|map| map["more"] = map["model.norm.weight"].clone()), Code::MissingTensor, &["\"more\""]);
    let swapped = |map: &mut Value| {
        let first = map["model.embed_tokens.weight"].clone();
        let values = map.as_object_mut().unwrap().values_mut();
        values.filter(|value| **value != first).for_each(|value| *value = first.clone());
    };
    refused(&changed(&swapped), Code::MissingTensor, &["model-00001-of-00002.safetensors"]);
}

#[test]
fn tensors_that_overlap_or_lie_beyond_their_file_are_refused() {
    let mut folder = small(&config(), &tensors());
    let entry = |start: u64, end: u64| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":[{start},{end}]}}"#);
    let file = |header: String| with_header(&header, &[0; 16]);
    folder[1].1 = file(format!(r#"{{"a":{},"b":{}}}"#, entry(0, 8), entry(4, 12)));
    refused(&folder, Code::InvalidFile, &["\"b\"", "no overlaps"]);
    folder[1].1 = file(format!(r#"{{"a":{}}}"#, entry(1 << 40, (1 << 40) + 8)));
    refused(&folder, Code::Truncated, &["\"a\""]);
    folder[1].1 = file(format!(r#"{{"a":{},"a":{}}}"#, entry(0, 8), entry(8, 16)));
    refused(&folder, Code::InvalidFile, &["\"a\"", "twice"]);
    let huge = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,16]}}"#;
    folder[1].1 = file(huge.to_owned());
    refused(&folder, Code::InvalidFile, &["\"a\"", "don't fit"]);
    folder[1].1 = safetensors(&[]);
    refused(&folder, Code::MissingTensor, &["token_embd.weight"]);

    let mut writer = llama();
    writer.tensors[1].offset = Some(32);
    refused(&gguf(&writer), Code::InvalidFile, &["overlap"]);
    let mut writer = llama();
    writer.tensors[1].offset = Some(1 << 40);
    refused(&gguf(&writer), Code::Truncated, &["output_norm.weight"]);
}

#[test]
fn counts_that_no_model_has_are_refused() {
    for (tensors, words) in [(1u64 << 40, "1099511627776 tensors"), (1 << 20, "at most 131072")] {
        let mut writer = llama();
        writer.n_tensors = Some(tensors);
        refused(&gguf(&writer), Code::InvalidFile, &[words]);
    }
    let mut writer = llama();
    writer.n_entries = Some(1 << 20);
    refused(&gguf(&writer), Code::InvalidFile, &["1048576 metadata entries", "at most 65536"]);
    let text = llama().entry("general.name", STRING, (4u64 << 30).to_le_bytes());
    refused(&gguf(&text), Code::InvalidFile, &["general.name", "4294967296 bytes"]);
    for (ty, count, most) in [(STRING, 1u64 << 22, "2097152"), (ARRAY, 1 << 17, "65536")] {
        let many = [&ty.to_le_bytes()[..], &count.to_le_bytes()].concat();
        refused(&gguf(&llama().entry("many", ARRAY, many)), Code::InvalidFile, &["\"many\"", most]);
    }
    // Each array may have as many, and all together.
    let empty = array(U32, &[]);
    let nested = |count: usize| array(ARRAY, &vec![empty.clone(); count]);
    let writer = llama().entry("first", ARRAY, nested(60_000)).entry("second", ARRAY, nested(6_000));
    refused(&gguf(&writer), Code::InvalidFile, &["\"second\"", "at most 5536"]);
}

#[test]
fn a_tokenizer_that_makes_no_sense_is_refused() {
    let bpe = |vocab: &str, merges: &str| {
        let text = format!(r#"{{"model": {{"type": "BPE", "vocab": {{{vocab}}}, "merges": [{merges}]}}}}"#);
        with_file("tokenizer.json", text)
    };
    let nothing = vec![r#"["",""]"#; 1_000_000].join(",");
    refused(&bpe(r#""a": 0"#, &nothing), Code::UnsupportedTokenizer, &["merge 0", "\"\""]);
    let more = vec![r#"["",""]"#; 2_100_000].join(",");
    refused(&bpe(r#""a": 0"#, &more), Code::UnsupportedTokenizer, &["tokenizer.json", "values"]);
    refused(&bpe(r#""a": 0, "b": 0"#, ""), Code::UnsupportedTokenizer, &["belongs to two tokens"]);
    refused(&bpe(r#""a": 0, "a": 1"#, ""), Code::UnsupportedTokenizer, &["1 tokens occur twice"]);
    refused(&bpe(r#""a": 4294967295"#, ""), Code::UnsupportedTokenizer, &["too far above"]);
    let writer = || llama().str("tokenizer.ggml.model", "llama");
    let of = |key: &str, ty: u32, count: usize| writer().entry(key, ARRAY, array(ty, &vec![vec![0; 4]; count]));
    refused(
        &gguf(&of("tokenizer.ggml.token_type", 5, 6)),
        Code::UnsupportedTokenizer,
        &["token_type has 6", "5 tokens"],
    );
    refused(&gguf(&of("tokenizer.ggml.scores", 6, 500)), Code::UnsupportedTokenizer, &["scores has 500", "5 tokens"]);
    let twice = writer()
        .without("tokenizer.ggml.tokens")
        .entry("tokenizer.ggml.tokens", ARRAY, strings(&["a", "b", "c", "a", "e"]))
        .entry("tokenizer.ggml.scores", ARRAY, array(6, &vec![vec![0; 4]; 5]));
    refused(&gguf(&twice), Code::UnsupportedTokenizer, &["tokens 0 and 3", "\"a\""]);
    let fewer = writer().without("tokenizer.ggml.tokens").entry("tokenizer.ggml.tokens", ARRAY, strings(&["a"]));
    refused(&gguf(&fewer), Code::ShapeMismatch, &["1 tokens", "5 rows"]);
}
