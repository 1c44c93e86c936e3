//! Folders that other libraries' formats quantise (`scripts/golden/quantized_folders.py`): every matrix on the GPU to the bit of what these
//! formats say, and the logits that transformers answers with these matrices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rillm::engine::{LoadOptions, inspect};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::DirectoryFolder;
use rillm::model::{KvFormat, Layout, Logits, Precision, Transformer, Weights};
use rillm::tensor::quant::Format;
use rillm::tensor::{Context, DType, DeviceOptions, HostTensor, ops};
use serde::Deserialize;

use crate::support::adapter;

/// Each folder, what `inspect` calls its type, and the format on the GPU that most of its bytes have.
const FOLDERS: [(&str, &str, &str); 24] = [
    ("awq", "AWQ", "int4_64"),
    ("awq_experts", "AWQ", "int4_32"),
    ("fp4", "FP4", "fp4_64"),
    ("fp8_blocks", "FP8", "fp8_64"),
    ("fp8_experts", "FP8", "fp8_64"),
    ("fp8_channels", "FP8", "fp8_64"),
    ("fp8_tensor", "FP8", "fp8_64"),
    ("gptq4", "GPTQ", "int4_64"),
    ("gptq4_ordered", "GPTQ", "int4_32_ordered"),
    ("gptq4_parts", "GPTQ", "int4_64"),
    ("gptq8", "GPTQ", "uint8_64"),
    ("int4", "INT4", "int4_32"),
    ("int4_symmetric", "INT4", "int4_64"),
    ("int4_zero_bytes", "INT4", "int4_32"),
    ("int8", "INT8", "int8_64"),
    ("int8_zeros", "INT8", "uint8_64"),
    ("llm_int8", "LLM.int8", "int8_64"),
    ("mlx2", "MLX 2-bit", "affine4_f16_32"),
    ("mlx3", "MLX 3-bit", "affine4_bf16_64"),
    ("mlx4", "MLX 4-bit", "affine4_f16_64"),
    ("mlx5", "MLX 5-bit", "affine8_f16_64"),
    ("mlx6", "MLX 6-bit", "affine8_bf16_64"),
    ("mlx8", "MLX 8-bit", "affine8_bf16_32"),
    ("nf4", "NF4", "nf4_64"),
];
/// These run with joined matrices too, and then with prompts, few tokens and one token at a time.
const JOINED: [&str; 10] = [
    "awq",
    "awq_experts",
    "fp8_blocks",
    "gptq4_ordered",
    "gptq4_parts",
    "int8_zeros",
    "llm_int8",
    "mlx4",
    "mlx8",
    "nf4",
];

#[derive(Deserialize)]
pub(super) struct Expected {
    ids: Vec<u32>,
    pub crc32: BTreeMap<String, u32>,
}

pub(super) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quantized").join(name)
}

pub(super) fn expected(name: &str) -> (Expected, Vec<f32>) {
    let expected = serde_json::from_slice(&std::fs::read(golden(name).join("expected.json")).unwrap()).unwrap();
    let npy = std::fs::read(golden(name).join("logits.npy")).unwrap();
    let header = 10 + u16::from_le_bytes([npy[8], npy[9]]) as usize;
    (expected, npy[header..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// The rows of a matrix, as `embedding` reads them from the GPU.
pub(super) async fn rows(context: &Context, weights: &Weights, name: &str) -> Vec<f32> {
    let mut all = Vec::new();
    for (_, part) in weights.matrix(name).unwrap().parts() {
        let rows: Vec<u32> = (0..part.shape().dims()[0] as u32).collect();
        let rows = context.tensor(&HostTensor::u32(&[rows.len()], &rows)).unwrap();
        let values = context.run1(&ops::Embedding { soa: false }, &[&rows, part]).unwrap();
        all.extend(context.readback(&[&values]).await.unwrap()[0].to_f32().unwrap());
    }
    all
}

/// The logits of passes over these numbers of tokens, one after the other.
async fn logits(context: &Context, config: Config, weights: &Weights, ids: &[u32], passes: &[usize]) -> Vec<f32> {
    let transformer = Transformer::new(context, config, weights, ids.len(), Precision::Exact).unwrap();
    let cache = transformer.layer_states(ids.len(), 1, KvFormat::F32).unwrap();
    let (mut all, mut position) = (Vec::new(), 0);
    for length in passes {
        let state = context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0])).unwrap();
        let tokens = &ids[position..position + length];
        let tokens = context.tensor(&HostTensor::u32(&[tokens.len()], tokens)).unwrap();
        let logits = transformer.forward(&tokens, &state, &cache, Logits::All).unwrap();
        all.extend(context.readback(&[&logits]).await.unwrap()[0].to_f32().unwrap());
        position += length;
    }
    all
}

#[track_caller]
fn agree(got: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(wanted).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let error = (difference / wanted.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt();
    assert!(error < 1e-4, "{what}: {error:.2e}");
}

fn check(context: &Context, name: &str, format: &str) {
    let (expected, wanted) = expected(name);
    pollster::block_on(async {
        let folder = DirectoryFolder::new(golden(name));
        let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
        for join in [false, true] {
            if join && !JOINED.contains(&name) {
                continue;
            }
            let config = Config::of(&checkpoint).unwrap();
            let layout = Layout { join, quantize: None };
            let weights = Weights::load(context, &checkpoint, &config, &layout, &mut |_, _| Ok(())).await.unwrap();
            assert_eq!(weights.quantization(), format, "{name}");
            if !join {
                for (matrix, wanted) in &expected.crc32 {
                    let bits: Vec<u8> =
                        rows(context, &weights, matrix).await.iter().flat_map(|x| x.to_le_bytes()).collect();
                    assert_eq!(crc32fast::hash(&bits), *wanted, "{name}: {matrix}");
                }
            }
            let passes: &[usize] = if join { &[6, 3, 1, 1] } else { &[11] };
            let got = logits(context, config, &weights, &expected.ids, passes).await;
            agree(&got, &wanted, &format!("{name}, joined {join}"));
        }
    });
}

#[test]
fn folders_that_others_quantised_are_read_to_the_bit() {
    let context = adapter::context(true);
    for (name, _, format) in FOLDERS {
        check(&context, name, format);
    }
}

/// The option `quantize` is for plain numbers alone.
#[test]
fn what_others_quantised_is_not_quantised_again() {
    let context = adapter::context(true);
    let quantize = Format::by_name("q8_0");
    pollster::block_on(async {
        let folder = DirectoryFolder::new(golden("awq"));
        let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
        let config = Config::of(&checkpoint).unwrap();
        let layout = Layout { join: false, quantize };
        let weights = Weights::load(&context, &checkpoint, &config, &layout, &mut |_, _| Ok(())).await.unwrap();
        for (matrix, wanted) in expected("awq").0.crc32 {
            let bits: Vec<u8> = rows(&context, &weights, &matrix).await.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert_eq!(crc32fast::hash(&bits), wanted, "{matrix}");
        }
        let embeddings = weights.matrix("token_embd.weight").unwrap();
        assert!(embeddings.parts().all(|(_, part)| quantize.is_some_and(|to| part.dtype() == DType::Weight(to))));
    });
}

/// Where an adapter binds little at once, matrices and experts lie in several parts.
#[test]
fn matrices_in_parts_are_the_same() {
    for (name, binding) in [("fp8_blocks", 5000), ("nf4", 5000), ("awq_experts", 5000), ("fp8_experts", 8200)] {
        let options = DeviceOptions { storage_binding: Some(binding), ..Default::default() };
        let context = adapter::context_with(&options);
        let (expected, wanted) = expected(name);
        pollster::block_on(async {
            let folder = DirectoryFolder::new(golden(name));
            let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
            let config = Config::of(&checkpoint).unwrap();
            let layout = Layout { join: true, quantize: None };
            let weights = Weights::load(&context, &checkpoint, &config, &layout, &mut |_, _| Ok(())).await.unwrap();
            let of_down =
                if name.ends_with("_experts") { "blk.0.ffn_down_exps.weight" } else { "blk.0.ffn_down.weight" };
            assert!(weights.matrix(of_down).unwrap().parts().count() > 1, "{name}");
            let got = logits(&context, config, &weights, &expected.ids, &[2, 2, 2, 2, 2, 1]).await;
            agree(&got, &wanted, name);
        });
    }
}

#[test]
fn inspect_tells_how_a_folder_is_quantised() {
    for (name, method, _) in FOLDERS {
        let said =
            pollster::block_on(inspect(&DirectoryFolder::new(golden(name)), None, &LoadOptions::default())).unwrap();
        assert!(said.problem.is_none(), "{name}: {:?}", said.problem);
        assert_eq!(said.quantization, method, "{name}");
        assert!(said.tensor_types.contains_key(method) && said.tensor_types.contains_key("BF16"), "{name}");
        if !name.ends_with("_experts") && !name.ends_with("_parts") {
            assert_eq!(said.parameters, 60 * 1024 + 64 * 64 + 3 * 64, "{name}");
        }
    }
}
