//! What the head for multi-token prediction keeps of a sequence: keys and values of its layer, and the hidden states of the last tokens.
//!
//! Its entry for a position is made of that position's hidden state and of the token after it, so the entry of the last position is written
//! with the next token. A return to a length whose hidden state is no longer here leaves one entry as another token made it. That may change
//! what is drafted and never what is accepted.

use std::ops::Range;

use super::{KeyRope, KvCache, SequenceState, Shift, StateSize};
use crate::error::Result;
use crate::model::config::Config;
use crate::tensor::{Context, Desc, Shape, Tensor};

/// Hidden states that are kept: more than a rejected draft takes back.
const KEPT: usize = 16;

/// The states of one sequence or several. Cloning clones the handle.
#[derive(Clone)]
pub struct MtpStates {
    kv: KvCache,
    /// The last hidden states of each sequence, [sequences, KEPT · n_embd], or [KEPT · n_embd].
    hidden: Tensor,
    /// For the part of one sequence: those of all.
    of_all: Option<Tensor>,
}

impl MtpStates {
    /// `config` is that of the head.
    pub fn new(context: &Context, config: &Config, size: StateSize) -> Result<Self> {
        let kv = KvCache::new(context, config, size)?;
        let hidden = context.lasting(Desc::f32(&[size.sequences, KEPT * config.n_embd]), "hidden_states")?;
        // A restored text comes without them, and what is read then must be numbers.
        context.write(&hidden, 0, &vec![0; hidden.bytes() as usize])?;
        Ok(Self { kv, hidden, of_all: None })
    }

    /// Their bytes, and the bytes of their largest binding.
    pub fn needs(config: &Config, size: StateSize) -> (u64, u64) {
        let (kv, binding) = KvCache::needs(config, size);
        let hidden = (4 * KEPT * config.n_embd) as u64 * size.sequences as u64;
        (kv.saturating_add(hidden), binding.max(hidden))
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        let (_, len) = self.hidden.shape().matrix()?;
        let hidden = self.hidden.part(index * len, Shape::from([len]))?;
        Ok(Self { kv: self.kv.sequence(index)?, hidden, of_all: Some(self.hidden.clone()) })
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.kv.bytes() + self.hidden.bytes()
    }

    /// Keys and values of its layer.
    pub fn kv(&self) -> &KvCache {
        &self.kv
    }

    /// The last hidden states, as `keep_rows` writes them.
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }
}

impl SequenceState for MtpStates {
    fn copy_from(&self, context: &Context, sequence: usize, length: usize) -> Result<()> {
        let Some(of_all) = &self.of_all else { bail!(Internal, "hidden states of one sequence have no others") };
        let (_, len) = of_all.shape().matrix()?;
        let theirs = of_all.part(sequence * len, Shape::from([len]))?;
        // Within one buffer there are no copies.
        let between = context.empty(theirs.desc(), "hidden states")?;
        context.copy(&theirs, 0..len, &between, 0)?;
        context.copy(&between, 0..len, &self.hidden, 0)?;
        self.kv.copy_from(context, sequence, length)
    }

    fn shift(&self, context: &Context, shift: Shift, rope: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        // Its rope is that of the model, and its ops are fused.
        self.kv.shift(context, shift, &|_| Ok(KeyRope { interleaved: true, ..rope(0)? }))
    }

    fn positions(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        self.kv.positions(range)
    }
}
