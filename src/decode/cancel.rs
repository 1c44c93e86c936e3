//! Tells work that its caller wants no more of it.

use std::cell::Cell;
use std::rc::Rc;

/// Ends a generation with its next chunk, also while that is waited for. Clones end the same one.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Rc<Cell<bool>>);

impl Canceller {
    /// Takes effect after the work that the GPU was given.
    pub fn cancel(&self) {
        self.0.set(true);
    }

    /// Whether somebody cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.get()
    }
}
