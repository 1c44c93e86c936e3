//! A training: steps over examples, and what came of them.

use std::rc::Rc;

use super::design::{Design, LoraOptions};
use super::forward::Forward;
use super::loss::Example;
use super::low_rank::LowRank;
use super::memory::TrainingMemory;
use super::optimizer::Optimizer;
use crate::array::{Array, Library};
use crate::error::Result;
use crate::model::Transformer;
use crate::model::adapters::{AdapterValues, PairValues};
use crate::tensor::{Context, Tensor};

/// The bytes that are read from the GPU at once.
const READ_BYTES: u64 = 64 << 20;

/// What a step tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The cross entropy before the step, in nats: the mean over its tokens that count.
    pub loss: f32,
    /// The norm of all gradients together, before it was clipped.
    pub grad_norm: f32,
}

/// An adapter that is being trained.
pub struct Trainer {
    library: Library,
    rank: usize,
    alpha: f64,
    forward: Rc<Forward>,
    optimizer: Optimizer,
}

impl Trainer {
    /// Begins with an adapter that changes nothing. The model's weights are shared with it and stay as they are. A model that training does not
    /// support, wrong settings and a GPU without room end in an error before anything is computed.
    pub async fn new(transformer: &Transformer, options: &LoraOptions) -> Result<Self> {
        Self::begin(Design::new(transformer, options)?).await
    }

    /// The same for what was designed before.
    pub(super) async fn begin(design: Design) -> Result<Self> {
        let library = Library::new(design.context.clone());
        let LoraOptions { rank, alpha, seed, optimizer, .. } = design.options;
        let made = || {
            let low_rank = LowRank::new(&library, (rank, alpha, seed), design.targets()?.into_iter())?;
            let optimizer = Optimizer::new(&library, optimizer, low_rank.parameters())?;
            Ok((low_rank, optimizer))
        };
        let (low_rank, optimizer) = design.context.device().attempt("the training", made).await?;
        let forward = Rc::new(Forward::new(&library, design.decoder, low_rank)?);
        Ok(Self { library, rank, alpha, forward, optimizer })
    }

    /// The numbers in A and B.
    pub fn parameters(&self) -> u64 {
        self.forward.low_rank.parameters().map(|parameter| parameter.elements() as u64).sum()
    }

    /// The GPU memory that learning these examples takes, about.
    pub fn memory<'e>(&self, examples: impl Iterator<Item = &'e Example>) -> TrainingMemory {
        TrainingMemory::of_examples(&self.forward.decoder, self.parameters(), examples)
    }

    /// Goes on from other numbers: of an adapter with the same targets and rank. What the optimizer remembers stays.
    pub fn set_values(&self, values: &[PairValues]) -> Result<()> {
        self.forward.low_rank.set(values)
    }

    /// A and B as they are now.
    pub async fn values(&self) -> Result<Vec<PairValues>> {
        self.forward.low_rank.values().await
    }

    /// The adapter as it is now, for files of it.
    pub async fn adapter(&self) -> Result<AdapterValues> {
        Ok(AdapterValues { rank: self.rank, alpha: self.alpha, pairs: self.values().await? })
    }

    /// All numbers on which the next steps depend: of each of A and B itself, and what the optimizer remembers of it.
    pub(super) async fn state(&self) -> Result<Vec<Vec<f32>>> {
        let mut tensors = Vec::new();
        for (parameter, means) in self.forward.low_rank.parameters().zip(self.optimizer.means()) {
            tensors.push(parameter.detached().readable_tensor()?);
            tensors.extend(means.iter().cloned());
        }
        read(self.library.context(), &tensors).await
    }

    /// Goes on from what `state` gave after that number of steps.
    pub(super) async fn restore(&mut self, steps: usize, state: &[Vec<f32>]) -> Result<()> {
        let Self { library, forward, optimizer, .. } = self;
        let found = state.iter().map(Vec::len);
        let wanted = forward.low_rank.parameters().flat_map(|parameter| [parameter.elements(); 3]);
        if !found.eq(wanted) {
            bail!(InvalidFile, "the checkpoint holds other numbers than the training has");
        }
        let Ok(steps) = u32::try_from(steps) else { bail!(InvalidFile, "the checkpoint is of step {steps}") };
        let write = || {
            for (index, (parameter, arrays)) in forward.low_rank.parameters().zip(state.chunks_exact(3)).enumerate() {
                let [value, mean, square] = arrays else { bail!(Internal, "three arrays of each parameter") };
                library.no_grad(|| parameter.assign(&library.f32(parameter.dims(), value)?))?;
                optimizer.restore(library.context(), index, parameter.dims(), [mean, square])?;
            }
            optimizer.set_steps(steps);
            Ok(())
        };
        library.context().device().attempt("the checkpoint of the training", write).await
    }

    /// One step that makes the loss of these examples smaller: the mean over all of their tokens that count.
    pub async fn step(&mut self, examples: &[Example], rate: f64) -> Result<StepReport> {
        let loss = self.backward(examples).await?;
        let Self { library, forward, optimizer, .. } = self;
        let update = || {
            let norm = optimizer.step(rate, forward.low_rank.parameters())?;
            loss.evaluate()?;
            norm.evaluate()?;
            Ok(norm)
        };
        let norm = library.context().device().attempt("a step of the training", update).await?;
        let (loss, grad_norm) = (number(&loss).await?, number(&norm).await?);
        Ok(StepReport { loss, grad_norm })
    }

    /// The loss of these examples, of which nothing is learnt: the mean over all of their tokens that count.
    pub async fn evaluate(&self, examples: &[Example]) -> Result<f32> {
        let counted = self.check(examples)?;
        let mut sum = 0.0;
        for example in examples {
            let loss = || {
                let loss = self.library.no_grad(|| self.forward.loss(example, 1.0))?;
                loss.evaluate()?;
                Ok(loss)
            };
            let device = self.library.context().device();
            let loss = device.attempt("an example of which nothing is learnt", loss).await?;
            sum += f64::from(number(&loss).await?);
        }
        Ok((sum / counted as f64) as f32)
    }

    /// The loss of these examples and its gradients with regard to A and B, which no step has used.
    pub async fn gradients(&self, examples: &[Example]) -> Result<(f32, Vec<PairValues>)> {
        let loss = self.backward(examples).await?;
        let gradients = self.forward.low_rank.gradients().await?;
        self.forget_gradients()?;
        Ok((number(&loss).await?, gradients))
    }

    /// Adds the gradients of the loss to those of A and B. If the GPU has no room for an example, nothing is left of the others either.
    async fn backward(&self, examples: &[Example]) -> Result<Array> {
        let factor = 1.0 / self.check(examples)? as f64;
        // An earlier call may have been given up.
        self.forget_gradients()?;
        let mut sum: Option<Array> = None;
        for example in examples {
            // One after the other: no more than one is kept for the way back at a time.
            let device = self.library.context().device();
            let passed = device.attempt("an example of the training", || self.through(example, factor)).await;
            let loss = match passed {
                Ok(loss) => loss,
                Err(error) => {
                    self.forget_gradients()?;
                    return Err(error);
                }
            };
            sum = Some(match sum {
                Some(sum) => sum.plus(&loss)?,
                None => loss,
            });
        }
        sum.ok_or_else(|| err!(Internal, "a step without examples"))
    }

    /// Forwards and back through one example.
    fn through(&self, example: &Example, factor: f64) -> Result<Array> {
        let loss = self.forward.loss(example, factor)?;
        loss.backward(Default::default())?;
        for parameter in self.forward.low_rank.parameters() {
            if let Some(gradient) = parameter.grad() {
                gradient.evaluate()?;
            }
        }
        let loss = loss.detached();
        loss.evaluate()?;
        Ok(loss)
    }

    fn forget_gradients(&self) -> Result<()> {
        self.forward.low_rank.parameters().try_for_each(|parameter| parameter.set_grad(None))
    }

    /// How many tokens count.
    fn check(&self, examples: &[Example]) -> Result<usize> {
        if examples.is_empty() {
            bail!(InvalidRequest, "there are no examples");
        }
        let vocabulary = self.forward.decoder.config.vocab_size;
        examples.iter().try_for_each(|example| example.check(vocabulary))?;
        Ok(examples.iter().map(Example::counted).sum())
    }
}

async fn number(array: &Array) -> Result<f32> {
    array.to_f32().await?.first().copied().ok_or_else(|| err!(Internal, "a number was to be read"))
}

/// The numbers of tensors, in several turns if they are many.
async fn read(context: &Context, tensors: &[Tensor]) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::with_capacity(tensors.len());
    let mut rest = tensors;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |tensor: &&Tensor| {
            bytes += tensor.bytes();
            bytes <= READ_BYTES
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        let read = context.readback(&now.iter().collect::<Vec<&Tensor>>()).await?;
        for host in read {
            all.push(host.to_f32()?);
        }
        rest = later;
    }
    Ok(all)
}
