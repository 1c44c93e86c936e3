//! Autotuning: compares the variants of kernels (`Op::variants`) on this adapter and selects the fastest.
//!
//! A survey finds what to compare: it traces a step and notes each op that has variants, with its shapes and weights. So
//! kernels are measured on the real shapes and weights of a model, and no list of tunable ops is needed.
//!
//! Invariants:
//! - A variant that does not compile, or whose result differs from the default's, is discarded.
//! - Without a clear gain the default stays.
//! - A measurement starts only if it is expected to end within the budget. Kernels not measured keep their defaults, and are
//!   measured the next time.

mod clock;
mod scratch;
mod survey;

pub use clock::{Chain, Clock, DeviceClock};
pub use survey::{Subject, Survey, survey};

use serde::Serialize;
use web_time::Duration;

use super::tuning::{Choice, StoredTunings, TuningKey, Variant};
use super::{Context, DType};
use crate::error::{Code, Result};
use crate::gpu::Readback;
use scratch::Scratch;

/// A variant replaces the default if its time is at most this part of the default's.
const CLEAR_GAIN: f64 = 0.97;

/// The largest ‖variant − default‖ / ‖default‖: each may differ from the reference by half of it, the tolerance of the ops' cases.
const TOLERANCE: f64 = 2e-5;

/// The same for f16, where a small difference in f32 may become a whole step.
const F16_TOLERANCE: f64 = 5e-4;

/// The same for blocks of int8.
const Q8_0_TOLERANCE: f64 = 5e-3;

/// Kernels compiled at once, before the next look at the budget.
const COMPILED_AT_ONCE: usize = 5;

/// Dispatches of a chain: the first number, and the largest.
const FIRST_CHAIN: usize = 4;
const LONGEST_CHAIN: usize = 1024;

/// Chains of the default and of the best variant, in turn, whose medians are compared.
const ROUNDS: usize = 3;

/// A kernel of a model and what was found for it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Tuned {
    /// The op's name.
    pub op: &'static str,
    /// Rows and columns of the weight and a further number; for attention heads, key-value heads and their length.
    pub sizes: [usize; 3],
    /// The weight's format; `None` without a weight.
    pub format: Option<&'static str>,
    /// The choice: which variant runs, and the measured times.
    #[serde(flatten)]
    pub choice: Choice,
    /// Not measured by this load.
    pub from_cache: bool,
}

/// What autotuning did.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TuningReport {
    /// The kernels with variants, measured or from the stored choices.
    pub kernels: Vec<Tuned>,
    /// Kernels that are not tuned yet.
    pub left: usize,
    /// Why kernels could not be measured; they run as they do without tuning.
    pub failed: Vec<String>,
    /// The time that it took, in milliseconds.
    pub milliseconds: f64,
}

/// Compares variants within a budget.
pub struct Autotune<'a, C> {
    context: &'a Context,
    clock: &'a C,
    budget: Duration,
    /// The longest time that compiling and checking a kernel took.
    longest_preparation: Duration,
}

/// No time is left.
struct Late;

impl<'a, C: Clock> Autotune<'a, C> {
    /// A run that takes at most `budget`, counted by `clock` from its start.
    pub fn new(context: &'a Context, clock: &'a C, budget: Duration) -> Self {
        Self { context, clock, budget, longest_preparation: Duration::ZERO }
    }

    /// Uses the choices that `stored` holds for the subjects, and measures the others as long as there is time.
    pub async fn run(&mut self, subjects: &[Subject], stored: &mut StoredTunings) -> TuningReport {
        let mut report = TuningReport::default();
        let mut measured = 0;
        for subject in subjects {
            let TuningKey { op, sizes, format } = subject.key;
            if let Some(choice) = kept(self.context, subject, stored) {
                report.kernels.push(Tuned { op, sizes, format, choice, from_cache: true });
                continue;
            }
            // Smaller ones may still fit, but the most valuable come first.
            let result = if report.left > 0 { Ok(Err(Late)) } else { self.measure(subject).await };
            match result {
                Ok(Ok(choice)) => {
                    measured += 1;
                    stored.insert(&subject.key, choice.clone());
                    report.kernels.push(Tuned { op, sizes, format, choice, from_cache: false });
                }
                Ok(Err(Late)) => {
                    if report.left == 0 && measured == 0 {
                        // Too long even for a whole budget, so it would be the next time too.
                        stored.insert(&subject.key, Choice::default());
                    }
                    report.left += 1;
                }
                // The next use of a lost device reports the loss.
                Err(error) => report.failed.push(format!("{}: {}", subject.key, error.message())),
            }
        }
        report.milliseconds = self.now().as_secs_f64() * 1e3;
        report
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Whether something that takes about this long still fits.
    fn fits(&self, estimate: Duration) -> bool {
        self.now() + estimate < self.budget
    }

    async fn measure(&mut self, subject: &Subject) -> Result<Result<Choice, Late>> {
        if !self.fits(self.longest_preparation * 2) {
            return Ok(Err(Late));
        }
        let scratch = || Scratch::new(self.context, subject);
        let scratch = self.context.device().attempt("tuning", scratch).await?;
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

    /// Compiles kernels while there is time, and compares their results with the default's. Returns the indices of the correct
    /// ones, the default first, and how many others were tried.
    async fn sound_kernels(&mut self, subject: &Subject, scratch: &Scratch) -> Result<(Vec<usize>, usize)> {
        let all: Vec<usize> = (0..subject.kernels.len()).collect();
        let (mut sound, mut tried) = (Vec::new(), 0);
        let mut wanted: Option<Vec<Vec<u8>>> = None;
        while tried < all.len() {
            // The default alone first: the model needs it in any case, and it shows how long the others may take.
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
            let start_next = |kernel: usize| -> Result<(usize, Readback)> {
                scratch.reset(self.context, subject)?;
                scratch.record(self.context, subject, kernel, 0)?;
                Ok((kernel, self.context.start_readback(&scratch.compared(subject))?))
            };
            let mut waiting = compiled.into_iter();
            let mut running = waiting.next().map(start_next).transpose()?;
            let dtypes: Vec<DType> = scratch.compared(subject).iter().map(|(tensor, _)| tensor.dtype()).collect();
            while let Some((kernel, readback)) = running {
                // One more runs while this result is on its way. Each takes megabytes, so not all at once.
                running = waiting.next().map(start_next).transpose()?;
                let got = readback.bytes().await?;
                let wanted = wanted.get_or_insert_with(|| got.clone());
                let agrees = |index: usize| {
                    let (got, wanted) = (&got[index], &wanted[index]);
                    got == wanted
                        || match dtypes[index] {
                            DType::F32 => relative_error(&floats(got), &floats(wanted)) <= TOLERANCE,
                            DType::Q8_0 => relative_error(&quants(got), &quants(wanted)) <= Q8_0_TOLERANCE,
                            DType::F16 => relative_error(&halves(got), &halves(wanted)) <= F16_TOLERANCE,
                            _ => false,
                        }
                };
                // The default agrees with itself, even if a file's weights are NaN.
                if kernel == 0 || (0..got.len()).all(agrees) {
                    sound.push(kernel);
                }
            }
            let each = self.now().saturating_sub(start) / count as u32;
            self.longest_preparation = self.longest_preparation.max(each);
        }
        Ok((sound, tried.saturating_sub(1)))
    }

    /// The kernels that compile. The default must.
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
            // The times can't be measured, now or the next time.
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

    /// The number of dispatches of the default in a chain that is long enough, and the chain's time.
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

/// Takes a stored choice, if the op still has that variant.
fn kept(context: &Context, subject: &Subject, stored: &StoredTunings) -> Option<Choice> {
    let choice = stored.get(&subject.key)?;
    let variant = match &choice.variant {
        None => None,
        Some(name) => Some(subject.variants().find(|variant| variant.to_string() == *name)?.clone()),
    };
    context.tunings().choose(subject.key, variant);
    Some(choice.clone())
}

/// Uses the choices that `stored` holds for the subjects, and returns the other subjects.
pub fn take_over<'s>(context: &Context, subjects: &'s [Subject], stored: &StoredTunings) -> Vec<&'s Subject> {
    subjects.iter().filter(|subject| kept(context, subject, stored).is_none()).collect()
}

/// Compiles the kernels that will be compared, until `enough` says to stop. One that does not compile is skipped:
/// `Autotune::run` discards it.
pub async fn compile_ahead(context: &Context, subjects: &[&Subject], enough: &dyn Fn() -> bool) -> Result<()> {
    for subject in subjects {
        let all: Vec<usize> = (0..subject.kernels.len()).collect();
        for kernels in all.chunks(COMPILED_AT_ONCE) {
            if enough() {
                return Ok(());
            }
            let record = || {
                let scratch = Scratch::new(context, subject)?;
                kernels.iter().try_for_each(|kernel| scratch.record(context, subject, *kernel, 0))
            };
            match context.prepare(record).await {
                Err(error) if error.code() == Code::ShaderCompilation => {}
                prepared => prepared?,
            }
        }
    }
    Ok(())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|half| half::f16::from_le_bytes([half[0], half[1]]).to_f32()).collect()
}

/// The bytes of blocks of int8 with their scales. The compared range may begin within a block, so all bytes count as int8.
fn quants(bytes: &[u8]) -> Vec<f32> {
    bytes.iter().map(|byte| f32::from(*byte as i8)).collect()
}

/// ‖got − wanted‖ / ‖wanted‖; NaN if an element is NaN.
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
