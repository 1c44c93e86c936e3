//! Holds every op's kernel to its CPU reference, over the cases that the op itself names: odd, prime and large shapes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, LazyLock, Mutex};

use foldhash::quality::FixedState;
use rillm::gpu::{Device, Transcript};
use rillm::sampler;
use rillm::tensor::{Case, Context, DType, Desc, HostTensor, TuningKey, Variant, ops};

/// Cases that agreed with their reference, by adapter, inputs and everything that the GPU was told to do.
static AGREED: LazyLock<Mutex<HashSet<[u64; 2]>>> = LazyLock::new(Mutex::default);
/// What the references gave, by op and inputs: the same for every set of kernels.
static REFERENCES: LazyLock<Mutex<References>> = LazyLock::new(Mutex::default);
type References = HashMap<[u64; 2], Arc<Vec<HostTensor>>>;

/// Which cases run on the GPU, besides that none does twice.
#[derive(Clone, Copy)]
pub enum Extent<'a> {
    /// All cases of the ops that an earlier run does not vouch for, and of the others those with new lines.
    #[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "the native tests take these"))]
    Changed(&'a dyn Record),
    /// Where compiling a kernel takes seconds: as few as run every line of WGSL which no kernel had before, whatever the numbers of its
    /// constants. So every op, every branch of every template and every format of weights runs, if an earlier run does not vouch for it.
    #[cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "the tests in browsers take these"))]
    NewLines(&'a dyn Record),
}

/// What earlier runs found: subjects, most of them ops, each with a digest of everything that decides whether its cases agree.
pub trait Record {
    /// Whether all cases of the subject agreed when they had this digest.
    fn holds(&self, subject: &str, digest: [u64; 2]) -> bool;
    /// All cases of the subject agree.
    fn agreed(&self, subject: &str, digest: [u64; 2]);
}

/// The lines of kernels that ran, and the names of their ops: on devices with subgroups, and on those without.
static SEEN: LazyLock<Mutex<[HashSet<String>; 2]>> = LazyLock::new(Mutex::default);
/// The digests of cases, by op and place among its cases: each set of kernels makes the same cases anew.
static CASES: LazyLock<Mutex<DigestsOfCases>> = LazyLock::new(Mutex::default);
type DigestsOfCases = HashMap<(String, usize), [u64; 2]>;

/// How many cases there were, how many of them had been checked before by the very same commands, by this run or as the record of another
/// says, and what was left out for having no new lines; and of
/// `Extent::NewLines` the shaders of what did not run.
#[derive(Default)]
pub struct Checked {
    pub all: usize,
    pub same: usize,
    pub recorded: usize,
    pub left_out: usize,
    pub shaders_that_did_not_run: BTreeSet<String>,
}

/// 128 bits, so that no two things are ever taken for one.
pub fn digest(of: &impl Hash) -> [u64; 2] {
    [0, 1].map(|seed| FixedState::with_seed(seed).hash_one(of))
}

/// What the GPU is told to do in a step. Nothing if part of that is unknown.
pub fn transcript<T>(device: &Device, step: impl FnOnce() -> rillm::Result<T>) -> Option<Transcript> {
    // A buffer from outside of the step, of which nobody knows what it holds.
    let is_known = |it: &Transcript| !it.commands.contains("another buffer");
    device.transcript(step).ok().filter(is_known)
}

/// Everything that decides what a GPU makes of a step: what it is told to do, what is written into its buffers, the adapter; and `wanted`, what
/// the results are held to.
fn digest_of_step(device: &Device, transcript: &Transcript, wanted: &impl Hash) -> [u64; 2] {
    // Not the adapter's features: a shader says which it uses.
    let info = device.adapter();
    digest(&([&info.vendor, &info.architecture, &info.device, &info.description], transcript, wanted))
}

/// The digest of a step, if all of it is known and it has a kernel.
#[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "the native tests take it"))]
pub fn digest_of<T>(device: &Device, wanted: &impl Hash, step: impl FnOnce() -> rillm::Result<T>) -> Option<[u64; 2]> {
    let transcript = transcript(device, step).filter(|it| !it.shaders.is_empty())?;
    Some(digest_of_step(device, &transcript, wanted))
}

/// Runs `step` and checks what it gives, unless the record says that this has agreed with what is `wanted`.
#[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "the native tests take it"))]
pub fn unless_agreed<T>(
    record: &dyn Record,
    device: &Device,
    (subject, wanted): (&str, &impl Hash),
    step: impl Fn() -> rillm::Result<T>,
    check: impl FnOnce(T),
) {
    let digest = digest_of(device, wanted, &step);
    if digest.is_none_or(|digest| !record.holds(subject, digest)) {
        check(step().unwrap());
    }
    if let Some(digest) = digest {
        record.agreed(subject, digest);
    }
}

/// A case of an op, whatever computes it.
fn digest_of_case(name: &str, index: usize, case: &Case) -> [u64; 2] {
    let mut known = CASES.lock().unwrap();
    *known.entry((name.to_owned(), index)).or_insert_with(|| computed_digest_of_case(name, index, case))
}

fn computed_digest_of_case(name: &str, index: usize, case: &Case) -> [u64; 2] {
    let inputs: Vec<(String, &[u8])> =
        case.inputs.iter().map(|input| (format!("{:?}", input.desc()), &input.bytes[..])).collect();
    digest(&(name, index, case.tolerance.to_bits(), inputs))
}

/// A line as it counts: whatever the number of a constant.
fn without_number(line: &str) -> &str {
    if line.starts_with("const ") { line.split('=').next().unwrap_or(line) } else { line }
}

/// Which of an op's trials have to run so that every line runs that no kernel before had: as few as can be, so those with most such lines first. A trial
/// whose kernels are unknown runs. Of an op that had none before at least one does.
fn with_new_lines(context: &Context, op: &str, trials: &[Trial<'_>]) -> Vec<bool> {
    let seen = &mut SEEN.lock().unwrap()[usize::from(context.device().capabilities().subgroups.is_none())];
    let mut of_shaders: HashMap<&str, HashSet<&str>> = HashMap::new();
    let mut missing: Vec<HashSet<&str>> = Vec::new();
    for Trial { transcript, .. } in trials {
        let mut of_trial = HashSet::new();
        for shader in transcript.iter().flat_map(|transcript| &transcript.shaders) {
            let of_shader = of_shaders
                .entry(shader)
                .or_insert_with(|| shader.lines().map(without_number).filter(|line| !seen.contains(*line)).collect());
            of_trial.extend(of_shader.iter().copied());
        }
        if !seen.contains(op) {
            of_trial.insert(op);
        }
        missing.push(of_trial);
    }
    let mut run: Vec<bool> = trials.iter().map(|trial| trial.transcript.is_none()).collect();
    // What ran is no reason to run another.
    let mut covered: Vec<usize> =
        (0..trials.len()).filter(|index| run[*index] || trials[*index].has_agreed()).collect();
    loop {
        for index in covered.drain(..) {
            let lines = std::mem::take(&mut missing[index]);
            if !lines.is_empty() {
                missing.iter_mut().for_each(|of_trial| of_trial.retain(|line| !lines.contains(line)));
                seen.extend(lines.into_iter().map(str::to_owned));
            }
        }
        // The first of those with most.
        let Some(most) = (0..trials.len()).rev().max_by_key(|index| missing[*index].len()) else { break };
        if missing[most].is_empty() {
            break;
        }
        run[most] = true;
        covered.push(most);
    }
    run
}

/// What the op's reference makes of a case: its outputs, then the inputs that it changes.
#[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "the native tests of the CPU take it"))]
pub fn wanted_of(name: &str, index: usize, case: &Case) -> Arc<Vec<HostTensor>> {
    reference(digest_of_case(name, index, case), case)
}

fn reference(of_case: [u64; 2], case: &Case) -> Arc<Vec<HostTensor>> {
    if let Some(known) = REFERENCES.lock().unwrap().get(&of_case) {
        return known.clone();
    }
    let mut inputs = case.inputs.clone();
    let mut wanted = case.op.reference(&mut inputs).unwrap();
    wanted.extend(case.op.mutates().iter().map(|index| inputs[*index].clone()));
    let wanted = Arc::new(wanted);
    REFERENCES.lock().unwrap().insert(of_case, wanted.clone());
    wanted
}

type Chosen = Option<(TuningKey, Variant)>;

/// Makes the op take this variant of its kernel.
fn choose(context: &Context, chosen: &Chosen) {
    if let Some((key, variant)) = chosen {
        context.tunings().choose(*key, Some(variant.clone()));
    }
}

fn choose_none(context: &Context, chosen: &Chosen) {
    if let Some((key, _)) = chosen {
        context.tunings().choose(*key, None);
    }
}

/// A case that is to agree, perhaps with a variant of the op's kernel, and what the GPU is told to do in it.
struct Trial<'a> {
    what: String,
    case: &'a Case,
    variant: Chosen,
    of_case: [u64; 2],
    transcript: Option<Transcript>,
    /// The case, the adapter and the transcript.
    commands: Option<[u64; 2]>,
}

impl<'a> Trial<'a> {
    fn new(context: &Context, name: &str, index: usize, case: &'a Case, variant: Chosen) -> Self {
        assert_eq!(name, case.op.name(), "one name for the op's file and the op");
        let shapes: Vec<String> = case.inputs.iter().map(|input| format!("{:?}", input.desc())).collect();
        let what = match &variant {
            Some((_, variant)) => format!("{name}, case {index}, {variant}"),
            None => format!("{name}, case {index}: {}", shapes.join(", ")),
        };
        let of_case = digest_of_case(name, index, case);
        choose(context, &variant);
        let step = || {
            let inputs = case.inputs.iter().map(|host| context.tensor(host)).collect::<rillm::Result<Vec<_>>>()?;
            context.run(&*case.op, &inputs.iter().collect::<Vec<_>>())
        };
        let transcript = transcript(context.device(), step).filter(|it| !it.shaders.is_empty());
        choose_none(context, &variant);
        let commands = transcript.as_ref().map(|transcript| digest_of_step(context.device(), transcript, &of_case));
        Self { what, case, variant, of_case, transcript, commands }
    }

    /// Whether this run has compared the same commands before.
    fn has_agreed(&self) -> bool {
        self.commands.is_some_and(|commands| AGREED.lock().unwrap().contains(&commands))
    }

    /// Runs the case on the GPU and compares.
    async fn agree(&self, context: &Context) {
        let Self { what, case, .. } = self;
        choose(context, &self.variant);
        let got = context.run_case(case).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        choose_none(context, &self.variant);
        let wanted = reference(self.of_case, case);
        assert_eq!(got.len(), wanted.len(), "{what}");
        for (got, wanted) in got.iter().zip(&*wanted) {
            assert_close(what, got, wanted, case.tolerance);
        }
        AGREED.lock().unwrap().extend(self.commands);
    }
}

/// Everything that decides whether these agree: inputs, adapter, commands, and what the references give. Nothing if part of it is unknown.
fn digest_of_all(trials: &[&Trial<'_>]) -> Option<[u64; 2]> {
    let of_trial = |trial: &&Trial<'_>| {
        let references = reference(trial.of_case, trial.case);
        let bytes: Vec<&[u8]> = references.iter().map(|tensor| &tensor.bytes[..]).collect();
        Some(digest(&(trial.commands?, bytes)))
    };
    Some(digest(&trials.iter().map(of_trial).collect::<Option<Vec<_>>>()?))
}

/// Runs those of an op's trials that `extent` asks for.
async fn check_trials(context: &Context, extent: Extent<'_>, op: &str, trials: Vec<Trial<'_>>, checked: &mut Checked) {
    checked.all += trials.len();
    let new = with_new_lines(context, op, &trials);
    let (record, takes_new_lines_alone) = match extent {
        Extent::Changed(record) => (record, false),
        Extent::NewLines(record) => (record, true),
    };
    // What the record may vouch for.
    let asked: Vec<&Trial<'_>> = trials
        .iter()
        .zip(&new)
        .filter(|(_, is_new)| **is_new || !takes_new_lines_alone)
        .map(|(trial, _)| trial)
        .collect();
    let digest = if asked.is_empty() { None } else { digest_of_all(&asked) };
    let is_recorded = digest.is_some_and(|digest| record.holds(op, digest));
    for (trial, is_new) in trials.iter().zip(new) {
        // Where compiling is quick, one of each kernel runs whatever is on record.
        let runs = if takes_new_lines_alone { is_new && !is_recorded } else { is_new || !is_recorded };
        if trial.has_agreed() {
            checked.same += 1;
        } else if runs {
            trial.agree(context).await;
        } else if takes_new_lines_alone {
            *(if is_new { &mut checked.recorded } else { &mut checked.left_out }) += 1;
            checked.shaders_that_did_not_run.extend(trial.transcript.iter().flat_map(|it| it.shaders.clone()));
        } else {
            checked.recorded += 1;
        }
    }
    if let Some(digest) = digest {
        record.agreed(op, digest);
    }
}

/// ‖a − b‖ / ‖b‖.
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let (mut difference, mut norm) = (0f64, 0f64);
    for (a, b) in a.iter().zip(b) {
        difference += (f64::from(*a) - f64::from(*b)).powi(2);
        norm += f64::from(*b).powi(2);
    }
    if difference == 0.0 { 0.0 } else { (difference / norm.max(1e-30)).sqrt() }
}

pub fn assert_close(what: &str, got: &HostTensor, wanted: &HostTensor, tolerance: f64) {
    assert_eq!(got.desc(), wanted.desc(), "{what}");
    match wanted.dtype {
        DType::U32 => {
            let (got, wanted) = (got.to_u32().unwrap(), wanted.to_u32().unwrap());
            let different = got.iter().zip(&wanted).filter(|(got, wanted)| got != wanted).count();
            let first = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            if let Some(at) = first {
                panic!("{what}: {different} differ, first element {at}: {}, wanted {}", got[at], wanted[at]);
            }
        }
        _ => {
            let (mut got, mut wanted) = (got.to_f32().unwrap(), wanted.to_f32().unwrap());
            let is_special = |x: f32| !x.is_finite() || x.abs() > 1e37;
            for (at, (got, wanted)) in got.iter_mut().zip(&mut wanted).enumerate() {
                if is_special(*wanted) {
                    // Of NaN there are many. The largest finite numbers would hide all others in the norm.
                    let agrees = got == wanted
                        || got.is_nan() && wanted.is_nan()
                        || wanted.is_finite() && ((*got - *wanted) / *wanted).abs() < 1e-5;
                    assert!(agrees, "{what}: element {at} is {got}, wanted {wanted}");
                    (*got, *wanted) = (0.0, 0.0);
                }
            }
            let error = relative_error(&got, &wanted);
            // Written so that NaN fails.
            assert!(error <= tolerance, "{what}: relative error {error:.3e}, at most {tolerance:.1e} is allowed");
        }
    }
}

/// The ops whose names are in RILLM_OPS, between commas, if it is set.
pub fn wanted() -> impl Iterator<Item = &'static (&'static str, fn() -> Vec<Case>)> {
    let names = std::env::var("RILLM_OPS").ok();
    let is_wanted = move |name: &str| names.as_ref().is_none_or(|names| names.split(',').any(|one| one == name));
    ops::ALL.iter().chain(sampler::ops::ALL).filter(move |(name, _)| is_wanted(name))
}

impl Checked {
    /// That there were more than so many cases, if not some ops alone were asked for; and what a person reads of it.
    #[track_caller]
    pub fn more_than(&self, least: usize) -> String {
        assert!(self.all > least || std::env::var("RILLM_OPS").is_ok(), "{} cases", self.all);
        let Self { all, same, recorded, left_out, .. } = self;
        let ran = all - same - recorded - left_out;
        format!(
            "{all} cases, {ran} of them run: of {same} the same kernels had agreed before, of {recorded} in another run, {left_out} had no new lines"
        )
    }
}

/// Runs one case of the op `name` on the GPU and on the CPU.
#[cfg_attr(target_arch = "wasm32", allow(dead_code, reason = "the benchmark of kernels takes it"))]
pub async fn check(context: &Context, name: &str, index: usize, case: &Case) {
    Trial::new(context, name, index, case, None).agree(context).await;
}

/// Runs the cases of every op.
pub async fn check_all(context: &Context, extent: Extent<'_>) -> Checked {
    let mut checked = Checked::default();
    for (name, cases) in wanted() {
        let cases = cases();
        assert!(!cases.is_empty(), "{name} has no cases");
        let trials =
            cases.iter().enumerate().map(|(index, case)| Trial::new(context, name, index, case, None)).collect();
        check_trials(context, extent, name, trials, &mut checked).await;
    }
    checked
}

/// Runs the cases of every op that has variants as a third of them each, in turn: so every variant meets every format of weights
/// and several shapes.
pub async fn check_all_variants(context: &Context, extent: Extent<'_>) -> Checked {
    let mut checked = Checked::default();
    for (name, cases) in wanted() {
        let cases = cases();
        let mut trials = vec![];
        for (index, case) in cases.iter().enumerate() {
            let descs: Vec<Desc> = case.inputs.iter().map(HostTensor::desc).collect();
            let all = case.op.variants(&descs, context.device().capabilities());
            let key = TuningKey::of(&*case.op, &descs);
            for variant in all.into_iter().skip((3 - index % 3) % 3).step_by(3) {
                trials.push(Trial::new(context, name, index, case, Some((key, variant))));
            }
        }
        if !trials.is_empty() {
            check_trials(context, extent, name, trials, &mut checked).await;
        }
    }
    checked
}
