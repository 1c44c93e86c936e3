//! Weight formats against golden blocks of GGML and of the Python package gguf (`tests/golden/README.md`).

use std::path::PathBuf;

use crate::support::adapter;
use rillm::model::gguf::GgmlType;
use rillm::tensor::quant::{FORMATS, Format};
use rillm::tensor::{Context, DType, DeviceOptions, HostTensor, Op, Rng, Shape, Tensor, ops};

const ROWS: usize = 4;
const COLUMNS: usize = 512;

/// The golden blocks of a format as a matrix, and their weights. F32 and F16 have none: their numbers are plain.
fn golden(format: &'static Format) -> Option<(HostTensor, Vec<f32>)> {
    let file = |suffix: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quants");
        std::fs::read(path.join(format!("{}.{suffix}", format.name))).unwrap()
    };
    if ["f32", "f16"].contains(&format.name) {
        return None;
    }
    let weights = file("f32").chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let shape = Shape::from([ROWS, COLUMNS]);
    Some((HostTensor { shape, dtype: DType::Weight(format), bytes: file("blocks") }, weights))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn run(context: &Context, op: &dyn Op, inputs: &[&Tensor]) -> Vec<f32> {
    let output = context.run1(op, inputs).unwrap();
    pollster::block_on(context.readback(&[&output])).unwrap().remove(0).to_f32().unwrap()
}

#[test]
fn formats_are_those_of_the_specification() {
    for format in FORMATS {
        let ty = GgmlType::from_id(format.gguf_type.unwrap()).unwrap();
        assert_eq!(ty.name().to_lowercase(), format.name);
        assert_eq!(
            (ty.block_size(), ty.block_bytes()),
            (format.block_size as u64, format.block_bytes as u64),
            "{ty:?}"
        );
    }
}

#[test]
fn dequantisation_is_that_of_gguf_to_the_bit() {
    let mut formats = 0;
    for format in FORMATS {
        let Some((blocks, weights)) = golden(format) else { continue };
        assert_eq!(bits(&blocks.to_f32().unwrap()), bits(&weights), "{}", format.name);
        formats += 1;
    }
    assert_eq!(formats, 26);
}

#[test]
fn dequantisation_on_the_gpu_is_that_of_gguf_to_the_bit() {
    for context in [adapter::context(true), adapter::context(false)] {
        for format in FORMATS {
            let Some((blocks, weights)) = golden(format) else { continue };
            let weight = context.tensor(&blocks).unwrap();
            let tokens = context.tensor(&HostTensor::u32(&[ROWS], &[0, 1, 2, 3])).unwrap();
            let rows = run(&context, &ops::Embedding { soa: false }, &[&tokens, &weight]);
            let different = rows.iter().zip(&weights).position(|(a, b)| a.to_bits() != b.to_bits());
            if let Some(at) = different {
                panic!("{}: weight {at} is {:e}, wanted {:e}", format.name, rows[at], weights[at]);
            }
        }
    }
}

/// Products of golden weights with activations against those in f64: one token, few, and many, on GPUs' kernels and on those for
/// software adapters. With 8-bit activations, what these stand for is multiplied.
#[test]
fn products_agree_with_float64() {
    for software in [true, false] {
        let options = DeviceOptions { software_kernels: Some(software), ..Default::default() };
        let context = adapter::context_with(&options);
        let mut rng = Rng(41);
        for format in FORMATS {
            let Some((blocks, weights)) = golden(format) else { continue };
            let weight = context.tensor(&blocks).unwrap();
            for tokens in [1, 3, 19] {
                let host = rng.tensor(&[tokens, COLUMNS]);
                let x = context.tensor(&host).unwrap();
                let exact = run(&context, ops::linear(tokens), &[&x, &weight]);
                check(format.name, &exact, &host.to_f32().unwrap(), &weights);
                if format.int8.is_none() {
                    continue;
                }
                let int8 = context.run(&ops::Quantize, &[&x]).unwrap();
                let host = pollster::block_on(context.readback(&[&int8[0], &int8[1]])).unwrap();
                let (quants, scales) = (host[0].to_f32().unwrap(), host[1].to_f32().unwrap());
                let x: Vec<f32> = quants.iter().enumerate().map(|(i, quant)| quant * scales[i / 32]).collect();
                let fast = run(&context, &ops::MatMulInt8::default(), &[&int8[0], &int8[1], &weight]);
                check(format.name, &fast, &x, &weights);
            }
        }
    }
}

fn check(name: &str, got: &[f32], x: &[f32], weights: &[f32]) {
    let rows = x.chunks_exact(COLUMNS).flat_map(|x| weights.chunks_exact(COLUMNS).map(move |row| (x, row)));
    let wanted: Vec<f64> =
        rows.map(|(x, row)| x.iter().zip(row).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()).collect();
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(&wanted).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    let error = (difference / wanted.iter().map(|b| b * b).sum::<f64>()).sqrt();
    // Written so that NaN fails. The requirement is 1e-3.
    assert!(error <= 1e-5, "{name}: relative error {error:.2e}");
}
