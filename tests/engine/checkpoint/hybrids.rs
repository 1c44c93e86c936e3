//! Configurations of models with recurrent layers: what is not computed is refused by name, and what means the same is read alike.

use rillm::error::Code;
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;
use serde_json::{Value, json};

use super::refusals::changed;
use crate::mutations::{Files, check, refused};

fn config(files: Files) -> Config {
    Config::of(&pollster::block_on(Checkpoint::open(&MemoryFolder::new(files), None)).unwrap()).unwrap()
}

fn with(model: &str, keys: &[(&str, Option<Value>)]) -> Files {
    changed(&format!("architectures/{model}"), keys)
}

#[test]
fn what_recurrent_mixers_do_not_compute_is_refused_by_name() {
    for (model, key, value, word) in [
        ("lfm2", "conv_bias", json!(true), "conv_bias"),
        ("lfm2", "tie_embedding", json!(false), "tie_embedding"),
        ("lfm2", "layer_types", json!(["conv", "sliding_attention", "conv"]), "sliding_attention"),
        ("lfm2", "layer_types", json!(["conv", "conv", "conv"]), "without attention"),
        ("lfm2", "conv_L_cache", json!(17), "l_cache"),
        ("lfm3", "use_sandwich_norm", json!(false), "use_sandwich_norm"),
        ("lfm3", "use_attention_gate", json!(false), "use_attention_gate"),
        ("lfm3", "layer_types", json!(["conv", "sliding_attention", "linear_attention", "conv"]), "linear_attention"),
        ("lfm3", "rope_parameters", json!({"full_attention": {"rope_type": "yarn"}, "sliding_attention": {}}), "yarn"),
        ("lfm3", "per_layer_config", json!({"1": {"head_dim": 8}}), "per_layer_config"),
        ("lfm2_moe", "use_expert_bias", json!(false), "use_expert_bias"),
        ("granite4", "mamba_proj_bias", json!(true), "mamba_proj_bias"),
        ("granite4", "mamba_conv_bias", json!(false), "mamba_conv_bias"),
        ("granite4", "attention_bias", json!(true), "attention_bias"),
        ("granite4", "time_step_limit", json!([0.0, 0.1]), "time_step_limit"),
        ("granite4", "time_step_limit", json!([0.01, null]), "time_step_limit"),
        ("granite4", "mamba_d_state", json!(260), "260"),
        ("granite4", "mamba_d_state", json!(18), "18"),
        ("granite4", "mamba_d_conv", json!(1), "1 tokens"),
        ("falcon_h1", "projectors_bias", json!(true), "projectors_bias"),
        ("falcon_h1", "mlp_bias", json!(true), "mlp_bias"),
        ("nemotron_h_moe", "moe_latent_size", json!(16), "moe_latent_size"),
        ("nemotron_h", "mlp_hidden_act", json!("silu"), "mlp_hidden_act"),
        ("nemotron_h", "mamba_hidden_act", json!("relu"), "mamba_hidden_act"),
        ("mamba2", "use_bias", json!(true), "use_bias"),
        ("mamba", "hidden_act", json!("relu"), "hidden_act"),
        ("jamba", "mamba_conv_bias", json!(false), "mamba_conv_bias"),
    ] {
        refused(&with(model, &[(key, Some(value))]), Code::UnsupportedArchitecture, &[word]);
    }
    for (model, key, value, word) in [
        ("lfm2", "full_attn_idxs", json!([3]), "full_attn_idxs"),
        ("granite4", "mamba_n_groups", json!(3), "ssm.time_step_rank"),
        ("granite4", "mamba_n_heads", json!(7), "ssm.inner_size"),
        ("nemotron_h", "mamba_head_dim", json!(1 << 20), "channels"),
        ("falcon_h1", "ssm_multipliers", json!([1.0, 2.0]), "multipliers.ssm"),
        ("falcon_h1", "mlp_multipliers", json!("none"), "mlp_multipliers"),
        ("jamba", "attn_layer_offset", json!(3), "attn_layer_period"),
    ] {
        let mut keys = vec![(key, Some(value))];
        keys.extend((key == "full_attn_idxs").then_some(("layer_types", None)));
        refused(&with(model, &keys), Code::InvalidMetadata, &[word]);
    }
    refused(
        &with("nemotron_h", &[("layers_block_type", None), ("hybrid_override_pattern", Some(json!("M-*MX")))]),
        Code::UnsupportedArchitecture,
        &["X"],
    );
}

/// Older configurations say with other keys which layers have attention.
#[test]
fn kinds_of_layers_are_read_from_old_keys() {
    let same = |model: &str, keys: &[(&str, Option<Value>)]| {
        assert_eq!(config(with(model, keys)).layers, config(with(model, &[])).layers, "{model}: {keys:?}");
    };
    same("lfm2", &[("layer_types", None), ("full_attn_idxs", Some(json!([1])))]);
    same("granite4", &[("layer_types", Some(json!(["mamba", "attention", "mamba"])))]);
    same("nemotron_h", &[("layers_block_type", None), ("hybrid_override_pattern", Some(json!("M-*M-")))]);
    same("nemotron_h_moe", &[("layers_block_type", None), ("hybrid_override_pattern", Some(json!("ME*-E")))]);
    same("nemotron_h", &[("num_hidden_layers", Some(json!(5)))]);
}

#[test]
fn numbers_that_follow_from_others_are_read() {
    let n_ff = |keys: &[(&str, Option<Value>)]| match check(&with("lfm2", keys)) {
        None => 64,
        // The tensors are of another length, and the message has the wanted one.
        Some((_, message)) => {
            let wanted = message.split("wanted [32, ").nth(1).unwrap_or_else(|| panic!("{message}"));
            wanted.split(']').next().unwrap().parse::<usize>().unwrap()
        }
    };
    assert_eq!(n_ff(&[]), 64);
    assert_eq!(n_ff(&[("block_auto_adjust_ff_dim", Some(json!(false)))]), 81);
    assert_eq!(n_ff(&[("block_ffn_dim_multiplier", Some(Value::Null))]), 54);
    assert_eq!(n_ff(&[("block_ff_dim", Some(json!(150)))]), 128);
    assert_eq!(n_ff(&[("intermediate_size", None), ("block_ff_dim", Some(json!(81)))]), 64);
    // "auto" is a sixteenth of the width.
    assert_eq!(check(&with("mamba", &[("time_step_rank", Some(json!("auto")))])), None);
    assert_eq!(check(&with("mamba", &[("time_step_rank", None)])), None);
}

/// Python writes numbers that JSON has not; transformers writes them as objects since version 5.
#[test]
fn infinities_are_read() {
    for limit in ["[0.0, Infinity]", r#"[0.0, {"__float__": "Infinity"}]"#, "null"] {
        let mut files = with(
            "mamba2",
            &[("time_step_limit", Some(json!("LIMIT"))), ("_name_or_path", Some(json!("NaN Infinity")))],
        );
        let text = String::from_utf8(std::mem::take(&mut files[0].1)).unwrap();
        files[0].1 = text.replace("\"LIMIT\"", limit).into_bytes();
        assert_eq!(check(&files), None, "{limit}");
    }
}
