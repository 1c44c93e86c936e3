//! How weights of a group stand in memory: of each 32 columns a record.

use bytemuck::{Pod, Zeroable};

use super::dots::{Dots, QUADS};
use crate::blocks::{PIECE, Piece};
use crate::simd::{F32x4, I32x4, U8x16};

/// Vectors of four rows in a group.
pub(super) const PARTS: usize = 2;

/// A float for each row. As bytes, so that records may stand anywhere.
pub(super) type PerRow = [[u8; 16]; PARTS];

/// A vector for each four rows: bytes of four columns of each row.
type Quad = [[u8; 16]; PARTS];

/// 32 columns of eight rows: `scale · (quant − ZERO) + offset`.
pub(super) trait Record: Pod {
    /// Whether each half of the columns has its own scale.
    const HALVES: bool = false;
    /// Whether there are offsets.
    const OFFSETS: bool = false;
    /// What is subtracted from every quant.
    const ZERO: i32 = 0;

    /// The same of quants as they are multiplied.
    fn zero<D: Dots>() -> i32 {
        Self::ZERO
    }

    /// Puts in a row's piece.
    fn set(&mut self, row: usize, piece: &Piece);

    /// The scales of a half.
    fn scales(&self, half: usize) -> &PerRow;

    /// The offsets, if there are any.
    fn offsets(&self) -> &PerRow {
        &[[0; 16]; PARTS]
    }

    /// A row's weights. Those of `half` alone count where halves differ.
    fn quant(&self, row: usize, column: usize) -> i32;

    /// Adds products of the quants of a half with activations, of each token. `steps` is `QUADS`, of which the compiler may not know.
    fn add<D: Dots, const T: usize>(
        &self,
        half: usize,
        steps: usize,
        x: [&D::Quads; T],
        sums: &mut [[I32x4; PARTS]; T],
    );
}

/// Four bits with the zero of Q4_0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Nibbles {
    scales: PerRow,
    quants: [Quad; QUADS / 2],
}

/// Four bits with offsets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct NibblesOffset {
    scales: PerRow,
    offsets: PerRow,
    quants: [Quad; QUADS / 2],
}

/// From 0 to 31, with offsets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct UnsignedOffset {
    scales: PerRow,
    offsets: PerRow,
    quants: [Quad; QUADS],
}

/// From 0 to 63, with the zero of Q6_K and scales for each 16 columns.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct UnsignedHalves {
    scales: [PerRow; 2],
    quants: [Quad; QUADS],
}

/// int8.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Signed {
    scales: PerRow,
    quants: [Quad; QUADS],
}

/// A row's float.
pub(super) fn float_of(all: &PerRow, row: usize) -> f32 {
    F32x4::from_bytes(&all[row / 4]).lanes()[row % 4]
}

fn set_float(all: &mut PerRow, row: usize, value: f32) {
    all[row / 4][row % 4 * 4..][..4].copy_from_slice(&value.to_le_bytes());
}

/// The bytes of a piece.
fn bytes(piece: &Piece) -> [u8; PIECE] {
    bytemuck::cast(piece.quants.map(U8x16::lanes))
}

/// Puts a row's bytes in.
fn set_bytes(quants: &mut [Quad], row: usize, bytes: &[u8]) {
    for (quad, four) in quants.iter_mut().zip(bytes.chunks_exact(4)) {
        quad[row / 4][row % 4 * 4..][..4].copy_from_slice(four);
    }
}

/// Puts a row's nibbles in: the low ones are of the first half of the columns.
fn set_nibbles(quants: &mut [Quad], row: usize, piece: &Piece) {
    let [low, high] = piece.quants;
    set_bytes(quants, row, &low.or(high.shl_in_halves::<4>()).lanes());
}

fn byte(quants: &[Quad], row: usize, column: usize) -> u8 {
    quants[column / 4][row / 4][row % 4 * 4 + column % 4]
}

fn nibble(quants: &[Quad], row: usize, column: usize) -> u8 {
    byte(quants, row, column % 16) >> (column / 16 * 4) & 15
}

/// Takes steps of these numbers, as long as they are below `steps`. All are written out: a loop would keep its sums in more registers than there are.
macro_rules! step_by_step {
    ($steps:expr, [$($number:literal),*], |$at:ident| $step:block) => {
        'steps: {
            $(
                if $number >= $steps {
                    break 'steps;
                }
                let $at: usize = $number;
                $step
            )*
        }
    };
}

#[inline(always)]
fn add_nibbles<D: Dots, const T: usize>(
    quants: &[Quad; QUADS / 2],
    steps: usize,
    x: [&D::Quads; T],
    sums: &mut [[I32x4; PARTS]; T],
) {
    let mut few = begin::<D, T>(sums);
    step_by_step!(steps, [0, 1, 2, 3, 4, 5, 6, 7], |step| {
        let (at, nibble) = (step / 2, step % 2);
        let weights = quants[at].map(|bytes| D::nibbles(U8x16::load(&bytes))[nibble]);
        for (few, x) in few.iter_mut().zip(x) {
            for (few, weights) in few.iter_mut().zip(weights) {
                *few = D::add_few(*few, weights, x, at + nibble * (QUADS / 2));
            }
        }
    });
    end::<D, T>(few, sums);
}

/// Adds the products with quants, which begin at the quad `first`. `AT_ONCE` quads are summed before the sums are widened.
#[inline(always)]
fn add_unsigned<D: Dots, const T: usize, const AT_ONCE: usize>(
    quants: &[Quad],
    first: usize,
    steps: usize,
    x: [&D::Quads; T],
    sums: &mut [[I32x4; PARTS]; T],
) {
    let mut few = begin::<D, T>(sums);
    step_by_step!(steps.min(quants.len()), [0, 1, 2, 3, 4, 5, 6, 7], |at| {
        if at > 0 && at.is_multiple_of(AT_ONCE) {
            end::<D, T>(few, sums);
            few = begin::<D, T>(sums);
        }
        let weights = quants[at].map(|bytes| D::unsigned(U8x16::load(&bytes)));
        for (few, x) in few.iter_mut().zip(x) {
            for (few, weights) in few.iter_mut().zip(weights) {
                *few = D::add_few(*few, weights, x, first + at);
            }
        }
    });
    end::<D, T>(few, sums);
}

#[inline(always)]
fn begin<D: Dots, const T: usize>(sums: &[[I32x4; PARTS]; T]) -> [[D::Few; PARTS]; T] {
    sums.map(|sums| sums.map(D::begin))
}

#[inline(always)]
fn end<D: Dots, const T: usize>(few: [[D::Few; PARTS]; T], sums: &mut [[I32x4; PARTS]; T]) {
    for (sums, few) in sums.iter_mut().zip(few) {
        for (sums, few) in sums.iter_mut().zip(few) {
            *sums = D::end(*sums, few);
        }
    }
}

impl Record for Nibbles {
    const ZERO: i32 = 8;

    fn set(&mut self, row: usize, piece: &Piece) {
        set_float(&mut self.scales, row, piece.scales[0]);
        set_nibbles(&mut self.quants, row, piece);
    }

    #[inline(always)]
    fn scales(&self, _: usize) -> &PerRow {
        &self.scales
    }

    fn quant(&self, row: usize, column: usize) -> i32 {
        i32::from(nibble(&self.quants, row, column))
    }

    #[inline(always)]
    fn add<D: Dots, const T: usize>(&self, _: usize, steps: usize, x: [&D::Quads; T], sums: &mut [[I32x4; PARTS]; T]) {
        add_nibbles::<D, T>(&self.quants, steps, x, sums);
    }
}

impl Record for NibblesOffset {
    const OFFSETS: bool = true;

    fn set(&mut self, row: usize, piece: &Piece) {
        set_float(&mut self.scales, row, piece.scales[0]);
        set_float(&mut self.offsets, row, piece.offset);
        set_nibbles(&mut self.quants, row, piece);
    }

    #[inline(always)]
    fn scales(&self, _: usize) -> &PerRow {
        &self.scales
    }

    #[inline(always)]
    fn offsets(&self) -> &PerRow {
        &self.offsets
    }

    fn quant(&self, row: usize, column: usize) -> i32 {
        i32::from(nibble(&self.quants, row, column))
    }

    #[inline(always)]
    fn add<D: Dots, const T: usize>(&self, _: usize, steps: usize, x: [&D::Quads; T], sums: &mut [[I32x4; PARTS]; T]) {
        add_nibbles::<D, T>(&self.quants, steps, x, sums);
    }
}

impl Record for UnsignedOffset {
    const OFFSETS: bool = true;

    fn set(&mut self, row: usize, piece: &Piece) {
        set_float(&mut self.scales, row, piece.scales[0]);
        set_float(&mut self.offsets, row, piece.offset);
        set_bytes(&mut self.quants, row, &bytes(piece));
    }

    #[inline(always)]
    fn scales(&self, _: usize) -> &PerRow {
        &self.scales
    }

    #[inline(always)]
    fn offsets(&self) -> &PerRow {
        &self.offsets
    }

    fn quant(&self, row: usize, column: usize) -> i32 {
        i32::from(byte(&self.quants, row, column))
    }

    #[inline(always)]
    fn add<D: Dots, const T: usize>(&self, _: usize, steps: usize, x: [&D::Quads; T], sums: &mut [[I32x4; PARTS]; T]) {
        add_unsigned::<D, T, 4>(&self.quants, 0, steps, x, sums);
    }
}

impl Record for UnsignedHalves {
    const HALVES: bool = true;
    const ZERO: i32 = 32;

    fn set(&mut self, row: usize, piece: &Piece) {
        for (scales, scale) in self.scales.iter_mut().zip(piece.scales) {
            set_float(scales, row, scale);
        }
        set_bytes(&mut self.quants, row, &bytes(piece));
    }

    #[inline(always)]
    fn scales(&self, half: usize) -> &PerRow {
        &self.scales[half]
    }

    fn quant(&self, row: usize, column: usize) -> i32 {
        i32::from(byte(&self.quants, row, column))
    }

    #[inline(always)]
    fn add<D: Dots, const T: usize>(
        &self,
        half: usize,
        steps: usize,
        x: [&D::Quads; T],
        sums: &mut [[I32x4; PARTS]; T],
    ) {
        let first = half * QUADS / 2;
        add_unsigned::<D, T, 2>(&self.quants[first..first + QUADS / 2], first, steps, x, sums);
    }
}

impl Record for Signed {
    fn zero<D: Dots>() -> i32 {
        D::ADDED
    }

    fn set(&mut self, row: usize, piece: &Piece) {
        set_float(&mut self.scales, row, piece.scales[0]);
        set_bytes(&mut self.quants, row, &bytes(piece));
    }

    #[inline(always)]
    fn scales(&self, _: usize) -> &PerRow {
        &self.scales
    }

    fn quant(&self, row: usize, column: usize) -> i32 {
        i32::from(byte(&self.quants, row, column) as i8)
    }

    #[inline(always)]
    fn add<D: Dots, const T: usize>(&self, _: usize, steps: usize, x: [&D::Quads; T], sums: &mut [[I32x4; PARTS]; T]) {
        step_by_step!(steps, [0, 1, 2, 3, 4, 5, 6, 7], |at| {
            let weights = self.quants[at].map(|bytes| D::signed(U8x16::load(&bytes)));
            for (sums, x) in sums.iter_mut().zip(x) {
                for (sums, weights) in sums.iter_mut().zip(weights) {
                    *sums = D::add_signed(*sums, weights, x, at);
                }
            }
        });
    }
}
