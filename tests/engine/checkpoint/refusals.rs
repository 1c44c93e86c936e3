//! What is sound and not supported: an inspection tells of it by name, and a load refuses it with the same words. And what seems not to be
//! supported and is.

use rillm::engine::{Engine, LoadOptions, inspect};
use rillm::error::Code;
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;
use serde_json::{Map, Value, json};

use super::writer::{f32, files as small, tensors};
use crate::mutations::{Files, check, files, refused};

/// The files of a golden folder, with keys of config.json set, or removed where the value is missing.
pub(super) fn changed(folder: &str, keys: &[(&str, Option<Value>)]) -> Files {
    let names = match folder {
        "encoders/bert" => &["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"][..],
        _ => &["config.json", "model.safetensors", "tokenizer.json"],
    };
    let mut files = files(folder, names);
    let mut config: Map<String, Value> = serde_json::from_slice(&files[0].1).unwrap();
    for (key, value) in keys {
        match value {
            Some(value) => drop(config.insert((*key).to_owned(), value.clone())),
            None => drop(config.remove(*key)),
        }
    }
    files[0].1 = Value::Object(config).to_string().into_bytes();
    files
}

#[test]
fn weights_that_others_quantised_are_refused_by_name() {
    for method in ["hqq", "aqlm", "quanto", "eetq", "vptq", "torchao"] {
        let how = json!({"quant_method": method, "bits": 4, "group_size": 128});
        let files = changed("folders/qwen2_bf16", &[("quantization_config", Some(how))]);
        refused(&files, Code::UnsupportedTensorType, &["quantization_config", method, "not supported"]);
    }
    // Methods that are read, of which the files hold nothing; the last is MLX.
    for how in
        [json!({"quant_method": "awq"}), json!({"quant_method": "bitsandbytes"}), json!({"group_size": 64, "bits": 4})]
    {
        let files = changed("folders/qwen2_bf16", &[("quantization_config", Some(how))]);
        refused(&files, Code::MissingTensor, &["config.json says", "no tensor"]);
    }
    // A value that means nothing to anybody.
    refused(
        &changed("folders/qwen2_bf16", &[("quantization_config", Some(json!(7)))]),
        Code::UnsupportedTensorType,
        &["7"],
    );
    assert_eq!(check(&changed("folders/qwen2_bf16", &[("quantization_config", Some(Value::Null))])), None);
}

#[test]
fn text_parts_of_other_models_are_refused_by_name() {
    for (model, part) in [("pixtral", "mistral"), ("llava", "llama"), ("gemma4", "gemma3_text"), ("other", "else")] {
        let config = json!({"model_type": model, "text_config": {"model_type": part}, "vision_config": {}});
        let files = small(config.as_object().unwrap(), &tensors());
        refused(&files, Code::UnsupportedArchitecture, &[model, part, "text part", "gemma3"]);
    }
    let quantized = json!({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "quantization_config": {"quant_method": "hqq"}}});
    refused(&small(quantized.as_object().unwrap(), &tensors()), Code::UnsupportedTensorType, &["hqq"]);
}

#[test]
fn decoders_for_other_tasks_are_refused_by_name() {
    let task = json!(["Qwen2ForTokenClassification"]);
    let files = changed("folders/qwen2_bf16", &[("architectures", Some(task))]);
    refused(&files, Code::UnsupportedArchitecture, &["Qwen2ForTokenClassification", "ForCausalLM"]);
    // A head that is named has to be there.
    let task = json!(["Qwen2ForSequenceClassification"]);
    let files = changed("folders/qwen2_bf16", &[("architectures", Some(task))]);
    refused(&files, Code::MissingTensor, &["cls.output.weight"]);
    for key in ["is_causal", "use_bidirectional_attention"] {
        let other = json!(key != "is_causal");
        let files = changed("folders/qwen2_bf16", &[(key, Some(other))]);
        refused(&files, Code::UnsupportedArchitecture, &[key]);
    }
}

#[test]
fn what_comes_after_an_encoder_is_refused_by_name() {
    let with = |name: &str, text: &str| {
        let mut files = changed("encoders/bert", &[]);
        files.retain(|(other, _)| other != name);
        files.push((name.to_owned(), text.as_bytes().to_vec()));
        files
    };
    let dense = r#"[{"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]"#;
    refused(&with("modules.json", dense), Code::InvalidFile, &["2_Dense/model.safetensors"]);
    let norm = dense.replace("Dense", "LayerNorm");
    refused(&with("modules.json", &norm), Code::UnsupportedArchitecture, &["LayerNorm", "modules.json"]);
    refused(&with("modules.json", &dense.replace("2_Dense", "../2_Dense")), Code::InvalidFile, &["../2_Dense"]);
    for pooling in [r#"{"pooling_mode_weightedmean_tokens": true}"#, r#"{"pooling_mode": "weightedmean"}"#] {
        refused(
            &with("1_Pooling/config.json", pooling),
            Code::UnsupportedArchitecture,
            &["weightedmean", "cls, mean, max, lasttoken"],
        );
    }
    let prompt = r#"{"pooling_mode": "mean", "include_prompt": false}"#;
    refused(&with("1_Pooling/config.json", prompt), Code::UnsupportedArchitecture, &["include_prompt"]);
    for broken in ["[", "[7]", "{}", "null"] {
        refused(&with("modules.json", broken), Code::InvalidFile, &["modules.json"]);
    }
}

/// As in transformers: null is no cap, and without the key there are the architecture's.
#[test]
fn soft_caps_of_null_are_none() {
    let caps = |value: Option<Value>| {
        let keys = ["attn_logit_softcapping", "final_logit_softcapping"].map(|key| (key, value.clone()));
        let files = changed("architectures/gemma2", &keys);
        assert_eq!(check(&files), None);
        let folder = MemoryFolder::new(files);
        let config = Config::of(&pollster::block_on(Checkpoint::open(&folder, None)).unwrap()).unwrap();
        (config.attention_softcap, config.logit_softcap)
    };
    assert_eq!(caps(Some(Value::Null)), (None, None));
    assert_eq!(caps(None), (Some(50.0), Some(30.0)));
    assert_eq!(caps(Some(json!(7))), (Some(7.0), Some(7.0)));
    for wrong in [json!(0), json!(-1.5), json!("none"), json!([])] {
        let files = changed("architectures/gemma2", &[("attn_logit_softcapping", Some(wrong))]);
        refused(&files, Code::InvalidMetadata, &["attn_logit_softcapping"]);
    }
    // A window of null is none, in every layer.
    let files = changed("architectures/gemma2", &[("sliding_window", Some(Value::Null))]);
    let folder = MemoryFolder::new(files);
    let config = Config::of(&pollster::block_on(Checkpoint::open(&folder, None)).unwrap()).unwrap();
    assert!(config.layers.iter().all(|layer| layer.window.is_none()));
}

/// A cross-encoder gives vectors, of which its head would have made a score.
#[test]
fn an_encoder_with_the_head_of_another_task_warns() {
    let warnings = |files: Files| {
        let folder = MemoryFolder::new(files);
        let options = LoadOptions::default();
        let said = pollster::block_on(inspect(&folder, None, &options)).unwrap();
        assert!(said.problem.is_none(), "{:?}", said.problem);
        let engine = pollster::block_on(Engine::load_from(&folder, None, &options, &mut |_| Ok(()))).unwrap();
        let told = |warnings: &[rillm::engine::Warning]| {
            warnings.iter().map(|warning| (warning.code, warning.message.clone())).collect::<Vec<_>>()
        };
        assert_eq!(told(&said.warnings), told(&engine.info().warnings));
        told(&said.warnings)
    };
    assert_eq!(warnings(changed("encoders/bert", &[])), []);
    let named = json!(["BertForTokenClassification"]);
    let by_name = warnings(changed("encoders/bert", &[("architectures", Some(named))]));
    assert_eq!((by_name.len(), by_name[0].0), (1, "ignored_head"));
    assert!(by_name[0].1.contains("BertForTokenClassification"), "{}", by_name[0].1);
    // By its tensors, whatever the configuration says.
    let mut files = changed("encoders/bert", &[]);
    let bytes = files[1].1.clone();
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let end = bytes.len() - 8 - length;
    let (_, dtype, shape, data) = f32("classifier.weight", &[1, 36]);
    let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [end, end + data.len()]});
    header.insert("classifier.weight".to_owned(), entry);
    let header = Value::Object(header).to_string();
    files[1].1 = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..], &data].concat();
    let by_tensor = warnings(files);
    assert_eq!((by_tensor.len(), by_tensor[0].0), (1, "ignored_head"));
    assert!(by_tensor[0].1.contains("classifier.weight"), "{}", by_tensor[0].1);
    // A base model without a template.
    let base = warnings(changed("folders/qwen2_bf16", &[]));
    assert_eq!((base.len(), base[0].0), (1, "no_chat_template"));
}

/// Switches of a configuration that change the computation, each refused by its key.
#[test]
fn switches_that_are_not_computed_are_refused_by_name() {
    for (model, key, value) in [
        ("olmoe", "clip_qkv", json!(8.0)),
        ("phi2", "qk_layernorm", json!(true)),
        ("phi2", "hidden_act", json!("relu")),
        ("phimoe", "num_experts_per_tok", json!(3)),
        ("glm4_moe", "n_group", json!(2)),
        ("opt", "do_layer_norm_before", json!(false)),
        ("falcon", "alibi", json!(true)),
        ("falcon", "activation", json!("relu")),
        ("bloom", "apply_residual_connection_post_layernorm", json!(true)),
        ("gptneox", "hidden_act", json!("gelu_fast")),
        ("apertus", "hidden_act", json!("silu")),
        ("arcee", "hidden_act", json!("silu")),
        ("gemma", "hidden_act", json!("relu")),
        ("nemotron", "hidden_act", json!("gelu")),
        ("gemma3n", "altup_correct_scale", json!(false)),
        ("gemma4", "hidden_activation", json!("silu")),
        ("gemma4", "attention_bias", json!(true)),
        ("gemma4", "use_bidirectional_attention", json!("all")),
        ("llama3", "per_layer_config", json!({"1": {"intermediate_size": 32}})),
    ] {
        let files = changed(&format!("architectures/{model}"), &[(key, Some(value))]);
        refused(&files, Code::UnsupportedArchitecture, &[key]);
    }
    for (model, key, value) in [
        ("bert", "position_embedding_type", json!("relative_key")),
        ("modern_bert", "hidden_activation", json!("relu")),
        ("modern_bert", "rope_scaling", json!({"factor": 2.0})),
        ("gemma_embedding", "hidden_activation", json!("relu")),
        ("distilbert", "activation", json!("relu")),
        ("electra", "hidden_act", json!("relu")),
        ("mpnet", "relative_attention_num_buckets", json!(16)),
        ("mpnet", "pad_token_id", json!(0)),
        ("gte", "hidden_act", json!("silu")),
        ("gte_new", "layer_norm_type", json!("rms_norm")),
        ("gte_new", "logn_attention_scale", json!(true)),
        ("gte_new", "position_embedding_type", json!("absolute")),
        ("jina_bert_v2", "feed_forward_type", json!("reglu")),
        ("jina_bert_v3", "hidden_act", json!("relu")),
        ("deberta_v2", "pos_att_type", json!(["c2p"])),
        ("deberta_v2", "share_att_key", json!(false)),
        ("deberta_v2", "norm_rel_ebd", json!("none")),
        ("deberta_v2", "position_biased_input", json!(true)),
        ("deberta_v2", "relative_attention", json!(false)),
        ("deberta_v2", "conv_kernel_size", json!(3)),
    ] {
        let files = changed(&format!("encoders/{model}"), &[(key, Some(value))]);
        refused(&files, Code::UnsupportedArchitecture, &[key]);
    }
    let mixed = json!({"type": "ntk", "factor": 8.0, "mixed_b": 0.7});
    let files = changed("encoders/gte_new", &[("rope_scaling", Some(mixed))]);
    refused(&files, Code::UnsupportedArchitecture, &["ntk", "mixed_b"]);
    let dynamic = json!({"type": "dynamic", "factor": 2.0});
    let files = changed("encoders/gte_new", &[("rope_scaling", Some(dynamic))]);
    refused(&files, Code::UnsupportedArchitecture, &["dynamic", "ntk"]);
    for factor in [json!(0.5), json!(null), json!(-8)] {
        let scaling = json!({"type": "ntk", "factor": factor});
        let files = changed("encoders/gte_new", &[("rope_scaling", Some(scaling))]);
        refused(&files, Code::InvalidMetadata, &["ntk", "factor"]);
    }
    let hqq = json!({"quant_method": "hqq"});
    let files = changed("architectures/gpt_oss", &[("quantization_config", Some(hqq))]);
    refused(&files, Code::UnsupportedTensorType, &["hqq"]);
}

/// Layers of two kinds that differ in other ways than those that are computed.
#[test]
fn kinds_of_layers_are_held_to_what_is_computed() {
    let gemma4 = |changes: &[(&str, Option<Value>)]| changed("architectures/gemma4", changes);
    let ropes = |full: Value, windowed: Value| {
        gemma4(&[("rope_parameters", Some(json!({"full_attention": full, "sliding_attention": windowed})))])
    };
    let default = || json!({"rope_type": "default", "rope_theta": 10000.0});
    let yarn = || json!({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0});
    refused(&ropes(yarn(), default()), Code::UnsupportedArchitecture, &["yarn", "full_attention"]);
    refused(&ropes(default(), yarn()), Code::UnsupportedArchitecture, &["yarn", "sliding_attention"]);
    let half = json!({"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 1.5});
    refused(&ropes(half, default()), Code::InvalidMetadata, &["partial_rotary_factor", "1.5"]);
    refused(&gemma4(&[("rope_parameters", Some(default()))]), Code::InvalidMetadata, &["rope_parameters"]);

    let overrides = |of_layers: Value| gemma4(&[("per_layer_config", Some(of_layers))]);
    let full = || json!({"head_dim": 32, "num_key_value_heads": 1});
    let wide = overrides(json!({"1": full(), "3": {"intermediate_size": 32}}));
    refused(&wide, Code::UnsupportedArchitecture, &["intermediate_size", "layer 3"]);
    refused(&overrides(json!({"1": full()})), Code::UnsupportedArchitecture, &["layers of one kind"]);
    refused(&overrides(json!({"0": full(), "2": full()})), Code::UnsupportedArchitecture, &["window"]);
    refused(&overrides(json!({"7": full()})), Code::InvalidMetadata, &["per_layer_config", "\"7\""]);

    let shared = |layers: u32| gemma4(&[("num_kv_shared_layers", Some(json!(layers)))]);
    refused(&shared(4), Code::UnsupportedArchitecture, &["shared_kv_layers", "4 of 4"]);
    refused(&shared(3), Code::InvalidMetadata, &["shared_kv_layers", "layer 1"]);
    refused(&gemma4(&[("sliding_window", Some(Value::Null))]), Code::InvalidMetadata, &["sliding_window"]);
    refused(&gemma4(&[("attention_k_eq_v", None)]), Code::MissingTensor, &["blk.1.attn_v.weight"]);
    refused(&gemma4(&[("layer_types", Some(json!(["full_attention"])))]), Code::InvalidMetadata, &["layer_types"]);
    refused(&gemma4(&[("num_hidden_layers", Some(json!(0)))]), Code::InvalidMetadata, &["num_hidden_layers"]);

    let streams = |key: &str, value: Value| changed("architectures/gemma3n", &[(key, Some(value))]);
    refused(&streams("altup_num_inputs", json!(1)), Code::InvalidMetadata, &["altup.num_inputs", "1"]);
    refused(&streams("altup_active_idx", json!(4)), Code::InvalidMetadata, &["altup.active_idx", "4"]);
    let sparsity = |shares: Value| streams("activation_sparsity_pattern", shares);
    refused(&sparsity(json!([0.5])), Code::InvalidMetadata, &["activation_sparsity_scale", "1 numbers", "5 layers"]);
    refused(&sparsity(json!([0, 0, 0, 1.0, 0])), Code::InvalidMetadata, &["activation_sparsity_pattern", "1.0"]);

    // As transformers saves it, and as published files have it.
    let config = |files: Files| {
        Config::of(&pollster::block_on(Checkpoint::open(&MemoryFolder::new(files), None)).unwrap()).unwrap()
    };
    let saved = [
        ("per_layer_config", Some(json!({"1": full(), "3": full()}))),
        ("global_head_dim", None),
        ("num_global_key_value_heads", None),
    ];
    assert_eq!(config(gemma4(&saved)), config(gemma4(&[])));
    // Without embeddings for each layer and experts, the text of Gemma 4 12B is the same.
    assert_eq!(config(gemma4(&[("model_type", Some(json!("gemma4_unified_text")))])), config(gemma4(&[])));
    // Those of images may see each other; texts are read from left to right.
    assert_eq!(config(gemma4(&[("use_bidirectional_attention", Some(json!("vision")))])), config(gemma4(&[])));
}

/// What transformers ignores changes nothing here either.
#[test]
fn keys_that_transformers_ignores_are_ignored() {
    let config = |model: &str, key: &str, value: Value| {
        let folder = MemoryFolder::new(changed(&format!("architectures/{model}"), &[(key, Some(value))]));
        Config::of(&pollster::block_on(Checkpoint::open(&folder, None)).unwrap()).unwrap()
    };
    let llama = config("llama3", "partial_rotary_factor", json!(0.5));
    assert_eq!(llama.ropes[0].dim, llama.layers[0].head_dim);
    assert_eq!(config("gemma3", "attn_logit_softcapping", json!(7.0)).attention_softcap, None);
    assert_eq!(config("gemma3", "final_logit_softcapping", json!(7.0)).logit_softcap, Some(7.0));
}

#[test]
fn what_gated_delta_nets_do_not_compute_is_refused_by_name() {
    let folder = "architectures/qwen3_next";
    assert_eq!(check(&changed(folder, &[])), None);
    let linear = json!(vec!["linear_attention"; 4]);
    let window = json!(["linear_attention", "linear_attention", "sliding_attention", "full_attention"]);
    for (key, value, code, words) in [
        ("attention_bias", json!(true), Code::UnsupportedArchitecture, ["attention_bias", "true"]),
        ("hidden_act", json!("gelu"), Code::UnsupportedArchitecture, ["hidden_act", "gelu"]),
        ("layer_types", linear, Code::UnsupportedArchitecture, ["recurrent", "without attention"]),
        ("layer_types", window, Code::UnsupportedArchitecture, ["layer_types", "sliding_attention"]),
        ("linear_value_head_dim", json!(512), Code::UnsupportedArchitecture, ["gated delta net", "512"]),
        ("linear_key_head_dim", json!(18), Code::UnsupportedArchitecture, ["gated delta net", "18"]),
        ("linear_conv_kernel_dim", json!(17), Code::UnsupportedArchitecture, ["gated delta net", "17"]),
        ("linear_num_value_heads", json!(3), Code::InvalidMetadata, ["ssm.time_step_rank", "3"]),
        ("linear_num_key_heads", json!(1), Code::ShapeMismatch, ["ssm_qkv", "112"]),
        ("shared_expert_intermediate_size", json!(32), Code::ShapeMismatch, ["shexp", "[32, 64]"]),
    ] {
        refused(&changed(folder, &[(key, Some(value))]), code, &words);
    }
}

/// Of a model that sees images the text model runs, and a person hears of the rest.
#[test]
fn parts_that_do_not_run_are_named() {
    let folder = MemoryFolder::new(changed("architectures/qwen3_5", &[]));
    let said = pollster::block_on(inspect(&folder, None, &LoadOptions::default())).unwrap();
    assert!(said.problem.is_none(), "{:?}", said.problem);
    let parts: Vec<_> = said.warnings.iter().filter(|warning| warning.code == "ignored_parts").collect();
    for part in ["model.visual.", "multi-token prediction"] {
        assert!(parts.iter().any(|warning| warning.message.contains(part)), "{parts:?}");
    }
}
