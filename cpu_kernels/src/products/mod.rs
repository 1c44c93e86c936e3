//! Products with weights as they stand in files, with activations and sums in f32.

mod activations;
mod groups;
mod source;

use std::marker::PhantomData;

use activations::{Activations, VECTORS, restored};
use groups::{Bytes, Codes, Fp8, Nibbles, Rows};
use source::{BF16, Blocks, F16, F32, Source};

use crate::blocks::{PIECE, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use crate::format::{Format, GroupQuants, Mismatch, Weights, expect};
use crate::simd::F32x4;

/// Calls a generic function with the `Source` of a format.
macro_rules! with_source {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            Format::F32 => $function(&F32, $($argument),*),
            Format::F16 => $function(&F16, $($argument),*),
            Format::BF16 => $function(&BF16, $($argument),*),
            Format::Q4_0 => $function(&Blocks::<Q4_0>(PhantomData), $($argument),*),
            Format::Q4_1 => $function(&Blocks::<Q4_1>(PhantomData), $($argument),*),
            Format::Q5_0 => $function(&Blocks::<Q5_0>(PhantomData), $($argument),*),
            Format::Q5_1 => $function(&Blocks::<Q5_1>(PhantomData), $($argument),*),
            Format::Q8_0 => $function(&Blocks::<Q8_0>(PhantomData), $($argument),*),
            Format::Q4_K => $function(&Blocks::<Q4_K>(PhantomData), $($argument),*),
            Format::Q5_K => $function(&Blocks::<Q5_K>(PhantomData), $($argument),*),
            Format::Q6_K => $function(&Blocks::<Q6_K>(PhantomData), $($argument),*),
            Format::Groups(groups) => match groups.quants {
                GroupQuants::Nibbles => $function(&Rows { groups, quants: Nibbles }, $($argument),*),
                GroupQuants::Bytes => $function(&Rows { groups, quants: Bytes }, $($argument),*),
                GroupQuants::Fp8 => $function(&Rows { groups, quants: Fp8 }, $($argument),*),
                GroupQuants::Codes(table) => $function(&Rows { groups, quants: Codes(table) }, $($argument),*),
            },
            Format::Other(other) => $function(&other, $($argument),*),
        }
    };
}

/// Makes floats of all weights, written to `out` [rows, columns].
pub fn dequantize(weights: &Weights<'_>, out: &mut [f32]) -> Result<(), Mismatch> {
    expect("floats of a matrix", weights.rows.saturating_mul(weights.columns), out.len())?;
    if weights.columns > 0 {
        with_source!(weights.format, restore_rows(weights, out));
    }
    Ok(())
}

#[inline(never)]
fn restore_rows<S: Source>(source: &S, weights: &Weights<'_>, out: &mut [f32]) {
    let mut vectors = vec![[F32x4::splat(0.0); VECTORS]; weights.columns.div_ceil(PIECE)];
    for (row, out) in weights.bytes.chunks_exact(weights.row_bytes).zip(out.chunks_exact_mut(weights.columns)) {
        source.unpack(row, 0, &mut vectors);
        for (out, vectors) in out.chunks_mut(PIECE).zip(&vectors) {
            out.copy_from_slice(&restored(vectors, S::ORDER)[..out.len()]);
        }
    }
}

/// The product of each row with `x` [columns], written to `out` [rows].
pub fn mat_vec(weights: &Weights<'_>, x: &[f32], out: &mut [f32]) -> Result<(), Mismatch> {
    expect("activations of a token", weights.columns, x.len())?;
    expect("products of a token", weights.rows, out.len())?;
    with_source!(weights.format, rows_dot(weights, x, out))
}

#[inline(never)]
fn rows_dot<S: Source>(source: &S, weights: &Weights<'_>, x: &[f32], out: &mut [f32]) -> Result<(), Mismatch> {
    let x = Activations::new(x, weights.columns, S::ORDER, S::SUMS)?;
    if weights.columns == 0 {
        out.fill(0.0);
        return Ok(());
    }
    for (row, out) in weights.bytes.chunks_exact(weights.row_bytes).zip(out) {
        *out = source.dot(row, &x.vectors, &x.sums);
    }
    Ok(())
}

/// The product of each row with each token's activations `x` [tokens, columns], written to `out` [tokens, rows].
pub fn mat_mul(weights: &Weights<'_>, tokens: usize, x: &[f32], out: &mut [f32]) -> Result<(), Mismatch> {
    expect("activations of tokens", tokens.saturating_mul(weights.columns), x.len())?;
    expect("products of tokens", tokens.saturating_mul(weights.rows), out.len())?;
    if tokens == 1 {
        return mat_vec(weights, x, out);
    }
    with_source!(weights.format, tiles_times_tokens(weights, x, out))
}

/// Rows that become floats at once: with the columns below they fit into the first cache.
const TILE_ROWS: usize = 8;
/// Pieces of each of those rows.
const TILE_PIECES: usize = 32;

#[inline(never)]
fn tiles_times_tokens<S: Source>(
    source: &S,
    weights: &Weights<'_>,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), Mismatch> {
    out.fill(0.0);
    if weights.columns == 0 || weights.rows == 0 {
        return Ok(());
    }
    let x = Activations::new(x, weights.columns, S::ORDER, false)?;
    let width = TILE_PIECES.max(source.pieces_at_once()).min(x.pieces);
    let mut tile = vec![[F32x4::splat(0.0); VECTORS]; TILE_ROWS * width];
    for (index, rows) in weights.bytes.chunks(TILE_ROWS * weights.row_bytes).enumerate() {
        for first in (0..x.pieces).step_by(width) {
            let width = width.min(x.pieces - first);
            let rows = rows.chunks_exact(weights.row_bytes);
            let count = rows.len();
            for (row, tile) in rows.zip(tile.chunks_exact_mut(width)) {
                source.unpack(row, first, tile);
            }
            let tile = &tile[..count * width];
            let mut outputs = out.chunks_exact_mut(weights.rows).map(|out| &mut out[index * TILE_ROWS..][..count]);
            let mut tokens = x.vectors.chunks_exact(x.pieces).map(|token| &token[first..first + width]);
            while let (Some(a), Some(out_a)) = (tokens.next(), outputs.next()) {
                match (tokens.next(), outputs.next()) {
                    (Some(b), Some(out_b)) => tile_times(tile, width, [a, b], [out_a, out_b]),
                    _ => tile_times(tile, width, [a], [out_a]),
                }
            }
        }
    }
    Ok(())
}

/// Adds the products of a tile's rows with some tokens. Not inlined, as what it calls: once for all formats is enough.
#[inline(never)]
fn tile_times<const T: usize>(
    tile: &[[F32x4; VECTORS]],
    width: usize,
    x: [&[[F32x4; VECTORS]]; T],
    mut out: [&mut [f32]; T],
) {
    let rows = tile.len() / width;
    let row = |at: usize| &tile[at * width..(at + 1) * width];
    let mut at = 0;
    while at + 4 <= rows {
        let sums = products([row(at), row(at + 1), row(at + 2), row(at + 3)], x);
        for (out, sums) in out.iter_mut().zip(sums) {
            for (out, sum) in out[at..at + 4].iter_mut().zip(sums) {
                *out += sum;
            }
        }
        at += 4;
    }
    for at in at..rows {
        for (out, [sum]) in out.iter_mut().zip(products([row(at)], x)) {
            out[at] += sum;
        }
    }
}

/// Of each token and row the product. All sums stay in registers.
#[inline(never)]
fn products<const R: usize, const T: usize>(w: [&[[F32x4; VECTORS]]; R], x: [&[[F32x4; VECTORS]]; T]) -> [[f32; R]; T] {
    let width = x[0].len();
    let (w, x) = (w.map(|w| &w[..width]), x.map(|x| &x[..width]));
    let mut sums = [[F32x4::splat(0.0); R]; T];
    for piece in 0..width {
        for vector in 0..VECTORS {
            for (sums, x) in sums.iter_mut().zip(&x) {
                let x = x[piece][vector];
                for (sum, w) in sums.iter_mut().zip(&w) {
                    *sum = w[piece][vector].mul_add(x, *sum);
                }
            }
        }
    }
    sums.map(|sums| sums.map(F32x4::sum))
}
