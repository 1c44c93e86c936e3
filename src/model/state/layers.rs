//! The states of all layers, of one sequence or several: what passes read and write.

use std::ops::Range;
use std::rc::Rc;

use super::{KeyRope, KvCache, LatentCache, MtpStates, RecurrentStates, SequenceState, Shift, SourceStates, StateSize};
use crate::error::Result;
use crate::model::adapters::ActiveAdapters;
use crate::model::config::Config;
use crate::tensor::{Context, Tensor};

/// Cloning clones the handle.
#[derive(Clone)]
pub struct LayerStates {
    kv: KvCache,
    latents: Rc<LatentCache>,
    recurrent: RecurrentStates,
    mtp: Option<Box<MtpStates>>,
    source: Option<Box<SourceStates>>,
    adapters: Option<ActiveAdapters>,
}

impl LayerStates {
    /// All must be of the same sequences.
    pub fn new(kv: KvCache, latents: LatentCache, recurrent: RecurrentStates) -> Self {
        Self { kv, latents: Rc::new(latents), recurrent, mtp: None, source: None, adapters: None }
    }

    /// The same with the states of cross-attention, of the same sequences.
    pub fn with_source(self, source: SourceStates) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    /// The same with the states of a head for multi-token prediction, of the same sequences.
    pub fn with_mtp(self, mtp: MtpStates) -> Self {
        Self { mtp: Some(Box::new(mtp)), ..self }
    }

    /// The same memory, of sequences that run with these adapters.
    pub fn with_adapters(self, adapters: Option<ActiveAdapters>) -> Self {
        Self { adapters, ..self }
    }

    /// What adds to the products of a pass; `None` where no adapter is active.
    pub fn adapters(&self) -> Option<&ActiveAdapters> {
        self.adapters.as_ref()
    }

    /// The bytes of a model's states without checkpoints, and the bytes of their largest binding.
    pub fn needs(config: &Config, size: StateSize) -> (u64, u64) {
        let (kv, kv_binding) = KvCache::needs(config, size);
        // As many for the texts of an encoder.
        let kv = kv.saturating_mul(if config.encoder.is_some() { 2 } else { 1 });
        let (latents, latent_binding) = LatentCache::needs(config, size);
        let recurrent = RecurrentStates::needs(config, size.sequences);
        let mtp = config.mtp.as_ref().map(|mtp| MtpStates::needs(mtp, size));
        let (mtp, mtp_binding) = mtp.unwrap_or_default();
        let all = kv.saturating_add(latents).saturating_add(recurrent).saturating_add(mtp);
        (all, kv_binding.max(latent_binding).max(mtp_binding))
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let latents = Rc::new(self.latents.sequence(index)?);
        let source = self.source.as_ref().map(|source| source.sequence(index).map(Box::new)).transpose()?;
        let mtp = self.mtp.as_ref().map(|mtp| mtp.sequence(index).map(Box::new)).transpose()?;
        let (kv, recurrent) = (self.kv.sequence(index)?, self.recurrent.sequence(index)?);
        Ok(Self { kv, latents, recurrent, mtp, source, adapters: self.adapters.clone() })
    }

    /// Keys and values.
    pub fn kv(&self) -> &KvCache {
        &self.kv
    }

    /// The latents of layers that have no keys and values.
    pub fn latents(&self) -> &LatentCache {
        &self.latents
    }

    /// The states of recurrent layers.
    pub fn recurrent(&self) -> &RecurrentStates {
        &self.recurrent
    }

    /// What a head for multi-token prediction keeps.
    pub fn mtp(&self) -> Result<&MtpStates> {
        self.mtp.as_deref().ok_or_else(|| err!(Internal, "the states have no keys and values of a head that drafts"))
    }

    /// What cross-attention looks at.
    pub fn source(&self) -> Result<&SourceStates> {
        self.source.as_deref().ok_or_else(|| err!(Internal, "the states have no keys and values of an encoder's text"))
    }

    /// Bytes on the GPU, without checkpoints.
    pub fn bytes(&self) -> u64 {
        let source = self.source.as_deref().map_or(0, SourceStates::bytes);
        let mtp = self.mtp.as_deref().map_or(0, MtpStates::bytes);
        self.kv.bytes() + self.latents.bytes() + self.recurrent.bytes() + mtp + source
    }

    /// How many tokens fit into a sequence.
    pub fn capacity(&self) -> usize {
        self.kv.capacity()
    }

    fn each(&self) -> Vec<&dyn SequenceState> {
        let source = self.source.as_deref().map(|source| source as &dyn SequenceState);
        let states: [&dyn SequenceState; 3] = [&self.kv, &*self.latents, &self.recurrent];
        let mtp = self.mtp.as_deref().map(|mtp| mtp as &dyn SequenceState);
        states.into_iter().chain(mtp).chain(source).collect()
    }
}

/// The greatest length, at most `length`, that all states support.
fn common(mut length: usize, states: &[&dyn SequenceState], of: impl Fn(&dyn SequenceState, usize) -> usize) -> usize {
    loop {
        let least = states.iter().fold(length, |length, state| of(*state, length));
        if least == length {
            return length;
        }
        length = least;
    }
}

impl SequenceState for LayerStates {
    fn recoverable(&self, length: usize) -> usize {
        common(length, &self.each(), |state, length| state.recoverable(length))
    }

    fn checkpoints(&self) -> Option<Vec<usize>> {
        // Keys, values and latents are recoverable at every length.
        self.recurrent.checkpoints()
    }

    fn checkpoint(&self, context: &Context, length: usize) -> Result<()> {
        self.each().into_iter().try_for_each(|state| state.checkpoint(context, length))
    }

    fn give_up_checkpoints(&self) {
        self.each().into_iter().for_each(|state| state.give_up_checkpoints());
    }

    fn roll_back(&self, context: &Context, length: usize) -> Result<()> {
        self.each().into_iter().try_for_each(|state| state.roll_back(context, length))
    }

    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        self.each().into_iter().try_for_each(|state| state.copy_from(context, sequence, length))
    }

    fn copyable(&self, sequence: usize, length: usize) -> usize {
        common(length, &self.each(), |state, length| state.copyable(sequence, length))
    }

    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        self.each().into_iter().try_for_each(|state| state.shift(context, shift, rope))
    }

    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        let each: Vec<Vec<Tensor>> =
            self.each().into_iter().map(|state| state.positions(range.clone())).collect::<Result<_>>()?;
        Ok(each.concat())
    }

    fn snapshot(&self, length: usize) -> Result<Vec<Tensor>> {
        let each: Vec<Vec<Tensor>> =
            self.each().into_iter().map(|state| state.snapshot(length)).collect::<Result<_>>()?;
        Ok(each.concat())
    }

    fn load(&self, context: &Context, length: usize, snapshot: &[Tensor]) -> Result<()> {
        if let Some(source) = &self.source {
            return source.load(context, length, snapshot);
        }
        // The others have only positions, and no snapshot.
        self.recurrent.load(context, length, snapshot)
    }
}
