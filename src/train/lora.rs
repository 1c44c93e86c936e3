//! An engine's training of an adapter: from chats and texts to an adapter that is loaded and can be saved.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data::examples;
use super::loss::Example;
use super::memory::TrainingMemory;
use super::optimizer::AdamWOptions;
use super::schedule::Schedule;
use super::targets::Targets;
use super::trainer::{LoraOptions, Trainer};
use crate::engine::folder::MemoryFolder;
use crate::engine::{AdapterOptions, Engine, LoadedAdapter};
use crate::error::Result;
use crate::model::adapters::{AdapterValues, MAX_ADAPTERS, gguf_file, peft_folder};
use crate::model::config::Config;
use crate::tensor::Rng;

/// What a caller says of a training.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoraTraining {
    /// What is learnt: texts, `{text}`, or chats `{messages, tools, chat_template_kwargs}`. Of chats the answers are learnt, of texts all.
    pub data: Vec<Value>,
    /// What is not learnt, and tells how well the model does on what it has not seen: more data, or a share of `data` between 0 and 1, the last
    /// of it. Default: nothing.
    pub held_out: Option<HeldOut>,
    /// What requests call the adapter. Default: `trained`.
    pub name: String,
    /// The rows of A and the columns of B: how much can be learnt. Default: 8.
    pub rank: usize,
    /// What is learnt counts alpha / rank times. Default: twice the rank.
    pub alpha: Option<f64>,
    /// The matrices that learn, as PEFT or GGUF files name them: `q_proj`, `attn_q`; or `all-linear`, the default.
    pub targets: Option<Vec<String>>,
    /// How often all of `data` is learnt. Default: 3.
    pub epochs: usize,
    /// Examples of one step. Default: 1.
    pub batch_size: usize,
    /// The highest learning rate. Default: 2e-4.
    pub learning_rate: f64,
    /// How it goes on after it has risen: `constant`, `linear` or `cosine`. Default: `linear`.
    pub schedule: Schedule,
    /// The steps in which it rises. Default: 0.
    pub warmup_steps: usize,
    /// The part of each number that a step takes away, times the learning rate. Default: 0.
    pub weight_decay: f64,
    /// The largest norm of all gradients together: longer ones are shortened to it; 0 for none. Default: 1.
    pub max_grad_norm: f64,
    /// The most tokens of an example; a longer one is an error. Default: the engine's context length, at most 1,024. Memory grows with its square.
    pub max_length: Option<usize>,
    /// For the numbers to begin with and the order of examples. Default: 0.
    pub seed: u64,
}

/// What is held out.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum HeldOut {
    /// This share of the data.
    Share(f64),
    /// Data of its own.
    Data(Vec<Value>),
}

impl Default for LoraTraining {
    fn default() -> Self {
        let AdamWOptions { weight_decay, max_grad_norm, .. } = AdamWOptions::default();
        Self {
            data: Vec::new(),
            held_out: None,
            name: "trained".to_owned(),
            rank: 8,
            alpha: None,
            targets: None,
            epochs: 3,
            batch_size: 1,
            learning_rate: 2e-4,
            schedule: Schedule::default(),
            warmup_steps: 0,
            weight_decay,
            max_grad_norm,
            max_length: None,
            seed: 0,
        }
    }
}

/// What a training tells on its way.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TrainingEvent {
    /// Before anything is computed.
    Begin(TrainingPlan),
    /// After each step.
    Step(TrainingStep),
    /// Before the first step, and after each epoch, if something was held out.
    HeldOut {
        /// The epochs so far.
        epoch: usize,
        /// The mean cross entropy of what was held out, in nats.
        loss: f32,
    },
}

/// What a training is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrainingPlan {
    /// Those that are learnt.
    pub examples: usize,
    /// Those that are held out.
    pub held_out: usize,
    /// Their tokens, of one epoch.
    pub tokens: usize,
    /// Those of them that are learnt.
    pub counted: usize,
    /// Of all epochs.
    pub steps: usize,
    /// The numbers in A and B.
    pub parameters: u64,
    /// Bytes on the GPU besides the model's.
    pub memory: TrainingMemory,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrainingStep {
    /// Its number, from 1.
    pub step: usize,
    /// Of this many.
    pub steps: usize,
    /// The epoch that it is in, from 1.
    pub epoch: usize,
    /// The mean cross entropy of its examples before it, in nats.
    pub loss: f32,
    /// The norm of all gradients together, before it was clipped.
    pub grad_norm: f32,
    /// The learning rate.
    pub learning_rate: f64,
    /// Tokens of its examples.
    pub tokens: usize,
}

/// An adapter that was trained.
pub struct TrainedLora {
    /// What the engine says of it, or why it could not be loaded in the end: what was learnt is there all the same.
    pub loaded: Result<LoadedAdapter>,
    values: AdapterValues,
    config: Config,
    base: Option<String>,
}

impl TrainedLora {
    /// Its files as PEFT has them: `adapter_config.json` and `adapter_model.safetensors`.
    pub fn peft_folder(&self) -> Result<Vec<(String, Vec<u8>)>> {
        peft_folder(&self.config, &self.values, self.base.as_deref())
    }

    /// The same as a GGUF file for llama.cpp.
    pub fn gguf_file(&self) -> Result<Vec<u8>> {
        gguf_file(&self.config, &self.values)
    }
}

/// More tokens have to be asked for: memory grows with their square.
const DEFAULT_LENGTH: usize = 1024;

impl LoraTraining {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(training: Value) -> Result<Self> {
        serde_path_to_error::deserialize(training)
            .map_err(|error| err!(InvalidRequest, "the training: {}: {}", error.path(), error.inner()))
    }

    fn check(&self) -> Result<()> {
        if self.data.is_empty() {
            bail!(InvalidRequest, "data is empty, wanted at least one text or chat");
        }
        for (name, number) in [("epochs", self.epochs), ("batchSize", self.batch_size), ("rank", self.rank)] {
            if number == 0 {
                bail!(OutOfRange, "{name} is 0, wanted 1 or more");
            }
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            bail!(OutOfRange, "learningRate is {}, wanted a number above 0", self.learning_rate);
        }
        for (name, number) in [("weightDecay", self.weight_decay), ("maxGradNorm", self.max_grad_norm)] {
            if !(number.is_finite() && number >= 0.0) {
                bail!(OutOfRange, "{name} is {number}, wanted 0 or more");
            }
        }
        match self.held_out {
            Some(HeldOut::Share(share)) if !(0.0..1.0).contains(&share) => {
                bail!(OutOfRange, "heldOut is {share}, wanted a share from 0 to below 1, or data")
            }
            _ => Ok(()),
        }
    }

    fn options(&self) -> LoraOptions {
        LoraOptions {
            rank: self.rank,
            alpha: self.alpha.unwrap_or(2.0 * self.rank as f64),
            targets: self.targets.clone().map_or_else(Targets::default, Targets::new),
            seed: self.seed,
            optimizer: AdamWOptions {
                weight_decay: self.weight_decay,
                max_grad_norm: self.max_grad_norm,
                ..AdamWOptions::default()
            },
        }
    }

    /// What is learnt, and what is held out.
    fn examples(&self, engine: &Engine) -> Result<(Vec<Example>, Vec<Example>)> {
        let context = engine.info().context_length;
        let longest = self.max_length.unwrap_or(context.min(DEFAULT_LENGTH));
        if longest > context || longest < 2 {
            bail!(OutOfRange, "maxLength is {longest}, wanted 2 to {context}, the context length of the engine");
        }
        let mut learnt = examples(engine, "data", &self.data, longest)?;
        let held_out = match &self.held_out {
            None => Vec::new(),
            Some(HeldOut::Data(data)) => examples(engine, "heldOut", data, longest)?,
            Some(HeldOut::Share(share)) => {
                let count = (learnt.len() as f64 * share).ceil() as usize;
                if count >= learnt.len() {
                    bail!(
                        InvalidRequest,
                        "heldOut takes {count} of {} examples, and leaves nothing to learn",
                        learnt.len()
                    );
                }
                learnt.split_off(learnt.len() - count)
            }
        };
        Ok((learnt, held_out))
    }
}

/// Trains an adapter and loads it, by its name and with the scale 1. Mistakes in the data or the settings, a model that can't be trained, and a GPU without
/// room for the adapter end in an error before the first step. `tell` may end it with an error: then nothing is loaded.
pub async fn train_lora(
    engine: &Engine,
    training: &LoraTraining,
    tell: &mut dyn FnMut(&TrainingEvent) -> Result<()>,
) -> Result<TrainedLora> {
    training.check()?;
    if engine.adapters().iter().any(|adapter| adapter.name == training.name) {
        bail!(
            InvalidRequest,
            "an adapter named {:?} is loaded already; give another name, or unload that one",
            training.name
        );
    }
    if engine.adapters().len() >= MAX_ADAPTERS {
        bail!(InvalidRequest, "{MAX_ADAPTERS} adapters are loaded, which is the most; unload one");
    }
    let transformer = engine.transformer()?;
    let (learnt, held_out) = training.examples(engine)?;
    let mut trainer = Trainer::new(transformer, &training.options()).await?;
    let in_epoch = learnt.len().div_ceil(training.batch_size);
    let steps = in_epoch * training.epochs;
    tell(&TrainingEvent::Begin(TrainingPlan {
        examples: learnt.len(),
        held_out: held_out.len(),
        tokens: learnt.iter().map(|example| example.ids.len()).sum(),
        counted: learnt.iter().map(Example::counted).sum(),
        steps,
        parameters: trainer.parameters(),
        memory: trainer.memory(learnt.iter().chain(&held_out)),
    }))?;
    // Frees what a load or answers left for reuse: training takes other sizes.
    transformer.context().device().free_unused().await?;
    let mut order: Vec<usize> = (0..learnt.len()).collect();
    let mut rng = Rng(training.seed);
    let mut step = 0;
    for epoch in 0..training.epochs {
        if !held_out.is_empty() {
            let loss = trainer.evaluate(&held_out).await?;
            tell(&TrainingEvent::HeldOut { epoch, loss })?;
        }
        shuffle(&mut order, &mut rng);
        for batch in order.chunks(training.batch_size) {
            let batch: Vec<Example> = batch.iter().map(|index| learnt[*index].clone()).collect();
            let rate = training.learning_rate * training.schedule.factor(step, steps, training.warmup_steps);
            let report = trainer.step(&batch, rate).await?;
            step += 1;
            tell(&TrainingEvent::Step(TrainingStep {
                step,
                steps,
                epoch: epoch + 1,
                loss: report.loss,
                grad_norm: report.grad_norm,
                learning_rate: rate,
                tokens: batch.iter().map(|example| example.ids.len()).sum(),
            }))?;
            if !(report.loss.is_finite() && report.grad_norm.is_finite()) {
                bail!(
                    NumericalError,
                    "the loss is {} and the norm of its gradients {} in step {step} of {steps}; lower learningRate or alpha",
                    report.loss,
                    report.grad_norm
                );
            }
        }
    }
    if !held_out.is_empty() {
        let loss = trainer.evaluate(&held_out).await?;
        tell(&TrainingEvent::HeldOut { epoch: training.epochs, loss })?;
    }
    let values = trainer.adapter().await?;
    let config = transformer.config().clone();
    // Its own memory is free before the engine's copy takes some.
    drop(trainer);
    let base = Some(engine.info().name.clone()).flatten();
    // Some matrices have no name in PEFT's format; all have one in GGUF.
    let file = MemoryFolder::new([("trained.gguf".to_owned(), gguf_file(&config, &values)?)]);
    let options = AdapterOptions { name: Some(training.name.clone()), scale: None };
    let loaded = engine.load_adapter(&file, None, &options, &mut |_, _| Ok(())).await;
    Ok(TrainedLora { loaded, values, config, base })
}

/// Another order, each as likely (Fisher, Yates; Durstenfeld 1964).
fn shuffle(order: &mut [usize], rng: &mut Rng) {
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last + 1));
    }
}
