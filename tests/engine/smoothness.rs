//! Submits that leave room for the frames of a page: how they are sized on GPUs of made-up speeds, that a cut changes no result, and when
//! nothing is cut. The work runs on the native GPU; only its times are made up.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join3};
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Canceller, Engine, FinishReason, LoadOptions, Precision, Smoothness};
use rillm::gpu::{SimulatedGpu, SimulatedSubmit, SimulatedWork, set_page_hidden};
use rillm::tensor::DeviceOptions;
use serde_json::json;

use crate::support::engines::load;

const MODEL: &str = "tiny_llama/tied-q4_0.gguf";

/// A submit is meant to take 6 ms, and two of them to be queued, or four that find an idle GPU. What is learned is right to about a third.
const SUBMIT: Duration = Duration::from_millis(8);
const QUEUED: Duration = Duration::from_millis(32);

type OnDispatch = Option<Box<dyn Fn(usize)>>;

/// A GPU whose speed a test changes.
struct Gpu {
    simulated: SimulatedGpu,
    /// How many times slower it is than one that takes a microsecond for a workgroup.
    slowness: Rc<Cell<f64>>,
    /// Called with the number of dispatches so far.
    on_dispatch: Rc<RefCell<OnDispatch>>,
}

impl Gpu {
    fn new(slowness: f64) -> Self {
        let slowness = Rc::new(Cell::new(slowness));
        let on_dispatch: Rc<RefCell<OnDispatch>> = Rc::default();
        let (factor, call, count) = (slowness.clone(), on_dispatch.clone(), Cell::new(0));
        let simulated = SimulatedGpu::new(move |work| {
            let microseconds = match work {
                SimulatedWork::Dispatch { kernel, workgroups } => {
                    count.set(count.get() + 1);
                    if let Some(call) = &*call.borrow() {
                        call(count.get());
                    }
                    // Kernels differ in what a workgroup takes.
                    (1 + kernel.len() % 4) as f64 * workgroups.min(200) as f64
                }
                SimulatedWork::Copy { bytes } => bytes as f64 * 1e-5,
                SimulatedWork::Write { bytes } => bytes as f64 * 1e-4,
            };
            Duration::from_nanos((microseconds * factor.get() * 1e3) as u64)
        });
        Self { simulated, slowness, on_dispatch }
    }

    fn engine(&self, smoothness: Smoothness) -> Engine {
        let device = DeviceOptions { simulated_gpu: Some(self.simulated.clone()), ..Default::default() };
        let options = LoadOptions {
            smoothness: Some(smoothness),
            precision: Some(Precision::Exact),
            device,
            ..LoadOptions::default()
        };
        load(MODEL, &options)
    }

    fn take(&self) -> Vec<SimulatedSubmit> {
        self.simulated.take_submits()
    }
}

/// A prompt that shares no beginning with others.
fn prompt(engine: &Engine, first: u32) -> Vec<u32> {
    let tokens = (engine.info().context_length - 32).min(400) as u32;
    (0..tokens).map(|index| (first + index * 7) % 250 + 1).collect()
}

fn complete(engine: &Engine, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let request = json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    let mut ids = Vec::new();
    while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
        ids.extend(chunk.token_ids);
    }
    ids
}

fn logits(engine: &Engine, prompt: &[u32]) -> Vec<u32> {
    let logits = pollster::block_on(engine.forward(prompt)).unwrap();
    pollster::block_on(logits.readback()).unwrap().into_iter().map(f32::to_bits).collect()
}

/// Submits that are longer than they should be, but for those of a single dispatch, which can't be cut.
fn too_long(submits: &[SimulatedSubmit]) -> Vec<&SimulatedSubmit> {
    submits.iter().filter(|submit| submit.time > SUBMIT.max(submit.longest)).collect()
}

/// Whether at most `percent` of the submits are too long: while a speed is learned some are.
fn are_few(submits: &[SimulatedSubmit], percent: usize) -> bool {
    let long = too_long(submits);
    eprintln!("{} of {} submits are too long: {long:?}", long.len(), submits.len());
    long.len() * 100 <= percent * submits.len()
}

fn longest_wait(submits: &[SimulatedSubmit]) -> Duration {
    submits.iter().map(|submit| submit.queued + submit.time).max().unwrap()
}

#[test]
fn results_are_the_same_however_submits_are_cut() {
    let whole = Gpu::new(1.0);
    let engine = whole.engine(Smoothness::Throughput);
    let (one, other) = (prompt(&engine, 3), prompt(&engine, 100));
    let wanted = (complete(&engine, &one, 20), logits(&engine, &other));
    whole.take();
    assert_eq!(complete(&engine, &other, 20).len(), 20);
    let uncut = whole.take().len();
    for slowness in [1.0, 40.0, 5000.0] {
        let gpu = Gpu::new(slowness);
        let engine = gpu.engine(Smoothness::Frames);
        assert_eq!((complete(&engine, &one, 20), logits(&engine, &other)), wanted, "{slowness} times slower");
        gpu.take();
        assert_eq!(complete(&engine, &other, 20), complete(&engine, &other, 20));
        let cut = gpu.take().len();
        assert!(slowness < 40.0 || cut > 2 * uncut, "{cut} submits in place of {uncut}");
    }
}

#[test]
fn submits_follow_the_speed_of_the_gpu() {
    let gpu = Gpu::new(5.0);
    let engine = gpu.engine(Smoothness::Frames);
    // Nothing was known of this GPU: no more than a few kernels at once, until they are measured.
    let unknown = gpu.take();
    assert!(too_long(&unknown).len() <= 2, "{:?}", too_long(&unknown));
    complete(&engine, &prompt(&engine, 1), 8);
    gpu.take();

    // A GPU that is known.
    complete(&engine, &prompt(&engine, 2), 8);
    let known = gpu.take();
    assert_eq!(too_long(&known), [] as [&SimulatedSubmit; 0]);
    assert!(longest_wait(&known) <= QUEUED, "{:?}", longest_wait(&known));
    let of_prompt: Vec<_> = known.iter().filter(|submit| submit.dispatches > 1).collect();
    let busy = of_prompt.iter().filter(|submit| submit.time > Duration::from_millis(3)).count();
    assert!(busy > 2, "and they are as long as they may be: {of_prompt:?}");

    // It becomes 30 times slower in the middle of a prompt, as one that gets hot or another program's.
    let (slowness, calls) = (gpu.slowness.clone(), Rc::new(Cell::new(None)));
    *gpu.on_dispatch.borrow_mut() = Some(Box::new(move |count| {
        let first = calls.get().unwrap_or(count);
        calls.set(Some(first));
        if count == first + 60 {
            slowness.set(150.0);
        }
    }));
    complete(&engine, &prompt(&engine, 3), 8);
    *gpu.on_dispatch.borrow_mut() = None;
    let changing = gpu.take();
    assert!(gpu.slowness.get() > 100.0, "the prompt has as many dispatches");
    // What was expected of kernels that ran before is wrong by 30 once, and what is believed of the others follows.
    let longest = changing.iter().map(|submit| submit.time).max().unwrap();
    assert!(longest < 10 * SUBMIT, "{longest:?} of {changing:?}");
    complete(&engine, &prompt(&engine, 4), 8);
    gpu.take();
    complete(&engine, &prompt(&engine, 5), 8);
    let slow = gpu.take();
    assert!(are_few(&slow, 10));

    // And fast again: fewer submits after a prompt.
    gpu.slowness.set(5.0);
    complete(&engine, &prompt(&engine, 6), 8);
    gpu.take();
    complete(&engine, &prompt(&engine, 7), 8);
    let fast = gpu.take();
    assert!(fast.len() * 4 < slow.len(), "{} submits in place of {}", fast.len(), slow.len());
    assert!(fast.iter().all(|submit| submit.time < 3 * SUBMIT), "{fast:?}");
}

/// A fast GPU has told while the model was loaded that it is one: the first prompt, whose kernels nobody has measured, waits for little.
#[test]
fn a_fast_gpu_takes_the_first_prompt_in_few_submits() {
    let gpu = Gpu::new(0.02);
    let engine = gpu.engine(Smoothness::Frames);
    gpu.take();
    let counts: Vec<usize> = (0..4)
        .map(|first| {
            complete(&engine, &prompt(&engine, 60 * first + 1), 1);
            gpu.take().len()
        })
        .collect();
    assert!(counts[0] <= counts[3] + 4, "{counts:?} submits of the first prompts");
}

#[test]
fn nothing_is_cut_while_the_page_is_hidden_or_for_throughput() {
    let gpu = Gpu::new(300.0);
    let engine = gpu.engine(Smoothness::Frames);
    let number_of_submits = |first: u32| {
        complete(&engine, &prompt(&engine, first), 4);
        gpu.take().len()
    };
    number_of_submits(1);
    let frames = number_of_submits(2);
    set_page_hidden(true);
    let hidden = number_of_submits(3);
    set_page_hidden(false);
    let visible = number_of_submits(4);
    engine.set_smoothness(Smoothness::Throughput);
    let throughput = number_of_submits(5);
    engine.set_smoothness(Smoothness::Frames);
    let again = number_of_submits(6);
    for cut in [frames, visible, again] {
        assert!(cut > 4 * hidden && cut > 4 * throughput, "{cut} cut, {hidden} hidden, {throughput} for throughput");
    }
}

#[test]
fn a_cancellation_takes_effect_within_two_submits() {
    let gpu = Gpu::new(600.0);
    let engine = gpu.engine(Smoothness::Frames);
    let (one, other) = (prompt(&engine, 1), prompt(&engine, 90));
    let wanted = complete(&engine, &other, 12);
    complete(&engine, &one, 2);
    let dispatches: usize = {
        gpu.take();
        complete(&engine, &prompt(&engine, 50), 1);
        gpu.take().iter().map(|submit| submit.dispatches).sum()
    };
    for at in [1, 7, dispatches / 3, dispatches / 2] {
        let text = prompt(&engine, 120 + at as u32);
        let request = json!({"prompt": text, "max_tokens": 4, "temperature": 0, "ignore_eos": true});
        let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
        let canceller: Canceller = generation.canceller();
        let (first, submits) = (Cell::new(None), gpu.simulated.clone());
        *gpu.on_dispatch.borrow_mut() = Some(Box::new(move |count| {
            let begin = first.get().unwrap_or(count);
            first.set(Some(begin));
            if count == begin + at {
                // What was submitted before is of no interest.
                submits.take_submits();
                canceller.cancel();
            }
        }));
        gpu.take();
        let last = pollster::block_on(generation.next()).unwrap().unwrap();
        *gpu.on_dispatch.borrow_mut() = None;
        assert_eq!(last.finish_reason, Some(FinishReason::Cancelled), "after {at} of {dispatches} dispatches");
        let after = gpu.take();
        assert!(after.len() <= 3, "after {at} of {dispatches} dispatches: {after:?}");
        drop(generation);
        assert_eq!(complete(&engine, &other, 12), wanted, "what was taken in partly is not taken for whole");
    }
}

/// Prompts that are cancelled on their way to the GPU take nothing along of what others gave it meanwhile: neither the steps of answers that
/// run, nor the copies of texts that the prompt cache keeps.
#[test]
fn a_cancelled_prompt_takes_nothing_of_others_along() {
    let gpu = Gpu::new(600.0);
    let device = DeviceOptions { simulated_gpu: Some(gpu.simulated.clone()), ..Default::default() };
    let options = LoadOptions {
        smoothness: Some(Smoothness::Frames),
        precision: Some(Precision::Exact),
        max_sequences: Some(3),
        device,
        ..LoadOptions::default()
    };
    let engine = load(MODEL, &options);
    let start = |prompt: &[u32], tokens: usize| {
        let request = json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
        engine.complete(CompletionRequest::parse(request).unwrap()).unwrap()
    };
    let texts: Vec<Vec<u32>> = (0..4).map(|first| prompt(&engine, 30 * first + 3)).collect();
    let wanted: Vec<Vec<u32>> = texts.iter().map(|text| complete(&engine, text, 24)).collect();
    for round in 0..12u32 {
        // So that the cancelled pass makes buffers, and waits to hear whether there was room.
        pollster::block_on(engine.context().device().free_unused()).unwrap();
        let mut cancelled = start(&prompt(&engine, 131 + 7 * round), 4);
        let canceller = cancelled.canceller();
        let (first, at) = (Cell::new(None), 1 + 9 * round as usize);
        *gpu.on_dispatch.borrow_mut() = Some(Box::new(move |count| {
            let begin = first.get().unwrap_or(count);
            first.set(Some(begin));
            if count == begin + at {
                canceller.cancel();
            }
        }));
        let answer = async |index: usize| {
            let mut generation = start(&texts[index], 24);
            let mut ids = Vec::new();
            while let Some(chunk) = generation.next().await.unwrap() {
                ids.extend(chunk.token_ids);
            }
            ids
        };
        let ends = async {
            while let Some(chunk) = cancelled.next().await.unwrap() {
                if chunk.finish_reason.is_some() {
                    break;
                }
            }
        };
        let (one, other) = (round as usize % 4, (round as usize + 1) % 4);
        let (first, (), second) = pollster::block_on(join3(answer(one), ends, answer(other)));
        *gpu.on_dispatch.borrow_mut() = None;
        assert_eq!((&first, &second), (&wanted[one], &wanted[other]), "round {round}");
        drop(cancelled);
        for (text, wanted) in texts.iter().zip(&wanted) {
            assert_eq!(&complete(&engine, text, 24), wanted, "after round {round}");
        }
    }
}

/// Lets others run `turns` times.
async fn turns(mut turns: usize) {
    poll_fn(|task| {
        if turns == 0 {
            return Poll::Ready(());
        }
        turns -= 1;
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Requests that are dropped at any time, also before it is known whether there was room for their passes: answers that run, later ones and
/// the memory are what they are without them. Of a model with keys and values, and of one with recurrent layers and a head that drafts.
#[test]
fn a_dropped_request_takes_nothing_of_others_along() {
    let drafts = json!({"speculation": {"type": "mtp", "max_tokens": 2}});
    for (model, multi_token_prediction, more) in [(MODEL, false, json!({})), ("mtp/qwen3_5/model.gguf", true, drafts)] {
        let gpu = Gpu::new(600.0);
        let device = DeviceOptions { simulated_gpu: Some(gpu.simulated.clone()), ..Default::default() };
        let options = LoadOptions {
            smoothness: Some(Smoothness::Frames),
            precision: Some(Precision::Exact),
            max_sequences: Some(2),
            multi_token_prediction,
            device,
            ..LoadOptions::default()
        };
        let engine = load(model, &options);
        let length = (engine.info().context_length - 32).min(180);
        let text = |first: u32| prompt(&engine, first)[..length].to_vec();
        let start = |prompt: &[u32], tokens: usize| {
            let mut request = json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            engine.complete(CompletionRequest::parse(request).unwrap()).unwrap()
        };
        let answer = async |text: &[u32]| {
            let mut generation = start(text, 20);
            let mut ids = Vec::new();
            while let Some(chunk) = generation.next().await.unwrap() {
                ids.extend(chunk.token_ids);
            }
            ids
        };
        let texts = [text(3), text(33), text(63)];
        let wanted = texts.each_ref().map(|text| complete(&engine, text, 20));
        let free_unused = || pollster::block_on(engine.context().device().free_unused()).unwrap();
        let mut held = None;
        for round in 0..16usize {
            // So that the dropped pass makes buffers, and waits to hear whether there was room.
            free_unused();
            let dropping = async {
                let mut dropped = start(&text(131 + 7 * round as u32), 6);
                let mut next = Box::pin(dropped.next());
                for _ in 0..1 + round * 3 / 2 {
                    if (&mut next).now_or_never().is_some() {
                        break;
                    }
                    turns(1).await;
                }
            };
            let at = round % 3;
            let ((), given) = pollster::block_on(join(dropping, answer(&texts[at][..])));
            assert_eq!(given, wanted[at], "{model}, beside round {round}");
            assert_eq!(
                complete(&engine, &texts[(at + 1) % 3], 20),
                wanted[(at + 1) % 3],
                "{model}, after round {round}"
            );
            if round >= 3 {
                free_unused();
                // Texts and checkpoints that are kept become more.
                let memory = engine.stats().memory;
                let now = memory.arenas + memory.other;
                let before = *held.get_or_insert(now);
                assert!(now <= before + before / 10, "{model}, round {round}: {now} bytes, {before} before");
            }
        }
    }
}
