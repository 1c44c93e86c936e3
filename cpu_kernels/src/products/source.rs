//! Rows of weights as floats, in the order that activations have for them.

use std::marker::PhantomData;

use super::activations::{Order, VECTORS, natural, padded};
use crate::blocks::{Block, PIECE, Piece, Visitor};
use crate::format::OtherFormat;
use crate::half_floats::{bf16x8, f16x8};
use crate::simd::{F32x4, I16x8, I32x4, U8x16};

/// What reads rows of a format.
pub(super) trait Source {
    /// The order of the vectors of a piece.
    const ORDER: Order;
    /// Whether a row's products need the sums of activations.
    const SUMS: bool;

    /// Makes floats of pieces of a row, from `first` on.
    fn unpack(&self, row: &[u8], first: usize, out: &mut [[F32x4; VECTORS]]);

    /// The product of a row with a token's activations and their sums.
    fn dot(&self, row: &[u8], x: &[[F32x4; VECTORS]], sums: &[[F32x4; 2]]) -> f32;

    /// Pieces that `unpack` makes at least at once without waste.
    fn pieces_at_once(&self) -> usize {
        1
    }
}

/// Rows of blocks.
pub(super) struct Blocks<B>(pub(super) PhantomData<B>);

/// The quants of half a piece as floats, times the powers of two that `Order` divides activations by.
#[inline(always)]
pub(super) fn floats<const SIGNED: bool>(quants: U8x16) -> [F32x4; 4] {
    let words = quants.words();
    let byte = |at: u32| words.and(I32x4::splat(0xff << (8 * at)));
    let ints = if SIGNED {
        let top = I32x4::splat(0xff00_0000_u32 as i32);
        [words.shl::<24>(), words.shl::<16>().and(top), words.shl::<8>().and(top), words.and(top)]
    } else {
        [byte(0), byte(1), byte(2), byte(3)]
    };
    ints.map(I32x4::to_f32)
}

#[inline(always)]
fn floats_of<B: Block>(quants: U8x16) -> [F32x4; 4] {
    if B::SIGNED { floats::<true>(quants) } else { floats::<false>(quants) }
}

struct Unpack<'a, B> {
    out: &'a mut [[F32x4; VECTORS]],
    block: PhantomData<B>,
}

impl<B: Block> Visitor for Unpack<'_, B> {
    #[inline(always)]
    fn piece(&mut self, index: usize, piece: Piece) {
        let Some(out) = self.out.get_mut(index) else { return };
        for half in 0..2 {
            let scale = F32x4::splat(piece.scales[half]);
            let [a, b, c, d] = floats_of::<B>(piece.quants[half]);
            // Blocks that are signed have neither offsets nor a zero.
            let constant = piece.offset - f32::from(B::ZERO) * piece.scales[half];
            let scaled = |x: F32x4, power: f32| {
                if B::SIGNED { x.mul(scale) } else { x.mul_add(scale, F32x4::splat(constant * power)) }
            };
            out[half * 4] = scaled(a, 1.0);
            out[half * 4 + 1] = scaled(b, 256.0);
            out[half * 4 + 2] = scaled(c, 65536.0);
            out[half * 4 + 3] = scaled(d, 16_777_216.0);
        }
    }
}

struct Dot<'a, B> {
    x: &'a [[F32x4; VECTORS]],
    sums: &'a [[F32x4; 2]],
    total: F32x4,
    block: PhantomData<B>,
}

impl<B: Block> Visitor for Dot<'_, B> {
    #[inline(always)]
    fn piece(&mut self, index: usize, piece: Piece) {
        let Some(x) = self.x.get(index) else { return };
        let zero = F32x4::splat(0.0);
        let sums =
            if B::ZERO > 0 || B::OFFSETS { self.sums.get(index).copied().unwrap_or([zero; 2]) } else { [zero; 2] };
        let half = |half: usize| {
            let [a, b, c, d] = floats_of::<B>(piece.quants[half]);
            let x = &x[half * 4..half * 4 + 4];
            let start = match B::ZERO {
                0 => a.mul(x[0]),
                zero => a.mul_add(x[0], sums[half].mul(F32x4::splat(-f32::from(zero)))),
            };
            d.mul_add(x[3], b.mul_add(x[1], start)).add(c.mul(x[2]))
        };
        let (low, high) = (half(0), half(1));
        if B::HALVES {
            self.total = low.mul_add(F32x4::splat(piece.scales[0]), self.total);
            self.total = high.mul_add(F32x4::splat(piece.scales[1]), self.total);
        } else {
            self.total = low.add(high).mul_add(F32x4::splat(piece.scales[0]), self.total);
        }
        if B::OFFSETS {
            self.total = sums[0].add(sums[1]).mul_add(F32x4::splat(piece.offset), self.total);
        }
    }
}

impl<B: Block> Source for Blocks<B> {
    const ORDER: Order = if B::SIGNED { Order::BytesOnTop } else { Order::BytesInPlace };
    const SUMS: bool = B::ZERO > 0 || B::OFFSETS;

    #[inline(always)]
    fn unpack(&self, row: &[u8], first: usize, out: &mut [[F32x4; VECTORS]]) {
        let blocks: &[B] = bytemuck::cast_slice(row);
        for (block, out) in blocks.iter().skip(first / B::PIECES).zip(out.chunks_exact_mut(B::PIECES)) {
            block.visit(&mut Unpack::<B> { out, block: PhantomData });
        }
    }

    #[inline(always)]
    fn dot(&self, row: &[u8], x: &[[F32x4; VECTORS]], sums: &[[F32x4; 2]]) -> f32 {
        let blocks: &[B] = bytemuck::cast_slice(row);
        let mut total = F32x4::splat(0.0);
        if Self::SUMS {
            let sums = sums.chunks_exact(B::PIECES);
            for ((block, x), sums) in blocks.iter().zip(x.chunks_exact(B::PIECES)).zip(sums) {
                let mut dot = Dot::<B> { x, sums, total, block: PhantomData };
                block.visit(&mut dot);
                total = dot.total;
            }
        } else {
            for (block, x) in blocks.iter().zip(x.chunks_exact(B::PIECES)) {
                let mut dot = Dot::<B> { x, sums: &[], total, block: PhantomData };
                block.visit(&mut dot);
                total = dot.total;
            }
        }
        total.sum()
    }
}

/// Rows of floats.
pub(super) trait Floats {
    /// A float in a file.
    type Stored: bytemuck::Pod + Default;

    /// A piece of them.
    fn floats(stored: &[Self::Stored; PIECE]) -> [F32x4; VECTORS];
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Floats for F32 {
    type Stored = [u8; 4];

    #[inline(always)]
    fn floats(stored: &[[u8; 4]; PIECE]) -> [F32x4; VECTORS] {
        let vectors: &[[u8; 16]; VECTORS] = bytemuck::cast_ref(stored);
        vectors.map(|bytes| U8x16::load(&bytes).words().floats())
    }
}

impl Floats for F16 {
    type Stored = [u8; 2];

    #[inline(always)]
    fn floats(stored: &[[u8; 2]; PIECE]) -> [F32x4; VECTORS] {
        sixteen_bits(stored, f16x8)
    }
}

impl Floats for BF16 {
    type Stored = [u8; 2];

    #[inline(always)]
    fn floats(stored: &[[u8; 2]; PIECE]) -> [F32x4; VECTORS] {
        sixteen_bits(stored, bf16x8)
    }
}

#[inline(always)]
fn sixteen_bits(stored: &[[u8; 2]; PIECE], floats: impl Fn(I16x8) -> [F32x4; 2]) -> [F32x4; VECTORS] {
    let vectors: &[[u8; 16]; VECTORS / 2] = bytemuck::cast_ref(stored);
    let [[a, b], [c, d], [e, f], [g, h]] = vectors.map(|bytes| floats(U8x16::load(&bytes).halves()));
    [a, b, c, d, e, f, g, h]
}

impl<F: Floats> Source for F {
    const ORDER: Order = Order::Natural;
    const SUMS: bool = false;

    #[inline(always)]
    fn unpack(&self, row: &[u8], first: usize, out: &mut [[F32x4; VECTORS]]) {
        let row: &[F::Stored] = bytemuck::cast_slice(row);
        for (stored, out) in row.chunks(PIECE).skip(first).zip(out) {
            *out = F::floats(&padded(stored));
        }
    }

    #[inline(always)]
    fn dot(&self, row: &[u8], x: &[[F32x4; VECTORS]], _: &[[F32x4; 2]]) -> f32 {
        let row: &[F::Stored] = bytemuck::cast_slice(row);
        let mut totals = [F32x4::splat(0.0); 4];
        let pieces = row.chunks_exact(PIECE);
        let rest = pieces.remainder();
        for (stored, x) in pieces.zip(x) {
            let Some(stored) = stored.first_chunk() else { continue };
            add_products(&F::floats(stored), x, &mut totals);
        }
        if let (false, Some(x)) = (rest.is_empty(), x.last()) {
            add_products(&F::floats(&padded(rest)), x, &mut totals);
        }
        sum(totals)
    }
}

#[inline(always)]
pub(super) fn add_products(w: &[F32x4; VECTORS], x: &[F32x4; VECTORS], totals: &mut [F32x4; 4]) {
    for i in 0..VECTORS {
        totals[i % 4] = w[i].mul_add(x[i], totals[i % 4]);
    }
}

#[inline(always)]
fn sum([a, b, c, d]: [F32x4; 4]) -> f32 {
    a.add(b).add(c.add(d)).sum()
}

impl Source for OtherFormat {
    const ORDER: Order = Order::Natural;
    const SUMS: bool = false;

    fn unpack(&self, row: &[u8], first: usize, out: &mut [[F32x4; VECTORS]]) {
        let blocks = row.len() / self.block_bytes;
        let mut floats = vec![0f32; blocks * self.block_size];
        for (block, out) in row.chunks_exact(self.block_bytes).zip(floats.chunks_exact_mut(self.block_size)) {
            (self.dequantize_block)(block, out);
        }
        for (piece, out) in floats.chunks(PIECE).skip(first).zip(out) {
            *out = natural(&padded(piece));
        }
    }

    fn dot(&self, row: &[u8], x: &[[F32x4; VECTORS]], _: &[[F32x4; 2]]) -> f32 {
        let mut pieces = vec![[F32x4::splat(0.0); VECTORS]; x.len()];
        self.unpack(row, 0, &mut pieces);
        let mut totals = [F32x4::splat(0.0); 4];
        for (w, x) in pieces.iter().zip(x) {
            add_products(w, x, &mut totals);
        }
        sum(totals)
    }

    fn pieces_at_once(&self) -> usize {
        // A row is made floats as a whole.
        usize::MAX
    }
}
