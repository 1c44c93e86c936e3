//! A training: steps over examples, and what came of them.

use std::rc::Rc;

use super::forward::Forward;
use super::loss::Example;
use super::low_rank::LowRank;
use super::memory::TrainingMemory;
use super::optimizer::{AdamWOptions, Optimizer};
use super::targets::Targets;
use crate::array::{Array, Library};
use crate::error::Result;
use crate::model::Transformer;
use crate::model::adapters::{AdapterValues, PairValues};

/// What is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// The rows of A and the columns of B.
    pub rank: usize,
    /// What is learnt counts α / rank times.
    pub alpha: f64,
    /// The matrices that learn.
    pub targets: Targets,
    /// For the numbers to begin with.
    pub seed: u64,
    /// How steps are made.
    pub optimizer: AdamWOptions,
}

impl Default for LoraOptions {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0, targets: Targets::default(), seed: 0, optimizer: AdamWOptions::default() }
    }
}

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
        let LoraOptions { rank, alpha, ref targets, seed, optimizer } = *options;
        if rank == 0 {
            bail!(OutOfRange, "rank is 0, wanted 1 or more");
        }
        if !(alpha.is_finite() && alpha != 0.0) {
            bail!(OutOfRange, "alpha is {alpha}, wanted a finite number other than 0");
        }
        if transformer.context().device().is_cpu() {
            bail!(InvalidRequest, "training needs a GPU, and the model runs on the CPU; load it with a GPU");
        }
        let decoder = transformer.dense_decoder()?;
        let targets = targets.of(&decoder)?;
        let library = Library::new(transformer.context().clone());
        let made = || {
            let low_rank = LowRank::new(&library, (rank, alpha, seed), targets.iter().copied())?;
            let optimizer = Optimizer::new(&library, optimizer, low_rank.parameters())?;
            Ok((low_rank, optimizer))
        };
        let (low_rank, optimizer) = transformer.context().device().attempt("the training", made).await?;
        let forward = Rc::new(Forward::new(&library, decoder, low_rank)?);
        Ok(Self { library, rank, alpha, forward, optimizer })
    }

    /// The numbers in A and B.
    pub fn parameters(&self) -> u64 {
        self.forward.low_rank.parameters().map(|parameter| parameter.elements() as u64).sum()
    }

    /// The GPU memory that learning these examples takes, about.
    pub fn memory<'e>(&self, examples: impl Iterator<Item = &'e Example>) -> TrainingMemory {
        let longest = examples.map(|example| example.ids.len()).max().unwrap_or(0);
        let piece = self.forward.piece();
        TrainingMemory::of(&self.forward.decoder, self.parameters(), longest as u64, piece as u64)
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

    /// One step that makes the loss of these examples smaller: the mean over all of their tokens that count.
    pub async fn step(&mut self, examples: &[Example], rate: f64) -> Result<StepReport> {
        let loss = self.backward(examples).await?;
        let norm = self.optimizer.step(rate, self.forward.low_rank.parameters())?;
        let (loss, grad_norm) = (number(&loss).await?, number(&norm).await?);
        Ok(StepReport { loss, grad_norm })
    }

    /// The loss of these examples, of which nothing is learnt: the mean over all of their tokens that count.
    pub async fn evaluate(&self, examples: &[Example]) -> Result<f32> {
        let counted = self.check(examples)?;
        let mut sum = 0.0;
        for example in examples {
            let loss = self.library.no_grad(|| self.forward.loss(example, 1.0))?;
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
