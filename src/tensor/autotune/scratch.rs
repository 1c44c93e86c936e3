//! The data of compared kernels: a model's own weights, and random numbers in place of activations.

use std::ops::Range;

use super::Subject;
use crate::error::Result;
use crate::gpu::BufferSlice;
use crate::tensor::ops::{KvAppend, Random};
use crate::tensor::{Context, DType, Desc, HostTensor, Tensor};

/// Compared elements of an output: this number from its start, and from its end.
const COMPARED_HEAD: usize = 1 << 18;
const COMPARED_TAIL: usize = 1 << 16;

/// The tensors that a subject's kernels run on.
pub(super) struct Scratch {
    /// Stand-ins for the inputs that belong to no instance.
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Tensor>,
    /// The first contents of the inputs that kernels change.
    unchanged: Vec<(usize, Tensor)>,
    /// The first contents of the ends of outputs, so that a kernel which writes nothing is noticed.
    noise: Tensor,
}

impl Scratch {
    pub(super) fn new(context: &Context, subject: &Subject) -> Result<Self> {
        let random = |desc: Desc, seed: u64| -> Result<Tensor> {
            if let DType::F16 | DType::Q8_0 = desc.dtype {
                // Not arbitrary bits, which may be NaN. In q8_0, heads are whole blocks.
                let head_dim = desc.shape.matrix()?.1;
                let numbers = context.run1(&Random { shape: desc.shape, seed }, &[])?;
                let [cache, other] = [context.empty(desc, "tuning")?, context.empty(desc, "tuning")?];
                let state = context.tensor(&HostTensor::u32(&[4], &[0; 4]))?;
                context.run(&KvAppend { head_dim }, &[&numbers, &numbers, &cache, &other, &state])?;
                return Ok(cache);
            }
            let random = context.run1(&Random { shape: desc.shape, seed }, &[])?;
            // Words of int8 have the same bits.
            context.tensor_from_buffer(desc, random.slice().buffer, 0)
        };
        let first = subject.instances.first();
        let mut inputs = Vec::with_capacity(subject.inputs.len());
        for (index, desc) in subject.inputs.iter().enumerate() {
            let own = first.and_then(|instance| instance[index].as_ref());
            inputs.push(if own.is_some() { None } else { Some(random(*desc, index as u64)?) });
        }
        let outputs = subject.outputs.iter().map(|desc| context.empty(*desc, "tuning"));
        let unchanged =
            subject.mutates.iter().map(|index| Ok((*index, random(subject.inputs[*index], *index as u64)?)));
        Ok(Self {
            inputs,
            outputs: outputs.collect::<Result<_>>()?,
            unchanged: unchanged.collect::<Result<_>>()?,
            noise: random(Desc::f32(&[COMPARED_HEAD]), 77)?,
        })
    }

    /// The inputs of the n-th dispatch.
    fn inputs<'a>(&'a self, subject: &'a Subject, n: usize) -> Vec<&'a Tensor> {
        let instance = &subject.instances[n % subject.instances.len()];
        instance.iter().zip(&self.inputs).filter_map(|(own, scratch)| own.as_ref().or(scratch.as_ref())).collect()
    }

    pub(super) fn record(&self, context: &Context, subject: &Subject, kernel: usize, n: usize) -> Result<()> {
        let inputs = self.inputs(subject, n);
        context.dispatch(subject.key.op, subject.mutates, &subject.kernels[kernel].1, &inputs, &self.outputs)
    }

    /// What a dispatch with the first instance writes.
    pub(super) fn results<'a>(&'a self, subject: &'a Subject) -> Vec<&'a Tensor> {
        let inputs = self.inputs(subject, 0);
        self.outputs.iter().chain(subject.mutates.iter().map(|index| inputs[*index])).collect()
    }

    /// The compared part of that.
    pub(super) fn compared<'a>(&'a self, subject: &'a Subject) -> Vec<(&'a Tensor, Range<usize>)> {
        let results = self.results(subject).into_iter();
        let words = |tensor: &Tensor| tensor.bytes() as usize / 4;
        results.flat_map(|tensor| ends(words(tensor)).map(move |range| (tensor, range))).collect()
    }

    /// Restores what the first dispatch found.
    pub(super) fn reset(&self, context: &Context, subject: &Subject) -> Result<()> {
        let inputs = self.inputs(subject, 0);
        for (index, unchanged) in &self.unchanged {
            let slice = BufferSlice { size: unchanged.bytes(), ..unchanged.slice() };
            context.device().copy(&slice, &inputs[*index].slice())?;
        }
        for output in &self.outputs {
            for range in ends(output.shape().elements()) {
                let (offset, size) = (range.start as u64 * 4, range.len() as u64 * 4);
                let noise = BufferSlice { size, ..self.noise.slice() };
                context.device().copy(&noise, &BufferSlice { offset, size, ..output.slice() })?;
            }
        }
        Ok(())
    }
}

/// The compared elements of a tensor, counted in words.
fn ends(elements: usize) -> impl Iterator<Item = Range<usize>> {
    let head = elements.min(COMPARED_HEAD);
    let tail = elements.saturating_sub(COMPARED_TAIL).max(head);
    [0..head, tail..elements].into_iter().filter(|range| !range.is_empty())
}
