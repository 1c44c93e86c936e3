//! Autotuning: compares the variants of kernels (`Op::variants`) on this adapter and lets the fastest run.
//!
//! What there is to compare is found by a survey: a step is rehearsed, and each op in it that has variants is noted with its
//! shapes and weights. So kernels are measured on the real shapes of a model, with its own weights in turn, and an op with
//! variants needs to be named nowhere else.
//!
//! Invariants:
//! - A variant that does not compile, or gives something else than the default does, is thrown away.
//! - Without a clear gain the default stays.
//! - Nothing is begun that is not expected to end within the budget. What was not measured keeps its default, and is measured
//!   the next time.

use std::ops::Range;

use serde::Serialize;
use web_time::{Duration, Instant};

use super::ops::{KvAppend, Random};
use super::tuning::{Choice, StoredTunings, TuningKey, Variant};
use super::{Context, DType, Desc, HostTensor, Kernel, Op, Tensor};
use crate::error::Result;
use crate::gpu::{BufferSlice, Capabilities};

/// A variant takes the default's place if it takes at most this much of its time.
const CLEAR_GAIN: f64 = 0.97;

/// The most that ‖variant − default‖ / ‖default‖ may be: each may be off by half of it from the reference, as the cases of the ops
/// have it.
const TOLERANCE: f64 = 2e-5;

/// The same of f16, of which a small difference of f32 may be a whole one.
const F16_TOLERANCE: f64 = 5e-4;

/// Elements of an output that are compared: from its start, and from its end.
const COMPARED_HEAD: usize = 1 << 18;
const COMPARED_TAIL: usize = 1 << 16;

/// Weights that a chain goes through in turn, so that no cache holds them.
const MAX_INSTANCES: usize = 32;

/// Kernels that are compiled at the same time, before it is asked whether more fit.
const COMPILED_AT_ONCE: usize = 5;

/// Dispatches of a chain: at first, and at most.
const FIRST_CHAIN: usize = 4;
const LONGEST_CHAIN: usize = 1024;

/// Chains of the default and of the best variant, in turn, of which the medians are compared.
const ROUNDS: usize = 3;

/// An op of a step that has variants.
pub struct Subject {
    key: TuningKey,
    mutates: &'static [usize],
    /// The default first; each is another.
    kernels: Vec<(Option<Variant>, Kernel)>,
    inputs: Vec<Desc>,
    outputs: Vec<Desc>,
    /// Of the op's uses with other weights, the inputs that exist outside of the step and that kernels only read: weights and
    /// states. In place of the others stand random numbers.
    instances: Vec<Vec<Option<Tensor>>>,
    uses: usize,
}

impl Subject {
    pub fn key(&self) -> &TuningKey {
        &self.key
    }

    /// The variants but for the default.
    pub fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.kernels.iter().filter_map(|(variant, _)| variant.as_ref())
    }

    /// Bytes of the weights that a step reads by it; decides what is measured first.
    fn bytes(&self) -> u64 {
        let weights = self.instances.iter().flatten().flatten().map(Tensor::bytes).max();
        weights.unwrap_or_default() * self.uses as u64
    }
}

/// Notes what runs while a step is rehearsed.
#[derive(Default)]
pub struct Survey(Vec<Subject>);

impl Survey {
    pub(super) fn note(
        &mut self,
        key: TuningKey,
        op: &dyn Op,
        tensors: &[&Tensor],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<()> {
        let is_kept = |tensor: &Tensor| matches!(tensor.dtype(), DType::Weight(_) | DType::U32);
        let lasting = |tensor: &&Tensor| is_kept(tensor).then(|| (*tensor).clone());
        let is_fit = |(index, tensor): (usize, &&Tensor)| {
            !is_kept(tensor) || (tensor.has_memory() && !op.mutates().contains(&index))
        };
        if !tensors.iter().enumerate().all(is_fit) {
            return Ok(());
        }
        if let Some(known) = self.0.iter_mut().find(|subject| subject.key == key) {
            known.uses += 1;
            if known.instances.len() < MAX_INSTANCES {
                known.instances.push(tensors.iter().map(lasting).collect());
            }
            return Ok(());
        }
        let inputs: Vec<Desc> = tensors.iter().map(|tensor| tensor.desc()).collect();
        let variants = op.variants(&inputs, capabilities);
        if variants.is_empty() {
            return Ok(());
        }
        let mut kernels = vec![(None, op.kernel(&inputs, outputs, capabilities)?)];
        for variant in variants {
            let kernel = op.kernel_as(&variant, &inputs, outputs, capabilities)?;
            if kernels.iter().all(|(_, other)| *other != kernel) {
                kernels.push((Some(variant), kernel));
            }
        }
        self.0.push(Subject {
            key,
            mutates: op.mutates(),
            kernels,
            inputs,
            outputs: outputs.to_vec(),
            instances: vec![tensors.iter().map(lasting).collect()],
            uses: 1,
        });
        Ok(())
    }
}

/// The ops with variants of some steps, of each those first that read most weights. The steps are only rehearsed.
pub fn survey(context: &Context, steps: &[&dyn Fn() -> Result<()>]) -> Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    for step in steps {
        *context.tunings().survey.borrow_mut() = Some(Survey::default());
        let rehearsed = context.device().rehearse(step);
        let survey = context.tunings().survey.borrow_mut().take();
        rehearsed?;
        let mut found = survey.unwrap_or_default().0;
        found.retain(|subject| subject.kernels.len() > 1 && subjects.iter().all(|known| known.key != subject.key));
        // A stable sort: what reads no weights keeps its place at the end.
        found.sort_by_key(|subject| std::cmp::Reverse(subject.bytes()));
        subjects.extend(found);
    }
    Ok(subjects)
}

/// Dispatches of one kernel, one after the other.
pub struct Chain<'a> {
    pub key: &'a TuningKey,
    pub variant: Option<&'a Variant>,
    pub dispatches: usize,
    record: &'a dyn Fn() -> Result<()>,
}

impl Chain<'_> {
    pub fn record(&self) -> Result<()> {
        (self.record)()
    }
}

/// What autotuning goes by; tests bring their own.
#[expect(async_fn_in_trait, reason = "nothing here leaves its thread")]
pub trait Clock {
    /// Time since the start.
    fn now(&self) -> Duration;

    /// How long a chain has to take for its time to say something.
    fn least_chain(&self, context: &Context) -> Duration;

    /// How long the chains take, each run by itself; zero for one that could not be measured.
    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>>;
}

/// The clock of the device: its timestamps where it has some, else the time that a wait for it takes.
pub struct DeviceClock(Instant);

impl DeviceClock {
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for DeviceClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn least_chain(&self, context: &Context) -> Duration {
        match context.device().capabilities().timestamp_query {
            // Browsers round timestamps to a tenth of a millisecond.
            true => Duration::from_millis(3),
            // Waits end on a poll every millisecond or two.
            false => Duration::from_millis(20),
        }
    }

    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>> {
        context.device().time_chains(chains.len(), &|chain| chains[chain].record()).await
    }
}

/// A kernel of a model and what was found for it.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    pub op: &'static str,
    /// Rows and columns of the weight, or what else the op goes by.
    pub sizes: [usize; 3],
    pub format: Option<&'static str>,
    #[serde(flatten)]
    pub choice: Choice,
    /// Not measured now, but kept from another time.
    pub from_cache: bool,
}

/// What autotuning did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TuningReport {
    pub kernels: Vec<Tuned>,
    /// Kernels that could be tuned, and for which there was no time.
    pub left: usize,
    /// Of kernels that could not be measured, why: they keep the default.
    pub failed: Vec<String>,
    pub milliseconds: f64,
}

/// Compares variants within a budget.
pub struct Autotune<'a, C> {
    context: &'a Context,
    clock: &'a C,
    budget: Duration,
    /// The longest that compiling and checking a kernel took.
    longest_preparation: Duration,
}

/// No time is left.
struct Late;

impl<'a, C: Clock> Autotune<'a, C> {
    pub fn new(context: &'a Context, clock: &'a C, budget: Duration) -> Self {
        Self { context, clock, budget, longest_preparation: Duration::ZERO }
    }

    /// Takes over what `stored` knows of the subjects, and measures the others as long as there is time.
    pub async fn run(&mut self, subjects: &[Subject], stored: &mut StoredTunings) -> TuningReport {
        let mut report = TuningReport::default();
        let mut measured = 0;
        for subject in subjects {
            let TuningKey { op, sizes, format } = subject.key;
            if let Some(choice) = stored.get(&subject.key).and_then(|choice| self.take_over(subject, choice)) {
                report.kernels.push(Tuned { op, sizes, format, choice, from_cache: true });
                continue;
            }
            // Smaller ones may still fit, but they come in the order of what they are worth.
            let result = if report.left > 0 { Ok(Err(Late)) } else { self.measure(subject).await };
            match result {
                Ok(Ok(choice)) => {
                    measured += 1;
                    stored.insert(&subject.key, choice.clone());
                    report.kernels.push(Tuned { op, sizes, format, choice, from_cache: false });
                }
                Ok(Err(Late)) => {
                    if report.left == 0 && measured == 0 {
                        // Too much even for a whole budget, as it would be the next time.
                        stored.insert(&subject.key, Choice::default());
                    }
                    report.left += 1;
                }
                // A device that is gone says so to whoever uses it next.
                Err(error) => report.failed.push(format!("{}: {}", subject.key, error.message())),
            }
        }
        report.milliseconds = self.now().as_secs_f64() * 1e3;
        report
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Chooses what was chosen at another time, if there still is such a variant.
    fn take_over(&self, subject: &Subject, choice: &Choice) -> Option<Choice> {
        let variant = match &choice.variant {
            None => None,
            Some(name) => Some(subject.variants().find(|variant| variant.to_string() == *name)?.clone()),
        };
        self.context.tunings().choose(subject.key, variant);
        Some(choice.clone())
    }

    /// Whether what takes about so long still fits.
    fn fits(&self, estimate: Duration) -> bool {
        self.now() + estimate < self.budget
    }

    async fn measure(&mut self, subject: &Subject) -> Result<Result<Choice, Late>> {
        if !self.fits(self.longest_preparation * 2) {
            return Ok(Err(Late));
        }
        let scratch = Scratch::new(self.context, subject)?;
        let (sound, candidates) = self.sound_kernels(subject, &scratch).await?;
        if candidates == 0 {
            return Ok(Err(Late));
        }
        let rejected = candidates + 1 - sound.len();
        let (variant, default_us, us) = match self.fastest(subject, &scratch, &sound).await? {
            Ok(fastest) => fastest,
            Err(Late) => return Ok(Err(Late)),
        };
        let name = variant.map(Variant::to_string);
        self.context.tunings().choose(subject.key, variant.cloned());
        Ok(Ok(Choice { variant: name, default_us, us, candidates, rejected }))
    }

    /// Compiles kernels, as many as there is time for, and holds them to the default. Returns the numbers of those that are
    /// sound, the default first, and how many others were tried.
    async fn sound_kernels(&mut self, subject: &Subject, scratch: &Scratch) -> Result<(Vec<usize>, usize)> {
        let all: Vec<usize> = (0..subject.kernels.len()).collect();
        let (mut sound, mut tried) = (Vec::new(), 0);
        let mut wanted: Option<Vec<Vec<u8>>> = None;
        while tried < all.len() {
            // The default alone at first: the model needs it in any case, and it tells how long the others may take.
            let room = match tried {
                0 => 1,
                _ => COMPILED_AT_ONCE.min(all.len() - tried),
            };
            let left = self.budget.saturating_sub(self.now());
            let fitting = (1..=room).rev().find(|count| self.longest_preparation * (*count as u32) < left);
            let count = if tried == 0 { 1 } else { fitting.unwrap_or_default() };
            if count == 0 {
                break;
            }
            let start = self.now();
            let batch = &all[tried..tried + count];
            tried += count;
            let compiled = self.compiled(subject, scratch, batch).await?;
            let mut readbacks = Vec::with_capacity(compiled.len());
            for kernel in &compiled {
                scratch.reset(self.context, subject)?;
                scratch.record(self.context, subject, *kernel, 0)?;
                readbacks.push(self.context.start_readback(&scratch.compared(subject))?);
            }
            let dtypes: Vec<DType> = scratch.compared(subject).iter().map(|(tensor, _)| tensor.dtype()).collect();
            for (kernel, readback) in compiled.into_iter().zip(readbacks) {
                let got = readback.bytes().await?;
                let wanted = wanted.get_or_insert_with(|| got.clone());
                let agrees = |index: usize| {
                    let (got, wanted) = (&got[index], &wanted[index]);
                    got == wanted
                        || match dtypes[index] {
                            DType::F32 => relative_error(&floats(got), &floats(wanted)) <= TOLERANCE,
                            DType::F16 => relative_error(&halves(got), &halves(wanted)) <= F16_TOLERANCE,
                            _ => false,
                        }
                };
                // The default agrees with itself, also where a file's weights are no numbers.
                if kernel == 0 || (0..got.len()).all(agrees) {
                    sound.push(kernel);
                }
            }
            let each = self.now().saturating_sub(start) / count as u32;
            self.longest_preparation = self.longest_preparation.max(each);
        }
        Ok((sound, tried.saturating_sub(1)))
    }

    /// Those of some kernels that compile; the default has to.
    async fn compiled(&self, subject: &Subject, scratch: &Scratch, kernels: &[usize]) -> Result<Vec<usize>> {
        if self.compile(subject, scratch, kernels).await.is_ok() {
            return Ok(kernels.to_vec());
        }
        // One by one, to see which.
        let mut compiled = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            match self.compile(subject, scratch, &[*kernel]).await {
                Ok(()) => compiled.push(*kernel),
                Err(error) if *kernel == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(compiled)
    }

    async fn compile(&self, subject: &Subject, scratch: &Scratch, kernels: &[usize]) -> Result<()> {
        let record = || kernels.iter().try_for_each(|kernel| scratch.record(self.context, subject, *kernel, 0));
        self.context.prepare(record).await
    }

    /// The fastest of `sound`, and what a dispatch of the default and of it takes, in microseconds.
    async fn fastest<'s>(
        &self,
        subject: &'s Subject,
        scratch: &Scratch,
        sound: &[usize],
    ) -> Result<Result<(Option<&'s Variant>, f64, f64), Late>> {
        let (dispatches, chain) = match self.calibrate(subject, scratch).await? {
            Ok(calibrated) => calibrated,
            Err(Late) => return Ok(Err(Late)),
        };
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6 / dispatches as f64;
        if chain.is_zero() {
            // Nothing can be told apart, here or the next time.
            return Ok(Ok((None, 0.0, 0.0)));
        }
        if sound.len() == 1 {
            return Ok(Ok((None, microseconds(chain), microseconds(chain))));
        }
        if !self.fits(chain * sound.len() as u32) {
            return Ok(Err(Late));
        }
        let times = self.time(subject, scratch, sound, dispatches).await?;
        let measured = times.iter().zip(sound).filter(|(time, _)| !time.is_zero());
        let (_, best) = measured.min_by_key(|(time, _)| **time).unwrap_or((&chain, &0));
        if *best == 0 {
            return Ok(Ok((None, microseconds(times[0]), microseconds(times[0]))));
        }
        if !self.fits(chain * 2 * ROUNDS as u32) {
            return Ok(Err(Late));
        }
        let rounds = [0, *best].repeat(ROUNDS);
        let times = self.time(subject, scratch, &rounds, dispatches).await?;
        let every_other = |first: usize| median(times.iter().skip(first).step_by(2).copied());
        let (default, best_time) = (microseconds(every_other(0)), microseconds(every_other(1)));
        let is_faster = best_time > 0.0 && best_time <= default * CLEAR_GAIN;
        let chosen = subject.kernels[*best].0.as_ref().filter(|_| is_faster);
        Ok(Ok((chosen, default, if is_faster { best_time } else { default })))
    }

    /// How many dispatches of the default make a chain that is long enough, and how long that takes.
    async fn calibrate(&self, subject: &Subject, scratch: &Scratch) -> Result<Result<(usize, Duration), Late>> {
        let least = self.clock.least_chain(self.context);
        let mut dispatches = FIRST_CHAIN;
        let mut estimate = Duration::ZERO;
        // The first one also wakes the GPU.
        loop {
            if !self.fits(estimate) {
                return Ok(Err(Late));
            }
            let chain = self.time(subject, scratch, &[0], dispatches).await?.first().copied().unwrap_or_default();
            if chain >= least / 2 || dispatches == LONGEST_CHAIN {
                return Ok(Ok((dispatches, chain)));
            }
            let factor = (least.as_nanos() / chain.as_nanos().max(1)).clamp(2, 16) as usize;
            estimate = chain * factor as u32;
            dispatches = (dispatches * factor).min(LONGEST_CHAIN);
        }
    }

    async fn time(
        &self,
        subject: &Subject,
        scratch: &Scratch,
        kernels: &[usize],
        dispatches: usize,
    ) -> Result<Vec<Duration>> {
        let records: Vec<_> = kernels
            .iter()
            .map(|kernel| move || (0..dispatches).try_for_each(|n| scratch.record(self.context, subject, *kernel, n)))
            .collect();
        let chains: Vec<Chain<'_>> = kernels
            .iter()
            .zip(&records)
            .map(|(kernel, record)| Chain {
                key: &subject.key,
                variant: subject.kernels[*kernel].0.as_ref(),
                dispatches,
                record,
            })
            .collect();
        self.clock.time(self.context, &chains).await
    }
}

/// Tensors that a subject's kernels run on.
struct Scratch {
    /// In place of the inputs that are no instance's own.
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Tensor>,
    /// What the inputs that kernels change hold before.
    unchanged: Vec<(usize, Tensor)>,
    /// What the ends of outputs hold before, so that a kernel which writes nothing is seen.
    noise: Tensor,
}

impl Scratch {
    fn new(context: &Context, subject: &Subject) -> Result<Self> {
        let random = |desc: Desc, seed: u64| -> Result<Tensor> {
            if desc.dtype == DType::F16 {
                // Not any bits: they may be no numbers.
                let numbers = context.run1(&Random { shape: desc.shape, seed }, &[])?;
                let [cache, other] = [context.empty(desc, "tuning")?, context.empty(desc, "tuning")?];
                let state = context.tensor(&HostTensor::u32(&[4], &[0; 4]))?;
                context.run(&KvAppend, &[&numbers, &numbers, &cache, &other, &state])?;
                return Ok(cache);
            }
            let random = context.run1(&Random { shape: desc.shape, seed }, &[])?;
            // Words of int8 are the same bits.
            context.tensor_from_buffer(desc, random.slice().buffer)
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

    fn record(&self, context: &Context, subject: &Subject, kernel: usize, n: usize) -> Result<()> {
        let inputs = self.inputs(subject, n);
        context.dispatch(subject.key.op, subject.mutates, &subject.kernels[kernel].1, &inputs, &self.outputs)
    }

    /// What a dispatch with the first instance writes.
    fn results<'a>(&'a self, subject: &'a Subject) -> Vec<&'a Tensor> {
        let inputs = self.inputs(subject, 0);
        self.outputs.iter().chain(subject.mutates.iter().map(|index| inputs[*index])).collect()
    }

    /// What of that is compared.
    fn compared<'a>(&'a self, subject: &'a Subject) -> Vec<(&'a Tensor, Range<usize>)> {
        let results = self.results(subject).into_iter();
        let words = |tensor: &Tensor| tensor.bytes() as usize / 4;
        results.flat_map(|tensor| ends(words(tensor)).map(move |range| (tensor, range))).collect()
    }

    /// Lets the next dispatch find what the first one found.
    fn reset(&self, context: &Context, subject: &Subject) -> Result<()> {
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

/// The elements of a tensor that are compared, counted in words.
fn ends(elements: usize) -> impl Iterator<Item = Range<usize>> {
    let head = elements.min(COMPARED_HEAD);
    let tail = elements.saturating_sub(COMPARED_TAIL).max(head);
    [0..head, tail..elements].into_iter().filter(|range| !range.is_empty())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|half| half::f16::from_le_bytes([half[0], half[1]]).to_f32()).collect()
}

/// ‖got − wanted‖ / ‖wanted‖; NaN where there is one.
fn relative_error(got: &[f32], wanted: &[f32]) -> f64 {
    let (mut difference, mut norm) = (0f64, 0f64);
    for (got, wanted) in got.iter().zip(wanted) {
        difference += f64::from(got - wanted).powi(2);
        norm += f64::from(*wanted).powi(2);
    }
    (difference / norm.max(1e-30)).sqrt()
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
