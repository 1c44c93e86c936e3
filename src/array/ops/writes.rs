//! What overwrites elements in place.

use crate::array::dtype::DType;
use crate::array::graph::node::{Array, State, Stored};
use crate::array::layout::Layout;
use crate::array::waiting::Written;
use crate::error::Result;

impl Array {
    /// Overwrites its elements, or those of a view, with those of another array, which broadcasts and is cast. What was derived from them
    /// before keeps the old ones.
    pub fn assign(&self, from: &Array) -> Result<()> {
        if from.requires_grad() && self.library().tape().is_enabled() {
            bail!(
                InvalidRequest,
                "assign: the source {} requires a gradient, which can't follow it into memory; detach() it, or assign in noGrad()",
                from.shape()
            );
        }
        let from = from.detached().cast(self.dtype())?;
        if Layout::contiguous(from.shape()).broadcast(self.shape()).is_none() {
            bail!(ShapeMismatch, "assign: {} does not broadcast to {}", from.shape(), self.shape());
        }
        if self.elements() == 0 {
            return Ok(());
        }
        let target = self.writable("assign")?;
        let mut reads_it = false;
        from.each_storage(&mut |storage| reads_it |= std::rc::Rc::ptr_eq(storage, &target.storage));
        let from = if reads_it { from.copied()? } else { from };
        if self.dtype().size() == 2 {
            return self.assign_halves(&from, &target);
        }
        from.compute_to(&target)
    }

    /// Two elements of 16 bits share a word: whoever writes one has to write the other.
    fn assign_halves(&self, from: &Array, target: &Stored) -> Result<()> {
        let from = self.library().adopt(&from.tensor()?, from.dtype())?;
        let whole = target.storage.tensor.shape();
        let all = Array::stored(
            self.library(),
            self.dtype(),
            Stored { storage: target.storage.clone(), layout: Layout::contiguous(whole) },
        );
        let wide = all.cast(DType::F32)?.copied()?;
        let State::Stored(place) = wide.0.state.borrow().clone() else { bail!(Internal, "a copy is stored") };
        from.cast(DType::F32)?.compute_to(&Stored { storage: place.storage, layout: target.layout })?;
        let narrow = wide.cast(self.dtype())?.tensor()?;
        self.library().context().device().copy(&narrow.slice(), &target.storage.tensor.slice())
    }

    /// Its elements in new memory.
    pub fn copied(&self) -> Result<Array> {
        let copy = self.apart()?;
        copy.stored_now()?;
        Ok(copy)
    }

    /// An error if it requires a gradient, which does not know of writes.
    pub(super) fn check_may_be_written(&self, what: &str) -> Result<()> {
        if self.requires_grad() && self.library().tape().is_enabled() {
            bail!(
                InvalidRequest,
                "{what}: the tensor {} requires a gradient; write it in noGrad(), or write to its detach()",
                self.shape()
            );
        }
        Ok(())
    }

    /// Its memory, to be written: what reads it and waits is computed before. An error if elements share memory with each other.
    pub(crate) fn writable(&self, what: &str) -> Result<Stored> {
        self.check_may_be_written(what)?;
        let stored = self.exposed(what)?;
        stored.storage.note_write();
        Ok(stored)
    }

    /// The same for who may write to it, and is not known to.
    pub(super) fn exposed(&self, what: &str) -> Result<Stored> {
        self.share_memory()?;
        let stored = self.stored_now()?;
        if stored.layout.may_overlap() {
            bail!(
                InvalidRequest,
                "{what}: elements of the tensor {} share memory with each other, as in what expand() gives; clone() it first",
                self.shape()
            );
        }
        self.library().trials().note_write(&stored.storage);
        stored.storage.compute_dependents()?;
        Ok(stored)
    }
}
