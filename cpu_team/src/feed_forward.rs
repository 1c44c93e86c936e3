//! A feed-forward at once: what lies between its two products stays in the memory of the threads.

use rillm_cpu_kernels::{Activation, Mismatch, Quantized, resized};

use crate::activating::Activating;
use crate::board::{Board, Outcome};
use crate::job::Job;
use crate::product::{Matrix, Product};
use crate::rounding::Rounding;
use crate::threads::Threads;

/// Products that are kept at once: 4 MB, which stay in the caches of several cores. So long prompts go through it token by token, some at a time.
const MOST_PRODUCTS: usize = 1 << 20;
/// Tokens that share a reading of the weights at least.
const LEAST_TOKENS: usize = 64;

/// Two packed matrices, and the function between them.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward {
    /// [inner, columns], or [2 · inner, columns] with gates first.
    pub up: Matrix,
    /// [outputs, inner].
    pub down: Matrix,
    /// The function.
    pub activation: Activation,
    /// Whether it is that of gates.
    pub is_gated: bool,
}

/// Memory for what is on its way, which the next call uses again.
pub struct Between {
    /// Activations of a product.
    pub rounded: Quantized,
    products: Vec<f32>,
}

impl Between {
    /// Without any memory.
    pub const fn none() -> Self {
        Self { rounded: Quantized::none(), products: Vec::new() }
    }

    /// Gives back what is more than `most` numbers, of activations of which the last were `numbers`.
    pub fn keep(&mut self, most: usize, numbers: usize) {
        if numbers > most {
            self.rounded = Quantized::none();
        }
        if self.products.len() > most {
            self.products = Vec::new();
        }
    }
}

impl FeedForward {
    /// Tokens that go through it at once.
    pub fn at_once(&self) -> usize {
        (MOST_PRODUCTS / self.up.rows.max(1)).max(LEAST_TOKENS)
    }

    /// Runs it for the activations [tokens, columns] at `x`, written to `out` [tokens, outputs]. `bias`, if it is not 0, is what is added to a
    /// token's products with `up`.
    ///
    /// # Errors
    ///
    /// If there is no room, or something does not fit together.
    ///
    /// # Safety
    ///
    /// As for `Board::run`.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub unsafe fn run(
        &self,
        (board, threads): (&Board, &impl Threads),
        [x, bias, out]: [usize; 3],
        tokens: usize,
        between: &mut Between,
    ) -> Result<Outcome, Mismatch> {
        let Self { up, down, activation, is_gated } = *self;
        let inner = if is_gated { up.rows / 2 } else { up.rows };
        for (what, expected, found) in [
            ("columns of a feed-forward", inner, down.columns),
            ("rows of gates", inner * if is_gated { 2 } else { 1 }, up.rows),
            ("matrices that are packed", 2, usize::from(up.is_packed) + usize::from(down.is_packed)),
        ] {
            if expected != found {
                return Err(Mismatch { what, expected, found });
            }
        }
        let count = board.joined() as usize + 1;
        let at_once = self.at_once();
        let Between { rounded, products } = between;
        for first in (0..tokens).step_by(at_once) {
            let tokens = at_once.min(tokens - first);
            let numbers = tokens.saturating_mul(up.rows);
            if products.len() < numbers {
                resized(products, numbers, 0.0)?;
            }
            let products = products.as_mut_ptr().expose_provenance();
            let rounding = Rounding::new(x + 4 * first * up.columns, [tokens, up.columns], rounded, count)?;
            // SAFETY: as the caller promises, here and below. What a job reads has been written by those before.
            let run = |job: Job| unsafe { board.run(&job, threads) };
            let outcome = run(Job::Rounding(rounding));
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
            let of_rounded = std::ptr::from_ref::<Quantized>(rounded).expose_provenance();
            let outcome = run(Job::Product(Product::new(up, 0..up.rows, tokens, [of_rounded, products], count)));
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
            // Nobody reads the activations any more: their place takes the next ones.
            let activating = Activating::new(activation, is_gated, [products, bias], [tokens, inner], rounded, count)?;
            let outcome = run(Job::Activating(activating));
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
            let out = out + 4 * first * down.rows;
            let of_rounded = std::ptr::from_ref::<Quantized>(rounded).expose_provenance();
            let outcome = run(Job::Product(Product::new(down, 0..down.rows, tokens, [of_rounded, out], count)));
            if outcome != Outcome::Done {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }
}
