//! The slots of a model's caches that nobody uses, and leases of them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::slot::{Slot, common_prefix};
use crate::error::Result;

/// Slots wait here for a sequence. The one that was given back last is the last.
pub struct Slots {
    free: RefCell<Vec<Slot>>,
    max_sequences: usize,
}

impl Slots {
    pub fn new(slots: Vec<Slot>) -> Self {
        Self { max_sequences: slots.len(), free: RefCell::new(slots) }
    }

    /// The slot that holds most of the beginning of a prompt; among equals the one that was used longest ago.
    pub fn take(&self, prompt: &[u32]) -> Result<Slot> {
        let mut slots = self.free.borrow_mut();
        let best = (0..slots.len()).rev().max_by_key(|index| common_prefix(slots[*index].reusable(), prompt));
        match best {
            Some(index) => Ok(slots.remove(index)),
            None => bail!(
                InvalidRequest,
                "as many generations run on this engine as it was loaded for ({}); wait for one, cancel one, or load with a \
                 larger maxSequences",
                self.max_sequences
            ),
        }
    }

    pub fn give_back(&self, slot: Slot) {
        self.free.borrow_mut().push(slot);
    }

    /// Whether another sequence can begin now.
    pub fn has_free(&self) -> bool {
        !self.free.borrow().is_empty()
    }
}

/// A slot that somebody uses. If it is dropped, it goes back, and what it held is forgotten: it was left in the middle of something.
pub struct SlotLease {
    slots: Rc<Slots>,
    slot: Option<Slot>,
}

impl SlotLease {
    /// The slot that holds most of the beginning of a prompt.
    pub fn new(slots: &Rc<Slots>, prompt: &[u32]) -> Result<Self> {
        Ok(Self { slot: Some(slots.take(prompt)?), slots: slots.clone() })
    }

    /// The slot, for somebody who gives it back in another way.
    pub fn into_slot(mut self) -> Result<Slot> {
        self.slot.take().ok_or_else(|| err!(Internal, "a slot was taken twice"))
    }
}

impl Deref for SlotLease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match &self.slot {
            Some(slot) => slot,
            None => unreachable!("a lease has its slot until it is consumed"),
        }
    }
}

impl DerefMut for SlotLease {
    fn deref_mut(&mut self) -> &mut Slot {
        match &mut self.slot {
            Some(slot) => slot,
            None => unreachable!("a lease has its slot until it is consumed"),
        }
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            slot.forget();
            self.slots.give_back(slot);
        }
    }
}
