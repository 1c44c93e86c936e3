//! Weight formats against golden blocks of GGML and of the Python package gguf (`tests/golden/README.md`).

use std::path::PathBuf;

use crate::record::AgreedRuns;
use crate::support::{adapter, parity};
use rillm::model::gguf::GgmlType;
use rillm::tensor::quant::packed::{self, Kind, packing::Packing};
use rillm::tensor::quant::{FORMATS, Format};
use rillm::tensor::{
    Context, DType, Desc, DeviceKind, DeviceOptions, HostTensor, Rng, Shape, TargetRows, Tensor, WeightUpload, ops,
};

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

fn read(context: &Context, tensor: &Tensor) -> Vec<f32> {
    pollster::block_on(context.readback_one(tensor)).unwrap().to_f32().unwrap()
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

/// Devices with the kernels of GPUs and with those for software adapters, and what is on record of them under a name.
fn gpus(name: &str) -> [(Context, AgreedRuns); 2] {
    [("gpu", false), ("software", true)].map(|(kernels, software)| {
        let options = DeviceOptions { software_kernels: Some(software), ..Default::default() };
        (adapter::context_with(&options), AgreedRuns::open(&format!("{name}_{kernels}")))
    })
}

#[test]
fn dequantisation_on_the_gpu_is_that_of_gguf_to_the_bit() {
    for (context, record) in gpus("dequantised") {
        for format in FORMATS {
            let Some((blocks, weights)) = golden(format) else { continue };
            let step = || {
                let tokens = HostTensor::u32(&[ROWS], &[0, 1, 2, 3]);
                context.run1(&ops::Embedding { soa: false }, &[&context.tensor(&tokens)?, &context.tensor(&blocks)?])
            };
            parity::unless_agreed(&record, context.device(), (format.name, &bits(&weights)), step, |rows| {
                let rows = read(&context, &rows);
                let different = rows.iter().zip(&weights).position(|(a, b)| a.to_bits() != b.to_bits());
                if let Some(at) = different {
                    panic!("{}: weight {at} is {:e}, wanted {:e}", format.name, rows[at], weights[at]);
                }
            });
        }
        record.close();
    }
}

/// The activations and the products of one matrix with them: as they are, and those that are rounded to 8 bits if the format can be multiplied with them.
struct Products {
    exact: Tensor,
    rounded: Option<[Tensor; 3]>,
}

/// The products of a matrix with activations of one token, few, and many.
fn products(context: &Context, blocks: &HostTensor, activations: &[HostTensor]) -> rillm::Result<Vec<Products>> {
    let DType::Weight(format) = blocks.dtype else { panic!("a weight") };
    let weight = context.tensor(blocks)?;
    let product = |host: &HostTensor| {
        let x = context.tensor(host)?;
        let exact = context.run1(ops::linear(host.shape.elements() / COLUMNS), &[&x, &weight])?;
        let rounded = if format.int8.is_none() {
            None
        } else {
            let int8 = context.run(&ops::Quantize, &[&x])?;
            let product = context.run1(&ops::MatMulInt8::default(), &[&int8[0], &int8[1], &weight])?;
            Some([int8[0].clone(), int8[1].clone(), product])
        };
        Ok(Products { exact, rounded })
    };
    activations.iter().map(product).collect()
}

/// With 8-bit activations, what these stand for is multiplied.
fn check_products(context: &Context, name: &str, weights: &[f32], activations: &[HostTensor], got: &[Products]) {
    for (host, got) in activations.iter().zip(got) {
        check(name, &read(context, &got.exact), &host.to_f32().unwrap(), weights);
        let Some(rounded) = &got.rounded else { continue };
        let [quants, scales, product] = rounded.each_ref().map(|tensor| read(context, tensor));
        let x: Vec<f32> = quants.iter().enumerate().map(|(i, quant)| quant * scales[i / 32]).collect();
        check(name, &product, &x, weights);
    }
}

/// The formats with blocks and the weights that these stand for: of files the golden ones, of other libraries' formats random ones. Folders hold what
/// those stand for to the bit (`checkpoint::quantized` of the engine's tests).
fn matrices(is_wanted: impl Fn(&Format) -> bool) -> impl Iterator<Item = (&'static Format, HostTensor, Vec<f32>)> {
    let others = packed::formats().filter(move |format| is_wanted(format)).map(|format| {
        let blocks = Rng(43).weight(format, ROWS, COLUMNS);
        let weights = blocks.to_f32().unwrap();
        (format, blocks, weights)
    });
    let of_files = FORMATS.iter().filter_map(|format| golden(format).map(|golden| (*format, golden.0, golden.1)));
    of_files.chain(others)
}

fn activations() -> Vec<HostTensor> {
    let mut rng = Rng(41);
    [1, 3, 19].into_iter().map(|tokens| rng.tensor(&[tokens, COLUMNS])).collect()
}

/// Products of golden weights with activations against those in f64: on GPUs' kernels and on those for software adapters.
#[test]
fn products_agree_with_float64() {
    let activations = activations();
    for (context, record) in gpus("products") {
        // Kernels differ in the groups by a number alone.
        for (format, blocks, weights) in matrices(|format| format.block_size == 64) {
            let step = || products(&context, &blocks, &activations);
            parity::unless_agreed(&record, context.device(), (format.name, &bits(&weights)), step, |got| {
                check_products(&context, format.name, &weights, &activations, &got);
            });
        }
        record.close();
    }
}

#[test]
fn products_on_the_cpu_agree_with_float64() {
    let context = adapter::context_with(&DeviceOptions { kind: DeviceKind::Cpu, ..Default::default() });
    let activations = activations();
    for (format, blocks, weights) in matrices(|_| true) {
        let got = products(&context, &blocks, &activations).unwrap();
        check_products(&context, format.name, &weights, &activations, &got);
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

/// One quant of a matrix as `packing` has it in a file, by the libraries' descriptions (`scripts/golden/quantized_folders.py`).
fn quant(packing: Packing, file: &[u8], [rows, columns]: [usize; 2], row: usize, column: usize) -> f32 {
    let word = |at: usize| u32::from_le_bytes(file[at * 4..at * 4 + 4].try_into().unwrap());
    let nibble = |word: u32, place: usize| (word >> (place * 4) & 15) as f32;
    let byte = || file[row * columns + column];
    match packing {
        Packing::Nibbles => nibble(word((row * columns + column) / 8), column % 8),
        Packing::HighNibbles => f32::from(file[(row * columns + column) / 2] >> ((1 - column % 2) * 4) & 15),
        Packing::Bytes => f32::from(byte() as i8),
        Packing::UnsignedBytes => f32::from(byte()),
        Packing::Stream2 | Packing::Stream3 | Packing::Stream5 | Packing::Stream6 => {
            let first = (row * columns + column) * packing.bits();
            let bit = |bit: usize| u32::from(file[(first + bit) / 8] >> ((first + bit) % 8) & 1) << bit;
            (0..packing.bits()).map(bit).sum::<u32>() as f32
        }
        Packing::ColumnNibbles => nibble(word(column / 8 * rows + row), column % 8),
        Packing::ColumnBytes => f32::from(file[(column / 4 * rows + row) * 4 + column % 4]),
        Packing::Awq => {
            let place = [0, 2, 4, 6, 1, 3, 5, 7].iter().position(|of_place| *of_place == row % 8).unwrap();
            nibble(word(column * (rows / 8) + row / 8), place)
        }
    }
}

/// A matrix that is larger than the staging buffer and lies in two parts, as one does that an adapter can't bind whole.
#[test]
fn packed_quants_arrive_whole_in_runs_parts_and_pieces() {
    let cpu = DeviceOptions { kind: DeviceKind::Cpu, ..Default::default() };
    for context in [adapter::context(true), adapter::context_with(&cpu)] {
        packed_quants_arrive_whole(&context);
    }
}

fn packed_quants_arrive_whole(context: &Context) {
    use Packing::*;
    let (rows, first_part) = (1024, 600);
    let mut rng = Rng(44);
    let rows_of = [Nibbles, HighNibbles, Bytes, UnsignedBytes, Stream2, Stream3, Stream5, Stream6];
    for packing in rows_of.into_iter().chain([ColumnNibbles, ColumnBytes, Awq]) {
        let columns = if packing.stored_bits() == 4 { 20_512 } else { 10_272 };
        let (kind, zero) = match packing {
            Bytes => (Kind::Int8, 0),
            UnsignedBytes | ColumnBytes | Stream5 | Stream6 => (Kind::Uint8, 200),
            _ => (Kind::Int4, 11),
        };
        let format = packed::of(kind, 32).unwrap();
        let file: Vec<u8> =
            (0..rows * columns * packing.bits() / 32).flat_map(|_| (rng.below(1 << 32) as u32).to_le_bytes()).collect();
        let scale = |row: usize, group: usize| 0.5f32.powi(((row * 7 + group) % 5) as i32);
        let parts: Vec<TargetRows> = [(0, first_part), (first_part, rows - first_part)]
            .into_iter()
            .map(|(skipped, rows)| {
                let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
                TargetRows { weight: context.empty(desc, "part").unwrap(), first_row: 0, skipped, rows }
            })
            .collect();
        let weights: Vec<Tensor> = parts.iter().map(|part| part.weight.clone()).collect();
        for part in &parts {
            let of_rows = (part.skipped..part.skipped + part.rows)
                .flat_map(|row| (0..columns / 32).map(move |group| scale(row, group).to_bits() | zero));
            part.write_groups(context, &of_rows.collect::<Vec<u32>>()).unwrap();
        }
        let mut start = 0;
        let mut upload = |targets: Vec<TargetRows>, rows: usize| {
            let mut upload = WeightUpload::packed(context, packing, targets, rows, columns).unwrap();
            while upload.missing() > 0 {
                let length = (1 + rng.below(3 << 20)).min(upload.missing() as usize);
                upload.write(&file[start..start + length].to_vec()).unwrap();
                start += length;
            }
            upload.finish().unwrap();
        };
        if packing.is_by_columns() {
            upload(parts, rows);
        } else {
            for part in parts {
                let rows = part.rows;
                upload(vec![TargetRows { skipped: 0, ..part }], rows);
            }
        }
        assert_eq!(start, file.len());
        for (weight, of_part) in weights.iter().zip([[0, 1, 599], [600, 777, 1023]]) {
            let first = of_part[0] as u32;
            let tokens = context.tensor(&HostTensor::u32(&[3], &of_part.map(|row| row as u32 - first))).unwrap();
            let got = read(context, &context.run1(&ops::Embedding { soa: false }, &[&tokens, weight]).unwrap());
            for (row, got) in of_part.into_iter().zip(got.chunks_exact(columns)) {
                let wrong = (0..columns).find(|column| {
                    let quant = quant(packing, &file, [rows, columns], row, *column);
                    got[*column] != (quant - zero as f32) * scale(row, column / 32)
                });
                assert_eq!(wrong, None, "{packing:?}, row {row}");
            }
        }
    }
}
