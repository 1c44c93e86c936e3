//! Keys or values as they stand in a cache.

use std::ops::Range;

use super::{WIDE, Wide};
use crate::format::{Mismatch, expect};
use crate::half_floats::{NOT_FINITE, f16, f16x8, finite_f16x8};
use crate::simd::{F32x4, I16x8, U8x16};

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
    pub(super) columns: usize,
    pub(super) head: usize,
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

    /// Which of the three it is.
    pub(super) fn kind(&self) -> u32 {
        match self.numbers {
            Numbers::F32(_) => 0,
            Numbers::F16(_) => 1,
            Numbers::Q8_0(_) => 2,
        }
    }

    /// The bytes of some rows, from an even one on: pairs of blocks stay together.
    pub(super) fn bytes(&self, rows: Range<usize>) -> Option<&'a [u8]> {
        let of =
            |row: usize, numbers: usize, bytes: usize| Some(row.checked_mul(self.columns)?.div_ceil(numbers) * bytes);
        let (all, numbers, bytes): (&[u8], _, _) = match self.numbers {
            Numbers::F32(numbers) => (bytemuck::cast_slice(numbers), 1, 4),
            Numbers::F16(bytes) => (bytes, 1, 2),
            Numbers::Q8_0(bytes) => (bytes, PAIR, PAIR_BYTES),
        };
        all.get(of(rows.start, numbers, bytes)?..of(rows.end, numbers, bytes)?)
    }

    /// One of a `kind`.
    pub(super) fn of_kind(kind: u32, bytes: &'a [u8], [columns, head]: [usize; 2]) -> Result<Self, Mismatch> {
        match kind {
            0 => match bytemuck::try_cast_slice(bytes) {
                Ok(numbers) => Ok(Self::f32(numbers, columns, head)),
                Err(_) => Err(Mismatch { what: "bytes of floats", expected: 4, found: bytes.len() }),
            },
            1 => Ok(Self::f16(bytes, columns, head)),
            2 => Self::q8_0(bytes, columns, head),
            _ => Err(Mismatch { what: "a kind of cache", expected: 2, found: kind as usize }),
        }
    }

    /// Writes the first `dim` numbers of a head of some rows, which the head has, one row after the other. A row takes whole `Wide`, and what is
    /// after its end there is any number.
    pub(super) fn read(&self, rows: Range<usize>, head: usize, dim: usize, out: &mut [Wide]) {
        let wide = dim.div_ceil(WIDE).max(1);
        let first = rows.start * self.columns + head * self.head;
        let out = &mut out[..rows.len() * wide];
        let places = (first..).step_by(self.columns.max(1));
        match self.numbers {
            Numbers::F32(numbers) => {
                for (at, out) in places.zip(out.chunks_exact_mut(wide)) {
                    floats(&numbers[at..at + dim], out);
                }
            }
            Numbers::F16(bytes) => {
                let mut most = I16x8::splat(0);
                for (at, out) in places.clone().zip(out.chunks_exact_mut(wide)) {
                    most = halves(&bytes[2 * at..2 * (at + dim)], out, most, finite_f16x8);
                }
                if most.lanes().iter().any(|most| *most >= NOT_FINITE) {
                    for (at, out) in places.zip(out.chunks_exact_mut(wide)) {
                        halves(&bytes[2 * at..2 * (at + dim)], out, most, f16x8);
                    }
                }
            }
            Numbers::Q8_0(bytes) => {
                for (at, out) in places.zip(out.chunks_exact_mut(wide)) {
                    blocks(bytes, at, out);
                }
            }
        }
    }
}

/// Floats as vectors.
#[inline(always)]
pub(super) fn floats(numbers: &[f32], out: &mut [Wide]) {
    let load = |numbers: &[f32; WIDE]| {
        let fours: [[f32; F32x4::LANES]; WIDE / F32x4::LANES] = bytemuck::cast(*numbers);
        fours.map(|four| F32x4::load(&four))
    };
    let whole = numbers.chunks_exact(WIDE);
    let rest = whole.remainder();
    let mut out = out.iter_mut();
    // In this order: `zip` takes of the first one before it knows that the second has ended.
    for (numbers, out) in whole.filter_map(|numbers| numbers.first_chunk()).zip(out.by_ref()) {
        *out = load(numbers);
    }
    if let (false, Some(out)) = (rest.is_empty(), out.next()) {
        let mut all = [0.0; WIDE];
        all[..rest.len()].copy_from_slice(rest);
        *out = load(&all);
    }
}

/// Half floats as vectors. Returns the larger of `most` and their magnitudes, as bits.
#[inline(always)]
fn halves(bytes: &[u8], out: &mut [Wide], mut most: I16x8, convert: impl Fn(I16x8) -> [F32x4; 2]) -> I16x8 {
    let mut load = |bytes: &[[u8; WIDE]; 2]| {
        let halves = [0, 1].map(|half| U8x16::load(&bytes[half]).halves());
        for halves in halves {
            most = most.max(halves.and(I16x8::splat(i16::MAX)));
        }
        let [[a, b], [c, d]] = halves.map(&convert);
        [a, b, c, d]
    };
    let whole = bytes.chunks_exact(2 * WIDE);
    let rest = whole.remainder();
    let mut out = out.iter_mut();
    for (bytes, out) in whole.filter_map(|bytes| bytes.first_chunk::<{ 2 * WIDE }>()).zip(out.by_ref()) {
        *out = load(bytemuck::cast_ref(bytes));
    }
    if let (false, Some(out)) = (rest.is_empty(), out.next()) {
        let mut all = [0; 2 * WIDE];
        all[..rest.len()].copy_from_slice(rest);
        *out = load(bytemuck::cast_ref(&all));
    }
    most
}

/// Blocks of `Cache::q8_0` as vectors, from the number `at` on, which begins a block.
#[inline(always)]
fn blocks(bytes: &[u8], at: usize, out: &mut [Wide]) {
    for (block, out) in (at / BLOCK..).zip(out.chunks_mut(BLOCK / WIDE)) {
        let (pair, half) = (&bytes[block / 2 * PAIR_BYTES..][..PAIR_BYTES], block % 2);
        let scale = F32x4::splat(f16([pair[PAIR + 2 * half], pair[PAIR + 2 * half + 1]]));
        let quants = pair[half * BLOCK..][..BLOCK].chunks_exact(WIDE).filter_map(|quants| quants.first_chunk());
        for (out, quants) in out.iter_mut().zip(quants) {
            let [[a, b], [c, d]] = U8x16::load(quants).widen().map(I16x8::widen);
            *out = [a, b, c, d].map(|four| four.to_f32().mul(scale));
        }
    }
}
