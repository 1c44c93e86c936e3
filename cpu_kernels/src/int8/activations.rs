//! Activations as int8 with a scale for each 32.

use super::dots::Dots;
use crate::activations::{Activation as Function, activate, gate};
use crate::blocks::PIECE;
use crate::format::{Mismatch, expect};
use crate::norms::add;
use crate::room::{reserved, resized};
use crate::simd::{F32x4, I16x8, I32x4};

/// Vectors of a piece.
const VECTORS: usize = PIECE / F32x4::LANES;

/// What the build is fast with.
#[cfg(target_feature = "relaxed-simd")]
pub type Native = super::dots::Bytes;
#[cfg(not(target_feature = "relaxed-simd"))]
pub type Native = super::dots::Halves;

/// A piece of 32 of a token's activations: `scale · quant`.
#[derive(Clone, Copy)]
pub struct Activation<Q> {
    pub(super) quads: Q,
    pub(super) scale: f32,
    /// The sums of the quants of both halves.
    pub(super) sums: [i32; 2],
    /// Both of them, since a product adds nothing up that it can read.
    pub(super) sum: i32,
}

/// A piece of activations.
pub type Rounded = Activation<<Native as Dots>::Quads>;

/// Tokens that share what is unpacked of the weights. With eight rows their sums fit into the registers.
pub(super) const TOKENS: usize = 4;

/// Activations [tokens, columns], rounded. `D` says how the build multiplies them, which changes no product.
pub struct Quantized<D: Dots = Native> {
    /// In the order of `Places`. There may be more.
    pieces: Vec<Activation<D::Quads>>,
    pub(super) tokens: usize,
    pub(super) columns: usize,
}

impl Quantized {
    /// Rounds `x` [tokens, columns]. Each 32 columns have a scale, their largest magnitude divided by 127 (llama.cpp's Q8_0, but the scale
    /// is an f32). Where a number is infinite or none, so are the products. An error unless columns are a multiple of 32.
    pub fn new(x: &[f32], tokens: usize, columns: usize) -> Result<Self, Mismatch> {
        Self::multiplied(x, tokens, columns)
    }

    /// Without any, and without memory.
    pub const fn none() -> Self {
        Self { pieces: Vec::new(), tokens: 0, columns: 0 }
    }

    /// Makes room for activations and returns it: `round` has to write all of it. Memory that was there before is used again.
    pub fn make_room(&mut self, tokens: usize, columns: usize) -> Result<&mut [Rounded], Mismatch> {
        expect("columns of whole blocks of 32", columns.next_multiple_of(PIECE), columns)?;
        let count = tokens.saturating_mul(columns) / PIECE;
        if self.pieces.len() < count {
            resized(&mut self.pieces, count, quantized::<Native>(&[0.0; PIECE]))?;
        }
        (self.tokens, self.columns) = (tokens, columns);
        Ok(&mut self.pieces[..count])
    }
}

/// The token and the first column of each piece, in the order in which they stand: of every 32 columns those of `TOKENS` tokens side by side, so that
/// what multiplies them goes from one to the next.
pub struct Places {
    tokens: usize,
    of_token: usize,
    first: usize,
    piece: usize,
    at: usize,
}

impl Places {
    /// From a place on.
    pub fn new(tokens: usize, columns: usize, place: usize) -> Self {
        let of_token = columns / PIECE;
        let first = place.checked_div(TOKENS * of_token).map_or(tokens, |index| index * TOKENS);
        let within = place.saturating_sub(first * of_token);
        let together = Self::together(tokens, first).max(1);
        Self { tokens, of_token, first, piece: within / together, at: within % together }
    }

    /// Tokens that are side by side, from the token `first` on.
    fn together(tokens: usize, first: usize) -> usize {
        TOKENS.min(tokens.saturating_sub(first))
    }
}

impl Iterator for Places {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let token = self.first + self.at;
        if token >= self.tokens || self.piece >= self.of_token {
            return None;
        }
        let column = self.piece * PIECE;
        self.at += 1;
        if self.at == Self::together(self.tokens, self.first) {
            self.at = 0;
            self.piece += 1;
            if self.piece == self.of_token {
                self.piece = 0;
                self.first += TOKENS;
            }
        }
        Some((token, column))
    }
}

/// The pieces of `x` [tokens, columns] from a place on. An error unless columns are whole pieces.
fn pieces_of(
    x: &[f32],
    [tokens, columns]: [usize; 2],
    place: usize,
) -> Result<impl Iterator<Item = &[f32; PIECE]>, Mismatch> {
    expect("columns of whole blocks of 32", columns.next_multiple_of(PIECE), columns)?;
    expect("activations of tokens", tokens.saturating_mul(columns), x.len())?;
    let of = move |(token, column)| x.get(token * columns + column..)?.first_chunk();
    Ok(Places::new(tokens, columns, place).filter_map(of))
}

/// Rounds activations `x` [tokens, columns] as `Quantized::new` does: the pieces that stand from `place` on, as many as `out` has. An error if there are
/// not as many, or columns are not whole pieces.
pub fn round(x: &[f32], shape: [usize; 2], place: usize, out: &mut [Rounded]) -> Result<(), Mismatch> {
    let pieces = pieces_of(x, shape, place)?;
    let last = place.saturating_add(out.len());
    expect("pieces of activations", (x.len() / PIECE).max(last), x.len() / PIECE)?;
    out.iter_mut().zip(pieces).for_each(|(out, piece)| *out = quantized::<Native>(piece));
    Ok(())
}

/// A row of a feed-forward's products, of which `round_activated` takes pieces: gates and what they multiply side by side, or numbers that go through
/// the function alone.
#[derive(Clone, Copy)]
pub struct Inner<'a> {
    /// [columns], or if it is gated [2 · columns], gates first.
    pub products: &'a [f32],
    /// What is added to them, as long as they are, or nothing.
    pub bias: &'a [f32],
    /// Whether the first half are gates.
    pub is_gated: bool,
}

impl Inner<'_> {
    /// 32 numbers from a column on, with their bias. `None` if there are not as many.
    fn piece(&self, first: usize) -> Option<[f32; PIECE]> {
        let mut piece: [f32; PIECE] = *self.products.get(first..)?.first_chunk()?;
        if !self.bias.is_empty() {
            add(&mut piece, self.bias.get(first..)?.first_chunk::<PIECE>()?);
        }
        Some(piece)
    }
}

/// Rounds what comes out of a feed-forward's function, for the 32 columns from `first` on.
pub fn round_activated(activation: Function, inner: &Inner<'_>, first: usize) -> Result<Rounded, Mismatch> {
    let columns = inner.products.len() / if inner.is_gated { 2 } else { 1 };
    let missing = Mismatch { what: "columns of a feed-forward", expected: columns, found: first.saturating_add(PIECE) };
    let mut piece = inner.piece(first).ok_or(missing)?;
    if inner.is_gated {
        let (gates, up) = (piece, inner.piece(columns + first).ok_or(missing)?);
        gate(activation, &gates, &up, &mut piece);
    } else {
        activate(activation, &mut piece);
    }
    Ok(quantized::<Native>(&piece))
}

impl<D: Dots> Quantized<D> {
    /// `new`, to be multiplied in a way that is named.
    pub fn multiplied(x: &[f32], tokens: usize, columns: usize) -> Result<Self, Mismatch> {
        let all = pieces_of(x, [tokens, columns], 0)?;
        let mut pieces = reserved(x.len() / PIECE)?;
        pieces.extend(all.map(quantized::<D>));
        Ok(Self { pieces, tokens, columns })
    }

    /// Those of all tokens, in the order of `Places`.
    pub(super) fn pieces(&self) -> &[Activation<D::Quads>] {
        &self.pieces[..self.tokens * self.columns / PIECE]
    }
}

pub(super) fn quantized<D: Dots>(x: &[f32; PIECE]) -> Activation<D::Quads> {
    let vectors: &[[f32; 4]; VECTORS] = bytemuck::cast_ref(x);
    let vectors: [F32x4; VECTORS] = std::array::from_fn(|at| F32x4::load(&vectors[at]));
    // Magnitudes are in the order of their bits, and what is no number is above all others.
    let largest = vectors.iter().fold(I32x4::splat(0), |largest, x| largest.max(x.abs().bits()));
    let scale = match f32::from_bits(largest.largest() as u32) / 127.0 {
        // Too small to be divided by.
        0.0..f32::MIN_POSITIVE => 0.0,
        scale => scale,
    };
    let inverse = F32x4::splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
    let round = |at: usize| {
        let [a, b, c, d] = std::array::from_fn(|i| vectors[at + i].mul(inverse).round_to_i32());
        (a.narrow(b), c.narrow(d))
    };
    let (a, b) = round(0);
    let (c, d) = round(VECTORS / 2);
    let ones = I16x8::splat(1);
    let sums: [i32; 2] = [(a, b), (c, d)].map(|(a, b)| a.dot(ones).add(b.dot(ones)).lanes().iter().sum());
    Activation { quads: D::quads([a.narrow(b), c.narrow(d)]), scale, sums, sum: sums[0] + sums[1] }
}
