//! The keys and values that the decoder's layers have of the text that its encoder has read, for cross-attention. They don't grow with the
//! tokens of a sequence, and every length of the sequence has the same.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use super::{KeyRope, KvCache, SequenceState, Shift};
use crate::error::Result;
use crate::tensor::{Context, HostTensor, Tensor};

/// The states of one sequence or several. Cloning clones the handle.
#[derive(Clone)]
pub struct SourceStates {
    /// By the positions of the encoder's text.
    kv: KvCache,
    texts: Rc<[Text]>,
    /// The sequence whose part this is; the first one of several.
    own: usize,
}

/// What a sequence's encoder has read.
struct Text {
    /// [1, 2] u32: which positions hold it.
    span: Tensor,
    length: Cell<usize>,
}

impl SourceStates {
    /// `kv` has room for the encoder's texts of `sequences` sequences.
    pub fn new(context: &Context, kv: KvCache, sequences: usize) -> Result<Self> {
        // Kernels that are recorded before there is a text read one position.
        let text = |_| Ok(Text { span: context.tensor(&HostTensor::u32(&[1, 2], &[0, 1]))?, length: Cell::new(1) });
        Ok(Self { kv, texts: (0..sequences).map(text).collect::<Result<_>>()?, own: 0 })
    }

    /// The part of one sequence, in the same memory.
    pub fn sequence(&self, index: usize) -> Result<Self> {
        Ok(Self { kv: self.kv.sequence(index)?, texts: self.texts.clone(), own: index })
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.kv.bytes()
    }

    /// The keys and values have been written for a text of `length` tokens.
    pub fn set_length(&self, context: &Context, length: usize) -> Result<()> {
        let text = &self.texts[self.own];
        context.write(&text.span, 0, bytemuck::cast_slice(&[0, length as u32]))?;
        text.length.set(length);
        Ok(())
    }

    /// Keys and values of a layer, [capacity, columns], and the span of positions to look at, [1, 2].
    pub fn layer(&self, index: usize) -> (&Tensor, &Tensor, &Tensor) {
        let (k, v) = self.kv.layer(index);
        (k, v, &self.texts[self.own].span)
    }
}

impl SequenceState for SourceStates {
    fn copy_from(&self, context: &Context, sequence: usize, _: usize) -> Result<()> {
        let Some(text) = self.texts.get(sequence) else { bail!(Internal, "there is no sequence {sequence}") };
        self.kv.copy_from(context, sequence, text.length.get())?;
        self.set_length(context, text.length.get())
    }

    fn shift(&self, _: &Context, _: Shift, _: &dyn Fn(usize) -> Result<KeyRope>) -> Result<()> {
        Ok(())
    }

    fn positions(&self, _: Range<usize>) -> Result<Vec<Tensor>> {
        Err(self.apart())
    }

    fn snapshot(&self, _: usize) -> Result<Vec<Tensor>> {
        Err(self.apart())
    }

    fn load(&self, _: &Context, _: usize, _: &[Tensor]) -> Result<()> {
        Err(self.apart())
    }
}

impl SourceStates {
    /// Tokens alone don't say which text they belong to, so nothing keeps these states apart from their slot.
    fn apart(&self) -> crate::Error {
        err!(Internal, "what an encoder has read is not kept apart from its sequence")
    }
}
