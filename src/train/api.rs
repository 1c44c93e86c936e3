//! What a caller says of a training, and what it tells on its way. TypeScript's types are made from these structs (`typescript.rs`), so their
//! comments are written for callers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::design::LoraOptions;
use super::memory::TrainingMemory;
use super::optimizer::AdamWOptions;
use super::schedule::Schedule;
use super::targets::Targets;
use crate::error::Result;

/// What is learnt, and how.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoraTraining {
    /// What is learnt: texts, `{text}`, or chats `{messages, tools, chat_template_kwargs}`. Of chats the answers are learnt, of texts all.
    #[cfg_attr(test, ts(type = "Array<TrainingExample>"))]
    pub data: Vec<Value>,
    /// What is not learnt. It tells how well the model does on what it has not seen. It is more data, or a share of `data` between 0 and 1, of which
    /// the last texts and chats are held out, rounded up. Default: nothing.
    #[cfg_attr(test, ts(type = "number | Array<TrainingExample> | null"))]
    pub held_out: Option<HeldOut>,
    /// What requests call the adapter. Default: `trained`.
    #[cfg_attr(test, ts(as = "Option<String>"))]
    pub name: String,
    /// The rows of A and the columns of B: how much can be learnt. Default: 8.
    #[cfg_attr(test, ts(as = "Option<usize>"))]
    pub rank: usize,
    /// What is learnt counts alpha / rank times. Default: twice the rank.
    pub alpha: Option<f64>,
    /// The matrices that learn, as PEFT or GGUF files name them: `q_proj`, `attn_q`; or `all-linear`, the default.
    pub targets: Option<Vec<String>>,
    /// How often all of `data` is learnt. Default: 3.
    #[cfg_attr(test, ts(as = "Option<usize>"))]
    pub epochs: usize,
    /// Examples of one step. Default: 1.
    #[cfg_attr(test, ts(as = "Option<usize>"))]
    pub batch_size: usize,
    /// The highest learning rate. Default: 2e-4.
    #[cfg_attr(test, ts(as = "Option<f64>"))]
    pub learning_rate: f64,
    /// How it goes on after it has risen. Default: `linear`.
    #[cfg_attr(test, ts(as = "Option<Schedule>"))]
    pub schedule: Schedule,
    /// The steps in which it rises. Default: 0.
    #[cfg_attr(test, ts(as = "Option<usize>"))]
    pub warmup_steps: usize,
    /// The part of each number that a step takes away, times the learning rate. Default: 0.
    #[cfg_attr(test, ts(as = "Option<f64>"))]
    pub weight_decay: f64,
    /// The largest norm of all gradients together: longer ones are shortened to it; 0 for none. Default: 1.
    #[cfg_attr(test, ts(as = "Option<f64>"))]
    pub max_grad_norm: f64,
    /// The most tokens of an example; a longer one is an error. Default: the engine's context length, at most 1,024. Memory grows with its square.
    pub max_length: Option<usize>,
    /// For the numbers to begin with and the order of examples. Default: 0.
    #[cfg_attr(test, ts(as = "Option<u64>"))]
    pub seed: u64,
    /// Keeps the state of the training every few steps, so that it can go on if it is interrupted. Default: it is not kept.
    pub checkpoint: Option<CheckpointOptions>,
}

/// How the state of a training is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointOptions {
    /// After how many steps.
    pub every_steps: usize,
}

/// What is held out.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum HeldOut {
    /// This share of the texts and chats.
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
            checkpoint: None,
        }
    }
}

impl LoraTraining {
    /// From JSON. An unknown field or a wrong value is `invalid_request`, which names the field.
    pub fn parse(training: Value) -> Result<Self> {
        serde_path_to_error::deserialize(training)
            .map_err(|error| err!(InvalidRequest, "the training: {}: {}", error.path(), error.inner()))
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.data.is_empty() {
            bail!(InvalidRequest, "data is empty, wanted at least one text or chat");
        }
        if self.name.is_empty() {
            bail!(InvalidRequest, "the adapter's name is empty");
        }
        let every = self.checkpoint.map_or(1, |checkpoint| checkpoint.every_steps);
        for (name, number) in [
            ("epochs", self.epochs),
            ("batchSize", self.batch_size),
            ("rank", self.rank),
            ("checkpoint.everySteps", every),
        ] {
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

    pub(super) fn options(&self) -> LoraOptions {
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

    /// The settings on which every number of the training depends, by the names that callers know. The data stand beside them.
    pub(super) fn settings(&self) -> Map<String, Value> {
        let LoraOptions { rank, alpha, seed, .. } = self.options();
        let settings = [
            ("rank", json!(rank)),
            ("alpha", json!(alpha)),
            ("epochs", json!(self.epochs)),
            ("batchSize", json!(self.batch_size)),
            ("learningRate", json!(self.learning_rate)),
            ("schedule", json!(self.schedule)),
            ("warmupSteps", json!(self.warmup_steps)),
            ("weightDecay", json!(self.weight_decay)),
            ("maxGradNorm", json!(self.max_grad_norm)),
            ("seed", json!(seed)),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// What a training tells on its way.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TrainingEvent {
    /// Before anything is computed.
    Begin(TrainingPlan),
    /// It goes on from a checkpoint.
    Resumed {
        /// The steps that were made before.
        step: usize,
    },
    /// After each step.
    Step(TrainingStep),
    /// Before the first step, and after each epoch, if something was held out.
    HeldOut(HeldOutLoss),
    /// The state after a step, to be kept.
    Checkpoint(TrainingCheckpoint),
}

/// What a training is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct TrainingPlan {
    /// Those that are learnt.
    pub examples: usize,
    /// Those that are held out.
    pub held_out: usize,
    /// Tokens of the examples that are learnt, of one epoch.
    pub tokens: usize,
    /// Those of them that are learnt: of chats the answers.
    pub counted: usize,
    /// Tokens of the longest example.
    pub longest: usize,
    /// Of all epochs.
    pub steps: usize,
    /// The numbers in A and B.
    pub parameters: u64,
    /// Bytes on the GPU besides the model's.
    pub memory: TrainingMemory,
    /// All of them.
    pub memory_bytes: u64,
    /// The most bytes that its checkpoints and files take in the engine's own memory, about.
    pub heap_bytes: u64,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
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

/// How well the model does on what is held out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct HeldOutLoss {
    /// The epochs so far.
    pub epoch: usize,
    /// The mean cross entropy of what was held out, in nats.
    pub loss: f32,
}

/// The state of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingCheckpoint {
    /// The steps that were made.
    pub step: usize,
    /// What `train_lora` goes on from.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}
