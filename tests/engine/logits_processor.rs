//! Logits that the caller changes before each choice, on a native GPU.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::engines;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Chunk, Engine, FinishReason, Generation, LogitsProcessor};
use rillm::{Code, Error};
use serde_json::{Value, json};

/// Calls a function and notes what it was called with.
struct Calls<F> {
    process: F,
    seen: RefCell<Vec<(Vec<u32>, usize)>>,
}

impl<F: Fn(&mut Vec<f32>, usize) -> rillm::Result<bool>> LogitsProcessor for Calls<F> {
    fn process(
        &self,
        mut logits: Vec<f32>,
        tokens: Vec<u32>,
        step: usize,
    ) -> LocalBoxFuture<'_, rillm::Result<Option<Vec<f32>>>> {
        self.seen.borrow_mut().push((tokens, step));
        let goes_on = (self.process)(&mut logits, step);
        async move { goes_on.map(|goes_on| goes_on.then_some(logits)) }.boxed_local()
    }
}

fn calls<F: Fn(&mut Vec<f32>, usize) -> rillm::Result<bool>>(process: F) -> Rc<Calls<F>> {
    Rc::new(Calls { process, seen: RefCell::default() })
}

fn engine(max_sequences: usize) -> Engine {
    engines::engine("tiny_llama/tied-q4_0.gguf", max_sequences)
}

fn start(engine: &Engine, request: &Value) -> Generation {
    engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap()
}

async fn rest(generation: &mut Generation) -> rillm::Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn run(engine: &Engine, request: &Value) -> Vec<Chunk> {
    pollster::block_on(rest(&mut start(engine, request))).unwrap()
}

fn processed(engine: &Engine, request: &Value, processor: Rc<dyn LogitsProcessor>) -> rillm::Result<Vec<Chunk>> {
    pollster::block_on(rest(&mut start(engine, request).with_logits_processor(processor).unwrap()))
}

fn tokens(chunks: &[Chunk]) -> Vec<u32> {
    chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect()
}

const PROMPT: [u32; 4] = [11, 45, 78, 102];

/// One that changes nothing changes nothing, whatever chooses, and sees the tokens so far.
#[test]
fn logits_as_they_are_give_the_same_answer() {
    let engine = engine(1);
    for more in [
        json!({"temperature": 0}),
        json!({"temperature": 1.3, "seed": 5, "logprobs": 4}),
        json!({"temperature": 1.1, "seed": 6, "top_p": 0.8}),
        json!({"seed": 7, "n": 3}),
        json!({"temperature": 0, "frequency_penalty": 1.5, "repetition_penalty": 1.2, "logit_bias": {"7": 2}}),
        json!({"temperature": 1, "seed": 8, "mirostat": 2, "mirostat_tau": 3}),
    ] {
        let mut request = json!({"prompt": PROMPT, "max_tokens": 24, "ignore_eos": true});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let wanted = run(&engine, &request);
        let processor = calls(|_, _| Ok(true));
        let got = processed(&engine, &request, processor.clone()).unwrap();
        let by_index = |chunks: &[Chunk], index: usize| {
            let own: Vec<Chunk> = chunks.iter().filter(|chunk| chunk.index == index).cloned().collect();
            tokens(&own)
        };
        for index in 0..3 {
            assert_eq!(by_index(&got, index), by_index(&wanted, index), "{request}");
        }
        let of =
            |chunks: &[Chunk]| -> Vec<_> { chunks.iter().flat_map(|chunk| chunk.logprobs.clone()).flatten().collect() };
        assert_eq!(of(&got).len(), of(&wanted).len());
        for (got, wanted) in of(&got).iter().zip(of(&wanted)) {
            assert!((got.token.logprob - wanted.token.logprob).abs() < 1e-4);
            let ids = |of: &rillm::engine::TokenLogprobs| of.top.iter().map(|top| top.id).collect::<Vec<_>>();
            assert_eq!(ids(got), ids(&wanted));
        }
        if request.get("n").is_none() {
            let answer = tokens(&got);
            for (call, (seen, step)) in processor.seen.borrow().iter().enumerate() {
                assert_eq!((*step, &seen[..]), (call, &[&PROMPT[..], &answer[..call]].concat()[..]));
            }
            assert_eq!(processor.seen.borrow().len(), 24, "one call for each token");
        }
        // The session holds what it says.
        assert_eq!(tokens(&run(&engine, &request)), tokens(&wanted));
    }
}

/// What it leaves is what is chosen from; log probabilities stay the model's.
#[test]
fn what_it_leaves_is_chosen_from() {
    let engine = engine(2);
    let request =
        json!({"prompt": PROMPT, "max_tokens": 30, "ignore_eos": true, "temperature": 1.5, "seed": 3, "logprobs": 1});
    let only = [17u32, 99, 200];
    let processor = calls(move |logits: &mut Vec<f32>, step| {
        for (token, logit) in logits.iter_mut().enumerate() {
            if token as u32 != only[step % 3] {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(true)
    });
    // Beside another request, which decodes by its own steps meanwhile.
    let other = json!({"prompt": [3, 4], "max_tokens": 40, "ignore_eos": true, "temperature": 0});
    let wanted = tokens(&run(&engine, &other));
    let mut with = start(&engine, &request).with_logits_processor(processor).unwrap();
    let mut beside = start(&engine, &other);
    let mut both = pollster::block_on(join_all([rest(&mut with), rest(&mut beside)])).into_iter();
    let got = both.next().unwrap().unwrap();
    assert_eq!(tokens(&got), (0..30).map(|step| only[step % 3]).collect::<Vec<_>>());
    assert_eq!(tokens(&both.next().unwrap().unwrap()), wanted);
    let logprobs: Vec<_> = got.iter().flat_map(|chunk| chunk.logprobs.clone().unwrap()).collect();
    assert!(logprobs.iter().all(|of| of.token.logprob < -0.5 && of.top[0].logprob >= of.token.logprob));
}

#[test]
fn what_goes_wrong_in_it_ends_the_generation() {
    let engine = engine(1);
    let request = json!({"prompt": PROMPT, "max_tokens": 30, "ignore_eos": true, "temperature": 0});
    let wanted = tokens(&run(&engine, &request));
    type Process = Box<dyn Fn(&mut Vec<f32>, usize) -> rillm::Result<bool>>;
    let cases: Vec<(Process, Code, &str)> = vec![
        (
            Box::new(|_, _| Err(Error::new(Code::LogitsProcessor, "the caller's own words"))),
            Code::LogitsProcessor,
            "own words",
        ),
        (
            Box::new(|logits, _| {
                logits[7] = f32::NAN;
                Ok(true)
            }),
            Code::NumericalError,
            "token id 7 NaN for token 2",
        ),
        (
            Box::new(|logits, _| {
                logits[9] = f32::INFINITY;
                Ok(true)
            }),
            Code::NumericalError,
            "token id 9 inf",
        ),
        (
            Box::new(|logits, _| {
                logits.fill(f32::NEG_INFINITY);
                Ok(true)
            }),
            Code::NumericalError,
            "nothing to choose",
        ),
        (
            Box::new(|logits, _| {
                logits.pop();
                Ok(true)
            }),
            Code::LogitsProcessor,
            "logits for token 2, wanted",
        ),
    ];
    for (process, code, words) in cases {
        let processor =
            calls(move |logits: &mut Vec<f32>, step| if step == 2 { process(logits, step) } else { Ok(true) });
        let mut generation = start(&engine, &request).with_logits_processor(processor).unwrap();
        // The tokens before it came.
        let before = pollster::block_on(async {
            let mut before = Vec::new();
            loop {
                match generation.next().await {
                    Ok(chunk) => before.extend(chunk.unwrap().token_ids),
                    Err(error) => break (before, error),
                }
            }
        });
        assert!(wanted.starts_with(&before.0) && before.0.len() <= 2);
        assert_eq!(before.1.code(), code, "{}", before.1);
        assert!(before.1.message().contains(words), "{}", before.1);
        assert_eq!(tokens(&run(&engine, &request)), wanted, "and the engine goes on");
    }
    let cancelled = processed(&engine, &request, calls(|_, step| Ok(step < 5))).unwrap();
    assert_eq!(cancelled.last().unwrap().finish_reason, Some(FinishReason::Cancelled));
    assert_eq!(tokens(&cancelled), wanted[..5]);
}

#[test]
fn speculation_is_refused_beside_it() {
    let engine = engine(1);
    let request = json!({"prompt": PROMPT, "temperature": 0, "speculation": {"type": "prompt_lookup"}});
    let error = start(&engine, &request).with_logits_processor(calls(|_, _| Ok(true))).err().unwrap();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("speculation"), "{error}");
}
