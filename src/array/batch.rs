//! A batch: operations on arrays are noted and checked one by one, and run together when the batch is executed.
//!
//! Results have shapes before they have contents, so a mistake is reported by the call that makes it: each operation is rehearsed when it is
//! noted. A batch keeps its arrays until it is dropped, but for results that [`Batch::execute_for`] was told nobody reads.

use futures_util::future::LocalBoxFuture;

use super::dtype::DType;
use super::graph::node::Array;
use super::library::Library;
use crate::error::Result;
use crate::tensor::Shape;

/// Operations on arrays, which are numbered in their order.
pub struct Batch {
    library: Library,
    buffers: Vec<Slot>,
    /// Noted and not executed yet.
    operations: Vec<Operation>,
}

#[derive(Clone)]
enum Slot {
    Array(Array),
    /// The result of an operation that is not executed yet.
    Awaited(Shape, DType),
    /// A result that nobody was to read, whose memory others use.
    GivenUp(Shape, DType),
}

struct Operation {
    work: Box<Work>,
    inputs: Vec<u32>,
    /// The first of its results, which have consecutive numbers.
    first: u32,
    results: u32,
}

/// What an operation gives for its inputs. It is called a second time if the first one was a rehearsal, and does the same each time.
type Work = dyn Fn(&[Array]) -> Result<Vec<Array>>;

impl Batch {
    /// An empty batch.
    pub fn new(library: &Library) -> Self {
        Self { library: library.clone(), buffers: Vec::new(), operations: Vec::new() }
    }

    /// Operations that wait to be executed.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// The number of arrays, results included. Numbers are below this.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Adds an array and returns its number.
    pub fn insert(&mut self, array: Array) -> u32 {
        self.push(Slot::Array(array.detached()))
    }

    /// The shape and type of an array, also before its operation was executed. An error if there is no such number.
    pub fn describe(&self, buffer: u32) -> Result<(Shape, DType)> {
        match self.buffers.get(buffer as usize) {
            Some(Slot::Array(array)) => Ok((array.shape(), array.dtype())),
            Some(Slot::Awaited(shape, dtype) | Slot::GivenUp(shape, dtype)) => Ok((*shape, *dtype)),
            None => bail!(InvalidRequest, "the batch has no buffer {buffer}; it has {}", self.buffers.len()),
        }
    }

    /// The array of a number. An error if its operation was not executed yet, or its memory was given up.
    pub fn array(&self, buffer: u32) -> Result<Array> {
        self.describe(buffer)?;
        array(&self.buffers, buffer)
    }

    /// Notes an operation and returns the numbers of its results. It gets the arrays of `inputs` in order.
    pub fn note(
        &mut self,
        inputs: &[u32],
        work: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
    ) -> Result<Vec<u32>> {
        let descs = inputs.iter().map(|input| self.describe(*input)).collect::<Result<Vec<_>>>()?;
        let results = self.library.rehearse(|| {
            let mut arrays: Vec<Array> = Vec::with_capacity(inputs.len());
            for (at, (input, (shape, dtype))) in inputs.iter().zip(descs).enumerate() {
                let again = inputs[..at].iter().position(|other| other == input);
                arrays.push(match (&self.buffers[*input as usize], again) {
                    (Slot::Array(array), _) => array.clone(),
                    (_, Some(other)) => arrays[other].clone(),
                    _ => self.library.empty(shape.dims(), dtype)?,
                });
            }
            Ok(work(&arrays)?.iter().map(|result| (result.shape(), result.dtype())).collect::<Vec<_>>())
        })?;
        // What was given up stays so: an operation on it fails here, and not when it is executed.
        for input in inputs {
            if let Slot::GivenUp(..) = &self.buffers[*input as usize] {
                array(&self.buffers, *input)?;
            }
        }
        let first = self.buffers.len() as u32;
        let numbers = results.into_iter().map(|(shape, dtype)| self.push(Slot::Awaited(shape, dtype))).collect();
        let results = self.buffers.len() as u32 - first;
        self.operations.push(Operation { work: Box::new(work), inputs: inputs.to_vec(), first, results });
        Ok(numbers)
    }

    /// Runs all noted operations and submits them, in one submit with everything recorded before. Functions of elements that only others of the
    /// batch read are part of those, and are computed by themselves when somebody reads them. After an error, the operations that did not run
    /// stay noted.
    pub fn execute(&mut self) -> Result<()> {
        self.run(None)
    }

    /// The same where only these results will be read or used again: the memory of the others is free for what comes after them.
    pub fn execute_for(&mut self, outputs: &[u32]) -> Result<()> {
        outputs.iter().try_for_each(|output| self.describe(*output).map(|_| ()))?;
        self.run(Some(outputs))
    }

    /// Compiles the kernels of the noted operations, in browsers all at the same time and without blocking. Which they are is settled at the
    /// call.
    pub fn compile(&self) -> LocalBoxFuture<'static, Result<()>> {
        let rehearse = || {
            let mut buffers = self.buffers.clone();
            self.operations.iter().try_for_each(|operation| operation.run(&mut buffers))?;
            compute_results(&self.operations, &buffers)
        };
        match self.library.needed_kernels(rehearse) {
            Ok(compiled) => compiled,
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn run(&mut self, outputs: Option<&[u32]>) -> Result<()> {
        self.library.check_is_free("execute")?;
        let mut done = 0;
        let run = self.operations.iter().enumerate().try_for_each(|(at, operation)| {
            operation.run(&mut self.buffers)?;
            done += 1;
            if !self.library.context().device().is_lazy() {
                compute_results(std::slice::from_ref(operation), &self.buffers)?;
            }
            if let Some(outputs) = outputs {
                give_up(&mut self.buffers, &self.operations, at, outputs);
            }
            Ok(())
        });
        let ran: Vec<Operation> = self.operations.drain(..done).collect();
        // Also after an error: what ran before it counts.
        let computed = compute_results(&ran, &self.buffers);
        run.and(computed)?;
        self.library.context().device().flush();
        Ok(())
    }

    fn push(&mut self, slot: Slot) -> u32 {
        self.buffers.push(slot);
        self.buffers.len() as u32 - 1
    }
}

impl Operation {
    fn run(&self, buffers: &mut [Slot]) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| array(buffers, *input)).collect::<Result<Vec<Array>>>()?;
        for (number, result) in (self.first..).zip((self.work)(&inputs)?) {
            buffers[number as usize] = Slot::Array(result);
        }
        Ok(())
    }

    fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.results
    }
}

fn array(buffers: &[Slot], buffer: u32) -> Result<Array> {
    match &buffers[buffer as usize] {
        Slot::Array(array) => Ok(array.clone()),
        Slot::Awaited(..) => {
            bail!(InvalidRequest, "buffer {buffer} is a result that was not executed yet; execute the batch first")
        }
        Slot::GivenUp(..) => {
            bail!(
                InvalidRequest,
                "buffer {buffer} was not among the outputs of execute(), so its memory is used by others"
            )
        }
    }
}

/// Computes the results that are no part of another one, the last first: those before it are often part of it.
fn compute_results(operations: &[Operation], buffers: &[Slot]) -> Result<()> {
    for operation in operations.iter().rev() {
        for number in operation.numbers() {
            if let Slot::Array(array) = &buffers[number as usize] {
                array.compute_if_wanted()?;
            }
        }
    }
    Ok(())
}

/// Gives up the results that no operation after `at` reads and nobody wants. Only those of operations that are noted: earlier ones were wanted.
fn give_up(buffers: &mut [Slot], operations: &[Operation], at: usize, outputs: &[u32]) {
    let own = |number: &u32| operations[..=at].iter().any(|operation| operation.numbers().contains(number));
    let is_read_later = |number: &u32| operations[at + 1..].iter().any(|operation| operation.inputs.contains(number));
    let candidates = operations[at].inputs.iter().copied().filter(own).chain(operations[at].numbers());
    for number in candidates.collect::<Vec<u32>>() {
        if !outputs.contains(&number)
            && !is_read_later(&number)
            && let Slot::Array(array) = &buffers[number as usize]
        {
            buffers[number as usize] = Slot::GivenUp(array.shape(), array.dtype());
        }
    }
}
