//! Folders of `quantized.rs` with other configurations and tensors: what says the same in another way is read, and what does not fit, or is not read
//! exactly, is refused by name.

use std::collections::BTreeMap;

use rillm::error::{Code, Result};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;
use rillm::model::{Layout, Weights};
use rillm::tensor::Context;
use serde_json::{Value, json};

use super::check_error;
use super::quantized::{expected, golden, rows};
use crate::support::adapter;

/// A tensor of a safetensors file: its type, its shape and its bytes.
#[derive(Clone)]
struct Stored {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A folder whose parts may be changed before it is read.
struct Edited {
    config: Value,
    tensors: BTreeMap<String, Stored>,
}

impl Edited {
    fn new(name: &str) -> Self {
        let read = |file: &str| std::fs::read(golden(name).join(file)).unwrap();
        let model = read("model.safetensors");
        let end = 8 + u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
        let header: BTreeMap<String, Value> = serde_json::from_slice(&model[8..end]).unwrap();
        let numbers = |value: &Value| -> Vec<usize> { serde_json::from_value(value.clone()).unwrap() };
        let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__").map(|(name, said)| {
            let range = numbers(&said["data_offsets"]);
            let bytes = model[end + range[0]..end + range[1]].to_vec();
            (name, Stored { dtype: said["dtype"].as_str().unwrap().to_owned(), shape: numbers(&said["shape"]), bytes })
        });
        Self { config: serde_json::from_slice(&read("config.json")).unwrap(), tensors: tensors.collect() }
    }

    /// With another value in what config.json says of the quantisation.
    fn says(mut self, key: &str, value: Value) -> Self {
        let how = if self.config["quantization_config"].is_null() { "quantization" } else { "quantization_config" };
        self.config[how][key] = value;
        self
    }

    /// With another value in the first of `config_groups`.
    fn group_says(mut self, part: &str, key: &str, value: Value) -> Self {
        let group = &mut self.config["quantization_config"]["config_groups"]["group_0"];
        if key.is_empty() {
            group[part] = value;
        } else {
            group[part][key] = value;
        }
        self
    }

    /// With every tensor changed whose name ends so.
    fn each(mut self, end: &str, change: impl Fn(&mut Stored)) -> Self {
        let mut found = self.tensors.iter_mut().filter(|(name, _)| name.ends_with(end)).peekable();
        assert!(found.peek().is_some(), "{end}");
        found.for_each(|(_, tensor)| change(tensor));
        self
    }

    fn without(mut self, end: &str) -> Self {
        let before = self.tensors.len();
        self.tensors.retain(|name, _| !name.ends_with(end));
        assert!(self.tensors.len() < before, "{end}");
        self
    }

    fn folder(&self) -> MemoryFolder {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, Stored { dtype, shape, bytes }) in &self.tensors {
            let start = data.len();
            data.extend(bytes);
            header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}));
        }
        let header = Value::Object(header).to_string();
        let model = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
        MemoryFolder::new([
            ("config.json".to_owned(), self.config.to_string().into_bytes()),
            ("model.safetensors".to_owned(), model),
        ])
    }

    fn load(&self, context: &Context) -> Result<Weights> {
        pollster::block_on(async {
            let folder = self.folder();
            let checkpoint = Checkpoint::open(&folder, None).await?;
            let config = Config::of(&checkpoint)?;
            let layout = Layout { join: false, quantize: None };
            Weights::load(context, &checkpoint, &config, &layout, &mut |_, _| Ok(())).await
        })
    }

    /// The matrices are those of the folder that was changed.
    #[track_caller]
    fn equals(&self, context: &Context, name: &str) {
        let weights = self.load(context).unwrap();
        for (matrix, wanted) in expected(name).0.crc32 {
            let values = pollster::block_on(rows(context, &weights, &matrix));
            let bits: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert_eq!(crc32fast::hash(&bits), wanted, "{name}: {matrix}");
        }
    }

    #[track_caller]
    fn refused(&self, context: &Context, code: Code, words: &[&str]) {
        match self.load(context) {
            Ok(_) => panic!("it was loaded, wanted an error with {words:?}"),
            Err(error) => check_error(&error, code, words),
        }
    }
}

fn set_word(tensor: &mut Stored, at: usize, word: i32) {
    tensor.bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
}

/// The same numbers of F16 as F32.
fn widen(tensor: &mut Stored) {
    assert_eq!(tensor.dtype, "F16");
    let halves = tensor.bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]));
    tensor.bytes = halves.flat_map(|half| half.to_f32().to_le_bytes()).collect();
    tensor.dtype = "F32".to_owned();
}

const UNSUPPORTED: Code = Code::UnsupportedTensorType;
const SHAPE: Code = Code::ShapeMismatch;
const MISSING: Code = Code::MissingTensor;
const INVALID: Code = Code::InvalidFile;

#[test]
fn other_ways_to_say_the_same_are_read_to_the_bit() {
    let context = adapter::context(true);
    // Version 1 of GPTQ's files holds zero points less one, modulo their number.
    let less_one = |tensor: &mut Stored| tensor.bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_sub(1));
    Edited::new("gptq8").says("checkpoint_format", json!("gptq")).each(".qzeros", less_one).equals(&context, "gptq8");
    // What nothing reads: a rule for modules that are not quantised, and how the quantiser went about it.
    let rules = json!({"-:.*v_proj": {}});
    Edited::new("gptq4_parts")
        .says("dynamic", rules)
        .says("true_sequential", json!(true))
        .equals(&context, "gptq4_parts");
    Edited::new("gptq4").each(".scales", widen).equals(&context, "gptq4");
    // An order that is none.
    Edited::new("gptq4").says("desc_act", json!(true)).equals(&context, "gptq4");
    Edited::new("awq").says("version", json!("GEMM")).equals(&context, "awq");
    Edited::new("fp8_blocks").says("fmt", json!("float8_e4m3fn")).equals(&context, "fp8_blocks");
    Edited::new("llm_int8").without(".weight_format").equals(&context, "llm_int8");
    let scales = |tensor: &mut Stored| tensor.shape = vec![1];
    Edited::new("fp8_tensor").each(".weight_scale_inv", scales).equals(&context, "fp8_tensor");
    // In MLX a module may be of another form, which is named.
    let other = json!({"bits": 8, "group_size": 32});
    let mut all = Edited::new("mlx8").says("bits", json!(4)).says("group_size", json!(64));
    for name in
        all.tensors.keys().filter_map(|name| name.strip_suffix(".scales")).map(str::to_owned).collect::<Vec<_>>()
    {
        all.config["quantization"][name] = other.clone();
    }
    all.config["quantization_config"] = Value::Null;
    all.equals(&context, "mlx8");
}

/// Without its one, a zero point is another: so the version counts.
#[test]
fn the_version_of_gptq_moves_zero_points_by_one() {
    let context = adapter::context(true);
    let q = |edited: Edited| pollster::block_on(rows(&context, &edited.load(&context).unwrap(), "blk.0.attn_q.weight"));
    let first = q(Edited::new("gptq4"));
    let second = q(Edited::new("gptq4").says("checkpoint_format", json!("gptq_v2")));
    let scale_of_first = half::f16::from_le_bytes(
        Edited::new("gptq4").tensors["model.layers.0.self_attn.q_proj.scales"].bytes[..2].try_into().unwrap(),
    );
    assert_eq!(second[0] - first[0], scale_of_first.to_f32());
}

#[test]
fn configurations_that_are_not_read_exactly_are_refused_by_name() {
    let context = adapter::context(true);
    let refused = |name: &str, key: &str, value: Value, words: &[&str]| {
        Edited::new(name).says(key, value).refused(&context, UNSUPPORTED, words);
    };
    for bits in [2, 3, 5] {
        refused("gptq4", "bits", json!(bits), &["gptq", &format!("{bits} bits")]);
        refused("awq", "bits", json!(bits), &["awq", &format!("{bits} bits")]);
    }
    refused("awq", "bits", json!(8), &["awq", "8 bits"]);
    refused("gptq4", "checkpoint_format", json!("marlin"), &["marlin"]);
    refused("gptq4", "dynamic", json!({"+:.*q_proj": {"bits": 8}}), &["dynamic", "q_proj"]);
    refused("awq", "version", json!("gemv"), &["gemv"]);
    refused("gptq4", "quant_method", json!("hqq"), &["hqq"]);
    for (key, value) in [
        ("sparsity_config", json!({"format": "sparse-24-bitmask", "sparsity_structure": "2:4"})),
        ("transform_config", json!({"config_groups": {"u": {"type": "hadamard"}}})),
    ] {
        refused("int4", key, value, &["compressed-tensors", key]);
    }
    for form in ["marlin-24", "nvfp4-pack-quantized", "mxfp4-pack-quantized"] {
        refused("int4", "format", json!(form), &["compressed-tensors", form]);
    }
    let group = |name: &str, part: &str, key: &str, value: Value, words: &[&str]| {
        Edited::new(name).group_says(part, key, value).refused(&context, UNSUPPORTED, words);
    };
    let activations = json!({"num_bits": 8, "type": "int", "dynamic": true, "strategy": "token"});
    group("int8", "input_activations", "", activations, &["compressed-tensors", "input_activations", "8 bits (int)"]);
    // FP8-dynamic: the weights are the same, and activations stay as they are.
    let dynamic = json!({"num_bits": 8, "type": "float", "dynamic": true, "strategy": "token"});
    let edited = Edited::new("fp8_channels").group_says("input_activations", "", dynamic.clone());
    edited.equals(&context, "fp8_channels");
    group("fp8_channels", "output_activations", "", dynamic.clone(), &["output_activations", "8 bits (float)"]);
    for (key, value) in
        [("dynamic", json!(false)), ("dynamic", json!("local")), ("num_bits", json!(4)), ("type", json!("int"))]
    {
        let mut other = dynamic.clone();
        other[key] = value;
        group("fp8_channels", "input_activations", "", other, &["input_activations"]);
    }
    group("int8", "input_activations", "", dynamic, &["input_activations", "8 bits (float)"]);
    group("int4", "weights", "num_bits", json!(3), &["compressed-tensors", "3 bits"]);
    group("int4", "weights", "type", json!("float"), &["float", "4 bits"]);
    group("fp8_channels", "weights", "block_structure", json!([128]), &["block_structure", "[128]"]);
    let mut several = Edited::new("int4");
    let mut other = several.config["quantization_config"]["config_groups"]["group_0"].clone();
    other["weights"]["num_bits"] = json!(8);
    several.config["quantization_config"]["config_groups"]["group_1"] = other;
    several.refused(&context, UNSUPPORTED, &["several kinds"]);
    refused("fp8_tensor", "fmt", json!("e5m2"), &["e5m2"]);
    refused("fp8_blocks", "weight_block_size", json!([64]), &["[64]"]);
    refused("fp8_blocks", "weight_block_size", json!([0, 128]), &["[0,128]"]);
    for (key, value, words) in [
        ("bits", json!(1), ["1", "2 to 6 and 8 bits"]),
        ("bits", json!(7), ["7", "2 to 6 and 8 bits"]),
        ("mode", json!("mxfp4"), ["mxfp4", "affine"]),
        ("model.layers.0.mlp.up_proj", json!({"bits": 7, "group_size": 64}), ["7", "2 to 6 and 8 bits"]),
    ] {
        let mut edited = Edited::new("mlx4");
        edited.config["quantization_config"] = Value::Null;
        edited.says(key, value).refused(&context, UNSUPPORTED, &words);
    }
}

#[test]
fn tensors_that_do_not_fit_their_configuration_are_refused() {
    let context = adapter::context(true);
    // Groups of other sizes than the tensors have.
    for (name, key, value, words) in [
        ("gptq4", "group_size", json!(32), ["groups of 32", "wanted"]),
        ("gptq4_ordered", "group_size", json!(-1), ["groups of", "wanted"]),
        ("gptq8", "group_size", json!(32), ["groups of 32", "wanted"]),
        ("awq", "group_size", json!(-1), ["groups of", "wanted"]),
        ("gptq4", "bits", json!(8), ["groups of", "wanted"]),
        ("fp8_blocks", "weight_block_size", json!([64, 64]), ["scale_inv", "64"]),
        ("fp8_experts", "weight_block_size", json!([64, 64]), ["scale_inv", "64"]),
    ] {
        Edited::new(name).says(key, value).refused(&context, SHAPE, &words);
    }
    for (key, value) in [("group_size", json!(128)), ("group_size", json!(32)), ("bits", json!(8))] {
        let mut edited = Edited::new("mlx4");
        edited.config["quantization_config"] = Value::Null;
        edited.says(key, value).refused(&context, SHAPE, &["groups of"]);
    }
    Edited::new("int4").group_says("weights", "group_size", json!(64)).refused(&context, SHAPE, &["weight_scale"]);
    // Rows that are no blocks of 32.
    let zeros = |dtype: &str, shape: &[usize], bytes: usize| Stored {
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        bytes: vec![0; shape.iter().product::<usize>() * bytes],
    };
    let mut narrow = Edited::new("gptq4_parts");
    narrow.config["intermediate_size"] = json!(80);
    for (module, [columns, rows]) in [("gate_proj", [64, 80]), ("up_proj", [64, 80]), ("down_proj", [80, 64])] {
        let groups = usize::div_ceil(columns, 64);
        for (end, tensor) in [
            ("qweight", zeros("I32", &[columns / 8, rows], 4)),
            ("qzeros", zeros("I32", &[groups, rows / 8], 4)),
            ("scales", zeros("F16", &[groups, rows], 2)),
            ("g_idx", zeros("I32", &[columns], 4)),
        ] {
            narrow.tensors.insert(format!("model.layers.0.mlp.{module}.{end}"), tensor);
        }
    }
    narrow.refused(&context, UNSUPPORTED, &["down_proj", "rows of 80", "multiples of 32"]);
    let ordered = Edited::new("gptq4_parts").says("desc_act", json!(true));
    ordered.refused(&context, UNSUPPORTED, &["down_proj", "rows of 96", "groups of 64", "desc_act", "divide"]);
}

#[test]
fn tensors_beside_quants_are_wanted_whole_and_of_their_types() {
    let context = adapter::context(true);
    for (name, end) in [
        ("gptq4", "k_proj.qzeros"),
        ("gptq4_ordered", "k_proj.g_idx"),
        ("awq", "k_proj.scales"),
        ("nf4", "k_proj.weight.absmax"),
        ("nf4", "k_proj.weight.nested_absmax"),
        ("nf4", "k_proj.weight.nested_quant_map"),
        ("fp4", "k_proj.weight.quant_map"),
        ("fp8_blocks", "k_proj.weight_scale_inv"),
        ("mlx4", "k_proj.biases"),
    ] {
        let word = end.rsplit('.').next().unwrap().trim_end_matches("_inv");
        Edited::new(name).without(end).refused(&context, MISSING, &["k_proj", word]);
    }
    Edited::new("llm_int8").without(".SCB").refused(&context, MISSING, &["no tensor of its files is"]);
    for (name, end, dtype) in [
        ("gptq4", "q_proj.scales", "I16"),
        ("gptq4", "q_proj.qweight", "U32"),
        ("awq", "q_proj.qzeros", "F32"),
        ("int4", "q_proj.weight_scale", "I16"),
        ("fp8_blocks", "q_proj.weight_scale_inv", "I32"),
        ("mlx8", "q_proj.biases", "F16"),
        ("llm_int8", "q_proj.SCB", "I32"),
        ("nf4", "q_proj.weight.nested_absmax", "I32"),
    ] {
        let other = |tensor: &mut Stored| tensor.dtype = dtype.to_owned();
        Edited::new(name).each(end, other).refused(&context, UNSUPPORTED, &["q_proj", dtype]);
    }
    // More than a matrix has use for.
    for (name, end) in [
        ("gptq4", "q_proj.g_idx"),
        ("nf4", "q_proj.weight.quant_map"),
        ("nf4", "q_proj.weight.nested_quant_map"),
        ("nf4", "q_proj.weight.nested_absmax"),
        ("nf4", "q_proj.weight.absmax"),
        ("llm_int8", "q_proj.weight_format"),
        ("llm_int8", "q_proj.SCB"),
    ] {
        let longer = |tensor: &mut Stored| {
            let elements: usize = tensor.shape.iter().product();
            let one = tensor.bytes[..tensor.bytes.len() / elements].to_vec();
            tensor.bytes.extend(one);
            tensor.shape = vec![elements + 1];
        };
        let code = if end.ends_with(".absmax") { UNSUPPORTED } else { SHAPE };
        Edited::new(name).each(end, longer).refused(&context, code, &["q_proj", "wanted"]);
    }
    let state = "q_proj.weight.quant_state.bitsandbytes__nf4";
    for bytes in [0, 65_537] {
        let of_bytes = |tensor: &mut Stored| (tensor.bytes, tensor.shape) = (vec![b' '; bytes], vec![bytes]);
        Edited::new("nf4").each(state, of_bytes).refused(&context, INVALID, &["quant_state"]);
    }
    // A scale whose lowest bits would have no room beside its zero point.
    let odd = |tensor: &mut Stored| {
        widen(tensor);
        tensor.bytes[0] |= 1;
    };
    Edited::new("gptq4").each("q_proj.scales", odd).refused(&context, UNSUPPORTED, &["scale", "f32"]);
}

#[test]
fn numbers_that_can_not_be_are_refused() {
    let context = adapter::context(true);
    for group in [-1, 2, i32::MAX] {
        let other = move |tensor: &mut Stored| set_word(tensor, 5, group);
        Edited::new("gptq4_ordered").each("k_proj.g_idx", other).refused(&context, INVALID, &["columns", "below 2"]);
    }
    // The columns are in another order than the configuration says.
    let unordered = Edited::new("gptq4_ordered").says("desc_act", json!(false));
    unordered.refused(&context, UNSUPPORTED, &["g_idx", "desc_act"]);
    for zero in [8i8, -9, 127] {
        let other = move |tensor: &mut Stored| tensor.bytes[3] = zero as u8;
        let edited = Edited::new("int4_zero_bytes").each("k_proj.weight_zero_point", other);
        edited.refused(&context, INVALID, &[&zero.to_string(), "-8 to 7"]);
    }
    let by_columns = |tensor: &mut Stored| tensor.bytes[0] = 2;
    Edited::new("llm_int8").each("k_proj.weight_format", by_columns).refused(&context, UNSUPPORTED, &["order", "[2]"]);
    // What bitsandbytes says beside the data.
    let says = |key: &str, value: Value| {
        let key = key.to_owned();
        move |tensor: &mut Stored| {
            let mut state: Value = serde_json::from_slice(&tensor.bytes).unwrap();
            state[&key] = value.clone();
            tensor.bytes = state.to_string().into_bytes();
            tensor.shape = vec![tensor.bytes.len()];
        }
    };
    let end = "k_proj.weight.quant_state.bitsandbytes__nf4";
    for (key, value, wanted) in [
        ("shape", json!([64, 32]), "[32, 64]"),
        ("blocksize", json!(128), "64"),
        ("nested_blocksize", json!(512), "256"),
        ("nested_offset", Value::Null, "a number"),
    ] {
        Edited::new("nf4").each(end, says(key, value)).refused(&context, INVALID, &["quant_state", key, wanted]);
    }
    let broken = |tensor: &mut Stored| tensor.bytes[0] = b'(';
    Edited::new("nf4").each(end, broken).refused(&context, INVALID, &["quant_state", "JSON"]);
    let other_number = |tensor: &mut Stored| tensor.bytes[7] ^= 1;
    Edited::new("nf4").each("k_proj.weight.quant_map", other_number).refused(&context, UNSUPPORTED, &["stand for"]);
}
