//! The CPU as a device: every op by its function, held to its reference, and the runtime around it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollster::block_on;

use crate::support::adapter::context_with;
use crate::support::parity::{assert_close, wanted, wanted_of};
use crate::support::team::LocalTeam;
use rillm::Code;
use rillm::gpu::{Binding, Shader, Team, Template};
use rillm::tensor::quant::packed::{self, Kind};
use rillm::tensor::{
    Context, DType, DeviceKind, DeviceOptions, HostTensor, Rng, TargetRows, Tensor, WeightUpload, ops, quant,
};

fn cpu() -> Context {
    context_with(&DeviceOptions { kind: DeviceKind::Cpu, ..Default::default() })
}

#[test]
fn functions_agree_with_references() {
    let context = cpu();
    for (name, cases) in wanted() {
        for (index, case) in cases().iter().enumerate() {
            let wanted = wanted_of(name, index, case);
            let got = block_on(context.run_case(case)).unwrap_or_else(|error| panic!("{name}, case {index}: {error}"));
            assert_eq!(got.len(), wanted.len());
            for (got, wanted) in got.iter().zip(&*wanted) {
                assert_close(&format!("{name}, case {index}"), got, wanted, case.tolerance);
            }
        }
    }
}

/// Attention by the device's threads, where there is enough of it: as without them, to the bit.
#[test]
fn attention_by_threads_agrees_with_references() {
    let team = Arc::new(LocalTeam::default());
    let of_team = Some(team.clone() as Arc<dyn Team>);
    let with_team = context_with(&DeviceOptions { kind: DeviceKind::Cpu, team: of_team, ..Default::default() });
    let alone = cpu();
    let mut tried = BTreeSet::new();
    for (name, cases) in wanted().filter(|(name, _)| name.contains("attention")) {
        for (index, case) in cases().iter().enumerate() {
            let before = team.attentions.load(Ordering::Relaxed);
            let got = block_on(with_team.run_case(case)).unwrap();
            if team.attentions.load(Ordering::Relaxed) > before {
                tried.insert(*name);
                let wanted = wanted_of(name, index, case);
                for ((got, alone), wanted) in got.iter().zip(block_on(alone.run_case(case)).unwrap()).zip(&*wanted) {
                    assert_close(&format!("{name}, case {index}"), got, wanted, case.tolerance);
                    assert!(got.bytes == alone.bytes, "{name}, case {index}: not as without threads");
                }
            }
        }
    }
    let all = ["attention", "attention_prefill", "attention_spans", "attention_split", "latent_attention"];
    let are_all = all.iter().all(|name| tried.contains(name));
    assert!(are_all || std::env::var("RILLM_OPS").is_ok(), "{tried:?}");
}

/// A feed-forward as one op has no kernel, so it is in no list: step by step, with weights that are packed, and by threads, whose results are those
/// of one to the bit.
#[test]
fn feed_forwards_agree_with_references() {
    let team = Arc::new(LocalTeam::default());
    let kind = DeviceKind::Cpu;
    let threads = Some(team.clone() as Arc<dyn Team>);
    let with_team = context_with(&DeviceOptions { kind, packs_weights: true, team: threads, ..Default::default() });
    let (plain, packing) = (cpu(), packing());
    for (index, case) in ops::FeedForward::cases().iter().enumerate() {
        let wanted = case.op.reference(&mut case.inputs.clone()).unwrap();
        let what = format!("case {index}, {:?}", case.inputs[1].desc());
        let got = block_on(plain.run_case(case)).unwrap();
        assert_close(&what, &got[0], &wanted[0], case.tolerance);
        let packed = block_on(packing.run_case(case)).unwrap();
        assert_close(&what, &packed[0], &wanted[0], 0.06);
        assert_eq!(block_on(with_team.run_case(case)).unwrap()[0].bytes, packed[0].bytes, "{what}");
        team.has_no_room_between.store(true, Ordering::Relaxed);
        assert_eq!(block_on(with_team.run_case(case)).unwrap()[0].bytes, packed[0].bytes, "{what}, without room");
        team.has_no_room_between.store(false, Ordering::Relaxed);
    }
    assert_eq!(team.feed_forwards.load(Ordering::Relaxed), 20, "those of formats that are packed");
}

#[test]
fn weights_are_quantised_by_the_rules() {
    let context = cpu();
    let mut rng = Rng(3);
    let from = quant::Format::by_name("f16").unwrap();
    for name in quant::quantize::TARGETS {
        let to = quant::Format::by_name(name).unwrap();
        let (rows, columns) = (5, 512);
        let file = rng.weight(from, rows, columns);
        let desc = rillm::tensor::Desc {
            shape: rillm::tensor::Shape::from([rows, columns]),
            dtype: rillm::tensor::DType::Weight(to),
        };
        let weight = context.empty(desc, "weight").unwrap();
        let mut upload = WeightUpload::quantizing(&context, from, weight, 0, rows).unwrap();
        // In pieces that end within rows and within words.
        for piece in file.bytes.chunks(777) {
            upload.write(&piece.to_vec()).unwrap();
        }
        let weight = upload.finish().unwrap();
        let x = rng.tensor(&[1, columns]);
        let product = context.run1(&ops::MatVec, &[&context.tensor(&x).unwrap(), &weight]).unwrap();
        let got = block_on(context.readback_one(&product)).unwrap();
        let values = file.to_f32().unwrap();
        let bytes =
            values.chunks(to.block_size).flat_map(|block| quant::quantize_reference::reference(to, block).unwrap());
        let quantised = HostTensor { dtype: desc.dtype, shape: desc.shape, bytes: bytes.collect() };
        let (weights, x) = (quantised.to_f32().unwrap(), x.to_f32().unwrap());
        let wanted: Vec<f32> =
            weights.chunks(columns).map(|row| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f32>()).collect();
        assert_close(name, &got, &HostTensor::f32(&[1, rows], &wanted), 1e-5);
    }
}

fn packing() -> Context {
    context_with(&DeviceOptions { kind: DeviceKind::Cpu, packs_weights: true, ..Default::default() })
}

/// Formats that are packed.
const PACKED: [&str; 8] = ["q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0"];

/// Where weights are packed, functions give what the references give, but for the rounding of activations to 8 bits.
#[test]
fn functions_with_packed_weights_agree_with_references() {
    let context = packing();
    let mut tried = 0;
    for (name, cases) in wanted() {
        for (index, case) in cases().iter().enumerate() {
            let is_packed =
                |input: &HostTensor| matches!(input.dtype, DType::Weight(format) if PACKED.contains(&format.name));
            if !case.inputs.iter().any(is_packed) {
                continue;
            }
            let wanted = wanted_of(name, index, case);
            let got = block_on(context.run_case(case)).unwrap_or_else(|error| panic!("{name}, case {index}: {error}"));
            assert_eq!(got.len(), wanted.len());
            for (got, wanted) in got.iter().zip(&*wanted) {
                // A few sums may be near zero, of terms that are not.
                if wanted.shape.elements() >= 32 {
                    assert_close(&format!("{name}, case {index}"), got, wanted, case.tolerance.max(0.04));
                }
            }
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} cases");
}

/// The activations that packed weights are multiplied with: of each 32 the largest becomes 127.
fn rounded(x: &[f32]) -> Vec<f32> {
    let of_block = |block: &[f32]| {
        let scale = block.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        block.iter().map(move |x| (x * inverse).round_ties_even() * scale).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(of_block).collect()
}

#[test]
fn packed_weights_are_multiplied_with_rounded_activations() {
    let context = packing();
    let mut rng = Rng(17);
    // The last is not packed.
    for name in PACKED.into_iter().chain(["iq4_nl"]) {
        let format = quant::Format::by_name(name).unwrap();
        for (rows, columns) in [(1, 32), (7, 96), (8, 256), (131, 544), (509, 1024)] {
            let columns = usize::next_multiple_of(columns, format.block_size);
            let host = rng.weight(format, rows, columns);
            // In parts whose rows begin and end within groups, each in pieces.
            let weight = context.empty(host.desc(), "weight").unwrap();
            let row_bytes = host.bytes.len() / rows;
            let middle = (0..=rows / 3).rev().find(|row| format.splits_at(*row, columns)).unwrap();
            for (first, count) in [(middle, rows - middle), (0, middle)].into_iter().filter(|part| part.1 > 0) {
                let mut upload = WeightUpload::into_rows(&context, weight.clone(), first, count).unwrap();
                for piece in host.bytes[first * row_bytes..(first + count) * row_bytes].chunks(777) {
                    upload.write(&piece.to_vec()).unwrap();
                }
                upload.finish().unwrap();
            }
            let floats = host.to_f32().unwrap();
            let ids: Vec<u32> = (0..rows as u32).rev().collect();
            let ids = context.tensor(&HostTensor::u32(&[rows], &ids)).unwrap();
            let got = context.run1(&ops::Embedding { soa: false }, &[&ids, &weight]).unwrap();
            let got = block_on(context.readback_one(&got)).unwrap();
            let reversed: Vec<f32> = floats.chunks(columns).rev().flatten().copied().collect();
            assert_close(name, &got, &HostTensor::f32(&[rows, columns], &reversed), 1e-6);
            for tokens in [1, 2, 5, 37] {
                let host = rng.tensor(&[tokens, columns]);
                let got = context.run1(ops::linear(tokens), &[&context.tensor(&host).unwrap(), &weight]).unwrap();
                let got = block_on(context.readback_one(&got)).unwrap();
                let host = host.to_f32().unwrap();
                let x = if name == "iq4_nl" { host } else { rounded(&host) };
                let mut products = Vec::with_capacity(tokens * rows);
                for x in x.chunks(columns) {
                    for row in floats.chunks(columns) {
                        let product: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                        products.push(product as f32);
                    }
                }
                let what = format!("{name} [{rows}, {columns}], {tokens} tokens");
                assert_close(&what, &got, &HostTensor::f32(&[tokens, rows], &products), 2e-5);
            }
        }
    }
}

/// Weights are held once, and as large as was told.
#[test]
fn packed_weights_take_the_memory_that_was_told() {
    let context = packing();
    let mut rng = Rng(19);
    for (name, bytes_of_32) in [("q4_0", 20), ("q4_1", 24), ("q4_k", 24), ("q6_k", 40), ("q8_0", 36), ("f16", 64)] {
        let format = quant::Format::by_name(name).unwrap();
        let (rows, columns) = (16, 512);
        let weight = context.tensor(&rng.weight(format, rows, columns)).unwrap();
        let told = (rows * columns / 32 * bytes_of_32) as u64;
        assert_eq!(weight.bytes(), told, "{name}");
        assert_eq!(format.layout_on(rows, columns, Some(context.device().capabilities())).unwrap().bytes, told);
    }
    // Without the option nothing is packed.
    assert!(!cpu().device().capabilities().packs_weights);
}

/// Columns that belong to groups in any order: GPTQ's `desc_act`.
#[test]
fn columns_in_any_order_keep_their_groups() {
    let context = cpu();
    let mut rng = Rng(9);
    for (kind, group, rows, columns) in [
        (Kind::Ordered4, 32, 1, 32),
        (Kind::Ordered4, 64, 67, 320),
        (Kind::Ordered8, 32, 33, 96),
        (Kind::Ordered8, 128, 131, 512),
    ] {
        let format = packed::of(kind, group).unwrap();
        let host = rng.weight(format, rows, columns);
        let weight = context.tensor(&host).unwrap();
        // Until the order is known, columns are in that of their groups.
        let plain = host.to_f32().unwrap();
        check_rows(&context, &mut rng, &weight, &plain, &format!("{format:?} in order"));
        let mut groups: Vec<u16> = (0..columns).map(|column| (column / group) as u16).collect();
        for at in (1..columns).rev() {
            groups.swap(at, rng.below(at + 1));
        }
        let all = TargetRows { weight: weight.clone(), first_row: 0, skipped: 0, rows };
        all.write_columns(&context, &groups).unwrap();
        // A column has the quant of its place and the word of its group.
        let shuffled: Vec<f32> = (0..rows * columns)
            .map(|at| {
                let (row, column) = (at / columns, at % columns);
                let block = |number: usize| &host.bytes[(row * (columns / group) + number) * format.block_bytes..];
                let quants = &block(column / group)[..format.block_bytes - 4];
                let word = &block(usize::from(groups[column]))[format.block_bytes - 4..format.block_bytes];
                let mut out = vec![0.0; group];
                (format.dequantize_block)(&[quants, word].concat(), &mut out);
                out[column % group]
            })
            .collect();
        check_rows(&context, &mut rng, &weight, &shuffled, &format!("{format:?} in another order"));
        assert!(all.write_columns(&context, &groups[1..]).is_err());
    }
}

/// Holds a weight's rows and products to its floats.
fn check_rows(context: &Context, rng: &mut Rng, weight: &Tensor, floats: &[f32], what: &str) {
    let (rows, columns) = weight.shape().matrix().unwrap();
    let ids: Vec<u32> = (0..rows as u32).collect();
    let ids = context.tensor(&HostTensor::u32(&[rows], &ids)).unwrap();
    let got = context.run1(&ops::Embedding { soa: false }, &[&ids, weight]).unwrap();
    let got = block_on(context.readback_one(&got)).unwrap();
    assert_eq!(got.to_f32().unwrap(), floats, "{what}");
    for tokens in [1, 2, 37] {
        let x = rng.tensor(&[tokens, columns]);
        let got = context.run1(ops::linear(tokens), &[&context.tensor(&x).unwrap(), weight]).unwrap();
        let got = block_on(context.readback_one(&got)).unwrap();
        let x = x.to_f32().unwrap();
        let wanted: Vec<f32> = x
            .chunks(columns)
            .flat_map(|x| floats.chunks(columns).map(move |row| row.iter().zip(x).map(|(w, x)| w * x).sum()))
            .collect();
        assert_close(&format!("{what}, {tokens} tokens"), &got, &HostTensor::f32(&[tokens, rows], &wanted), 1e-5);
    }
}

#[test]
fn shaders_are_refused_by_name() {
    let context = cpu();
    let device = context.device();
    let buffer = device.buffer(16, "numbers").unwrap();
    let template = Template::Static("@compute @workgroup_size(1) fn main() {}");
    let shader = Shader { label: "own kernel", template, modules: &[], defines: &[] };
    device.dispatch(&shader, &[Binding::ReadWrite(0, buffer.slice())], [1; 3]).unwrap();
    let error = block_on(device.sync()).unwrap_err();
    assert!(error.message().contains("own kernel"), "{error}");
    // What comes after works.
    let x = context.tensor(&HostTensor::f32(&[4], &[1., 2., 3., 4.])).unwrap();
    let got = block_on(context.readback_one(&x)).unwrap();
    assert_eq!(got.to_f32().unwrap(), [1., 2., 3., 4.]);
}

#[test]
fn what_memory_has_no_room_for_is_told() {
    let context = cpu();
    let error = block_on(context.device().attempt("a lot", || context.device().lasting_buffer(1 << 60, "a lot")));
    assert_eq!(error.err().map(|error| error.code()), Some(Code::OutOfMemory));
    assert!(block_on(context.device().sync()).is_ok(), "nobody else hears of it");
}

#[test]
fn a_destroyed_device_says_so() {
    let context = cpu();
    let x = context.tensor(&HostTensor::f32(&[2], &[1., 2.])).unwrap();
    let reading = context.start_readback(&[(&x, 0..2)]).unwrap();
    context.device().destroy();
    assert!(block_on(reading.bytes()).is_err());
    assert_eq!(context.tensor(&HostTensor::f32(&[1], &[1.])).err().map(|error| error.code()), Some(Code::Disposed));
    context.device().destroy();
}
