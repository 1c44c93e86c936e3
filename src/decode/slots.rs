//! The free slots, and leases of slots.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::adapters::AdapterKey;
use super::prompt_cache::PromptCache;
use super::relief::Relief;
use super::slot::{Slot, common_prefix};
use crate::error::Result;
use crate::model::{LayerStates, Transformer};
use crate::tensor::Context;

/// A slot that waits for a sequence.
enum Free {
    /// Its steps are recorded when it is first used.
    New {
        states: Box<LayerStates>,
        sequence: usize,
    },
    Used(Box<Slot>),
}

impl Free {
    /// Whether nobody could reuse what it holds.
    fn is_empty(&self) -> bool {
        match self {
            Self::New { .. } => true,
            Self::Used(slot) => slot.reusable().is_empty(),
        }
    }

    fn reusable(&self, key: AdapterKey) -> &[u32] {
        match self {
            Self::New { .. } => &[],
            Self::Used(slot) => slot.reusable_with(key),
        }
    }
}

/// Free slots. The one that was given back last is the last.
pub struct Slots {
    transformer: Rc<Transformer>,
    capacity: usize,
    free: RefCell<Vec<Free>>,
    max_sequences: usize,
    /// How many slots were taken, and how many were given back.
    leases: Cell<u64>,
    returns: Cell<u64>,
    /// Those who wait for a slot to be given back.
    waiting: RefCell<Vec<Waker>>,
}

impl Slots {
    /// Slots for `max_sequences` sequences of `capacity` tokens. Records the steps of the first one at once.
    pub async fn new(
        transformer: Rc<Transformer>,
        states: &LayerStates,
        capacity: usize,
        max_sequences: usize,
    ) -> Result<Self> {
        let mut free = Vec::with_capacity(max_sequences);
        for sequence in 0..max_sequences {
            let states = states.sequence(sequence)?;
            free.push(if sequence == 0 {
                Free::Used(Box::new(Slot::new(&transformer, states, capacity, sequence).await?))
            } else {
                Free::New { states: Box::new(states), sequence }
            });
        }
        Ok(Self {
            transformer,
            capacity,
            free: RefCell::new(free),
            max_sequences,
            leases: Cell::new(0),
            returns: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// How many tokens of a prompt the best slot holds, with these adapters.
    pub fn held(&self, key: AdapterKey, prompt: &[u32]) -> usize {
        self.free.borrow().iter().map(|free| common_prefix(free.reusable(key), prompt)).max().unwrap_or(0)
    }

    /// The slot that holds most of a prompt's beginning, with these adapters. Among equals, one that holds nothing, then one whose steps are
    /// recorded, then the least recently used.
    pub async fn take(&self, key: AdapterKey, prompt: &[u32]) -> Result<Slot> {
        let taken = {
            let mut free = self.free.borrow_mut();
            let worth = |index: &usize| {
                let slot = &free[*index];
                let held = common_prefix(slot.reusable(key), prompt);
                (held, slot.is_empty(), matches!(slot, Free::Used(_)))
            };
            let best = (0..free.len()).rev().max_by_key(worth);
            best.map(|index| free.remove(index))
        };
        self.leases.set(self.leases.get() + u64::from(taken.is_some()));
        match taken {
            Some(Free::Used(slot)) => Ok(*slot),
            Some(Free::New { states, sequence }) => {
                let back = NewAgain { slots: self, of: Some((states.clone(), sequence)) };
                let slot = Slot::new(&self.transformer, *states, self.capacity, sequence).await?;
                back.keep();
                Ok(slot)
            }
            None => bail!(
                InvalidRequest,
                "as many generations run on this engine as it was loaded for ({}); wait for one, cancel one, or load with a \
                 larger maxSequences",
                self.max_sequences
            ),
        }
    }

    pub fn give_back(&self, mut slot: Slot) {
        slot.forget_unloaded();
        self.free.borrow_mut().push(Free::Used(Box::new(slot)));
        self.returned();
    }

    fn returned(&self) {
        self.returns.set(self.returns.get() + 1);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Lets go of adapters that were unloaded. A slot in use does so when it is given back.
    pub fn forget_unloaded(&self) {
        for free in self.free.borrow_mut().iter_mut() {
            if let Free::Used(slot) = free {
                slot.forget_unloaded();
            }
        }
    }

    /// Resolves when a slot is given back.
    pub async fn next_return(&self) {
        let before = self.returns.get();
        poll_fn(|task| {
            if self.returns.get() != before {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(task.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Whether no slot is in use.
    pub fn is_idle(&self) -> bool {
        self.free.borrow().len() == self.max_sequences
    }

    /// How many slots were ever taken.
    pub fn leases(&self) -> u64 {
        self.leases.get()
    }

    /// Drops the recorded steps of free slots, with what these hold, but those of one: the next sequence takes it.
    pub fn shed(&self) {
        let mut free = self.free.borrow_mut();
        let is_used = |free: &Free| matches!(free, Free::Used(_));
        let Some(last) = free.iter().rposition(is_used) else { return };
        for place in &mut free[..last] {
            if let Free::Used(slot) = place {
                let states = Box::new(slot.layer_states().clone().with_adapters(None));
                *place = Free::New { states, sequence: slot.sequence };
            }
        }
    }

    /// A slot that holds nothing, or the least recently used one. Its contents go to the prompt cache.
    pub async fn emptied(self: &Rc<Self>, cache: &RefCell<PromptCache>, relief: Relief) -> Result<SlotLease> {
        let mut slot = SlotLease::new(self, AdapterKey::default(), &[]).await?;
        keep(self.transformer.context(), cache, &slot, 0, relief).await?;
        slot.forget();
        Ok(slot)
    }

    /// Whether another sequence can begin now.
    pub fn has_free(&self) -> bool {
        !self.free.borrow().is_empty()
    }
}

/// Keeps a slot's text in the cache, but for its first `stays` tokens. An error if the GPU has no room for it: then nothing in the cache can
/// be relied on.
pub async fn keep(
    context: &Context,
    cache: &RefCell<PromptCache>,
    slot: &Slot,
    stays: usize,
    relief: Relief,
) -> Result<()> {
    if !relief.keeps_texts {
        return Ok(());
    }
    let unsure = Unsure(Some(cache));
    let keeping = context.device().attempt("the prompt cache", || cache.borrow_mut().keep(context, slot, stays)).await;
    if keeping.is_ok() {
        unsure.forget();
    }
    keeping
}

/// Empties the cache if what it names was not copied, also where nobody waits for that any more.
struct Unsure<'a>(Option<&'a RefCell<PromptCache>>);

impl Unsure<'_> {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if let Some(cache) = self.0 {
            cache.borrow_mut().clear();
        }
    }
}

/// Gives a slot back if recording its steps failed, or if the caller stopped waiting.
struct NewAgain<'a> {
    slots: &'a Slots,
    of: Option<(Box<LayerStates>, usize)>,
}

impl NewAgain<'_> {
    fn keep(mut self) {
        self.of = None;
    }
}

impl Drop for NewAgain<'_> {
    fn drop(&mut self) {
        if let Some((states, sequence)) = self.of.take() {
            self.slots.free.borrow_mut().insert(0, Free::New { states, sequence });
            self.slots.returned();
        }
    }
}

/// A slot in use. If the lease is dropped, the slot goes back. Unless what it holds was settled, it forgets that: its work was not finished.
pub struct SlotLease {
    slots: Rc<Slots>,
    slot: Option<Slot>,
    is_settled: bool,
}

impl SlotLease {
    /// The slot that holds most of a prompt's beginning, with these adapters.
    pub async fn new(slots: &Rc<Slots>, key: AdapterKey, prompt: &[u32]) -> Result<Self> {
        Ok(Self { slot: Some(slots.take(key, prompt).await?), slots: slots.clone(), is_settled: false })
    }

    /// Nothing changes what the slot holds any more: it keeps that when it goes back.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// The slot itself, for a caller that gives it back in another way.
    pub fn into_slot(mut self) -> Slot {
        match self.slot.take() {
            Some(slot) => slot,
            None => unreachable!("a lease has its slot until it is consumed"),
        }
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
            if !self.is_settled {
                slot.distrust();
            }
            self.slots.give_back(slot);
        }
    }
}
