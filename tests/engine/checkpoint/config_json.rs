//! config.json: what becomes of it, and how what is wrong or not supported is refused.

use rillm::error::{Code, Error};
use rillm::model::arch::RopeKind;
use rillm::model::checkpoint::{Checkpoint, Origin, TensorValues};
use rillm::model::config::Config;
use rillm::model::layer_config::LayerConfig;
use rillm::model::rope::RopeScaling;
use serde_json::{Map, Value, json};

use super::check_error;
use super::writer::{Tensor, config, f32, files, folder, tensors};

fn read(config: &Map<String, Value>, tensors: &[Tensor]) -> Result<Config, Error> {
    let folder = folder(files(config, tensors));
    let checkpoint = pollster::block_on(Checkpoint::open(&folder, None))?;
    assert_eq!(checkpoint.origin, Origin::HuggingFace);
    Config::of(&checkpoint)
}

fn with(key: &str, value: Value) -> Map<String, Value> {
    let mut config = config();
    config.insert(key.to_owned(), value);
    config
}

#[track_caller]
fn refused(config: &Map<String, Value>, code: Code, words: &[&str]) {
    check_error(&read(config, &tensors()).expect_err("this model must be refused"), code, words);
}

#[test]
fn a_llama_is_read() {
    let read = read(&config(), &tensors()).unwrap();
    assert_eq!(read.arch.name, "llama");
    // Converters to GGUF reorder the rows of queries and keys; these are as transformers has them.
    assert_eq!((read.ropes[0].kind, read.arch.rope), (RopeKind::Halves, Some(RopeKind::Interleaved)));
    assert_eq!((read.n_layers, read.n_embd, read.layers[0].n_ff), (2, 16, 24));
    let LayerConfig { n_kv_heads, head_dim, .. } = read.layers[0];
    assert_eq!((read.n_heads, n_kv_heads, head_dim, read.ropes[0].dim), (4, 2, 4, 4));
    assert_eq!((read.ropes[0].theta, read.norm_eps), (500000.0, 1e-5));
    assert_eq!((read.context_length, read.vocab_size, read.tie_embeddings), (128, 5, true));
}

#[test]
fn embeddings_are_tied_as_the_configuration_says() {
    let mut with_head = tensors();
    with_head.push(f32("lm_head.weight", &[5, 16]));
    assert!(read(&config(), &with_head).unwrap().tie_embeddings, "the head is ignored, as transformers does");
    assert!(!read(&with("tie_word_embeddings", json!(false)), &with_head).unwrap().tie_embeddings);
    refused(
        &with("tie_word_embeddings", json!(false)),
        Code::MissingTensor,
        &["lm_head.weight", "tie_word_embeddings"],
    );
    let mut silent = config();
    silent.remove("tie_word_embeddings");
    assert!(read(&silent, &tensors()).unwrap().tie_embeddings);
    assert!(!read(&silent, &with_head).unwrap().tie_embeddings);
}

#[test]
fn keys_that_are_missing_or_wrong_are_named() {
    for key in [
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "rms_norm_eps",
        "max_position_embeddings",
        "vocab_size",
    ] {
        let mut without = config();
        without.remove(key);
        refused(&without, Code::InvalidMetadata, &["config.json", key]);
        refused(&with(key, Value::Null), Code::InvalidMetadata, &["config.json", key]);
        refused(&with(key, json!("many")), Code::InvalidMetadata, &["config.json", key, "many"]);
        refused(&with(key, json!({})), Code::InvalidMetadata, &["config.json", key]);
    }
    for key in ["num_hidden_layers", "hidden_size", "vocab_size", "num_key_value_heads"] {
        for value in [json!(1.5), json!(-1), json!(u64::MAX), json!(0)] {
            let found = read(&with(key, value.clone()), &tensors()).unwrap_err();
            assert!([Code::InvalidMetadata, Code::ShapeMismatch].contains(&found.code()), "{key} {value}: {found}");
        }
    }
    refused(&with("rope_theta", json!("x")), Code::InvalidMetadata, &["rope_theta"]);
    refused(&with("rope_theta", json!(-1.0)), Code::InvalidMetadata, &["rope.freq_base"]);
    refused(&with("rope_scaling", json!([1])), Code::InvalidMetadata, &["rope_scaling"]);
    // A list of numbers where there is one, and a list of many where there is one for each layer.
    refused(&with("num_key_value_heads", json!([2, 2, 2])), Code::InvalidMetadata, &["3 elements"]);
}

#[test]
fn a_configuration_that_contradicts_the_weights_is_refused() {
    for (key, value, wanted) in [
        ("hidden_size", 32, "32"),
        ("intermediate_size", 8, "8"),
        ("num_key_value_heads", 4, "16"),
        ("vocab_size", 6, "6"),
    ] {
        refused(&with(key, json!(value)), Code::ShapeMismatch, &[wanted]);
    }
    refused(&with("num_hidden_layers", json!(3)), Code::MissingTensor, &["blk.2"]);
    refused(&with("num_hidden_layers", json!(1)), Code::UnsupportedArchitecture, &["blk.1"]);
    refused(&with("num_key_value_heads", json!(3)), Code::InvalidMetadata, &["multiple"]);
    let mut fewer = tensors();
    fewer.retain(|(name, ..)| name != "model.layers.1.mlp.up_proj.weight");
    check_error(&read(&config(), &fewer).unwrap_err(), Code::MissingTensor, &["blk.1.ffn_up.weight"]);
    let mut more = tensors();
    more.push(f32("model.layers.0.input_layernorm.bias", &[16]));
    check_error(&read(&config(), &more).unwrap_err(), Code::UnsupportedArchitecture, &["blk.0.attn_norm.bias"]);
    let mut foreign = tensors();
    foreign.push(f32("model.layers.0.adapter.weight", &[16]));
    check_error(
        &read(&config(), &foreign).unwrap_err(),
        Code::UnsupportedArchitecture,
        &["model.layers.0.adapter.weight"],
    );
    let mut old = tensors();
    old.push(f32("model.layers.0.self_attn.rotary_emb.inv_freq", &[2]));
    assert!(read(&config(), &old).is_ok(), "rope's frequencies follow from the configuration");
    let mut float8 = tensors();
    float8[4] = (float8[4].0.clone(), "F8_E4M3", vec![16, 16], vec![0; 256]);
    let name = float8[4].0.clone();
    check_error(&read(&config(), &float8).unwrap_err(), Code::UnsupportedTensorType, &[&name, "F8_E4M3", "BF16"]);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    refused(&with("model_type", json!("rwkv7")), Code::UnsupportedArchitecture, &["rwkv7", "llama", "qwen2"]);
    refused(&with("model_type", json!(7)), Code::InvalidMetadata, &["model_type"]);
    refused(&with("hidden_act", json!("relu")), Code::UnsupportedArchitecture, &["hidden_act", "relu"]);
    refused(
        &with("rope_scaling", json!({"type": "spiral", "factor": 4.0})),
        Code::UnsupportedArchitecture,
        &["spiral"],
    );
    let linear = json!({"rope_type": "llama3", "factor": 8.0});
    refused(&with("rope_scaling", linear), Code::InvalidMetadata, &["llama3", "original_max_position_embeddings"]);
    for text in ["", "[]", "{", "null", "\"llama\""] {
        let mut files = files(&config(), &tensors());
        files[0].1 = text.as_bytes().to_vec();
        let folder = folder(files);
        let error = pollster::block_on(Checkpoint::open(&folder, None)).err().unwrap();
        check_error(&error, Code::InvalidFile, &["config.json"]);
    }
}

/// Llama 3.1's own numbers, against transformers' `_compute_llama3_parameters` for theta 500000 and heads of 8.
#[test]
fn llama3_scaling_becomes_a_tensor_of_factors() {
    for parameters in [
        (
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
        ),
        (
            "rope_parameters",
            json!({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}),
        ),
    ] {
        let folder = folder(files(&with(parameters.0, parameters.1), &tensors()));
        let checkpoint = pollster::block_on(Checkpoint::open(&folder, None)).unwrap();
        let TensorValues::Computed(factors) = &checkpoint.tensor("rope_freqs.weight").unwrap().values else {
            panic!("computed, not stored")
        };
        // Heads have 4 elements: frequencies 1 and 500000^-0.5. The first turns 5.09 times in 32 tokens, the other hardly.
        assert_eq!(factors, &[1.0, 8.0]);
        let tensor = "rope_freqs.weight".to_owned();
        assert_eq!(Config::of(&checkpoint).unwrap().ropes[0].scaling, RopeScaling::Factors { tensor });
    }
}

/// What config.json says by keys of its own, or leaves to transformers, in the words of a GGUF file.
mod translated {
    use rillm::model::gguf::{Array, Metadata, Value as Word};
    use rillm::model::hugging_face::translate;
    use serde_json::{Value, json};

    fn metadata(config: Value) -> Metadata {
        translate(config.to_string().as_bytes(), &[]).unwrap().0
    }

    fn near(metadata: &Metadata, key: &str, wanted: f32) {
        let found = metadata.f32(key).unwrap();
        assert!((found / wanted - 1.0).abs() < 1e-6, "{key} is {found}, wanted {wanted}");
    }

    /// The configuration of Gemma 3 4B, which sees pictures and says little of its model of text.
    #[test]
    fn a_model_of_text_within_another_takes_transformers_defaults() {
        let text = json!({"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024});
        let read =
            metadata(json!({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}));
        for (key, wanted) in [
            ("attention.head_count", 8),
            ("attention.head_count_kv", 4),
            ("attention.key_length", 256),
            ("attention.sliding_window", 1024),
            ("context_length", 131_072),
        ] {
            assert_eq!(read.u32(&format!("gemma3.{key}")).unwrap(), wanted, "{key}");
        }
        near(&read, "gemma3.attention.scale", 1.0 / 16.0);
        near(&read, "gemma3.rope.freq_base", 1e6);
        near(&read, "gemma3.rope.scaling.factor", 8.0);
    }

    #[test]
    fn kinds_of_layers_become_a_pattern_of_windows() {
        let config = |kinds: Value| {
            json!({"model_type": "olmo3", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                "num_attention_heads": 4, "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "vocab_size": 5,
                "rope_theta": 10000.0, "layer_types": kinds})
        };
        let read = metadata(config(json!(["sliding_attention", "full_attention"])));
        let pattern = read.get("olmo2.attention.sliding_window_pattern").unwrap();
        assert_eq!(*pattern, Word::Array(Array::Bool(vec![true, false])));
        let other = config(json!(["full_attention", "linear_attention"])).to_string();
        let error = translate(other.as_bytes(), &[]).unwrap_err();
        assert!(error.message().contains("linear_attention"), "{error}");
    }

    /// Qwen's configurations speak of windows, which they mostly switch off.
    #[test]
    fn windows_may_be_in_the_last_layers_only() {
        let config = |more: Value| {
            let mut config = json!({"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
                "num_attention_heads": 4, "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "vocab_size": 5,
                "rope_theta": 10000.0, "sliding_window": 16, "max_window_layers": 2});
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            config
        };
        let pattern = |read: &Metadata| read.get("qwen2.attention.sliding_window_pattern").cloned();
        for off in [json!({}), json!({"use_sliding_window": false})] {
            let read = metadata(config(off));
            assert_eq!((read.optional_u32("qwen2.attention.sliding_window").unwrap(), pattern(&read)), (None, None));
        }
        for (more, windows) in [
            (json!({}), vec![false, false, true]),
            (json!({"max_window_layers": 0}), vec![true; 3]),
            (json!({"max_window_layers": 28}), vec![false; 3]),
            (
                json!({"layer_types": ["sliding_attention", "full_attention", "full_attention"]}),
                vec![true, false, false],
            ),
        ] {
            let mut config = config(more);
            config["use_sliding_window"] = json!(true);
            let read = metadata(config);
            assert_eq!(read.u32("qwen2.attention.sliding_window").unwrap(), 16);
            assert_eq!(pattern(&read), Some(Word::Array(Array::Bool(windows))));
        }
        for (key, wrong) in [
            ("use_sliding_window", json!("yes")),
            ("max_window_layers", json!(-1)),
            ("max_window_layers", json!(u64::MAX)),
            ("num_hidden_layers", json!(u64::MAX)),
            ("sliding_window", json!("far")),
            ("layer_types", json!(["half_attention"])),
        ] {
            let mut config = config(json!({"use_sliding_window": true}));
            config[key] = wrong;
            let error = translate(config.to_string().as_bytes(), &[]).unwrap_err();
            assert!(error.message().contains(key) || error.message().contains("half_attention"), "{key}: {error}");
        }
    }

    #[test]
    fn what_follows_from_another_key_is_computed() {
        let gpt2 = json!({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
            "vocab_size": 50257, "activation_function": "gelu_new"});
        assert_eq!(metadata(gpt2.clone()).u32("gpt2.feed_forward_length").unwrap(), 3072);
        let mut own = gpt2;
        own["n_inner"] = json!(100);
        assert_eq!(metadata(own).u32("gpt2.feed_forward_length").unwrap(), 100);
    }

    /// transformers has the factor of attention itself, GGUF what it is beyond the usual one.
    #[test]
    fn yarn_says_how_attention_is_scaled() {
        let yarn = |more: Value| {
            let mut scaling = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
            scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            metadata(json!({"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                "num_attention_heads": 4, "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "vocab_size": 5,
                "rope_theta": 10000.0, "rope_scaling": scaling}))
        };
        let key = "qwen2.rope.scaling.yarn_attn_factor";
        let usual = 1.0 + 0.1 * 4f32.ln();
        assert!(yarn(json!({})).get(key).is_none());
        near(&yarn(json!({"attention_factor": 1.5})), key, 1.5 / usual);
        near(&yarn(json!({"mscale": 1.0, "mscale_all_dim": 0.5})), key, 1.0 / (1.0 + 0.05 * 4f32.ln()));
    }
}
