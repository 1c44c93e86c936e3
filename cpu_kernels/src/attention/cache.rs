//! Keys or values as they stand in a cache.

use crate::format::{Mismatch, expect};
use crate::half_floats::{f16, f16x8};
use crate::simd::U8x16;

/// Numbers of two blocks of `Cache::q8_0`, and their bytes.
const PAIR: usize = 64;
const PAIR_BYTES: usize = PAIR + 4;
const BLOCK: usize = 32;

#[derive(Clone, Copy)]
enum Numbers<'a> {
    F32(&'a [f32]),
    F16(&'a [u8]),
    Q8_0(&'a [u8]),
}

/// Rows [rows, columns] of keys or values. A row has heads one after the other, each of which begins `head` numbers after the last one.
#[derive(Clone, Copy)]
pub struct Cache<'a> {
    numbers: Numbers<'a>,
    columns: usize,
    head: usize,
    rows: usize,
}

impl<'a> Cache<'a> {
    /// Of 32-bit floats.
    pub fn f32(numbers: &'a [f32], columns: usize, head: usize) -> Self {
        Self { numbers: Numbers::F32(numbers), columns, head, rows: numbers.len().checked_div(columns).unwrap_or(0) }
    }

    /// Of half floats, little-endian.
    pub fn f16(bytes: &'a [u8], columns: usize, head: usize) -> Self {
        Self { numbers: Numbers::F16(bytes), columns, head, rows: (bytes.len() / 2).checked_div(columns).unwrap_or(0) }
    }

    /// Of int8 with a scale for each 32. Two blocks of 32 stand together: the 64 int8, then both scales as half floats. Heads are whole blocks.
    pub fn q8_0(bytes: &'a [u8], columns: usize, head: usize) -> Result<Self, Mismatch> {
        for length in [columns, head] {
            expect("numbers of whole blocks", length.next_multiple_of(BLOCK), length)?;
        }
        let numbers = bytes.len() / PAIR_BYTES * PAIR;
        Ok(Self { numbers: Numbers::Q8_0(bytes), columns, head, rows: numbers.checked_div(columns).unwrap_or(0) })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first numbers of a row's head, as many as `out` takes, which the head has.
    #[inline(always)]
    pub(super) fn read(&self, row: usize, head: usize, out: &mut [f32]) {
        let at = row * self.columns + head * self.head;
        match self.numbers {
            Numbers::F32(numbers) => out.copy_from_slice(&numbers[at..at + out.len()]),
            Numbers::F16(bytes) => halves(&bytes[2 * at..2 * (at + out.len())], out),
            Numbers::Q8_0(bytes) => {
                for (block, out) in (at / BLOCK..).zip(out.chunks_mut(BLOCK)) {
                    let (pair, half) = (&bytes[block / 2 * PAIR_BYTES..][..PAIR_BYTES], block % 2);
                    let scale = f16([pair[PAIR + 2 * half], pair[PAIR + 2 * half + 1]]);
                    for (out, quant) in out.iter_mut().zip(&pair[half * BLOCK..][..BLOCK]) {
                        *out = f32::from(*quant as i8) * scale;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn halves(bytes: &[u8], out: &mut [f32]) {
    let mut whole = out.chunks_exact_mut(8);
    let mut of_bytes = bytes.chunks_exact(16);
    for (out, bytes) in (&mut whole).zip(&mut of_bytes) {
        if let Some(bytes) = bytes.first_chunk() {
            let [low, high] = f16x8(U8x16::load(bytes).halves());
            out[..4].copy_from_slice(&low.lanes());
            out[4..].copy_from_slice(&high.lanes());
        }
    }
    for (out, bytes) in whole.into_remainder().iter_mut().zip(of_bytes.remainder().chunks_exact(2)) {
        *out = f16([bytes[0], bytes[1]]);
    }
}
