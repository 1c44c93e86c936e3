//! Tells work that its caller wants no more of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// Ends a generation with its next chunk, also while that is waited for. Clones end the same one.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Rc<State>);

#[derive(Debug, Default)]
struct State {
    is_cancelled: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Canceller {
    /// Takes effect after the work that the GPU was given.
    pub fn cancel(&self) {
        self.0.is_cancelled.set(true);
        let waiting = self.0.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether somebody cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.get()
    }

    /// Wakes when somebody cancels.
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.0.waiting.borrow_mut();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}
