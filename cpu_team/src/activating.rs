//! The function of a feed-forward and the rounding of what it gives to int8, in parts of some pieces of 32.

use rillm_cpu_kernels::{Activation, Inner, Mismatch, Places, Quantized, Rounded, round_activated};

use crate::job::{PIECE, WORDS, parts_for};

/// What a number of it takes, in multiplications.
const WORK: usize = 24;

/// Products [tokens, columns], or if they are gated [tokens, 2 · columns], from one address, and what comes out to another.
#[derive(Clone, Copy, Debug)]
pub struct Activating {
    products: usize,
    /// What is added to a token's products; 0 for nothing.
    bias: usize,
    out: usize,
    pieces: usize,
    of_part: usize,
    tokens: usize,
    columns: usize,
    is_gated: bool,
    activation: [u32; 2],
}

impl Activating {
    /// To room that this makes in `into`. An error if there is none, or unless columns are whole pieces.
    pub fn new(
        activation: Activation,
        is_gated: bool,
        [products, bias]: [usize; 2],
        [tokens, columns]: [usize; 2],
        into: &mut Quantized,
        threads: usize,
    ) -> Result<Self, Mismatch> {
        let out = into.make_room(tokens, columns)?;
        let pieces = out.len();
        let parts = parts_for(pieces.saturating_mul(PIECE * WORK), threads);
        Ok(Self {
            products,
            bias,
            out: out.as_mut_ptr().expose_provenance(),
            pieces,
            of_part: pieces.div_ceil(parts).max(1),
            tokens,
            columns,
            is_gated,
            activation: activation.words(),
        })
    }

    pub(crate) fn parts(&self) -> u32 {
        self.pieces.div_ceil(self.of_part.max(1)).max(1) as u32
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let Self { products, bias, out, pieces, of_part, tokens, columns, is_gated, activation: [kind, number] } =
            *self;
        let mut words = [0; WORDS];
        let (of_this, _) = words.split_at_mut(10);
        of_this.copy_from_slice(&[
            products,
            bias,
            out,
            pieces,
            of_part,
            tokens,
            columns,
            usize::from(is_gated),
            kind as usize,
            number as usize,
        ]);
        words
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        let [products, bias, out, pieces, of_part, tokens, columns, is_gated, kind, number, ..] = words;
        let activation = [kind as u32, number as u32];
        Self { products, bias, out, pieces, of_part, tokens, columns, is_gated: is_gated != 0, activation }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        let [kind, _] = self.activation;
        let unknown = Mismatch { what: "a function of a feed-forward", expected: 0, found: kind as usize };
        let activation = Activation::of_words(self.activation).ok_or(unknown)?;
        let first = part as usize * self.of_part;
        let width = if self.is_gated { 2 * self.columns } else { self.columns };
        let pieces = first..self.pieces.min(first + self.of_part);
        for (piece, (token, column)) in pieces.zip(Places::new(self.tokens, self.columns, first)) {
            let floats = |at: usize, count: usize| {
                // SAFETY: as the caller promises.
                unsafe { std::slice::from_raw_parts(at as *const f32, count) }
            };
            let products = floats(self.products + 4 * token * width, width);
            let bias = if self.bias == 0 { &[] } else { floats(self.bias, width) };
            let rounded = round_activated(activation, &Inner { products, bias, is_gated: self.is_gated }, column)?;
            // SAFETY: the same; this piece is this part's.
            unsafe { (self.out as *mut Rounded).wrapping_add(piece).write(rounded) };
        }
        Ok(())
    }
}
