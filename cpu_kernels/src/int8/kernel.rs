//! The products.

use std::hint::black_box;

use super::activations::{Activation, Native, Quantized, TOKENS};
#[cfg(target_feature = "relaxed-simd")]
use super::dots::{Bytes, Instruction, Int8, Pairs, Unsigned, instruction};
use super::dots::{Dots, QUADS};
use super::pack::{GROUP, Packed, with_record};
use super::records::{Nibbles, NibblesOffset, PARTS, Record, Signed, UnsignedHalves, UnsignedOffset};
use crate::blocks::{Block, PIECE, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use crate::format::{Format, Mismatch, expect};
use crate::simd::{F32x4, I32x4};

/// The product of each row with each token's activations, written to `out` [tokens, rows].
pub fn mat_mul_int8<D: Dots>(weights: &Packed<'_>, x: &Quantized<D>, out: &mut [f32]) -> Result<(), Mismatch> {
    check(weights, x, out)?;
    if weights.columns == 0 {
        out.fill(0.0);
    }
    multiply::<D, _>(weights, x.pieces(), &mut to(out, weights.rows));
    Ok(())
}

fn check<D: Dots>(weights: &Packed<'_>, x: &Quantized<D>, out: &[f32]) -> Result<(), Mismatch> {
    expect("columns of activations", weights.columns, x.columns)?;
    expect("products of tokens", x.tokens.saturating_mul(weights.rows), out.len())
}

/// Takes the products of a token with the rows from one on.
trait Take: FnMut(usize, usize, &[f32]) {}
impl<F: FnMut(usize, usize, &[f32])> Take for F {}

/// Writes them to `out` [tokens, rows].
fn to(out: &mut [f32], rows: usize) -> impl Take {
    move |token, row, products| {
        if let Some(out) = out.get_mut(token * rows + row..).and_then(|out| out.get_mut(..products.len())) {
            out.copy_from_slice(products);
        }
    }
}

fn multiply<D: Dots, F: Take>(weights: &Packed<'_>, x: &Pieces<D>, take: &mut F) {
    with_record!(weights.format, groups<D, F>, (weights, x, take));
}

/// The same in the way that is fast here. Not generic, so that it is compiled with this crate and optimised as it is, not as its callers.
pub fn mat_mul_packed(weights: &Packed<'_>, x: &Quantized, out: &mut [f32]) -> Result<(), Mismatch> {
    check(weights, x, out)?;
    if weights.columns == 0 {
        out.fill(0.0);
    }
    natively(weights, x, &mut to(out, weights.rows));
    Ok(())
}

/// The same for a caller that puts products where they belong: it gets those of a token with up to `GROUP` rows, of which the first is named. An
/// error without columns, of which no product would be given, and if there are not `tokens` tokens.
pub fn products_packed(
    weights: &Packed<'_>,
    x: &Quantized,
    tokens: usize,
    mut take: impl FnMut(usize, usize, &[f32]),
) -> Result<(), Mismatch> {
    expect("columns of activations", weights.columns, x.columns)?;
    expect("tokens of activations", tokens, x.tokens)?;
    expect("columns of products", weights.columns.max(PIECE), weights.columns)?;
    natively(weights, x, &mut take);
    Ok(())
}

fn natively<F: Take>(weights: &Packed<'_>, x: &Quantized, take: &mut F) {
    let x = x.pieces();
    #[cfg(target_feature = "relaxed-simd")]
    match (instruction(), weights.format) {
        (Instruction::OfPairs, _) => multiply::<Pairs, F>(weights, x, take),
        (Instruction::Unsigned, Format::Q8_0) => groups::<Signed, Q8_0, Bytes<Unsigned>, F>((weights, x, take)),
        (Instruction::Int8, Format::Q8_0) => groups::<Signed, Q8_0, Bytes<Int8>, F>((weights, x, take)),
        _ => multiply::<Native, F>(weights, x, take),
    }
    #[cfg(not(target_feature = "relaxed-simd"))]
    multiply::<Native, F>(weights, x, take);
}

type Pieces<D> = [Activation<<D as Dots>::Quads>];

fn groups<R: Record, B: Block, D: Dots, F: Take>((weights, x, take): (&Packed<'_>, &Pieces<D>, &mut F)) {
    let pieces = weights.columns / PIECE;
    if pieces == 0 || weights.rows == 0 {
        return;
    }
    let of_tile = (TILE_BYTES / weights.group_bytes).max(1);
    for (tile, groups) in weights.bytes.chunks(weights.group_bytes * of_tile).enumerate() {
        for (index, tokens) in x.chunks(pieces * TOKENS).enumerate() {
            let token = index * TOKENS;
            for (index, records) in groups.chunks_exact(weights.group_bytes).enumerate() {
                let records: &[R] = bytemuck::cast_slice(records);
                let row = (tile * of_tile + index) * GROUP;
                let count = GROUP.min(weights.rows.saturating_sub(row));
                match tokens.len() / pieces {
                    TOKENS => give(&times::<D, R, TOKENS>(records, tokens), token, row, count, take),
                    3 => give(&times::<D, R, 3>(records, tokens), token, row, count, take),
                    2 => give(&times::<D, R, 2>(records, tokens), token, row, count, take),
                    1 => give(&times::<D, R, 1>(records, tokens), token, row, count, take),
                    _ => {}
                }
            }
        }
    }
}

/// Bytes of groups that all tokens are multiplied with before the next ones: they stay in the second cache, and the activations of `TOKENS`
/// tokens meanwhile in the first.
const TILE_BYTES: usize = 128 << 10;

/// Gives the products of `count` rows from one on with some tokens.
#[inline(always)]
fn give<const T: usize, F: Take>(sums: &[[F32x4; PARTS]; T], token: usize, row: usize, count: usize, take: &mut F) {
    for (token, sums) in (token..).zip(sums) {
        let sums: &[f32; GROUP] = bytemuck::cast_ref(sums);
        // Of a whole group the length is known where it is compiled: two stores in place of a copy.
        match count {
            GROUP => take(token, row, sums),
            _ => take(token, row, &sums[..count]),
        }
    }
}

/// The products of a group with some tokens. A function of its own for each format and number of tokens: what a browser compiles at once is
/// small, and has the registers for itself.
#[inline(never)]
fn times<D: Dots, R: Record, const T: usize>(records: &[R], x: &Pieces<D>) -> [[F32x4; PARTS]; T] {
    let (x, _) = x.as_chunks::<T>();
    let mut totals = [[F32x4::splat(0.0); PARTS]; T];
    // If the compiler knew how many there are, it would take all quads of a token before the next token, and move weights to the stack and back for each.
    let steps = black_box(QUADS);
    for (record, pieces) in records.iter().zip(x) {
        let pieces = pieces.each_ref();
        let quads = pieces.map(|piece| &piece.quads);
        for half in 0..if R::HALVES { 2 } else { 1 } {
            let mut sums = pieces.map(|piece| {
                let sum = if R::HALVES { piece.sums[half] } else { piece.sum };
                [I32x4::splat(-R::zero::<D>() * sum); PARTS]
            });
            record.add::<D, T>(half, steps, quads, &mut sums);
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
                let sum = F32x4::splat(pieces[t].scale * pieces[t].sum as f32);
                for part in 0..PARTS {
                    totals[t][part] = offsets[part].mul_add(sum, totals[t][part]);
                }
            }
        }
    }
    totals
}
