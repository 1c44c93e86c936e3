//! Trials: work that is run to learn what it would do, and whose traces on arrays are wiped out afterwards.

use std::cell::RefCell;
use std::rc::Rc;

use super::waiting::{Waiting, Written};
use crate::error::Result;

/// Puts a node back as it was. Returns it if the trial would have given it memory.
type Undo = Box<dyn FnOnce() -> Option<Rc<dyn Waiting>>>;

/// What is kept while something is tried, and while a plan is recorded.
#[derive(Default)]
pub(super) struct Trials {
    trial: RefCell<Option<Trial>>,
    written: RefCell<Option<Vec<Rc<dyn Written>>>>,
}

struct Trial {
    /// Nodes from this number on are the trial's own.
    first: u64,
    undo: Vec<Undo>,
}

impl Trials {
    /// Hears of a change to the node of a number, before it is made.
    pub fn note_change(&self, number: u64, undo: impl FnOnce() -> Undo) {
        if let Some(trial) = &mut *self.trial.borrow_mut()
            && number < trial.first
        {
            trial.undo.push(undo());
        }
    }

    /// Hears of memory that is written.
    pub fn note_write(&self, memory: &Rc<impl Written + 'static>) {
        if let Some(written) = &mut *self.written.borrow_mut()
            && !written.iter().any(|known| std::ptr::addr_eq(Rc::as_ptr(known), Rc::as_ptr(memory)))
        {
            written.push(memory.clone());
        }
    }

    /// Runs `work`, of which nothing reaches the GPU, and undoes what it did to nodes with numbers below `first`. Returns besides those of them
    /// that would have got memory.
    pub fn run<T>(&self, first: u64, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Rc<dyn Waiting>>)> {
        self.check_is_free("a plan or a batch")?;
        *self.trial.borrow_mut() = Some(Trial { first, undo: Vec::new() });
        let result = work();
        let undo = self.trial.take().map(|trial| trial.undo).unwrap_or_default();
        let stored = undo.into_iter().rev().filter_map(|undo| undo()).collect();
        Ok((result?, stored))
    }

    /// An error while something is tried or recorded.
    pub fn check_is_free(&self, what: &str) -> Result<()> {
        if self.trial.borrow().is_some() || self.written.borrow().is_some() {
            bail!(InvalidRequest, "{what}: not inside of what a plan records; call it before or after");
        }
        Ok(())
    }

    /// Runs `work` and returns besides the memory that it writes.
    pub fn noting_writes<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Rc<dyn Written>>)> {
        *self.written.borrow_mut() = Some(Vec::new());
        let result = work();
        let written = self.written.take().unwrap_or_default();
        Ok((result?, written))
    }
}
