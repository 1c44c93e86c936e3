//! Autotuning: what is chosen, thrown away and kept, and a model's answers with and without.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use crate::support::adapter;
use crate::support::files::golden;
use pollster::block_on;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::FileSource;
use rillm::engine::{Autotune as Mode, AutotuneState, Engine, LoadOptions, Precision};
use rillm::gpu::{Capabilities, Define};
use rillm::tensor::{
    Autotune, Chain, Clock, Context, Desc, DeviceOptions, HostTensor, Kernel, Op, StoredTunings, Subject, TuningKey,
    TuningReport, Variant, survey,
};
use rillm::{Code, Result};
use serde_json::{Value, json};

fn gpu_options() -> DeviceOptions {
    DeviceOptions { software_kernels: Some(false), ..Default::default() }
}

/// Doubles numbers. Its variants: the same by other workgroups, one that triples, one that leaves out the last number, and one
/// that does not compile.
struct Double;

const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x + LEFT_OUT < arrayLength(&x) {
        out[id.x] = f32(FACTOR) * x[id.x];
    }
#ifdef BROKEN
    nonsense;
#endif
}
";

const LENGTH: usize = 1000;

impl Double {
    fn kernel_of(workgroup: u32, factor: u32, left_out: u32, is_broken: bool) -> Result<Kernel> {
        let mut defines = vec![
            ("WORKGROUP", Define::U32(workgroup)),
            ("FACTOR", Define::U32(factor)),
            ("LEFT_OUT", Define::U32(left_out)),
        ];
        if is_broken {
            defines.push(("BROKEN", Define::Flag));
        }
        let grid = [(LENGTH as u32).div_ceil(workgroup), 1, 1];
        Ok(Kernel { template: DOUBLE, modules: &[], defines, params: vec![], grid })
    }
}

fn named(name: &'static str) -> Variant {
    Variant::new(&[(name, 1)])
}

impl Op for Double {
    fn name(&self) -> &'static str {
        "double"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        Ok(inputs.to_vec())
    }

    fn kernel(&self, _: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        Self::kernel_of(64, 2, 0, false)
    }

    fn variants(&self, _: &[Desc], _: &Capabilities) -> Vec<Variant> {
        ["default", "tripled", "wide", "short", "broken", "narrow"].map(named).to_vec()
    }

    fn kernel_as(&self, variant: &Variant, _: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        match variant.to_string().as_str() {
            "default 1" => Self::kernel_of(64, 2, 0, false),
            "tripled 1" => Self::kernel_of(64, 3, 0, false),
            "wide 1" => Self::kernel_of(128, 2, 0, false),
            "short 1" => Self::kernel_of(64, 2, 1, false),
            "broken 1" => Self::kernel_of(64, 2, 0, true),
            _ => Self::kernel_of(32, 2, 0, false),
        }
    }

    fn tuning_sizes(&self, inputs: &[Desc]) -> [usize; 3] {
        [inputs[0].shape.elements(), 0, 0]
    }
}

/// A clock that says what the test says. Chains run all the same.
struct FakeClock {
    now: Cell<Duration>,
    /// What each look at the clock adds.
    tick: Duration,
    /// Of a dispatch, by the variant's name; 10 µs for others.
    nanoseconds: Vec<(&'static str, u64)>,
    timed: RefCell<Vec<String>>,
}

impl FakeClock {
    fn new(tick: Duration, nanoseconds: &[(&'static str, u64)]) -> Self {
        Self { now: Cell::default(), tick, nanoseconds: nanoseconds.to_vec(), timed: RefCell::default() }
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        self.now.set(self.now.get() + self.tick);
        self.now.get()
    }

    fn least_chain(&self, _: &Context) -> Duration {
        Duration::from_micros(100)
    }

    async fn time(&self, context: &Context, chains: &[Chain<'_>]) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for chain in chains {
            chain.record()?;
            context.device().sync().await?;
            let name = chain.variant.map(Variant::to_string).unwrap_or_default();
            let known = self.nanoseconds.iter().find(|(variant, _)| name == format!("{variant} 1"));
            times.push(Duration::from_nanos(known.map_or(10_000, |(_, ns)| *ns) * chain.dispatches as u64));
            self.timed.borrow_mut().push(name);
        }
        Ok(times)
    }
}

fn subjects(context: &Context) -> Vec<Subject> {
    let subjects = survey(
        context,
        &[&|| {
            let x = context.empty(Desc::f32(&[LENGTH]), "x")?;
            context.run1(&Double, &[&x])?;
            context.run1(&Double, &[&x]).map(|_| ())
        }],
    );
    subjects.unwrap()
}

fn tune(context: &Context, clock: &FakeClock, budget_ms: u64, text: Option<&str>) -> (TuningReport, Option<String>) {
    let mut stored = StoredTunings::new(text, context);
    let budget = Duration::from_millis(budget_ms);
    let report = block_on(Autotune::new(context, clock, budget).run(&subjects(context), &mut stored));
    (report, stored.into_text())
}

fn chosen(context: &Context) -> Option<String> {
    let key = TuningKey::of(&Double, &[Desc::f32(&[LENGTH])]);
    context.tunings().variant(&key).map(|variant| variant.to_string())
}

fn run_double(context: &Context) -> Vec<f32> {
    let x = context.tensor(&HostTensor::f32(&[LENGTH], &[1.5; LENGTH])).unwrap();
    let y = context.run1(&Double, &[&x]).unwrap();
    block_on(context.readback(&[&y])).unwrap()[0].to_f32().unwrap()
}

#[test]
fn what_is_wrong_is_thrown_away_however_fast_it_is() {
    let context = adapter::context(true);
    let clock = FakeClock::new(
        Duration::ZERO,
        &[("tripled", 1000), ("short", 1000), ("broken", 1000), ("wide", 8000), ("narrow", 9000)],
    );
    let (report, _) = tune(&context, &clock, 1000, None);
    let [kernel] = &report.kernels[..] else { panic!("{report:?}") };
    assert_eq!(chosen(&context).as_deref(), Some("wide 1"));
    assert_eq!(kernel.choice.variant.as_deref(), Some("wide 1"));
    assert_eq!((kernel.choice.candidates, kernel.choice.rejected), (5, 3), "the default is no candidate twice");
    assert_eq!((kernel.choice.default_us, kernel.choice.us), (10.0, 8.0));
    let timed = clock.timed.borrow();
    assert!(["tripled 1", "short 1", "broken 1"].iter().all(|wrong| !timed.iter().any(|name| name == wrong)));
    assert!(run_double(&context).iter().all(|x| *x == 3.0));
    // A variant that failed to compile left no error behind for somebody else.
    block_on(context.device().sync()).unwrap();
}

#[test]
fn without_a_clear_gain_the_default_stays() {
    for (nanoseconds, expected) in [(12_000, None), (10_000, None), (9_800, None), (9_600, Some("wide 1"))] {
        let context = adapter::context(true);
        let clock = FakeClock::new(Duration::ZERO, &[("wide", nanoseconds), ("narrow", 20_000)]);
        let (report, text) = tune(&context, &clock, 1000, None);
        assert_eq!(chosen(&context).as_deref(), expected, "{nanoseconds} ns against 10000");
        assert_eq!(report.kernels[0].choice.us, if expected.is_some() { 9.6 } else { 10.0 });
        // That the default is the best is worth keeping as well.
        let (again, _) = tune(&context, &FakeClock::new(Duration::ZERO, &[]), 1000, text.as_deref());
        assert!(again.kernels[0].from_cache);
    }
}

#[test]
fn nothing_is_begun_past_the_budget() {
    let context = adapter::context(true);
    let created = || context.device().stats().pipelines_created;
    let before = created();
    let clock = FakeClock::new(Duration::from_millis(10), &[("wide", 1000)]);
    let (report, text) = tune(&context, &clock, 5, None);
    assert_eq!((report.kernels.len(), report.left), (0, 1));
    assert_eq!(created(), before, "not even a pipeline was compiled");
    assert!(clock.timed.borrow().is_empty());
    assert_eq!(chosen(&context), None);
    // A kernel that was too much for the budget is not tried at each load again.
    let (report, _) = tune(&context, &clock, 5, text.as_deref());
    assert_eq!((report.kernels.len(), report.left), (1, 0));
    assert!(report.kernels[0].from_cache && report.kernels[0].choice.variant.is_none());
}

#[test]
fn what_there_was_time_for_is_kept() {
    // However early the end comes, the time of a fake clock bounds what is done, and the state is sound.
    let mut ends = Vec::new();
    for budget in (10..400).step_by(30) {
        let context = adapter::context(true);
        let clock = FakeClock::new(Duration::from_millis(10), &[("wide", 1000)]);
        let (report, _) = tune(&context, &clock, budget, None);
        assert!(report.milliseconds <= budget as f64 + 120.0, "{} of {budget}", report.milliseconds);
        assert_eq!(report.kernels.len() + report.left, 1);
        assert_eq!(chosen(&context).is_some(), report.kernels.iter().any(|kernel| kernel.choice.variant.is_some()));
        ends.push(report.left);
    }
    assert!(ends.contains(&1) && ends.contains(&0), "{ends:?}");
}

#[test]
fn a_text_is_taken_over_by_its_adapter_alone() {
    let context = adapter::context(true);
    let clock = FakeClock::new(Duration::ZERO, &[("wide", 5000)]);
    let (_, text) = tune(&context, &clock, 1000, None);
    let text = text.unwrap();

    let again = adapter::context(true);
    let idle = FakeClock::new(Duration::ZERO, &[]);
    let (report, new) = tune(&again, &idle, 1000, Some(&text));
    assert!(report.kernels[0].from_cache && idle.timed.borrow().is_empty());
    assert_eq!((chosen(&again).as_deref(), new), (Some("wide 1"), None));

    // The same machine with other features is another adapter; both stay in the text.
    let other = adapter::context(false);
    let narrow = FakeClock::new(Duration::ZERO, &[("narrow", 5000)]);
    let (report, both) = tune(&other, &narrow, 1000, Some(&text));
    assert!(!report.kernels[0].from_cache);
    let both = both.unwrap();
    for (options, expected) in [(true, "wide 1"), (false, "narrow 1")] {
        let context = adapter::context(options);
        let (report, _) = tune(&context, &idle, 1000, Some(&both));
        assert!(report.kernels[0].from_cache);
        assert_eq!(chosen(&context).as_deref(), Some(expected));
    }
}

#[test]
fn a_text_of_any_content_does_no_harm() {
    let context = adapter::context(true);
    let clock = FakeClock::new(Duration::ZERO, &[("wide", 5000)]);
    let text = tune(&context, &clock, 1000, None).1.unwrap();
    let mut unknown: Value = serde_json::from_str(&text).unwrap();
    let kernels = unknown["adapters"][0]["kernels"].as_object_mut().unwrap();
    for kernel in kernels.values_mut() {
        kernel["variant"] = json!("enormous 1");
    }
    let texts = [
        String::new(),
        "{}".to_owned(),
        "null".to_owned(),
        "[[[[".repeat(10_000),
        text[..text.len() / 2].to_owned(),
        text.replace(env!("CARGO_PKG_VERSION"), "0.0.0"),
        text.replace("\"candidates\":1", "\"candidates\":0"),
        text.replace("\"us\":5.0", "\"us\":\"five\""),
        unknown.to_string(),
    ];
    for text in texts {
        let context = adapter::context(true);
        let (report, new) = tune(&context, &clock, 1000, Some(&text));
        assert!(!report.kernels[0].from_cache, "{text:.100}");
        assert_eq!(chosen(&context).as_deref(), Some("wide 1"));
        assert!(new.is_some());
    }
}

fn load(name: &str, autotune: Mode, tunings: Option<String>) -> Result<Engine> {
    let options = LoadOptions {
        device: gpu_options(),
        precision: Some(Precision::Exact),
        autotune,
        tunings,
        ..Default::default()
    };
    block_on(Engine::load(&FileSource::open(golden(name))?, &options, &mut |_| Ok(())))
}

fn greedy(engine: &Engine, prompt: &Value, count: usize) -> Vec<u32> {
    let request = json!({"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": true});
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    let mut tokens = vec![];
    while let Some(chunk) = block_on(generation.next()).unwrap() {
        tokens.extend(chunk.token_ids);
    }
    tokens
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden(name)).unwrap()).unwrap()
}

/// A model says the same with tuned kernels. Loads that hand the text on end at one that has nothing left to measure.
#[test]
fn a_tuned_model_gives_the_same_tokens() {
    for (model, format) in [("tiny_llama/tied", "q4_0"), ("tiny_qwen2/tied", "q8_0")] {
        let prompt = read(&format!("{model}.ids.json"));
        let wanted = read(&format!("{model}.greedy.json"))[format.to_uppercase()].clone();
        let count = wanted.as_array().unwrap().len();
        let mut tunings = None;
        let mut loads = 0;
        loop {
            let engine = load(&format!("{model}-{format}.gguf"), Mode::Always, tunings.clone()).unwrap();
            loads += 1;
            let info = engine.info().autotune.clone();
            println!(
                "{model}: {:.0} ms, {} kernels, {} left",
                info.report.milliseconds,
                info.report.kernels.len(),
                info.report.left
            );
            assert!(info.report.failed.is_empty(), "{:?}", info.report.failed);
            assert_eq!(json!(greedy(&engine, &prompt, count)), wanted, "{model}, load {loads}");
            assert!(info.report.kernels.iter().all(|kernel| kernel.choice.rejected == 0), "{info:?}");
            match engine.tunings() {
                Some(text) => tunings = Some(text.to_owned()),
                None => {
                    assert_eq!(info.state, AutotuneState::Done);
                    assert!(info.report.kernels.len() >= 6, "{:?}", info.report.kernels);
                    assert!(info.report.kernels.iter().all(|kernel| kernel.from_cache));
                    break;
                }
            }
            assert!(loads < 20, "each load gets on: {info:?}");
        }
        assert!(loads >= 2);
    }
}

#[test]
fn nothing_is_tuned_unasked_on_a_software_adapter_or_when_it_is_off() {
    let off = load("tiny_llama/tied-q4_0.gguf", Mode::Off, None).unwrap();
    assert_eq!(off.info().autotune.state, AutotuneState::Off);
    assert!(off.info().autotune.report.kernels.is_empty() && off.tunings().is_none());
    let options = LoadOptions {
        device: DeviceOptions { software_kernels: Some(true), ..Default::default() },
        ..Default::default()
    };
    let source = FileSource::open(golden("tiny_llama/tied-q4_0.gguf")).unwrap();
    let software = block_on(Engine::load(&source, &options, &mut |_| Ok(()))).unwrap();
    assert_eq!(software.info().autotune.state, AutotuneState::Software);
    assert!(software.tunings().is_none());
}

/// A chain of more dispatches takes longer, whichever way it is timed.
#[test]
fn chains_are_timed() {
    let context = adapter::context(true);
    // A chain of more than two seconds counts as not measured, and this one stays below that on a slow machine.
    let x = context.tensor(&HostTensor::f32(&[1 << 17], &vec![1.0; 1 << 17])).unwrap();
    let run = |count: usize| {
        (0..count).try_for_each(|_| {
            let kind = rillm::tensor::ops::UnaryKind::Exp;
            context.run1(&rillm::tensor::ops::Unary { kind }, &[&x]).map(|_| ())
        })
    };
    run(1).unwrap();
    block_on(context.device().sync()).unwrap();
    let times = block_on(context.device().time_chains(2, &|chain| run([1, 64][chain]))).unwrap();
    assert_eq!(times.len(), 2);
    assert!(times[1] > times[0] * 4, "{times:?}");
    let failed = block_on(context.device().time_chains(1, &|_| Err(rillm::Error::new(Code::Internal, "no"))));
    assert_eq!(failed.unwrap_err().code(), Code::Internal);
    // Timing has ended.
    let before = context.device().stats().passes;
    run(3).unwrap();
    block_on(context.device().sync()).unwrap();
    assert_eq!(context.device().stats().passes - before, 1);
}
