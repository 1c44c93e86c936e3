//! A batch: operations are noted and checked one by one, and recorded together when the batch is executed.
//!
//! Results have shapes before they have contents, so a mistake is reported by the call that makes it. A batch keeps all its
//! tensors until it is dropped; the tensors of the caller are shared.

use futures_util::future::LocalBoxFuture;

use super::{Context, Desc, Op, Shape, Tensor};
use crate::error::Result;

/// Operations on tensors, which are numbered in their order.
pub struct Batch {
    context: Context,
    buffers: Vec<Slot>,
    /// Noted and not executed yet.
    operations: Vec<Operation>,
}

#[derive(Clone)]
enum Slot {
    Tensor(Tensor),
    /// The result of an operation that is not executed yet.
    Awaited(Desc),
}

enum Operation {
    Op {
        op: Box<dyn Op>,
        /// The buffers that it reads, and the shapes in which it reads them.
        inputs: Vec<(u32, Shape)>,
        output: u32,
    },
    /// What somebody else records, given these buffers.
    Call { record: Box<Call>, buffers: Vec<u32> },
}

type Call = dyn Fn(&[Tensor]) -> Result<()>;

impl Batch {
    /// An empty batch.
    pub fn new(context: Context) -> Self {
        Self { context, buffers: Vec::new(), operations: Vec::new() }
    }

    /// Operations that wait to be executed.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// The number of tensors, results included. Numbers are below this.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Adds a tensor and returns its number.
    pub fn insert(&mut self, tensor: Tensor) -> u32 {
        self.push(Slot::Tensor(tensor))
    }

    /// The shape and dtype of a tensor, also before its operation was executed. An error if there is no such number.
    pub fn desc(&self, buffer: u32) -> Result<Desc> {
        match self.buffers.get(buffer as usize) {
            Some(Slot::Tensor(tensor)) => Ok(tensor.desc()),
            Some(Slot::Awaited(desc)) => Ok(*desc),
            None => bail!(InvalidRequest, "the batch has no buffer {buffer}; it has {}", self.buffers.len()),
        }
    }

    /// The tensor of a number. An error if its operation was not executed yet.
    pub fn tensor(&self, buffer: u32) -> Result<&Tensor> {
        self.desc(buffer)?;
        tensor(&self.buffers, buffer)
    }

    /// Notes an operation with one output and returns the output's number.
    pub fn record(&mut self, op: impl Op + 'static, inputs: &[u32]) -> Result<u32> {
        let shapes = inputs.iter().map(|input| Ok(self.desc(*input)?.shape)).collect::<Result<Vec<Shape>>>()?;
        self.record_as(op, inputs, &shapes)
    }

    /// The same, with inputs read in other shapes of as many elements.
    pub fn record_as(&mut self, op: impl Op + 'static, inputs: &[u32], shapes: &[Shape]) -> Result<u32> {
        let mut descs = Vec::with_capacity(inputs.len());
        for (input, shape) in inputs.iter().zip(shapes) {
            let desc = self.desc(*input)?;
            if desc.shape.elements() != shape.elements() {
                bail!(
                    ShapeMismatch,
                    "{}: buffer {input} of shape {} has {} elements and can't be read as {shape}",
                    op.title(),
                    desc.shape,
                    desc.shape.elements()
                );
            }
            descs.push(Desc { shape: *shape, ..desc });
        }
        let output = match op.infer(&descs)?[..] {
            [output] => output,
            ref outputs => bail!(Internal, "{} has {} outputs, a batch takes ops with one", op.title(), outputs.len()),
        };
        let output = self.push(Slot::Awaited(output));
        let inputs = inputs.iter().copied().zip(shapes.iter().copied()).collect();
        self.operations.push(Operation::Op { op: Box::new(op), inputs, output });
        Ok(output)
    }

    /// Notes that `record` is to be called at this place with the tensors of these buffers, such as to dispatch a kernel of the caller's.
    pub fn record_call(&mut self, record: impl Fn(&[Tensor]) -> Result<()> + 'static, buffers: &[u32]) -> Result<()> {
        buffers.iter().try_for_each(|buffer| self.desc(*buffer).map(|_| ()))?;
        self.operations.push(Operation::Call { record: Box::new(record), buffers: buffers.to_vec() });
        Ok(())
    }

    /// Records all noted operations and submits them, in one submit with everything recorded before. After an error, the
    /// operations that were not recorded stay noted.
    pub fn execute(&mut self) -> Result<()> {
        let mut done = 0;
        let result = self.record_waiting(&mut done);
        self.operations.drain(..done);
        result?;
        self.context.device().flush();
        Ok(())
    }

    /// Compiles the kernels of the noted operations, in browsers all at the same time and without blocking. Which they are is settled at the
    /// call.
    pub fn compile(&self) -> LocalBoxFuture<'static, Result<()>> {
        self.context.prepare(|| {
            let mut buffers = self.buffers.clone();
            self.operations.iter().try_for_each(|operation| record(&self.context, operation, &mut buffers))
        })
    }

    fn record_waiting(&mut self, done: &mut usize) -> Result<()> {
        for operation in &self.operations {
            record(&self.context, operation, &mut self.buffers)?;
            *done += 1;
        }
        Ok(())
    }

    fn push(&mut self, slot: Slot) -> u32 {
        self.buffers.push(slot);
        self.buffers.len() as u32 - 1
    }
}

fn tensor(buffers: &[Slot], buffer: u32) -> Result<&Tensor> {
    match &buffers[buffer as usize] {
        Slot::Tensor(tensor) => Ok(tensor),
        Slot::Awaited(_) => {
            bail!(InvalidRequest, "buffer {buffer} is a result that was not executed yet; execute the batch first")
        }
    }
}

/// Records an operation; its result takes the place of what was awaited.
fn record(context: &Context, operation: &Operation, buffers: &mut [Slot]) -> Result<()> {
    match operation {
        Operation::Op { op, inputs, output } => {
            let inputs = inputs
                .iter()
                .map(|(input, shape)| tensor(buffers, *input)?.reshaped(*shape))
                .collect::<Result<Vec<Tensor>>>()?;
            let result = context.run1(&**op, &inputs.iter().collect::<Vec<_>>())?;
            buffers[*output as usize] = Slot::Tensor(result);
        }
        Operation::Call { record, buffers: numbers } => {
            let tensors = numbers.iter().map(|buffer| tensor(buffers, *buffer).cloned());
            record(&tensors.collect::<Result<Vec<Tensor>>>()?)?;
        }
    }
    Ok(())
}
