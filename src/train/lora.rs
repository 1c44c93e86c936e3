//! An engine's training of an adapter: from chats and texts to an adapter that is loaded and can be saved.

use serde_json::{Map, Value, json};

use super::api::{HeldOut, HeldOutLoss, LoraTraining, TrainingCheckpoint, TrainingEvent, TrainingPlan, TrainingStep};
use super::checkpoint::{Checkpoint, fingerprint};
use super::data::examples;
use super::design::Design;
use super::heap::{HeapNeeds, HeapRoom};
use super::loss::Example;
use super::trainer::Trainer;
use crate::engine::folder::OneFile;
use crate::engine::source::{ByteSource, MemorySource};
use crate::engine::{AdapterOptions, Engine, LoadedAdapter};
use crate::error::Result;
use crate::model::adapters::{AdapterValues, MAX_ADAPTERS, gguf_file, peft_folder};
use crate::model::config::Config;
use crate::tensor::{Device, Rng};

/// An adapter that was trained.
pub struct TrainedLora {
    /// What the engine says of it, or why it could not be loaded in the end: what was learnt is there all the same.
    pub loaded: Result<LoadedAdapter>,
    /// Of each step, those before an interruption too.
    pub losses: Vec<f32>,
    /// Of what was held out.
    pub held_out: Vec<HeldOutLoss>,
    /// It as a GGUF file for llama.cpp.
    pub gguf: Vec<u8>,
    values: AdapterValues,
    config: Config,
    base: Option<String>,
}

impl TrainedLora {
    /// Its files as PEFT has them: `adapter_config.json` and `adapter_model.safetensors`.
    pub fn peft_folder(&self) -> Result<Vec<(String, Vec<u8>)>> {
        peft_folder(&self.config, &self.values, self.base.as_deref())
    }
}

/// More tokens have to be asked for: memory grows with their square.
const DEFAULT_LENGTH: usize = 1024;

/// A training whose data and settings are right.
struct Prepared {
    learnt: Vec<Example>,
    held_out: Vec<Example>,
    design: Design,
    /// Steps of an epoch.
    in_epoch: usize,
    plan: TrainingPlan,
}

impl Prepared {
    /// Mistakes in the data or the settings, and a model that can't be trained, are errors. Nothing is allocated.
    fn new(engine: &Engine, training: &LoraTraining, heap: HeapRoom) -> Result<Self> {
        training.check()?;
        let transformer = engine.transformer()?;
        let design = Design::new(transformer, &training.options())?;
        let (learnt, held_out) = split(engine, training)?;
        let in_epoch = learnt.len().div_ceil(training.batch_size);
        let steps = in_epoch.checked_mul(training.epochs).filter(|steps| u32::try_from(*steps).is_ok());
        let Some(steps) = steps else {
            bail!(OutOfRange, "epochs is {}, and makes more steps than can be counted", training.epochs)
        };
        let all = || learnt.iter().chain(&held_out);
        let memory = design.memory(all())?;
        let parameters = design.parameters()?;
        let needs = HeapNeeds::new(design.targets()?.len(), parameters, training.checkpoint.is_some());
        needs.check(heap)?;
        let plan = TrainingPlan {
            examples: learnt.len(),
            held_out: held_out.len(),
            tokens: learnt.iter().map(|example| example.ids.len()).sum(),
            counted: learnt.iter().map(Example::counted).sum(),
            longest: all().map(|example| example.ids.len()).max().unwrap_or(0),
            steps,
            parameters,
            memory,
            memory_bytes: memory.total(),
            heap_bytes: needs.all,
        };
        Ok(Self { learnt, held_out, design, in_epoch, plan })
    }

    /// What the training does, by which its checkpoints are known.
    fn settings(&self, engine: &Engine, training: &LoraTraining) -> Result<Map<String, Value>> {
        let of = |examples: &[Example]| {
            let words = examples.iter().flat_map(|example| {
                let counts = example.counts.iter().map(|counts| u32::from(*counts));
                [example.ids.len() as u32].into_iter().chain(example.ids.iter().copied()).chain(counts)
            });
            json!(fingerprint(words))
        };
        let mut settings = training.settings();
        settings.insert("model".to_owned(), json!(format!("{:016x}", engine.fingerprint()?)));
        settings.insert("targets".to_owned(), json!(self.design.names()?));
        settings.insert("data".to_owned(), of(&self.learnt));
        settings.insert("heldOut".to_owned(), of(&self.held_out));
        Ok(settings)
    }
}

/// What is learnt, and what is held out.
fn split(engine: &Engine, training: &LoraTraining) -> Result<(Vec<Example>, Vec<Example>)> {
    let context = engine.info().context_length;
    let longest = training.max_length.unwrap_or(context.min(DEFAULT_LENGTH));
    if longest > context || longest < 2 {
        bail!(OutOfRange, "maxLength is {longest}, wanted 2 to {context}, the context length of the engine");
    }
    let all = &training.data[..];
    // A chat may become several examples, which are not to be told apart.
    let count = match training.held_out {
        Some(HeldOut::Share(share)) => share_of(all.len(), share),
        _ => 0,
    };
    if count >= all.len() {
        bail!(InvalidRequest, "heldOut takes {count} of {} texts and chats, and leaves nothing to learn", all.len());
    }
    let (learnt, last) = all.split_at(all.len() - count);
    let first_held_out = learnt.len();
    let learnt = examples(engine, ("data", 0), learnt, longest)?;
    let held_out = match &training.held_out {
        Some(HeldOut::Data(data)) => examples(engine, ("heldOut", 0), data, longest)?,
        _ => examples(engine, ("data", first_held_out), last, longest)?,
    };
    Ok((learnt, held_out))
}

/// The share, rounded up. 7 hundredths of 100 are 7, which floats have as a little more.
fn share_of(all: usize, share: f64) -> usize {
    (all as f64 * share * (1.0 - 1e-12)).ceil() as usize
}

/// What a training would do, and the memory that it takes. Mistakes in the data or the settings, and a model that can't be trained, are
/// errors. Nothing is allocated.
pub fn plan_lora(engine: &Engine, training: &LoraTraining) -> Result<TrainingPlan> {
    plan_lora_within(engine, training, HeapRoom::HERE)
}

/// The same for a program that has so much room in its heap.
pub fn plan_lora_within(engine: &Engine, training: &LoraTraining, heap: HeapRoom) -> Result<TrainingPlan> {
    Ok(Prepared::new(engine, training, heap)?.plan)
}

/// Trains an adapter and loads it, by its name and with the scale 1. It goes on from a checkpoint if there is one, `resume`. Mistakes in the data or
/// the settings, a model that can't be trained, a checkpoint of another training, and a GPU without room end in an error before the first
/// step. `tell` may end it with an error: then nothing is loaded.
pub async fn train_lora(
    engine: &Engine,
    training: &LoraTraining,
    resume: Option<&dyn ByteSource>,
    tell: &mut dyn FnMut(&TrainingEvent) -> Result<()>,
) -> Result<TrainedLora> {
    check_place(engine, training)?;
    let prepared = Prepared::new(engine, training, HeapRoom::HERE)?;
    let device = engine.transformer()?.context().device();
    let _trimmed = TrimAtEnd(device);
    let trained = run(engine, training, prepared, resume, tell).await;
    if trained.is_err() {
        device.let_go().await;
    }
    trained
}

/// Frees what a training took once it is over, however it ends: whoever aborts it drops it.
struct TrimAtEnd<'a>(&'a Device);

impl Drop for TrimAtEnd<'_> {
    fn drop(&mut self) {
        self.0.trim();
    }
}

/// Waits until what a training took is free that was dropped before its end.
pub async fn free_after_training(engine: &Engine) {
    if let Ok(transformer) = engine.transformer() {
        transformer.context().device().let_go().await;
    }
}

async fn run(
    engine: &Engine,
    training: &LoraTraining,
    prepared: Prepared,
    resume: Option<&dyn ByteSource>,
    tell: &mut dyn FnMut(&TrainingEvent) -> Result<()>,
) -> Result<TrainedLora> {
    let settings = prepared.settings(engine, training)?;
    let before = match resume {
        Some(source) => Some(Checkpoint::read(source, &settings).await?),
        None => None,
    };
    let transformer = engine.transformer()?;
    let Prepared { learnt, held_out, design, in_epoch, plan } = prepared;
    // Frees what a load or answers left for reuse: training takes other sizes.
    transformer.context().device().free_unused().await?;
    design.check_room(&plan.memory, plan.longest).await?;
    let mut trainer = Trainer::begin(design).await?;
    tell(&TrainingEvent::Begin(plan))?;
    let mut at = match before {
        Some(checkpoint) => {
            if checkpoint.step > plan.steps {
                bail!(InvalidFile, "the checkpoint is of step {} of {}", checkpoint.step, plan.steps);
            }
            let measured = if held_out.is_empty() { 0 } else { checkpoint.step.div_ceil(in_epoch) };
            if checkpoint.held_out.len() != measured {
                bail!(
                    InvalidFile,
                    "the checkpoint holds {} losses of what is held out, wanted {measured}",
                    checkpoint.held_out.len()
                );
            }
            trainer.restore(checkpoint.step, &checkpoint.state).await?;
            tell(&TrainingEvent::Resumed { step: checkpoint.step })?;
            Checkpoint { state: Vec::new(), ..checkpoint }
        }
        None => Checkpoint::default(),
    };
    let mut order: Vec<usize> = (0..learnt.len()).collect();
    let mut rng = Rng(training.seed);
    for epoch in 0..training.epochs {
        shuffle(&mut order, &mut rng);
        if (epoch + 1) * in_epoch <= at.step {
            continue;
        }
        measure(&trainer, &held_out, epoch, &mut at, tell).await?;
        for batch in order.chunks(training.batch_size).skip(at.step - epoch * in_epoch) {
            let batch: Vec<Example> = batch.iter().map(|index| learnt[*index].clone()).collect();
            let rate = training.learning_rate * training.schedule.factor(at.step, plan.steps, training.warmup_steps);
            let report = trainer.step(&batch, rate).await?;
            at.step += 1;
            at.losses.push(report.loss);
            tell(&TrainingEvent::Step(TrainingStep {
                step: at.step,
                steps: plan.steps,
                epoch: epoch + 1,
                loss: report.loss,
                grad_norm: report.grad_norm,
                learning_rate: rate,
                tokens: batch.iter().map(|example| example.ids.len()).sum(),
            }))?;
            if !(report.loss.is_finite() && report.grad_norm.is_finite()) {
                bail!(
                    NumericalError,
                    "the loss is {} and the norm of its gradients {} in step {} of {}; lower learningRate or alpha",
                    report.loss,
                    report.grad_norm,
                    at.step,
                    plan.steps
                );
            }
            let is_due = training.checkpoint.is_some_and(|checkpoint| at.step % checkpoint.every_steps == 0);
            if is_due && at.step < plan.steps {
                at.state = trainer.state().await?;
                let bytes = at.write(&settings)?;
                at.state.clear();
                tell(&TrainingEvent::Checkpoint(TrainingCheckpoint { step: at.step, bytes }))?;
            }
        }
    }
    measure(&trainer, &held_out, training.epochs, &mut at, tell).await?;
    let values = trainer.adapter().await?;
    let config = transformer.config().clone();
    // Its own memory is free before the engine's copy takes some, and before answers do. Whatever else went wrong, what was learnt is here.
    drop(trainer);
    transformer.context().device().let_go().await;
    let base = Some(engine.info().name.clone()).flatten();
    // Some matrices have no name in PEFT's format; all have one in GGUF.
    let file = MemorySource::new(gguf_file(&config, &values)?).with_name("trained.gguf");
    let options = AdapterOptions { name: Some(training.name.clone()), scale: None };
    let loaded = engine.load_adapter(&OneFile(&file), None, &options, &mut |_, _| Ok(())).await;
    let held_out = at.held_out.into_iter().enumerate().map(|(epoch, loss)| HeldOutLoss { epoch, loss }).collect();
    Ok(TrainedLora { loaded, losses: at.losses, held_out, gguf: file.into_bytes(), values, config, base })
}

/// An error if the adapter could not be loaded in the end.
fn check_place(engine: &Engine, training: &LoraTraining) -> Result<()> {
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
    Ok(())
}

/// The loss of what is held out after that number of epochs, unless it is known.
async fn measure(
    trainer: &Trainer,
    held_out: &[Example],
    epoch: usize,
    at: &mut Checkpoint,
    tell: &mut dyn FnMut(&TrainingEvent) -> Result<()>,
) -> Result<()> {
    if held_out.is_empty() || at.held_out.len() > epoch {
        return Ok(());
    }
    let loss = trainer.evaluate(held_out).await?;
    if !loss.is_finite() {
        bail!(
            NumericalError,
            "the loss of what is held out is {loss} after {} steps; lower learningRate or alpha",
            at.step
        );
    }
    at.held_out.push(loss);
    tell(&TrainingEvent::HeldOut(HeldOutLoss { epoch, loss }))
}

/// Another order, each as likely (Fisher, Yates; Durstenfeld 1964).
fn shuffle(order: &mut [usize], rng: &mut Rng) {
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last + 1));
    }
}
