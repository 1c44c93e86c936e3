//! Products in integers against f64.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

mod support;

use half::f16;
use rillm_cpu_kernels::{
    Bytes, Dots, Format, Halves, Int8, Packed, Pairs, Places, Quantized, Unknown, Unsigned, Weights, mat_mul_int8,
    pack, round,
};
use support::{Known, Rng, compare, formats, products};

fn packed_formats() -> impl Iterator<Item = Known> {
    formats().into_iter().filter(|known| Packed::bytes(known.format, 1, 256).is_some())
}

fn packed(known: &Known, bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let mut packed = vec![0; Packed::bytes(known.format, rows, columns).unwrap()];
    pack(&Weights::new(known.format, bytes, rows, columns).unwrap(), 0, &mut packed).unwrap();
    packed
}

/// Activations as they are rounded: blocks of 32 with their largest magnitude divided by 127.
fn rounded(x: &[f32]) -> Vec<f32> {
    let round = |block: &[f32]| {
        let scale = block.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        block.iter().map(|x| scale * (x * inverse).round_ties_even()).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(round).collect()
}

fn multiplied<D: Dots>(weights: &Packed<'_>, x: &[f32], tokens: usize) -> Vec<f32> {
    let (rows, columns) = weights.shape();
    let mut out = vec![f32::NAN; tokens * rows];
    mat_mul_int8(weights, &Quantized::<D>::multiplied(x, tokens, columns).unwrap(), &mut out).unwrap();
    out
}

/// The products in all ways; first in those that know −128.
fn in_all_ways(weights: &Packed<'_>, x: &[f32], tokens: usize) -> [Vec<f32>; 5] {
    [
        multiplied::<Halves>(weights, x, tokens),
        multiplied::<Bytes<Unsigned>>(weights, x, tokens),
        multiplied::<Bytes<Int8>>(weights, x, tokens),
        multiplied::<Bytes<Unknown>>(weights, x, tokens),
        multiplied::<Pairs>(weights, x, tokens),
    ]
}

/// Rows, columns in units, tokens.
const SHAPES: [(usize, usize, usize); 10] = [
    (1, 1, 1),
    (0, 1, 2),
    (8, 2, 0),
    (7, 3, 1),
    (16, 1, 2),
    (8, 5, 3),
    (17, 2, 4),
    (23, 31, 5),
    (9, 13, 11),
    (65, 3, 37),
];

#[test]
fn the_formats_are_packed() {
    let names: Vec<_> = packed_formats().map(|known| known.name).collect();
    assert_eq!(names, ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"]);
}

#[test]
fn products_are_those_of_rounded_activations() {
    let mut rng = Rng(1);
    for known in packed_formats() {
        let unit = known.format.block().0;
        for (rows, units, tokens) in SHAPES {
            let columns = units.min(if unit > 32 { 9 } else { 99 }) * unit;
            let bytes = known.matrix(rows, columns, &mut rng);
            let packed = packed(&known, &bytes, rows, columns);
            let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
            // An outlier in each token.
            let mut x = rng.floats(tokens * columns);
            x.iter_mut().step_by(columns).for_each(|x| *x *= 50.0);
            let wanted = products(&known.dequantized(&bytes), rows, columns, &rounded(&x), tokens);
            let what = format!("{} [{rows}, {columns}] for {tokens}", known.name);
            let mut got = vec![f32::NAN; tokens * rows];
            mat_mul_int8(&weights, &Quantized::new(&x, tokens, columns).unwrap(), &mut got).unwrap();
            compare(&what, &got, &wanted, 1e-6);
            // All ways of multiplying give the same, but for −128, which the last ones can't negate.
            let ways = in_all_ways(&weights, &x, tokens);
            let exact = if known.name == "q8_0" { 3 } else { ways.len() };
            ways[..exact].iter().for_each(|way| assert_eq!(*way, got, "{what}"));
        }
    }
}

#[test]
fn int8_multiplied_as_signs_and_magnitudes_loses_nothing_but_the_lowest_number() {
    let mut rng = Rng(2);
    let known = packed_formats().find(|known| known.name == "q8_0").unwrap();
    let (rows, columns, tokens) = (19, 96, 5);
    let mut bytes = known.matrix(rows, columns, &mut rng);
    let x = rng.floats(tokens * columns);
    for lowest in [true, false] {
        for block in bytes.chunks_exact_mut(34) {
            block[2..].iter_mut().filter(|byte| **byte == 128).for_each(|byte| *byte = 129);
            if lowest {
                block[7] = 128;
            }
        }
        let packed = packed(&known, &bytes, rows, columns);
        let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
        let wanted = products(&known.dequantized(&bytes), rows, columns, &rounded(&x), tokens);
        let got = multiplied::<Bytes>(&weights, &x, tokens);
        let most = compare("q8_0 as bytes", &got, &wanted, if lowest { 1.0 / 128.0 } else { 1e-6 });
        assert_eq!(most > 1e-6, lowest);
    }
}

#[test]
fn the_largest_products_are_summed_without_loss() {
    for known in packed_formats() {
        let unit = known.format.block().0;
        // Every quant is the largest, and every activation, once with each sign.
        let mut rng = Rng(6);
        let mut bytes = known.matrix(8, unit, &mut rng);
        let from = match known.name {
            "q4_0" | "q8_0" => 2,
            "q4_1" => 4,
            "q5_0" => 2,
            "q5_1" => 4,
            "q4_k" | "q5_k" => 16,
            _ => 0,
        };
        let until = if known.name == "q6_k" { 192 } else { usize::MAX };
        for block in bytes.chunks_exact_mut(known.format.block().1) {
            let until = until.min(block.len());
            block[from..until].fill(if known.name == "q8_0" { 127 } else { 255 });
        }
        let packed = packed(&known, &bytes, 8, unit);
        let weights = Packed::new(known.format, &packed, 8, unit).unwrap();
        for sign in [1.0, -1.0] {
            let x = vec![127.0 * sign; unit];
            let wanted = products(&known.dequantized(&bytes), 8, unit, &x, 1);
            for got in in_all_ways(&weights, &x, 1) {
                compare(known.name, &got, &wanted, 1e-6);
            }
        }
    }
}

/// What activations are rounded to, by the products with a matrix that has a one in each row.
#[test]
fn activations_are_rounded_to_the_nearest() {
    let known = packed_formats().find(|known| known.name == "q8_0").unwrap();
    let row = |column: usize| {
        let quants = (0..32).map(move |at| u8::from(at == column));
        f16::ONE.to_le_bytes().into_iter().chain(quants)
    };
    let bytes: Vec<u8> = (0..32).flat_map(row).collect();
    let packed = packed(&known, &bytes, 32, 32);
    let weights = Packed::new(known.format, &packed, 32, 32).unwrap();
    // Halves between two numbers, the largest of both signs, and those that round to zero.
    let mut x: Vec<f32> = (0..32).map(|at| (at as f32 - 15.0) * 0.5).collect();
    (x[3], x[8]) = (127.0, -127.0);
    let mut tokens = vec![x.clone(), x.iter().map(|x| -x).collect(), vec![0.0; 32], vec![-3.0; 32]];
    tokens.push(x.iter().map(|x| x * 1e-36).collect());
    tokens.push(x.iter().map(|x| x * 1e36).collect());
    for x in tokens {
        let wanted = rounded(&x);
        in_all_ways(&weights, &x, 1).iter().for_each(|way| assert_eq!(*way, wanted));
    }
}

#[test]
fn rounded_activations_give_nearly_the_products_of_those_that_are_not() {
    let mut rng = Rng(3);
    for known in packed_formats() {
        let (rows, columns, tokens) = (16, 2048, 3);
        let bytes = known.matrix(rows, columns, &mut rng);
        let packed = packed(&known, &bytes, rows, columns);
        let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
        let x = rng.floats(tokens * columns);
        let mut got = vec![f32::NAN; tokens * rows];
        mat_mul_int8(&weights, &Quantized::new(&x, tokens, columns).unwrap(), &mut got).unwrap();
        let wanted = products(&known.dequantized(&bytes), rows, columns, &x, tokens);
        let most = compare(known.name, &got, &wanted, 1e-3);
        println!("{}: off by {most:.1e} of the terms at most", known.name);
    }
}

#[test]
fn rows_can_be_made_floats_again() {
    let mut rng = Rng(4);
    for known in packed_formats() {
        let (rows, columns) = (11, 512);
        let bytes = known.matrix(rows, columns, &mut rng);
        let packed = packed(&known, &bytes, rows, columns);
        let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
        let wanted = known.dequantized(&bytes);
        for row in 0..rows {
            let mut got = vec![f32::NAN; columns];
            weights.dequantize_row(row, &mut got).unwrap();
            for (got, wanted) in got.iter().zip(&wanted[row * columns..]) {
                assert!((f64::from(*got) - wanted).abs() < 1e-6, "{}: {got} is not {wanted} in row {row}", known.name);
            }
        }
        assert!(weights.dequantize_row(rows, &mut vec![0.0; columns]).is_err());
        assert!(weights.dequantize_row(0, &mut vec![0.0; columns - 1]).is_err());
    }
}

#[test]
fn shares_of_groups_give_what_all_rows_give() {
    let mut rng = Rng(5);
    for known in packed_formats() {
        let (rows, columns, tokens) = (37, 256, 6);
        let bytes = known.matrix(rows, columns, &mut rng);
        let packed = packed(&known, &bytes, rows, columns);
        let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
        let x = Quantized::new(&rng.floats(tokens * columns), tokens, columns).unwrap();
        let mut all = vec![f32::NAN; tokens * rows];
        mat_mul_int8(&weights, &x, &mut all).unwrap();
        for range in [0..8, 8..24, 32..37, 0..37, 16..16] {
            let share = weights.rows(range.clone()).unwrap();
            let mut got = vec![f32::NAN; tokens * range.len()];
            mat_mul_int8(&share, &x, &mut got).unwrap();
            for token in 0..tokens {
                assert_eq!(&got[token * range.len()..][..range.len()], &all[token * rows..][range.clone()]);
            }
        }
        for range in [1..8, 0..9, 32..36, 32..40, 40..40] {
            assert!(weights.rows(range.clone()).is_err(), "{range:?}");
        }
    }
}

#[test]
fn activations_are_rounded_in_any_parts() {
    let mut rng = Rng(8);
    let columns = 5 * 32;
    let known = packed_formats().find(|known| known.name == "q8_0").unwrap();
    let bytes = known.matrix(9, columns, &mut rng);
    let packed = packed(&known, &bytes, 9, columns);
    let weights = Packed::new(known.format, &packed, 9, columns).unwrap();
    for tokens in [0, 1, 3, 4, 5, 8, 11] {
        let x = rng.floats(tokens * columns);
        let count = tokens * columns / 32;
        let places: Vec<_> = Places::new(tokens, columns, 0).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let all: Vec<_> = (0..tokens).flat_map(|token| (0..columns).step_by(32).map(move |at| (token, at))).collect();
        assert_eq!(sorted, all);
        for place in 0..count + 2 {
            assert!(
                Places::new(tokens, columns, place).eq(places.iter().skip(place).copied()),
                "{tokens} from {place}"
            );
        }
        // After other activations.
        let mut rounded = Quantized::new(&rng.floats(13 * 256), 13, 256).unwrap();
        let room = rounded.make_room(tokens, columns).unwrap();
        for (index, room) in room.chunks_mut(7).enumerate() {
            round(&x, [tokens, columns], index * 7, room).unwrap();
        }
        let [mut got, mut expected] = [0; 2].map(|_| vec![f32::NAN; tokens * 9]);
        mat_mul_int8(&weights, &rounded, &mut got).unwrap();
        mat_mul_int8(&weights, &Quantized::new(&x, tokens, columns).unwrap(), &mut expected).unwrap();
        assert_eq!(got, expected);
        let room = rounded.make_room(tokens + 1, columns).unwrap();
        assert!(round(&x, [tokens, columns], 0, &mut room[..count + 1]).is_err());
        assert!(round(&x, [tokens, columns], usize::MAX, &mut room[..1]).is_err());
        assert!(round(&x, [tokens + 1, columns], 0, room).is_err());
    }
    assert!(round(&[0.0; 66], [2, 33], 0, &mut []).is_err());
    assert_eq!(Places::new(3, 0, 0).count() + Places::new(3, 31, 0).count() + Places::new(0, 32, 0).count(), 0);
}

#[test]
fn rows_are_packed_in_any_order() {
    let mut rng = Rng(7);
    for known in packed_formats() {
        let (rows, columns) = (37, 256);
        let bytes = known.matrix(rows, columns, &mut rng);
        let row_bytes = bytes.len() / rows;
        let whole = packed(&known, &bytes, rows, columns);
        let mut pieces = vec![0; whole.len()];
        for range in [30..37, 3..5, 5..5, 0..3, 5..30] {
            let part = &bytes[range.start * row_bytes..range.end * row_bytes];
            let weights = Weights::new(known.format, part, range.len(), columns).unwrap();
            pack(&weights, range.start, &mut pieces).unwrap();
        }
        assert!(whole == pieces, "{}", known.name);
        let last = Weights::new(known.format, &bytes[..row_bytes], 1, columns).unwrap();
        assert!(pack(&last, 40, &mut pieces).is_err() && pack(&last, usize::MAX, &mut pieces).is_err());
    }
}

#[test]
fn what_is_no_number_stays_none() {
    let mut rng = Rng(6);
    for known in packed_formats() {
        let (rows, columns) = (9, 256);
        let bytes = known.matrix(rows, columns, &mut rng);
        let packed = packed(&known, &bytes, rows, columns);
        let weights = Packed::new(known.format, &packed, rows, columns).unwrap();
        for (number, at) in [(f32::NAN, 3), (f32::NAN, 0), (f32::INFINITY, 100), (f32::NEG_INFINITY, 255)] {
            let mut x = rng.floats(columns);
            x[at] = number;
            let mut got = vec![0.0; rows];
            mat_mul_int8(&weights, &Quantized::new(&x, 1, columns).unwrap(), &mut got).unwrap();
            assert!(got.iter().all(|got| !got.is_finite()), "{}: {number} at {at} gives {got:?}", known.name);
        }
        let mut got = vec![f32::NAN; rows];
        for small in [0.0, 1e-40, -1e-45] {
            mat_mul_int8(&weights, &Quantized::new(&vec![small; columns], 1, columns).unwrap(), &mut got).unwrap();
            assert!(got.iter().all(|got| got.abs() < 1e-30), "{}: {small} gives {got:?}", known.name);
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert_eq!(Packed::bytes(Format::F16, 8, 32), None);
    assert_eq!(Packed::bytes(Format::Q4_0, 8, 33), None);
    assert_eq!(Packed::bytes(Format::Q4_0, usize::MAX, 64), None);
    assert_eq!(Packed::bytes(Format::Q4_0, 9, 64), Some(2 * 2 * 160));
    let file = [0; 36];
    let weights = Weights::new(Format::Q4_0, &file, 1, 64).unwrap();
    assert!(pack(&weights, 0, &mut [0; 319]).is_err());
    assert!(Packed::new(Format::Q4_0, &[0; 319], 1, 64).is_err() && Packed::new(Format::BF16, &[], 0, 64).is_err());
    assert!(Quantized::new(&[0.0; 66], 2, 33).is_err() && Quantized::new(&[0.0; 64], 1, 32).is_err());
    let mut bytes = [0; 320];
    pack(&weights, 0, &mut bytes).unwrap();
    let weights = Packed::new(Format::Q4_0, &bytes, 1, 64).unwrap();
    let x = Quantized::new(&[0.0; 64], 1, 64).unwrap();
    assert!(mat_mul_int8(&weights, &x, &mut [0.0; 2]).is_err());
    let short = Quantized::new(&[0.0; 32], 1, 32).unwrap();
    assert!(mat_mul_int8(&weights, &short, &mut [0.0; 1]).is_err());
    assert_eq!(mat_mul_int8(&weights, &x, &mut [0.0; 1]), Ok(()));
}
