//! The grids of GGML's types IQ1, IQ2 and IQ3: sets of four or eight numbers, of which a block's weights are indices.
//!
//! A grid is sorted, so what is stored of it is a bitmap: bit n says whether the numbers with the digits of n are in it. `grids.bin` holds
//! all of them, one after the other; `scripts/golden/iq_grids.py` makes it of the tables of the Python package gguf.

use std::sync::OnceLock;

/// A grid in the form in which kernels read it, a word for each entry.
pub(super) struct Grid {
    /// Bytes of `grids.bin` before it.
    at: usize,
    /// The digits of a number of the bitmap, and their base.
    digits: u32,
    base: u32,
    pub entries: usize,
    /// What a digit becomes in a word of four, a byte each. Digits of eight stay as they are, four bits each.
    value: fn(u32) -> u32,
    words: OnceLock<Vec<u32>>,
}

static BITS: &[u8] = include_bytes!("grids.bin");

/// Bytes of the bitmaps: eight digits of base 3, and four of base 8.
const TERNARY: usize = 6561_usize.div_ceil(8);
const OCTAL: usize = 4096 / 8;

const fn eight(number: usize, entries: usize) -> Grid {
    Grid { at: number * TERNARY, digits: 8, base: 3, entries, value: |digit| digit, words: OnceLock::new() }
}

const fn four(number: usize, entries: usize, value: fn(u32) -> u32) -> Grid {
    Grid { at: 4 * TERNARY + number * OCTAL, digits: 4, base: 8, entries, value, words: OnceLock::new() }
}

pub(super) static IQ2_XXS: Grid = eight(0, 256);
pub(super) static IQ2_XS: Grid = eight(1, 512);
pub(super) static IQ2_S: Grid = eight(2, 1024);
pub(super) static IQ1_S: Grid = eight(3, 2048);
pub(super) static IQ3_XXS: Grid = four(0, 256, |digit| 4 + 8 * digit + digit / 7 * 2);
pub(super) static IQ3_S: Grid = four(1, 512, |digit| 2 * digit + 1);

impl Grid {
    /// For each entry a word: of four numbers their values, a byte each; of eight the digits, those of the first four in the low halves of
    /// the bytes.
    pub(super) fn words(&self) -> &[u32] {
        self.words.get_or_init(|| {
            let is_in = |number: &u32| {
                let bit = *number as usize;
                BITS.get(self.at + bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
            };
            let word = |mut number: u32| {
                let mut word = 0;
                for digit in 0..self.digits {
                    word |= (self.value)(number % self.base) << (digit % 4 * 8 + digit / 4 * 4);
                    number /= self.base;
                }
                word
            };
            (0..self.base.pow(self.digits)).filter(is_in).map(word).take(self.entries).collect()
        })
    }

    fn word(&self, index: usize) -> u32 {
        self.words().get(index).copied().unwrap_or_default()
    }

    /// Digit `i` of an entry of eight.
    pub(super) fn digit(&self, index: usize, i: usize) -> f32 {
        (self.word(index) >> (i % 4 * 8 + i / 4 * 4) & 15) as f32
    }

    /// The values of the digits of IQ2.
    pub(super) fn of_eight(&self, index: usize, i: usize) -> f32 {
        [8.0, 25.0, 43.0][self.digit(index, i) as usize % 3]
    }

    /// Value `i` of an entry of four.
    pub(super) fn of_four(&self, index: usize, i: usize) -> f32 {
        (self.word(index) >> (i * 8) & 255) as f32
    }
}

/// The sign of weight `i` of eight: a bit each, where the last makes the number of minus signs even.
pub(super) fn sign_of_seven(bits: u32, i: usize) -> f32 {
    let seven = bits & 127;
    sign(seven | (seven.count_ones() & 1) << 7, i)
}

/// The sign of weight `i` by a bit of its own.
pub(super) fn sign(bits: u32, i: usize) -> f32 {
    if bits >> i & 1 == 1 { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_their_entries() {
        for grid in [&IQ2_XXS, &IQ2_XS, &IQ2_S, &IQ1_S, &IQ3_XXS, &IQ3_S] {
            assert_eq!(grid.words().len(), grid.entries);
        }
        assert_eq!(BITS.len(), 4 * TERNARY + 2 * OCTAL);
        assert_eq!((IQ3_XXS.of_four(255, 3), IQ3_S.of_four(511, 3)), (62.0, 15.0));
    }
}
