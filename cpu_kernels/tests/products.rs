//! Products with weights against f64.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

mod support;

use rillm_cpu_kernels::{Format, GroupQuants, Groups, Mismatch, Weights, dequantize, mat_mul, mat_vec};
use support::{Rng, compare, formats, products};

/// Rows, columns in blocks (of 32 weights for floats), tokens.
const SHAPES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (0, 1, 2),
    (3, 2, 0),
    (7, 3, 1),
    (13, 1, 2),
    (8, 5, 3),
    (17, 2, 5),
    (4, 33, 4),
    (31, 7, 11),
    (9, 67, 2),
    (5, 131, 3),
    (64, 4, 37),
];

#[test]
fn products_are_those_of_f64() {
    let mut rng = Rng(1);
    for known in formats() {
        let (block_size, _) = known.format.block();
        let mut worst: f64 = 0.0;
        for (rows, blocks, tokens) in SHAPES {
            let columns = match block_size {
                // No multiple of a piece, unless by chance.
                1 => blocks * 32 - rng.below(32),
                256 => blocks.min(9) * 256,
                size => blocks * size,
            };
            let bytes = known.matrix(rows, columns, &mut rng);
            let x = rng.floats(tokens * columns);
            let weights = Weights::new(known.format, &bytes, rows, columns).unwrap();
            let wanted = products(&known.dequantized(&bytes), rows, columns, &x, tokens);
            let what = format!("{} [{rows}, {columns}] for {tokens}", known.name);
            let mut got = vec![f32::NAN; tokens * rows];
            mat_mul(&weights, tokens, &x, &mut got).unwrap();
            worst = worst.max(compare(&what, &got, &wanted, 1e-6));
            for (token, wanted) in wanted.chunks(rows.max(1)).enumerate() {
                let mut got = vec![f32::NAN; rows];
                mat_vec(&weights, &x[token * columns..][..columns], &mut got).unwrap();
                worst = worst.max(compare(&what, &got, wanted, 1e-6));
            }
        }
        println!("{}: off by {worst:.1e} at most", known.name);
    }
}

#[test]
fn activations_that_are_large_small_or_of_one_sign_lose_nothing() {
    let mut rng = Rng(2);
    for known in formats() {
        let (rows, columns, tokens) = (5, 768, 2);
        let bytes = known.matrix(rows, columns, &mut rng);
        let weights = Weights::new(known.format, &bytes, rows, columns).unwrap();
        let dequantized = known.dequantized(&bytes);
        for factor in [1e-25, 1e-6, 1e6, 1e25] {
            let mut x = rng.floats(tokens * columns);
            // An outlier, as models have them, and a token without signs.
            x.iter_mut().for_each(|x| *x *= factor);
            x[5] *= 1000.0;
            x[columns..].iter_mut().for_each(|x| *x = x.abs());
            let wanted = products(&dequantized, rows, columns, &x, tokens);
            let mut got = vec![f32::NAN; tokens * rows];
            mat_mul(&weights, tokens, &x, &mut got).unwrap();
            compare(&format!("{}, times {factor}", known.name), &got, &wanted, 1e-6);
            mat_vec(&weights, &x[..columns], &mut got[..rows]).unwrap();
            compare(&format!("{}, times {factor}, alone", known.name), &got[..rows], &wanted[..rows], 1e-6);
        }
    }
}

#[test]
fn floats_of_weights_are_those_of_the_formulas() {
    let mut rng = Rng(3);
    for known in formats() {
        let (rows, columns) = (3, 768);
        let bytes = known.matrix(rows, columns, &mut rng);
        let weights = Weights::new(known.format, &bytes, rows, columns).unwrap();
        let mut got = vec![f32::NAN; rows * columns];
        dequantize(&weights, &mut got).unwrap();
        for (at, (got, wanted)) in got.iter().zip(known.dequantized(&bytes)).enumerate() {
            let most = 1e-6 * wanted.abs().max(0.5);
            assert!((f64::from(*got) - wanted).abs() <= most, "{}: {got} is not {wanted} at {at}", known.name);
        }
    }
}

#[test]
fn every_f16_is_the_float_it_should_be() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let mut got = vec![0f32; halves.len()];
    dequantize(&Weights::new(Format::F16, &bytes, 256, 256).unwrap(), &mut got).unwrap();
    // Scales of blocks take another way: with a quant of one they are the first weight.
    let blocks: Vec<u8> = halves
        .iter()
        .flat_map(|half| {
            let mut block = [0u8; 34];
            block[..2].copy_from_slice(&half.to_le_bytes());
            block[2] = 1;
            block
        })
        .collect();
    let weights = Weights::new(Format::Q8_0, &blocks, halves.len(), 32).unwrap();
    let mut scaled = vec![0f32; halves.len() * 32];
    dequantize(&weights, &mut scaled).unwrap();
    for (half, got) in halves.into_iter().zip(got.into_iter().zip(scaled.into_iter().step_by(32))) {
        let wanted = half::f16::from_bits(half).to_f32();
        for got in [got.0, got.1] {
            assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(), "{half:#06x}: {got}");
        }
    }
}

#[test]
fn shares_of_rows_give_what_all_rows_give() {
    let mut rng = Rng(4);
    for known in formats() {
        let (rows, columns, tokens) = (29, 768, 5);
        let bytes = known.matrix(rows, columns, &mut rng);
        let weights = Weights::new(known.format, &bytes, rows, columns).unwrap();
        let x = rng.floats(tokens * columns);
        let mut all = vec![f32::NAN; tokens * rows];
        mat_mul(&weights, tokens, &x, &mut all).unwrap();
        for range in [0..29, 0..1, 3..11, 16..29, 28..29, 7..7, 29..29] {
            let share = weights.rows(range.clone()).unwrap();
            let mut got = vec![f32::NAN; tokens * range.len()];
            mat_mul(&share, tokens, &x, &mut got).unwrap();
            for token in 0..tokens {
                let all = &all[token * rows..][range.clone()];
                let got = &got[token * range.len()..][..range.len()];
                let same = all.iter().zip(got).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0));
                assert!(same, "{}: {range:?} of token {token}", known.name);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let bytes = [0u8; 36];
    let refused = |format, rows, columns| Weights::new(format, &bytes, rows, columns).err();
    assert_eq!(refused(Format::Q4_0, 2, 32), None);
    assert!(refused(Format::Q4_0, 1, 32).is_some() && refused(Format::Q4_0, 3, 32).is_some());
    assert!(refused(Format::Q4_0, 1, 65).is_some() && refused(Format::Q4_K, 1, 32).is_some());
    assert!(refused(Format::F32, usize::MAX, usize::MAX / 4).is_some());

    let weights = Weights::new(Format::Q4_0, &bytes, 2, 32).unwrap();
    assert_eq!(weights.shape(), (2, 32));
    for range in [0..3, 3..3, usize::MAX - 1..usize::MAX] {
        assert!(weights.rows(range).is_err());
    }
    #[allow(clippy::reversed_empty_ranges, reason = "it must be refused")]
    let reversed = weights.rows(2..1);
    assert!(reversed.is_err());
    let x = [0.0; 64];
    let mut out = [0.0; 4];
    assert_eq!(
        mat_vec(&weights, &x[..31], &mut out[..2]),
        Err(Mismatch { what: "activations of a token", expected: 32, found: 31 })
    );
    assert!(mat_vec(&weights, &x[..32], &mut out[..1]).is_err());
    assert!(mat_mul(&weights, 2, &x, &mut out[..3]).is_err() && mat_mul(&weights, 1, &x, &mut out).is_err());
    assert!(mat_mul(&weights, usize::MAX, &x, &mut out).is_err());
    assert!(dequantize(&weights, &mut out).is_err());
    assert_eq!(mat_mul(&weights, 2, &x, &mut out), Ok(()));
}

#[test]
fn groups_that_are_no_whole_pieces_have_no_rows() {
    for columns in [0, 1, 33, 48] {
        let groups = Groups { columns, quants: GroupQuants::Bytes, scale_and_offset: |_| (1.0, 0.0) };
        let format = Format::Groups(groups);
        assert_eq!(format.row_bytes(columns * 2), None, "{columns}");
        assert!(Weights::new(format, &[], 0, columns).is_err(), "{columns}");
    }
}

#[test]
fn floats_of_eight_bits_are_none_where_they_say_so() {
    let groups = Groups { columns: 32, quants: GroupQuants::Fp8, scale_and_offset: |_| (1.0, 0.0) };
    let all: Vec<u8> = (0..=255).collect();
    let bytes: Vec<u8> = all.chunks(32).flat_map(|group| [group, &[0; 4]].concat()).collect();
    let weights = Weights::new(Format::Groups(groups), &bytes, 1, 256).unwrap();
    let mut out = [0.0; 256];
    dequantize(&weights, &mut out).unwrap();
    for (byte, float) in out.iter().enumerate() {
        assert_eq!(float.is_nan(), byte & 127 == 127, "{byte}");
        assert_eq!(float.is_sign_negative(), byte > 127, "{byte}");
    }
    assert_eq!([out[1], out[8], out[0x38], out[0x7e]], [1.0 / 512.0, 1.0 / 64.0, 1.0, 448.0]);
}
