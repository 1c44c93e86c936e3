//! The configuration: what a sound file gives, and how each variant that is not computed is refused.

use std::collections::BTreeSet;

use rillm::{
    error::{Code, Error},
    model::{
        arch::{ARCHS, Need, RopeKind, expected_tensors},
        checkpoint::tensors_of_gguf,
        config::Config,
        layer_config::LayerConfig,
        rope::{Rope, RopeScaling},
    },
};

use super::{check_error, read, writer::*};

fn config(writer: Writer) -> Result<Config, Error> {
    let gguf = read(writer.bytes()).unwrap();
    Config::from_metadata(gguf.metadata(), &tensors_of_gguf(&gguf, 0))
}

#[track_caller]
fn refused(writer: Writer, code: Code, words: &[&str]) {
    check_error(&config(writer).expect_err("this model must be refused"), code, words);
}

/// A layer of the Llama of these tests, with a window of 64.
fn layer() -> LayerConfig {
    LayerConfig {
        head_dim: 4,
        n_kv_heads: 2,
        n_ff: 24,
        window: Some(64),
        rope: Some(0),
        has_experts: false,
        reuses_kv: false,
        values_are_keys: false,
        attention: Some(0),
        recurrent: None,
        has_feed_forward: true,
    }
}

#[test]
fn a_llama_is_read() {
    let config = config(llama()).unwrap();
    assert_eq!(config.arch.name, "llama");
    assert_eq!(config.arch.rope, Some(RopeKind::Interleaved));
    assert_eq!((config.n_layers, config.n_embd, config.layers[0].n_ff), (2, 16, 24));
    assert_eq!((config.n_heads, config.layers[0].n_kv_heads, config.layers[0].head_dim), (4, 2, 4));
    let rope = Rope { kind: RopeKind::Interleaved, dim: 4, theta: 500000.0, scaling: RopeScaling::None };
    assert_eq!(config.ropes, [rope]);
    assert_eq!((config.norm_eps, config.attention_scale), (1e-5, 0.5));
    assert_eq!(config.layers, [0, 1].map(|number| LayerConfig { window: None, attention: Some(number), ..layer() }));
    assert_eq!((config.context_length, config.vocab_size), (128, 5));
    assert!(config.tie_embeddings);
}

/// With the keys that llama.cpp's converter writes: those that a Llama has besides follow from the others.
#[test]
fn a_qwen2_is_read() {
    let sound = config(qwen2()).unwrap();
    assert_eq!((sound.arch.name, sound.arch.rope), ("qwen2", Some(RopeKind::Halves)));
    let LayerConfig { n_kv_heads, head_dim, .. } = sound.layers[0];
    assert_eq!((sound.n_heads, n_kv_heads, head_dim, sound.ropes[0].dim), (4, 2, 4, 4));
    assert!(sound.tie_embeddings);
    assert!(!config(qwen2().f32_tensor("output.weight", &[16, 5])).unwrap().tie_embeddings);

    // Without its biases, or with one more, it would be another model.
    for name in ["blk.0.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"] {
        let mut writer = qwen2();
        writer.tensors.retain(|tensor| tensor.name != name.as_bytes());
        refused(writer, Code::MissingTensor, &[name]);
        let mut writer = qwen2();
        let tensor = writer.tensor_mut(name);
        (tensor.dims, tensor.data) = (vec![4], vec![0; 16]);
        refused(writer, Code::ShapeMismatch, &[name, "[4]"]);
    }
    refused(qwen2().f32_tensor("blk.0.attn_k_norm.weight", &[4]), Code::UnsupportedArchitecture, &["attn_k_norm"]);
    let both = qwen2().f32_tensor("blk.0.attn_qkv.weight", &[16, 32]);
    refused(both, Code::InvalidFile, &["blk.0.attn_q.weight", "blk.0.attn_qkv.weight"]);
}

#[test]
fn defaults_and_optional_tensors() {
    let writer = llama()
        .without("llama.rope.freq_base")
        .without("llama.rope.dimension_count")
        .f32_tensor("output.weight", &[16, 5])
        .f32_tensor("rope_freqs.weight", &[2])
        .f32_tensor("blk.1.attn_rot_embd.weight", &[2]);
    let config = config(writer).unwrap();
    assert_eq!((config.ropes[0].theta, config.ropes[0].dim), (10000.0, 4));
    assert!(!config.tie_embeddings);
    assert_eq!(config.ropes[0].scaling, RopeScaling::Factors { tensor: "rope_freqs.weight".to_owned() });
}

#[test]
fn heads_without_groups_and_heads_longer_than_the_embedding_gives() {
    let mut writer = llama().without("llama.attention.head_count_kv");
    for layer in 0..2 {
        for name in ["attn_k", "attn_v"] {
            let tensor = writer.tensor_mut(&format!("blk.{layer}.{name}.weight"));
            (tensor.dims, tensor.data) = (vec![16, 16], vec![0; 1024]);
        }
    }
    assert_eq!(config(writer).unwrap().layers[0].n_kv_heads, 4);

    let mut writer = llama()
        .u32("llama.attention.key_length", 8)
        .u32("llama.attention.value_length", 8)
        .without("llama.rope.dimension_count");
    for layer in 0..2 {
        for (name, dims) in
            [("attn_q", [16, 32]), ("attn_k", [16, 16]), ("attn_v", [16, 16]), ("attn_output", [32, 16])]
        {
            let tensor = writer.tensor_mut(&format!("blk.{layer}.{name}.weight"));
            tensor.data = vec![0; dims.iter().product::<u64>() as usize * 4];
            tensor.dims = dims.into();
        }
    }
    let config = config(writer).unwrap();
    assert_eq!((config.layers[0].head_dim, config.ropes[0].dim), (8, 8));
}

/// Integers of any width, and one number for each layer, as some converters write them.
#[test]
fn numbers_may_be_wide_or_by_layer() {
    let by_layer = |a: u32, b: u32| array(U32, &[a.to_le_bytes().into(), b.to_le_bytes().into()]);
    let key = "llama.attention.head_count_kv";
    let writer = llama()
        .without("llama.block_count")
        .entry("llama.block_count", U64, 2u64.to_le_bytes())
        .without(key)
        .entry(key, ARRAY, by_layer(2, 2));
    assert_eq!(config(writer).unwrap().layers[1].n_kv_heads, 2);
    // Layers may differ in them, if their tensors do.
    let two_and_four = || llama().without(key).entry(key, ARRAY, by_layer(2, 4));
    refused(two_and_four(), Code::ShapeMismatch, &["blk.1.attn_k.weight", "[16, 8]", "[16, 16]"]);
    let mut writer = two_and_four();
    for name in ["attn_k", "attn_v"] {
        let tensor = writer.tensor_mut(&format!("blk.1.{name}.weight"));
        (tensor.dims, tensor.data) = (vec![16, 16], vec![0; 1024]);
    }
    let layers = config(writer).unwrap().layers;
    assert_eq!([layers[0].kv_dim(), layers[1].kv_dim()], [8, 16]);
    let writer = llama().without(key).entry(key, ARRAY, by_layer(2, 3));
    refused(writer, Code::InvalidMetadata, &[key, "is 3"]);
    let heads = "llama.attention.head_count";
    let writer = llama().without(heads).entry(heads, ARRAY, by_layer(4, 8));
    refused(writer, Code::UnsupportedArchitecture, &[heads, "8 for layer 1"]);
    let writer = llama().without(key).entry(key, ARRAY, array(U32, &[vec![2, 0, 0, 0]]));
    refused(writer, Code::InvalidMetadata, &[key, "1 elements", "2 layers"]);
}

#[test]
fn other_architectures_are_refused_with_the_list_of_supported_ones() {
    let writer = llama().without("general.architecture").str("general.architecture", "rwkv7");
    let supported: Vec<_> = ARCHS.iter().map(|arch| arch.name).collect();
    refused(writer, Code::UnsupportedArchitecture, &["\"rwkv7\"", &supported.join(", ")]);
    refused(llama().without("general.architecture"), Code::InvalidMetadata, &["general.architecture"]);
    refused(llama().str("general.type", "adapter"), Code::UnsupportedArchitecture, &["adapter", "general.type"]);
    config(llama().str("general.type", "model")).unwrap();
}

#[test]
fn missing_keys_are_named() {
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        refused(llama().without(key), Code::InvalidMetadata, &[key]);
        refused(llama().without(key).str(key, "many"), Code::InvalidMetadata, &[key, "string"]);
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.context_length",
        "llama.rope.dimension_count",
        "llama.attention.key_length",
    ] {
        refused(llama().without(key).u32(key, 0), Code::InvalidMetadata, &[key, "is 0"]);
        refused(llama().without(key).u32(key, u32::MAX), Code::InvalidMetadata, &[key, "4294967295"]);
    }
    for key in ["llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"] {
        for (value, text) in [(0.0, "is 0"), (-1.0, "is -1"), (f32::NAN, "is NaN"), (f32::INFINITY, "is inf")] {
            refused(llama().without(key).f32(key, value), Code::InvalidMetadata, &[key, text]);
        }
    }
    let heads = |key: &str, n| llama().without(key).u32(key, n);
    refused(
        heads("llama.attention.head_count_kv", 3),
        Code::InvalidMetadata,
        &["head_count is 4", "head_count_kv is 3"],
    );
    let three = llama()
        .without("llama.attention.head_count")
        .without("llama.attention.head_count_kv")
        .u32("llama.attention.head_count", 3);
    refused(three, Code::InvalidMetadata, &["embedding_length is 16", "head_count 3", "key_length"]);
    let odd = llama().u32("llama.attention.key_length", 5).u32("llama.attention.value_length", 5);
    refused(odd.without("llama.rope.dimension_count"), Code::InvalidMetadata, &["5 elements", "even"]);
}

#[test]
fn variants_that_are_not_computed_are_refused_by_name() {
    let refused = |writer, words: &[&str]| refused(writer, Code::UnsupportedArchitecture, words);
    for kind in ["longrope", "su"] {
        refused(llama().str("llama.rope.scaling.type", kind), &["llama.rope.scaling.type", kind]);
    }
    refused(llama().f32("llama.rope.scaling.attn_factor", 1.5), &["llama.rope.scaling.attn_factor is not 1"]);
    let yarn = || llama().str("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0);
    refused(yarn().f32_tensor("rope_freqs.weight", &[2]), &["rope_freqs.weight", "Yarn"]);
    refused(yarn().f32("llama.rope.scaling.yarn_log_multiplier", 0.1), &["yarn_log_multiplier is 0.1"]);
    refused(qwen2().u32("qwen2.expert_count", 8), &["qwen2.expert_count is 8", "experts"]);
    refused(llama().u32("llama.expert_shared_count", 1), &["expert_shared_count is 1"]);
    refused(llama().f32("llama.logit_scale", 0.25), &["llama.logit_scale is 0.25"]);
    refused(llama().f32("llama.residual_scale", 0.25), &["llama.residual_scale"]);
    refused(llama().f32("llama.embedding_scale", 12.0), &["llama.embedding_scale is 12"]);
    refused(llama().entry("llama.attention.causal", BOOL, [0]), &["llama.attention.causal is false"]);
    refused(llama().entry("llama.use_parallel_residual", BOOL, [1]), &["llama.use_parallel_residual is true"]);
    refused(llama().u32("llama.attention.value_length", 8), &["4 elements", "value 8"]);
    refused(llama().u32("llama.attention.key_length", 8), &["8 elements", "value 4"]);
}

/// What some models have and others not, each by its key.
#[test]
fn variants_are_read() {
    let config = |writer| config(writer).unwrap();
    let scaling = |writer| config(writer).ropes[0].scaling.clone();
    let linear = || llama().str("llama.rope.scaling.type", "linear");
    assert_eq!(scaling(linear().f32("llama.rope.scaling.factor", 4.0)), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(scaling(llama().f32("llama.rope.scaling.factor", 2.0)), RopeScaling::Linear { factor: 2.0 });
    assert_eq!(scaling(llama().f32("llama.rope.scale_linear", 2.0)), RopeScaling::Linear { factor: 2.0 });
    let yarn = llama().str("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0);
    let (beta_fast, beta_slow, attention_factor) = (32.0, 1.0, 1.0 + 0.1 * 4f32.ln());
    assert_eq!(
        scaling(yarn.u32("llama.rope.scaling.original_context_length", 32)),
        RopeScaling::Yarn { factor: 4.0, original: 32, beta_fast, beta_slow, attention_factor, truncate: true }
    );
    let long =
        llama().u32("llama.rope.scaling.original_context_length", 32).f32("llama.rope.scaling.attn_factor", 1.25);
    let long = long.f32_tensor("rope_factors_long.weight", &[2]).f32_tensor("rope_factors_short.weight", &[2]);
    assert!(matches!(scaling(long), RopeScaling::Long { original: 32, attention_factor: 1.25, .. }));

    let partial = llama().without("llama.rope.dimension_count").u32("llama.rope.dimension_count", 2);
    assert_eq!(config(partial).ropes[0].dim, 2);
    let windowed = config(llama().u32("llama.attention.sliding_window", 64));
    assert_eq!(windowed.layers, [0, 1].map(|number| LayerConfig { attention: Some(number), ..layer() }));
    let pattern = llama().u32("llama.attention.sliding_window", 64).u32("llama.attention.sliding_window_pattern", 2);
    let windows: Vec<_> = config(pattern).layers.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [Some(64), None]);
    assert_eq!(config(llama().f32("llama.attention.scale", 0.25)).attention_scale, 0.25);
    assert_eq!(config(llama().f32("llama.attn_logit_softcapping", 50.0)).attention_softcap, Some(50.0));
    assert_eq!(config(llama().f32("llama.attention.max_alibi_bias", 8.0)).alibi, Some(8.0));
    assert_eq!(config(llama().f32("llama.attention.clamp_kqv", 8.0)).attention_clamp, Some(8.0));
    assert_eq!(config(llama().f32("llama.final_logit_softcapping", 30.0)).logit_softcap, Some(30.0));
}

#[test]
fn settings_that_switch_nothing_on_are_taken() {
    let writer = llama()
        .str("llama.rope.scaling.type", "none")
        .f32("llama.rope.scaling.factor", 8.0)
        .u32("llama.expert_count", 0)
        .u32("llama.attention.sliding_window", 0)
        .f32("llama.logit_scale", 1.0)
        .entry("llama.attention.causal", BOOL, [1]);
    config(writer).unwrap();
    config(llama().str("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 1.0)).unwrap();
}

#[test]
fn tensors_are_held_against_the_configuration() {
    let names: Vec<String> = llama().tensors.iter().map(|t| String::from_utf8(t.name.clone()).unwrap()).collect();
    let expected = expected_tensors(&config(llama()).unwrap());
    let needed: BTreeSet<&String> = expected.iter().filter(|t| t.need != Need::Optional).map(|t| &t.name).collect();
    assert_eq!(needed, names.iter().collect());
    for name in &names {
        let mut writer = llama();
        writer.tensors.retain(|tensor| tensor.name != name.as_bytes());
        refused(writer, Code::MissingTensor, &[name]);
        let mut writer = llama();
        let tensor = writer.tensor_mut(name);
        tensor.dims[0] += 1;
        tensor.data = vec![0; tensor.dims.iter().product::<u64>() as usize * 4];
        let found = format!("{:?}", tensor.dims);
        tensor.dims[0] -= 1;
        let wanted = format!("{:?}", tensor.dims);
        tensor.dims[0] += 1;
        refused(writer, Code::ShapeMismatch, &[name, &found, &wanted]);
    }
    refused(
        llama().f32_tensor("output.weight", &[5, 16]),
        Code::ShapeMismatch,
        &["output.weight", "[5, 16]", "[16, 5]"],
    );
    refused(llama().f32_tensor("rope_freqs.weight", &[4]), Code::ShapeMismatch, &["rope_freqs.weight", "[4]", "[2]"]);
    for name in ["blk.0.attn_norm.bias", "blk.1.attn_q_norm.weight", "blk.2.ffn_up.weight", "blk.0.ffn_gate_inp.weight"]
    {
        refused(llama().f32_tensor(name, &[16]), Code::UnsupportedArchitecture, &[name, "[16]"]);
    }
}

#[test]
fn the_tokenizer_is_held_against_the_embedding() {
    let key = "tokenizer.ggml.tokens";
    let writer = llama().without(key).entry(key, ARRAY, strings(&["a", "b"]));
    refused(writer, Code::ShapeMismatch, &["2 tokens", "5 rows"]);
    refused(llama().without(key).u32("llama.vocab_size", 6), Code::ShapeMismatch, &["6 tokens", "5 rows"]);
    assert_eq!(config(llama().without(key)).unwrap().vocab_size, 5);
}
