//! A writer of small Hugging Face folders for the tests, which can also write what a sound writer never would.

use rillm::model::folder::MemoryFolder;
use serde_json::{Map, Value, json};

/// A tensor: name, dtype, shape, data.
pub type Tensor = (String, &'static str, Vec<u64>, Vec<u8>);

/// A file of this header and data.
pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        assert!(header.insert(name.clone(), entry).is_none());
    }
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    with_header(&Value::Object(header).to_string(), &data)
}

pub fn f32(name: &str, shape: &[u64]) -> Tensor {
    let elements: u64 = shape.iter().product();
    let data = (0..elements).flat_map(|i| (i as f32 / 64.0).to_le_bytes()).collect();
    (name.to_owned(), "F32", shape.to_vec(), data)
}

/// The configuration of `tensors`.
pub fn config() -> Map<String, Value> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16,
        "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 500000, "max_position_embeddings": 128, "vocab_size": 5, "hidden_act": "silu", "rope_scaling": null,
        "tie_word_embeddings": true, "torch_dtype": "float32",
    });
    config.as_object().unwrap().clone()
}

/// A Llama that is sound in every respect, with layers too small to be of use.
pub fn tensors() -> Vec<Tensor> {
    let mut tensors = vec![f32("model.embed_tokens.weight", &[5, 16]), f32("model.norm.weight", &[16])];
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", &[16][..]),
            ("self_attn.q_proj", &[16, 16]),
            ("self_attn.k_proj", &[8, 16]),
            ("self_attn.v_proj", &[8, 16]),
            ("self_attn.o_proj", &[16, 16]),
            ("post_attention_layernorm", &[16]),
            ("mlp.gate_proj", &[24, 16]),
            ("mlp.up_proj", &[24, 16]),
            ("mlp.down_proj", &[16, 24]),
        ] {
            tensors.push(f32(&format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    tensors
}

pub fn files(config: &Map<String, Value>, tensors: &[Tensor]) -> Vec<(String, Vec<u8>)> {
    vec![
        ("config.json".to_owned(), Value::Object(config.clone()).to_string().into_bytes()),
        ("model.safetensors".to_owned(), safetensors(tensors)),
    ]
}

/// The model in two files, and its index.
pub fn sharded() -> Vec<(String, Vec<u8>)> {
    let (mut tensors, mut map) = (tensors(), Map::new());
    let second = tensors.split_off(9);
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    for (file, tensors) in names.iter().zip([&tensors, &second]) {
        map.extend(tensors.iter().map(|(name, ..)| (name.clone(), json!(file))));
    }
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
    vec![
        ("config.json".to_owned(), Value::Object(config()).to_string().into_bytes()),
        ("model.safetensors.index.json".to_owned(), index.to_string().into_bytes()),
        (names[0].to_owned(), safetensors(&tensors)),
        (names[1].to_owned(), safetensors(&second)),
    ]
}

pub fn folder(files: Vec<(String, Vec<u8>)>) -> MemoryFolder {
    MemoryFolder::new(files)
}
