//! A model that decodes: its weights, its slots, and the sequences that run on them.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use futures_util::future::poll_fn;
use futures_util::lock::Mutex;

use super::adapters::{AdapterHome, AdapterKey, AdapterSet};
use super::batch::Batch;
use super::grammar::GrammarState;
use super::methods::{Decided, Methods};
use super::prefill::{Prefill, Prefilled, Prompt};
use super::prefill_pace::PrefillPace;
use super::pressure::PressureListener;
use super::prompt_cache::PromptCache;
use super::proposal::draft::DraftModelHome;
use super::proposal::mtp::Pay;
use super::relief::{Patience, Relief};
use super::saved_sequence;
use super::scheduler::{Progress, Scheduler, Tokens};
use super::sequence::{Sequence, SequenceCounts, SequenceParams};
use super::slot::{ContextShifts, PrefillResult};
use super::slots::{SlotLease, Slots};
use crate::error::{Code, Result};
use crate::model::adapters::{Adapter, AdapterFile};
use crate::model::source::ByteSource;
use crate::model::state::RecurrentStates;
use crate::model::{LayerStates, Transformer};
use crate::tensor::{Context, Tensor};

/// A load makes sure that there is room for a pass over this number of tokens. Longer passes become shorter where they must.
const ROOM_TOKENS: usize = 128;

pub struct Decoder {
    pub context: Context,
    pub transformer: Rc<Transformer>,
    pub(super) slots: Rc<Slots>,
    pub prompt_cache: RefCell<PromptCache>,
    recurrent: RecurrentStates,
    pub(super) scheduler: RefCell<Scheduler>,
    pub(super) pace: RefCell<PrefillPace>,
    /// A sequence takes the draft model out while it drafts with it.
    pub draft_model: DraftModelHome,
    /// What drafts of the model's own head are worth.
    pay: Pay,
    /// Held by work that found no room and tries again.
    pub(super) memory_turn: Mutex<()>,
    pub(super) pressure: PressureListener,
    pub(super) adapters: AdapterHome,
}

impl Decoder {
    /// `states` hold `max_sequences` sequences of `capacity` tokens; the prompt cache takes up to `prompt_cache_bytes`. `pressure` hears when
    /// memory runs short. Compiles kernels.
    pub async fn new(
        context: &Context,
        transformer: Transformer,
        states: LayerStates,
        capacity: usize,
        max_sequences: usize,
        prompt_cache_bytes: u64,
        pressure: PressureListener,
    ) -> Result<Rc<Self>> {
        let (is_slow, is_at_once) = (context.device().capabilities().software, context.device().runs_at_once());
        let pace = if is_slow { PrefillPace::slow() } else { PrefillPace::default() };
        let transformer = Rc::new(transformer);
        let slots = Slots::new(transformer.clone(), &states, capacity, max_sequences).await?;
        let recurrent = states.recurrent().clone();
        let batch = if max_sequences > 1 && transformer.is_fused() {
            Some(Batch::new(context, transformer.clone(), states, max_sequences)?)
        } else {
            None
        };
        Ok(Rc::new(Self {
            context: context.clone(),
            transformer,
            slots: Rc::new(slots),
            prompt_cache: RefCell::new(PromptCache::new(prompt_cache_bytes)),
            recurrent,
            scheduler: RefCell::new(Scheduler::new(batch, is_at_once)),
            pace: RefCell::new(pace),
            draft_model: Rc::default(),
            pay: Rc::default(),
            memory_turn: Mutex::new(()),
            pressure,
            adapters: AdapterHome::new(max_sequences),
        }))
    }

    /// An error if there is no room to take a prompt in.
    pub async fn check_room(&self) -> Result<()> {
        let slot = SlotLease::new(&self.slots, AdapterKey::default(), &[]).await?;
        let what = format!("a pass over {ROOM_TOKENS} tokens of a prompt");
        let tokens = slot.capacity().min(ROOM_TOKENS);
        match self.context.device().check_room(&what, || slot.rehearse(&self.transformer, tokens)).await {
            Err(error) if error.code() == Code::OutOfMemory => Err(error),
            // A pass that long may be beyond this adapter for other reasons, which those hear who ask for one.
            _ => Ok(()),
        }
    }

    /// Bytes of the checkpoints of recurrent states.
    pub fn recurrent_checkpoint_bytes(&self) -> u64 {
        self.recurrent.checkpoint_bytes()
    }

    /// Whether another sequence can begin now.
    pub fn has_free_slot(&self) -> bool {
        self.slots.has_free()
    }

    /// One forward pass over `ids` from an empty context, after what the encoder has read if there is one. Returns logits [n_tokens, vocab_size], and the hidden states after these numbers of layers,
    /// [n_tokens, n_embd] each. The slot forgets what it held.
    pub async fn forward(
        &self,
        source: Option<&[u32]>,
        ids: &[u32],
        layers: &[usize],
        adapters: &AdapterSet,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let context = &self.context;
        let _rows = self.transformer.hold_rows(ids).await?;
        let pass = async |relief| {
            let mut slot = self.slots.emptied(&self.prompt_cache, relief).await?;
            slot.use_adapters(&self.transformer, adapters)?;
            let pass = || {
                source.map_or(Ok(()), |source| slot.encode(&self.transformer, source))?;
                slot.forward(&self.transformer, ids, layers)
            };
            let passed = context.device().attempt("a forward pass", pass).await?;
            self.slots.give_back(slot.into_slot());
            Ok(passed)
        };
        self.with_room_at_last(pass).await
    }

    /// The same pass up to the input of the head, [n_tokens, n_embd].
    pub async fn states(&self, ids: &[u32], adapters: &AdapterSet) -> Result<Tensor> {
        let _rows = self.transformer.hold_rows(ids).await?;
        let pass = async |relief| {
            let mut slot = self.slots.emptied(&self.prompt_cache, relief).await?;
            slot.use_adapters(&self.transformer, adapters)?;
            self.context.device().attempt("a forward pass", || slot.states(&self.transformer, ids)).await
        };
        self.with_room_at_last(pass).await
    }

    /// The states of `tokens`, to be saved; at least one. What no slot and no cache holds of them is computed, unless these are so few at the
    /// end that a prompt computes them at no cost.
    pub async fn hold(&self, tokens: &[u32], adapters: &AdapterSet) -> Result<HeldSequence<'_>> {
        let is_decoding = || !self.scheduler.borrow().is_idle();
        let hold = async |relief| self.taking_in(&is_decoding, relief).hold(tokens, adapters).await;
        let (slot, len) = self.with_room_at_last(hold).await?;
        Ok(HeldSequence { transformer: &self.transformer, slot, len })
    }

    /// Puts a saved sequence into a free slot and returns its number of tokens. It is what follows `offset` of the source. Prompts that begin
    /// with its tokens, and run with the adapters that it was saved with, which `adapters` are, need not compute them.
    pub async fn restore(&self, source: &dyn ByteSource, offset: u64, adapters: &AdapterSet) -> Result<usize> {
        let restore = async |relief| {
            let mut slot = self.slots.emptied(&self.prompt_cache, relief).await?;
            slot.use_adapters(&self.transformer, adapters)?;
            saved_sequence::restore(&self.transformer, &mut slot, source, offset).await?;
            slot.settle();
            Ok(slot.tokens().len())
        };
        self.with_room_at_last(restore).await
    }

    /// Loads an adapter, which sequences may then begin with. It keeps one of `MAX_ADAPTERS` places until nobody holds it.
    pub async fn load_adapter(
        &self,
        file: &AdapterFile<'_>,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Rc<Adapter>> {
        self.adapters.load(&self.transformer, file, progress).await
    }

    /// Adapters with their scales, for sequences and passes; those of scale 0 are left out.
    pub fn adapter_set(&self, scaled: impl IntoIterator<Item = (Rc<Adapter>, f32)>) -> AdapterSet {
        self.adapters.set(scaled)
    }

    /// No sequence begins with this adapter any more: frees what was recorded with it. Sequences that run with it go on to their end.
    pub fn unload_adapter(&self, adapter: &Adapter) {
        adapter.unload();
        self.slots.forget_unloaded();
        self.scheduler.borrow_mut().forget_unloaded();
    }

    /// Takes a prompt in, or takes it over from another sequence that did. `None` if it was cancelled. Where the GPU has no room, `patience`
    /// says whether it waits for sequences that run.
    pub async fn prefill(
        &self,
        prompt: &Prompt<'_>,
        params: &SequenceParams,
        from: Option<&PrefillResult>,
        patience: &Patience,
    ) -> Result<Option<Prefilled>> {
        let is_decoding = || !self.scheduler.borrow().is_idle();
        let prefill = async |relief| {
            let prefill = self.taking_in(&is_decoding, relief);
            match from {
                Some(from) => prefill.adopt(prompt, params, from).await,
                None => prefill.run(prompt, params).await,
            }
        };
        Ok(self.with_room(patience, prefill).await?.flatten())
    }

    pub(super) fn taking_in<'a>(&'a self, is_decoding: &'a dyn Fn() -> bool, relief: Relief) -> Prefill<'a> {
        let Self { transformer, slots, prompt_cache: cache, pace, .. } = self;
        Prefill { transformer, slots, cache, pace, is_decoding, relief }
    }

    /// Lets a sequence decode whose prompt is in the caches. `last` is the last token of the prompt, or of the answer's first `forced`
    /// tokens, which went in with it. Also returns the state of its grammar, if it has one.
    pub fn start(
        self: &Rc<Self>,
        prefilled: Prefilled,
        params: SequenceParams,
        last: u32,
        forced: usize,
        mut methods: Methods,
    ) -> Result<(SequenceHandle, Option<Rc<RefCell<GrammarState>>>)> {
        // The GPU begins before the CPU asks the grammar.
        self.context.device().flush();
        methods.draft_model = self.draft_model.clone();
        methods.pay = self.pay.clone();
        methods.row_cache = self.transformer.row_cache().cloned();
        let Prefilled { slot, result, .. } = prefilled;
        let logits = (result.logits, result.advance);
        let mut sequence = Sequence::new(slot.into_slot(), params, logits, last, forced);
        let step = self.scheduler.borrow().step();
        let Decided { proposer, acceptor, grammar } = match methods.decide(&mut sequence, step) {
            Ok(decided) => decided,
            Err(error) => {
                self.slots.give_back(sequence.slot);
                return Err(error);
            }
        };
        let id = self.scheduler.borrow_mut().join(sequence, proposer, acceptor, grammar.is_some());
        let handle = SequenceHandle { decoder: self.clone(), id };
        // What can be submitted now need not wait until somebody asks for tokens.
        let submitted = self.scheduler.borrow_mut().submit_first(&self.transformer);
        submitted?;
        Ok((handle, grammar))
    }

    /// A pass over the last `tokens` tokens of a prompt took `time`, as far as the device has not told already.
    pub fn took_prompt(&self, tokens: usize, time: web_time::Duration) {
        if !self.context.device().is_paced() {
            self.pace.borrow_mut().took(tokens, time);
        }
    }

    fn poll_tokens(&self, id: u64, task: &mut TaskContext<'_>) -> Poll<Result<Tokens>> {
        loop {
            if let Some(tokens) = self.scheduler.borrow_mut().take_tokens(id)? {
                return Poll::Ready(Ok(tokens));
            }
            match Scheduler::progress(&self.scheduler, &self.transformer, task) {
                Ok(Progress::Made) => self.scheduler.borrow_mut().wake(),
                Ok(Progress::Pending) => {
                    self.scheduler.borrow_mut().wait(task.waker());
                    return Poll::Pending;
                }
                Ok(Progress::Nothing) => {
                    return Poll::Ready(Err(err!(Internal, "sequence {id} waits for tokens that nobody computes")));
                }
                // The state of the GPU is no longer known, and that concerns all sequences.
                Err(error) => self.scheduler.borrow_mut().fail(&error),
            }
        }
    }
}

/// A sequence that does not change until this is dropped.
pub struct HeldSequence<'a> {
    transformer: &'a Transformer,
    slot: SlotLease,
    len: usize,
}

impl HeldSequence<'_> {
    /// How many of the tokens are held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Saves them for `Decoder::restore`: `write` gets the bytes in order, in pieces.
    pub async fn save(&self, write: &mut dyn FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
        saved_sequence::save(self.transformer, &self.slot, self.len, write).await
    }
}

/// A sequence that decodes. Dropping the handle ends it: its slot goes back with what it holds.
pub struct SequenceHandle {
    decoder: Rc<Decoder>,
    id: u64,
}

impl SequenceHandle {
    /// The next tokens. Each caller that waits drives all sequences.
    pub async fn next(&self) -> Result<Tokens> {
        let _others_go_on = WakeOnDrop(&self.decoder);
        poll_fn(|task| self.decoder.poll_tokens(self.id, task)).await
    }

    /// Something was wrong with what it gave: nobody may reuse what its slot holds.
    pub fn distrust(&self) {
        self.decoder.scheduler.borrow_mut().distrust(self.id);
    }

    /// Whether nothing follows the tokens taken so far.
    pub fn is_complete(&self) -> bool {
        self.decoder.scheduler.borrow().is_complete(self.id)
    }

    pub fn counts(&self) -> SequenceCounts {
        self.decoder.scheduler.borrow().sequence(self.id).map(|sequence| sequence.counts).unwrap_or_default()
    }

    pub fn shifts(&self) -> ContextShifts {
        self.decoder.scheduler.borrow().sequence(self.id).map(|sequence| sequence.slot.shifts()).unwrap_or_default()
    }
}

impl Drop for SequenceHandle {
    fn drop(&mut self) {
        let left = self.decoder.scheduler.borrow_mut().leave(self.id);
        if let Some(slot) = left {
            self.decoder.slots.give_back(slot);
        }
    }
}

/// The caller that stops waiting may be the one that the GPU would have woken, so the others are woken.
struct WakeOnDrop<'a>(&'a Decoder);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.scheduler.borrow_mut().wake();
    }
}
