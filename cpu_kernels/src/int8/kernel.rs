//! The products.

use std::ops::Range;

use super::activations::{Activation, Native, Quantized};
use super::dots::Dots;
#[cfg(target_feature = "relaxed-simd")]
use super::dots::{Bytes, Instruction, Int8, Pairs, Unsigned, instruction};
use super::pack::{GROUP, Packed, with_record};
use super::records::{Nibbles, NibblesOffset, PARTS, Record, Signed, UnsignedHalves, UnsignedOffset};
use crate::blocks::{Block, PIECE, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use crate::format::{Format, Mismatch, expect};
use crate::simd::{F32x4, I32x4};

/// The product of each row with each token's activations, written to `out` [tokens, rows].
pub fn mat_mul_int8<D: Dots>(weights: &Packed<'_>, x: &Quantized<D>, out: &mut [f32]) -> Result<(), Mismatch> {
    check(weights, x, out)?;
    multiply::<D>(weights, x.pieces(), out);
    Ok(())
}

fn check<D: Dots>(weights: &Packed<'_>, x: &Quantized<D>, out: &[f32]) -> Result<(), Mismatch> {
    expect("columns of activations", weights.columns, x.columns)?;
    expect("products of tokens", x.tokens.saturating_mul(weights.rows), out.len())
}

fn multiply<D: Dots>(weights: &Packed<'_>, x: &Pieces<D>, out: &mut [f32]) {
    with_record!(weights.format, groups<D>, (weights, x, out));
}

/// The same in the way that is fast here. Not generic, so that it is compiled with this crate and optimised as it is, not as its callers.
pub fn mat_mul_packed(weights: &Packed<'_>, x: &Quantized, out: &mut [f32]) -> Result<(), Mismatch> {
    check(weights, x, out)?;
    let x = x.pieces();
    #[cfg(target_feature = "relaxed-simd")]
    match (instruction(), weights.format) {
        (Instruction::OfPairs, _) => multiply::<Pairs>(weights, x, out),
        (Instruction::Unsigned, Format::Q8_0) => groups::<Signed, Q8_0, Bytes<Unsigned>>((weights, x, out)),
        (Instruction::Int8, Format::Q8_0) => groups::<Signed, Q8_0, Bytes<Int8>>((weights, x, out)),
        _ => multiply::<Native>(weights, x, out),
    }
    #[cfg(not(target_feature = "relaxed-simd"))]
    multiply::<Native>(weights, x, out);
    Ok(())
}

type Pieces<D> = [Activation<<D as Dots>::Quads>];

/// Tokens that share what is unpacked of the weights. With eight rows their sums fit into the registers.
const TOKENS: usize = 4;

fn groups<R: Record, B: Block, D: Dots>((weights, x, out): (&Packed<'_>, &Pieces<D>, &mut [f32])) {
    if weights.columns == 0 {
        return out.fill(0.0);
    }
    if weights.rows == 0 {
        return;
    }
    let tokens: Vec<&Pieces<D>> = x.chunks_exact(weights.columns / PIECE).collect();
    let of_tile = (TILE_BYTES / weights.group_bytes).max(1);
    for (tile, groups) in weights.bytes.chunks(weights.group_bytes * of_tile).enumerate() {
        let outputs = out.chunks_mut(weights.rows * TOKENS);
        for (tokens, out) in tokens.chunks(TOKENS).zip(outputs) {
            for (index, records) in groups.chunks_exact(weights.group_bytes).enumerate() {
                let records: &[R] = bytemuck::cast_slice(records);
                let first = (tile * of_tile + index) * GROUP;
                let rows = first..weights.rows.min(first + GROUP);
                match tokens {
                    [a, b, c, d] => put(times::<D, R, 4>(records, [a, b, c, d]), weights.rows, &rows, out),
                    [a, b, c] => put(times::<D, R, 3>(records, [a, b, c]), weights.rows, &rows, out),
                    [a, b] => put(times::<D, R, 2>(records, [a, b]), weights.rows, &rows, out),
                    [a] => put(times::<D, R, 1>(records, [a]), weights.rows, &rows, out),
                    _ => {}
                }
            }
        }
    }
}

/// Bytes of groups that all tokens are multiplied with before the next ones: they stay in the second cache, and the activations of `TOKENS`
/// tokens meanwhile in the first.
const TILE_BYTES: usize = 128 << 10;

/// Writes the products of some rows with some tokens.
#[inline(always)]
fn put<const T: usize>(sums: [[F32x4; PARTS]; T], stride: usize, rows: &Range<usize>, out: &mut [f32]) {
    for (sums, out) in sums.into_iter().zip(out.chunks_mut(stride)) {
        let sums: [f32; GROUP] = bytemuck::cast(sums.map(F32x4::lanes));
        if let Some(out) = out.get_mut(rows.clone()) {
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// The products of a group with some tokens. A function of its own for each format and number of tokens: what a browser compiles at once is
/// small, and has the registers for itself.
#[inline(never)]
fn times<D: Dots, R: Record, const T: usize>(records: &[R], x: [&Pieces<D>; T]) -> [[F32x4; PARTS]; T] {
    let x = x.map(|x| &x[..records.len()]);
    let mut totals = [[F32x4::splat(0.0); PARTS]; T];
    for (at, record) in records.iter().enumerate() {
        let pieces = x.map(|x| &x[at]);
        let quads = pieces.map(|piece| &piece.quads);
        for half in 0..if R::HALVES { 2 } else { 1 } {
            let mut sums = pieces.map(|piece| {
                let sum = if R::HALVES { piece.sums[half] } else { piece.sums[0] + piece.sums[1] };
                [I32x4::splat(-R::zero::<D>() * sum); PARTS]
            });
            record.add::<D, T>(half, quads, &mut sums);
            let scales = record.scales(half).map(|scales| F32x4::from_bytes(&scales));
            for t in 0..T {
                let scale = F32x4::splat(pieces[t].scale);
                for part in 0..PARTS {
                    totals[t][part] = sums[t][part].to_f32().mul_add(scales[part].mul(scale), totals[t][part]);
                }
            }
        }
        if R::OFFSETS {
            let offsets = record.offsets().map(|offsets| F32x4::from_bytes(&offsets));
            for t in 0..T {
                let sum = F32x4::splat(pieces[t].scale * (pieces[t].sums[0] + pieces[t].sums[1]) as f32);
                for part in 0..PARTS {
                    totals[t][part] = offsets[part].mul_add(sum, totals[t][part]);
                }
            }
        }
    }
    totals
}
