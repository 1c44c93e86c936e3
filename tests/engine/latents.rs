//! Models with attention over latents, by every way of decoding, and what their files may hold. That contexts are shifted and caches are in f16
//! and q8_0 is seen with the other models (`kv_cache`), and their logits are in `architectures.rs`.

use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::ChatRequest;
use rillm::engine::{LoadOptions, inspect};
use rillm::model::KvFormat;
use rillm::model::arch::RopeKind;
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::{DirectoryFolder, MemoryFolder};
use rillm::model::gguf::{Gguf, Value};
use rillm::model::source::MemorySource;
use serde_json::{Value as Json, json};

use crate::gguf::writer::{self, Writer};
use crate::recurrent::{
    a_conversation_is_saved, all, answer, engine_with, every_way_gives_the_same, request, start,
    what_one_engine_saves_another_restores,
};
use crate::support::errors::check_error;

/// With experts in groups.
const MODEL: &str = "deepseek_v3";

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures").join(model)
}

#[test]
fn every_way_of_decoding_gives_the_same() {
    every_way_gives_the_same(MODEL);
}

#[test]
fn a_conversation_is_saved_with_its_latents() {
    a_conversation_is_saved(MODEL);
}

/// Latents in f16 and in blocks of 8-bit integers: several at once, a shared prefix, choices and a saved conversation are what each is alone.
#[test]
fn rounded_latents_are_copied_and_saved() {
    for format in [KvFormat::F16, KvFormat::Q8_0] {
        let (one, several) = (engine_with(MODEL, 1, format), engine_with(MODEL, 3, format));
        let prompts = [40, 47, 33].map(|length| (0..length).map(|i| (i * i * 7 + 5) % 60 + 4).collect::<Vec<u32>>());
        let alone = prompts.each_ref().map(|prompt| answer(&engine_with(MODEL, 1, format), prompt, json!({})).0);
        let asked = prompts.each_ref().map(|prompt| all(start(&several, request(prompt, json!({})))));
        let at_once = pollster::block_on(join_all(asked));
        assert_eq!(
            at_once.into_iter().map(|(mut choices, _)| choices.remove(0)).collect::<Vec<_>>(),
            alone,
            "{format:?}"
        );
        let (choices, cached) = pollster::block_on(all(start(&several, request(&prompts[1], json!({"n": 3})))));
        assert_eq!((choices, cached > 0), (vec![alone[1].clone(); 3], true), "{format:?}");
        what_one_engine_saves_another_restores(&one, &several);
    }
    // Latents of another format are no latents of this engine.
    let (exact, rounded) = (engine_with(MODEL, 1, KvFormat::F32), engine_with(MODEL, 1, KvFormat::Q8_0));
    let mut bytes = Vec::new();
    let conversation = json!({"messages": [{"role": "user", "content": "what now"}]});
    let asked = json!({"messages": conversation["messages"], "max_tokens": 4, "temperature": 0});
    pollster::block_on(all(exact.chat(ChatRequest::parse(asked).unwrap()).unwrap()));
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    pollster::block_on(exact.save_session(&conversation, None, &mut write)).unwrap();
    let refused = pollster::block_on(rounded.restore_session(&MemorySource::new(bytes))).err().unwrap();
    assert_eq!(refused.code(), Code::SessionMismatch, "{refused}");
}

/// A latent of 20 numbers and 8 that rope turned, in each of two layers, however many heads there are.
#[test]
fn a_token_takes_a_latent_in_each_layer() {
    for (format, bytes) in [(KvFormat::F32, 28 * 4), (KvFormat::F16, 28 * 2), (KvFormat::Q8_0, 34)] {
        let options = LoadOptions { kv_cache: Some(format), context_length: Some(128), ..Default::default() };
        let said = pollster::block_on(inspect(&DirectoryFolder::new(folder(MODEL)), Some("model.gguf"), &options));
        let said = said.unwrap();
        assert_eq!(said.kv_cache_bytes_per_token, Some(2 * bytes), "{format:?}");
        assert_eq!(said.kv_cache_bytes, Some(2 * bytes * 128), "{format:?}");
    }
}

/// What the model's GGUF file gives with these keys in place of its own, of a type and with these bytes.
fn changed(keys: &[(&str, u32, Vec<u8>)]) -> rillm::Result<Config> {
    let folder = DirectoryFolder::new(folder(MODEL));
    let checkpoint = pollster::block_on(Checkpoint::open(&folder, Some("model.gguf"))).unwrap();
    let mut writer = Writer::new().str("general.architecture", "deepseek2");
    for (name, value) in checkpoint.metadata.iter() {
        let Some(key) = name.strip_prefix("deepseek2.") else { continue };
        writer = match value {
            _ if keys.iter().any(|(changed, ..)| *changed == key) => writer,
            Value::U32(value) => writer.u32(name, *value),
            Value::F32(value) => writer.f32(name, *value),
            Value::Bool(value) => writer.entry(name, writer::BOOL, [u8::from(*value)]),
            Value::String(value) => writer.str(name, value),
            other => panic!("{name}: {other:?}"),
        };
    }
    for (key, ty, bytes) in keys {
        writer = writer.entry(&format!("deepseek2.{key}"), *ty, bytes);
    }
    let gguf = pollster::block_on(Gguf::read(&MemorySource::new(writer.bytes()))).unwrap();
    Config::from_metadata(gguf.metadata(), &checkpoint.tensors)
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let u32 = |key: &'static str, value: u32| (key, writer::U32, value.to_le_bytes().to_vec());
    let f32 = |key: &'static str, value: f32| (key, writer::F32, value.to_le_bytes().to_vec());
    assert!(changed(&[]).is_ok());
    let unsupported = [
        (f32("attention.temperature_scale", 0.1), "scaled by their position"),
        (f32("attn_logit_softcapping", 30.0), "soft cap"),
        (f32("attention.clamp_kqv", 8.0), "clamp"),
        (f32("rope.scaling.yarn_log_multiplier", 0.0), "yarn_log_multiplier"),
        (u32("attention.kv_lora_rank", 21), "kv_lora_rank"),
        (u32("attention.key_length_mla", 8), "key_length"),
    ];
    for (key, said) in unsupported {
        let error = changed(&[key, u32("attention.temperature_length", 32)]).unwrap_err();
        check_error(&error, Code::UnsupportedArchitecture, &[said]);
    }
    for (key, said) in [
        (u32("expert_group_used_count", 1), "expert_group_used_count"),
        (u32("expert_group_used_count", 0), "expert_group_used_count is 0"),
        (u32("expert_group_used_count", 5), "expert_group_used_count is 5"),
        (u32("expert_group_count", 3), "equal size"),
        (u32("expert_group_count", 8), "of two or more"),
        (u32("attention.kv_lora_rank", 0), "kv_lora_rank is 0"),
        (u32("attention.kv_lora_rank", u32::MAX), "kv_lora_rank is 4294967295"),
        (u32("attention.q_lora_rank", u32::MAX), "q_lora_rank is 4294967295"),
        (u32("attention.key_length_mla", 1 << 20), "key_length_mla is 1048576"),
        (u32("attention.value_length_mla", 1 << 20), "value_length_mla is 1048576"),
        (u32("rope.dimension_count", 1 << 20), "dimension_count is 1048576"),
        (u32("expert_used_count", 9), "expert_used_count is 9"),
        (u32("expert_count", 2), "expert_used_count is 3"),
    ] {
        check_error(&changed(&[key]).unwrap_err(), Code::InvalidMetadata, &[said]);
    }
    // What the tensors contradict.
    for key in
        [u32("attention.kv_lora_rank", 22), u32("attention.q_lora_rank", 0), u32("attention.value_length_mla", 12)]
    {
        check_error(&changed(&[key]).unwrap_err(), Code::ShapeMismatch, &["attn_"]);
    }
    // As many groups as there are: all experts are open.
    assert_eq!(changed(&[u32("expert_group_used_count", 4)]).unwrap().experts.unwrap().groups, None);
}

/// YaRN scales the scores by its weight of all dimensions, which files in both forms say differently.
#[test]
fn both_forms_of_a_model_scale_scores_alike() {
    for model in ["deepseek_v2", "deepseek_v3", "minicpm3"] {
        let config = |file| {
            let folder = DirectoryFolder::new(folder(model));
            Config::of(&pollster::block_on(Checkpoint::open(&folder, Some(file))).unwrap()).unwrap()
        };
        let (gguf, safetensors) = (config("model.gguf"), config("model.safetensors"));
        assert!((gguf.attention_scale / safetensors.attention_scale - 1.0).abs() < 1e-6, "{model}");
        assert_eq!((gguf.latent, gguf.ropes.len()), (safetensors.latent, 1), "{model}");
        let (a, b) = (&gguf.ropes[0], &safetensors.ropes[0]);
        assert!((a.attention_factor() / b.attention_factor() - 1.0).abs() < 1e-6, "{model}");
        for (a, b) in [
            (gguf.embedding_scale, safetensors.embedding_scale),
            (gguf.residual_scales.attention, safetensors.residual_scales.attention),
            (gguf.logit_scale, safetensors.logit_scale),
        ] {
            assert!((a / b - 1.0).abs() < 1e-6, "{model}: {a} and {b}");
        }
    }
}

/// What a model's folder gives with changes of its config.json; null drops a key.
pub(super) fn configured(model: &str, changes: Json) -> rillm::Result<Config> {
    let read = |file: &str| std::fs::read(folder(model).join(file)).unwrap();
    let mut config: Json = serde_json::from_slice(&read("config.json")).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Json::Null => config.as_object_mut().unwrap().remove(key),
            value => config.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    let files = vec![
        ("config.json".to_owned(), config.to_string().into_bytes()),
        ("model.safetensors".to_owned(), read("model.safetensors")),
    ];
    let folder = MemoryFolder::new(files);
    Config::of(&pollster::block_on(Checkpoint::open(&folder, Some("model.safetensors")))?)
}

#[test]
fn a_folder_says_it_in_its_configuration() {
    let config = configured("minicpm3", json!({"scale_emb": 6, "scale_depth": 2.0, "dim_model_base": 64})).unwrap();
    let scales = (config.embedding_scale, config.residual_scales.attention, config.logit_scale);
    assert_eq!(scales, (6.0, 2f32.sqrt(), 2.0));
    // The numbers of the published model.
    let same = configured("minicpm3", json!({"scale_emb": null, "scale_depth": null, "dim_model_base": null})).unwrap();
    assert_eq!(same, configured("minicpm3", json!({})).unwrap());

    // Which numbers rope turns together.
    for (interleaved, kind) in [(true, RopeKind::Interleaved), (false, RopeKind::Halves)] {
        let config = configured("youtu", json!({"rope_interleave": interleaved})).unwrap();
        assert_eq!(config.ropes[0].kind, kind);
    }

    // Greedy routing knows no groups.
    let greedy = configured("deepseek_v2", json!({"topk_method": "greedy"})).unwrap();
    assert_eq!(greedy.experts.unwrap().groups, None);
    let grouped = configured("deepseek_v2", json!({})).unwrap().experts.unwrap().groups.unwrap();
    assert_eq!((grouped.count, grouped.used, grouped.by_two), (4, 2, false));
    let by_two = configured("deepseek_v3", json!({"model_type": "kimi_k2"})).unwrap().experts.unwrap().groups.unwrap();
    assert_eq!((by_two.count, by_two.used, by_two.by_two), (4, 2, true));
    let open = configured("deepseek_v3", json!({"n_group": 1, "topk_group": 1})).unwrap();
    assert_eq!(open.experts.unwrap().groups, None);

    // All layers are dense (`first_k_dense_replace`), which the tensors tell.
    let dense = json!({
        "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "n_group": 4,
        "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "first_k_dense_replace": 2,
    });
    let dense = configured("youtu", dense).unwrap();
    assert!(dense.layers.iter().all(|layer| !layer.has_experts));
    assert_eq!(dense.latent, configured("youtu", json!({})).unwrap().latent);
}

/// The factor of the scores is that of the length of a key, and of YaRN's weight of all dimensions.
#[test]
fn scaled_ropes_scale_the_scores() {
    let plain = 1.0 / 20f32.sqrt();
    let scale =
        |rope: Json| configured("deepseek_v3", json!({"rope_parameters": rope})).map(|config| config.attention_scale);
    let near = |rope: Json, wanted: f32| assert!((scale(rope).unwrap() / wanted - 1.0).abs() < 1e-6);
    near(json!({"rope_type": "default", "rope_theta": 1e4}), plain);
    let of = |kind: &str, weight: Json| json!({"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32, "mscale_all_dim": weight});
    near(of("yarn", json!(0)), plain);
    near(of("yarn", Json::Null), plain);
    let multiplier = 1.0 + 0.1 * 0.5 * 4f32.ln();
    near(of("yarn", json!(0.5)), multiplier * multiplier * plain);
    near(of("linear", json!(0.5)), multiplier * multiplier * plain);
    for (changed, said) in [("factor", "factor"), ("mscale_all_dim", "mscale_all_dim")] {
        let mut rope = of("yarn", json!(1.0));
        rope[changed] = json!("much");
        check_error(&scale(rope).unwrap_err(), Code::InvalidMetadata, &[said]);
    }
    let mut rope = of("yarn", json!(1.0));
    rope.as_object_mut().unwrap().remove("factor");
    check_error(&scale(rope).unwrap_err(), Code::InvalidMetadata, &["factor"]);
}

#[test]
fn what_a_folder_asks_for_besides_is_refused_by_name() {
    for (model, changes, said) in [
        ("deepseek_v2", json!({"topk_method": "noaux_tc"}), "topk_method"),
        ("deepseek_v2", json!({"norm_topk_prob": true}), "norm_topk_prob"),
        ("deepseek_v2", json!({"scoring_func": "sigmoid"}), "scoring_func"),
        ("deepseek_v3", json!({"scoring_func": "softmax"}), "scoring_func"),
        ("deepseek_v3", json!({"scoring_func": 3}), "scoring_func"),
        ("deepseek_v3", json!({"topk_method": "greedy"}), "topk_method"),
        ("deepseek_v3", json!({"moe_layer_freq": 2}), "moe_layer_freq"),
        ("deepseek_v3", json!({"model_type": "deepseek_v32"}), "deepseek_v32"),
        ("deepseek_v3", json!({"hidden_act": "gelu"}), "hidden_act"),
        ("deepseek_v3", json!({"kv_lora_rank": 21}), "kv_lora_rank"),
        ("deepseek_v3", json!({"qk_rope_head_dim": 7}), "dimension_count"),
        ("deepseek_v3", json!({"qk_nope_head_dim": 0}), "key_length"),
        ("deepseek_v3", json!({"v_head_dim": 0}), "value_length"),
        ("glm4_moe_lite", json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor"),
    ] {
        check_error(&configured(model, changes).unwrap_err(), Code::UnsupportedArchitecture, &[said]);
    }
    for (model, changes, said) in [
        ("deepseek_v3", json!({"kv_lora_rank": null}), "kv_lora_rank"),
        ("deepseek_v3", json!({"kv_lora_rank": 0}), "kv_lora_rank"),
        ("deepseek_v3", json!({"kv_lora_rank": -20}), "kv_lora_rank"),
        ("deepseek_v3", json!({"kv_lora_rank": 1u64 << 40}), "kv_lora_rank"),
        ("deepseek_v3", json!({"kv_lora_rank": "20"}), "kv_lora_rank"),
        ("deepseek_v3", json!({"qk_rope_head_dim": 0}), "rope"),
        ("deepseek_v3", json!({"qk_rope_head_dim": null}), "qk_rope_head_dim"),
        ("deepseek_v3", json!({"qk_nope_head_dim": null}), "qk_nope_head_dim"),
        ("deepseek_v3", json!({"qk_nope_head_dim": u64::MAX}), "qk_nope_head_dim"),
        ("deepseek_v3", json!({"qk_nope_head_dim": 1 << 20}), "key_length"),
        ("deepseek_v3", json!({"n_group": null}), "n_group"),
        ("deepseek_v3", json!({"n_group": 3}), "equal size"),
        ("deepseek_v3", json!({"topk_group": 0}), "expert_group_used_count is 0"),
        ("deepseek_v3", json!({"num_experts_per_tok": 9}), "expert_used_count is 9"),
        ("deepseek_v3", json!({"num_experts_per_tok": 0}), "expert_used_count is 0"),
        ("deepseek_v3", json!({"num_experts_per_tok": 5}), "of which a token uses 5"),
        ("deepseek_v3", json!({"num_attention_heads": 0}), "head_count"),
        ("minicpm3", json!({"dim_model_base": 0}), "dim_model_base"),
        ("minicpm3", json!({"scale_depth": -1.0}), "scale_depth"),
    ] {
        check_error(&configured(model, changes).unwrap_err(), Code::InvalidMetadata, &[said]);
    }
    // What the tensors contradict.
    for changes in [
        json!({"q_lora_rank": null}),
        json!({"v_head_dim": 12}),
        json!({"v_head_dim": null}),
        json!({"qk_nope_head_dim": 10}),
        json!({"kv_lora_rank": 22}),
        json!({"moe_intermediate_size": 0}),
        json!({"n_routed_experts": 12}),
    ] {
        check_error(&configured("deepseek_v3", changes).unwrap_err(), Code::ShapeMismatch, &["blk."]);
    }
    for heads in [1, 2, 3, 8] {
        let error = configured("deepseek_v3", json!({"num_attention_heads": heads})).unwrap_err();
        assert!(matches!(error.code(), Code::ShapeMismatch | Code::MissingTensor), "{heads} heads: {error:?}");
    }
    let quantized = json!({"quantization_config": {"quant_method": "aqlm"}});
    check_error(&configured("deepseek_v3", quantized).unwrap_err(), Code::UnsupportedTensorType, &["aqlm"]);
}

/// Layers from a number on have windows, unless the configuration has the kind of each.
#[test]
fn dots_has_windows_in_late_layers() {
    let windows =
        |changes| configured("dots1", changes).unwrap().layers.iter().map(|layer| layer.window).collect::<Vec<_>>();
    assert_eq!(windows(json!({})), [None, None]);
    assert_eq!(windows(json!({"sliding_window": 16, "max_window_layers": 1, "layer_types": null})), [None, Some(16)]);
    assert_eq!(windows(json!({"sliding_window": 16, "max_window_layers": 1})), [None, None]);
}
