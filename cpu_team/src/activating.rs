//! The function of a feed-forward and the rounding of what it gives to int8, in parts of some pieces of 32.

use rillm_cpu_kernels::{Activation, Inner, Mismatch, Places, Quantized, round_activated};

use crate::job::WORDS;
use crate::pieces::Pieces;

/// What a number of it takes, in multiplications.
const WORK: usize = 24;

/// Products [tokens, columns], or if they are gated [tokens, 2 · columns], from one address, and what comes out as pieces [tokens, columns].
#[derive(Clone, Copy, Debug)]
pub struct Activating {
    products: usize,
    /// What is added to a token's products; 0 for nothing.
    bias: usize,
    pieces: Pieces,
    is_gated: bool,
    activation: [u32; 2],
}

impl Activating {
    /// To room that this makes in `into`. An error if there is none, or unless columns are whole pieces.
    pub fn new(
        activation: Activation,
        is_gated: bool,
        [products, bias]: [usize; 2],
        shape: [usize; 2],
        into: &mut Quantized,
        threads: usize,
    ) -> Result<Self, Mismatch> {
        let pieces = Pieces::new(shape, into, WORK, threads)?;
        Ok(Self { products, bias, pieces, is_gated, activation: activation.words() })
    }

    pub(crate) fn parts(&self) -> u32 {
        self.pieces.parts()
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let Self { products, bias, pieces, is_gated, activation: [kind, number] } = *self;
        let mut words = [0; WORDS];
        let [at, tokens, columns, of_part] = pieces.words();
        let of_this =
            [at, tokens, columns, of_part, products, bias, usize::from(is_gated), kind as usize, number as usize];
        words[..of_this.len()].copy_from_slice(&of_this);
        words
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        let [at, tokens, columns, of_part, products, bias, is_gated, kind, number, ..] = words;
        let pieces = Pieces::of([at, tokens, columns, of_part]);
        Self { products, bias, pieces, is_gated: is_gated != 0, activation: [kind as u32, number as u32] }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        let [kind, _] = self.activation;
        let unknown = Mismatch { what: "a function of a feed-forward", expected: 0, found: kind as usize };
        let activation = Activation::of_words(self.activation).ok_or(unknown)?;
        let Pieces { tokens, columns, .. } = self.pieces;
        let width = if self.is_gated { 2 * columns } else { columns };
        // SAFETY: as the caller promises.
        let (first, out) = unsafe { self.pieces.part(part) };
        for (out, (token, column)) in out.iter_mut().zip(Places::new(tokens, columns, first)) {
            let floats = |at: usize, count: usize| {
                // SAFETY: the same.
                unsafe { std::slice::from_raw_parts(at as *const f32, count) }
            };
            let products = floats(self.products + 4 * token * width, width);
            let bias = if self.bias == 0 { &[] } else { floats(self.bias, width) };
            *out = round_activated(activation, &Inner { products, bias, is_gated: self.is_gated }, column)?;
        }
        Ok(())
    }
}
