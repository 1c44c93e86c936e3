//! A batch: operations that are written down first, checked as they come, and recorded together when they are executed.
//!
//! Results have shapes before they have numbers, so mistakes show at the call that makes them. A batch keeps all of its
//! tensors until it is dropped; those that were handed in are shared.

use super::{Context, Desc, Op, Shape, Tensor};
use crate::error::Result;

/// Operations on tensors that are numbered in the order in which they came.
pub struct Batch {
    context: Context,
    buffers: Vec<Slot>,
    /// Written down and not executed yet.
    operations: Vec<Operation>,
}

enum Slot {
    Tensor(Tensor),
    /// The result of an operation that waits.
    Awaited(Desc),
}

struct Operation {
    op: Box<dyn Op>,
    /// The buffers that it reads, and the shapes as which it reads them.
    inputs: Vec<(u32, Shape)>,
    output: u32,
}

impl Batch {
    pub fn new(context: Context) -> Self {
        Self { context, buffers: Vec::new(), operations: Vec::new() }
    }

    /// Operations that wait to be executed.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Takes a tensor in and returns its number.
    pub fn insert(&mut self, tensor: Tensor) -> u32 {
        self.push(Slot::Tensor(tensor))
    }

    pub fn desc(&self, buffer: u32) -> Result<Desc> {
        match self.buffers.get(buffer as usize) {
            Some(Slot::Tensor(tensor)) => Ok(tensor.desc()),
            Some(Slot::Awaited(desc)) => Ok(*desc),
            None => bail!(InvalidRequest, "the batch has no buffer {buffer}; it has {}", self.buffers.len()),
        }
    }

    /// The tensor of a number, once it was executed.
    pub fn tensor(&self, buffer: u32) -> Result<&Tensor> {
        self.desc(buffer)?;
        match &self.buffers[buffer as usize] {
            Slot::Tensor(tensor) => Ok(tensor),
            Slot::Awaited(_) => {
                bail!(InvalidRequest, "buffer {buffer} is a result that was not executed yet; execute the batch first")
            }
        }
    }

    /// Writes an operation with one output down and returns the output's number.
    pub fn record(&mut self, op: impl Op + 'static, inputs: &[u32]) -> Result<u32> {
        let shapes = inputs.iter().map(|input| Ok(self.desc(*input)?.shape)).collect::<Result<Vec<Shape>>>()?;
        self.record_as(op, inputs, &shapes)
    }

    /// The same, with inputs that are read as if they had other shapes of as many elements.
    pub fn record_as(&mut self, op: impl Op + 'static, inputs: &[u32], shapes: &[Shape]) -> Result<u32> {
        let mut descs = Vec::with_capacity(inputs.len());
        for (input, shape) in inputs.iter().zip(shapes) {
            let desc = self.desc(*input)?;
            if desc.shape.elements() != shape.elements() {
                bail!(
                    ShapeMismatch,
                    "{}: buffer {input} of shape {} has {} elements and can't be read as {shape}",
                    op.name(),
                    desc.shape,
                    desc.shape.elements()
                );
            }
            descs.push(Desc { shape: *shape, ..desc });
        }
        let output = match op.infer(&descs)?[..] {
            [output] => output,
            ref outputs => bail!(Internal, "{} has {} outputs, a batch takes ops with one", op.name(), outputs.len()),
        };
        let output = self.push(Slot::Awaited(output));
        let inputs = inputs.iter().copied().zip(shapes.iter().copied()).collect();
        self.operations.push(Operation { op: Box::new(op), inputs, output });
        Ok(output)
    }

    /// Records all operations that wait on the device and submits them, in one submit with whatever was recorded before.
    /// After an error, what was not recorded still waits.
    pub fn execute(&mut self) -> Result<()> {
        let mut done = 0;
        let result = self.record_waiting(&mut done);
        self.operations.drain(..done);
        result?;
        self.context.device().flush();
        Ok(())
    }

    fn record_waiting(&mut self, done: &mut usize) -> Result<()> {
        for operation in &self.operations {
            let inputs = operation
                .inputs
                .iter()
                .map(|(input, shape)| self.tensor(*input)?.reshaped(*shape))
                .collect::<Result<Vec<Tensor>>>()?;
            let output = self.context.run1(&*operation.op, &inputs.iter().collect::<Vec<_>>())?;
            self.buffers[operation.output as usize] = Slot::Tensor(output);
            *done += 1;
        }
        Ok(())
    }

    fn push(&mut self, slot: Slot) -> u32 {
        self.buffers.push(slot);
        self.buffers.len() as u32 - 1
    }
}
