//! Quantising weights while they are loaded: to the bit what the Python package gguf gives (`scripts/golden/quantize_blocks.py`).

use std::path::PathBuf;

use crate::support::adapter;
use rillm::engine::{Engine, LoadOptions, Precision};
use rillm::error::Code;
use rillm::model::source::FileSource;
use rillm::tensor::quant::Format;
use rillm::tensor::quant::quantize::TARGETS;
use rillm::tensor::quant::quantize_reference::reference;
use rillm::tensor::{Context, DType, Desc, HostTensor, Rng, Shape, WeightUpload, ops};

/// Targets of which GPUs give the same bits as the reference.
const TO_THE_BIT: [&str; 3] = ["q8_0", "q4_0", "iq4_nl"];
const ROWS: usize = 64;
const COLUMNS: usize = 256;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quantize").join(name)).unwrap()
}

fn weights() -> Vec<f32> {
    golden("weights.f32").chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn blocks_of(format: &Format, weights: &[f32]) -> Vec<u8> {
    weights.chunks_exact(format.block_size).flat_map(|block| reference(format, block).unwrap()).collect()
}

#[test]
fn the_reference_gives_the_blocks_of_gguf() {
    for target in ["q8_0", "q4_0"] {
        let format = Format::by_name(target).unwrap();
        let (got, wanted) = (blocks_of(format, &weights()), golden(&format!("{target}.blocks")));
        let differs =
            got.chunks_exact(format.block_bytes).zip(wanted.chunks_exact(format.block_bytes)).position(|(a, b)| a != b);
        assert_eq!((differs, got.len()), (None, wanted.len()), "{target}");
    }
}

/// What a file of this format holds, and its values.
fn stored(format: &Format, weights: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let bytes: Vec<u8> = match format.name {
        "f32" => weights.iter().flat_map(|x| x.to_le_bytes()).collect(),
        "f16" => weights.iter().flat_map(|x| half::f16::from_f32(x.clamp(-65000.0, 65000.0)).to_le_bytes()).collect(),
        _ => weights.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect(),
    };
    let mut values = vec![0.0; weights.len()];
    format.dequantize(&bytes, &mut values).unwrap();
    (bytes, values)
}

fn on_the_gpu(context: &Context, from: &'static Format, to: &'static Format, bytes: &[u8]) -> Vec<f32> {
    let desc = Desc { shape: Shape::from([ROWS, COLUMNS]), dtype: DType::Weight(to) };
    let weight = context.empty(desc, "weight").unwrap();
    // In two parts, of which the first has pieces of odd lengths.
    let cut = bytes.len() / ROWS * 6;
    for (first, rows, bytes) in [(0, 6, &bytes[..cut]), (6, ROWS - 6, &bytes[cut..])] {
        let mut upload = WeightUpload::quantizing(context, from, weight.clone(), first, rows).unwrap();
        for piece in bytes.chunks(if first == 0 { 77 } else { 100_000 }) {
            upload.write(&piece.to_vec()).unwrap();
        }
        upload.finish().unwrap();
    }
    let rows: Vec<u32> = (0..ROWS as u32).collect();
    let tokens = context.tensor(&HostTensor::u32(&[ROWS], &rows)).unwrap();
    let values = context.run1(&ops::Embedding { soa: false }, &[&tokens, &weight]).unwrap();
    pollster::block_on(context.readback(&[&values])).unwrap()[0].to_f32().unwrap()
}

#[test]
fn the_gpu_quantises_to_the_bit() {
    let weights = weights();
    assert_eq!(weights.len(), ROWS * COLUMNS);
    for context in [adapter::context(true), adapter::context(false)] {
        for from in ["f32", "f16", "bf16"] {
            for to in TO_THE_BIT {
                let (from, to) = (Format::by_name(from).unwrap(), Format::by_name(to).unwrap());
                let (bytes, values) = stored(from, &weights);
                let mut wanted = vec![0.0; weights.len()];
                to.dequantize(&blocks_of(to, &values), &mut wanted).unwrap();
                let got = on_the_gpu(&context, from, to, &bytes);
                // Negative zero is a zero.
                let differs = got.iter().zip(&wanted).position(|(a, b)| a != b);
                if let Some(at) = differs {
                    panic!(
                        "{} to {}: weight {at} ({:e}) is {:e}, wanted {:e}",
                        from.name, to.name, values[at], got[at], wanted[at]
                    );
                }
            }
        }
    }
}

/// What GGML itself made of rows of numbers, with another rule for the errors of each weight: ours is about as near.
#[test]
fn the_reference_errs_as_little_as_ggml() {
    let file = |name: &str| {
        std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quants").join(name)).unwrap()
    };
    let floats = |bytes: Vec<u8>| -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let rows = floats(file("rows.f32"));
    assert_eq!(rows.len(), 1024);
    for target in TARGETS {
        let format = Format::by_name(target).unwrap();
        let mut ours = vec![0.0; rows.len()];
        format.dequantize(&blocks_of(format, &rows), &mut ours).unwrap();
        let (ours, theirs) = (error(&ours, &rows), error(&floats(file(&format!("{target}.f32")))[..1024], &rows));
        assert!(ours < theirs * 1.05 && theirs < ours * 1.35, "{target}: {ours}, and {theirs} of GGML");
    }
}

/// The others choose among scales by sums that GPUs may round otherwise: nearly all superblocks are the same, and all are as near.
#[test]
fn the_gpu_quantises_superblocks_as_the_reference_does() {
    let mut rng = Rng(9);
    let weights: Vec<f32> = (0..ROWS * COLUMNS)
        .map(|at| {
            rng.signed()
                * rng.signed()
                * if at % 97 == 0 { 4.0 } else { 0.3 }
                * if at / COLUMNS == 5 { 0.0 } else { 1.0 }
        })
        .collect();
    let context = adapter::context(true);
    for from in ["f32", "bf16"] {
        for to in ["q4_k", "q6_k"] {
            let (from, to) = (Format::by_name(from).unwrap(), Format::by_name(to).unwrap());
            let (bytes, values) = stored(from, &weights);
            let mut wanted = vec![0.0; weights.len()];
            to.dequantize(&blocks_of(to, &values), &mut wanted).unwrap();
            let got = on_the_gpu(&context, from, to, &bytes);
            let blocks = got.chunks_exact(to.block_size).zip(wanted.chunks_exact(to.block_size));
            let others = blocks.filter(|(got, wanted)| got != wanted).count();
            assert!(others <= ROWS / 8, "{} to {}: {others} of {ROWS} superblocks differ", from.name, to.name);
            let (ours, reference) = (error(&got, &values), error(&wanted, &values));
            assert!((ours / reference - 1.0).abs() < 1e-3, "{} to {}: {ours} and {reference}", from.name, to.name);
        }
    }
}

fn load(model: &str, quantize: Option<&str>) -> Result<Engine, rillm::Error> {
    let source = FileSource::open(format!("{}/tests/golden/{model}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let options =
        LoadOptions { precision: Some(Precision::Exact), quantize: quantize.map(str::to_owned), ..Default::default() };
    pollster::block_on(Engine::load(&source, &options, &mut |_| Ok(())))
}

fn logits(engine: &Engine) -> Vec<f32> {
    pollster::block_on(async { engine.forward(&[3, 1, 4, 1, 5, 9, 2, 6]).await.unwrap().readback().await.unwrap() })
}

fn error(a: &[f32], b: &[f32]) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (difference / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
}

#[test]
fn a_model_is_quantised_while_it_is_loaded() {
    let plain = load("tiny_llama/tied-f32", None).unwrap();
    let wanted = logits(&plain);
    let mut by_name = std::collections::HashMap::new();
    // The same weights, quantised by the golden data's own exporter.
    for (quantize, file, most) in [("q8_0", "tiny_llama/tied-q8_0", 0.05), ("q4_0", "tiny_llama/tied-q4_0", 0.45)] {
        let engine = load("tiny_llama/tied-f32", Some(quantize)).unwrap();
        assert_eq!(engine.info().quantization, quantize.to_uppercase());
        assert_eq!(engine.info().parameters, plain.info().parameters);
        assert!(engine.info().weight_bytes < plain.info().weight_bytes / 3);
        let got = logits(&engine);
        let off = error(&got, &wanted);
        assert!(off > 1e-4 && off < most, "{quantize}: {off}");
        // Of Q4_0 the output stays Q8_0, which is nearer than four bits for all.
        let file = error(&logits(&load(file, None).unwrap()), &wanted);
        assert!(off < file * 1.1, "{quantize}: {off}, and {file} of the file");
        by_name.insert(quantize, got);
    }
    let nonlinear = load("tiny_llama/tied-f32", Some("iq4_nl")).unwrap();
    assert_eq!(nonlinear.info().quantization, "IQ4_NL");
    by_name.insert("iq4_nl", logits(&nonlinear));
    let (off, of_q4_0) = (error(&by_name["iq4_nl"], &wanted), error(&by_name["q4_0"], &wanted));
    // Its weights are nearer than those of Q4_0 (`the_reference_errs_as_little_as_ggml`); random ones add up either way.
    assert!(off > 1e-4 && off < of_q4_0 * 1.25, "{off}, and {of_q4_0} with Q4_0");
    // Rows of this model are no superblocks: Q4_K becomes IQ4_NL, and Q6_K becomes Q8_0.
    for (quantize, becomes) in [("q4_k", "iq4_nl"), ("q6_k", "q8_0")] {
        let engine = load("tiny_llama/tied-f32", Some(quantize)).unwrap();
        assert_eq!(engine.info().quantization, becomes.to_uppercase(), "{quantize}");
        assert_eq!(logits(&engine), by_name[becomes], "{quantize}");
    }
    // What is quantised already stays as it is.
    let quantised = load("tiny_llama/tied-q8_0", Some("q4_0")).unwrap();
    assert_eq!(logits(&quantised), logits(&load("tiny_llama/tied-q8_0", None).unwrap()));
    for name in ["q5_0", "Q8_0", ""] {
        let error = load("tiny_llama/tied-f32", Some(name)).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.message().contains("q8_0 or q4_0 or q4_k or q6_k or iq4_nl"), "{error}");
    }
}
