//! Speculation with a second model that drafts, on a native GPU: the answer of plain greedy decoding, whatever is drafted.

use crate::support::engines::exact_on_cpu;
use crate::support::files::golden;
use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::source::{FileSource, MemorySource};
use rillm::engine::{Chunk, Engine, FinishReason, Generation, LoadOptions, Phase};
use rillm::model::folder::OneFile;
use serde_json::{Value, json};

fn load(name: &str, draft: &str, options: &LoadOptions) -> rillm::Result<Engine> {
    let (source, draft) = (FileSource::open(golden(name)).unwrap(), FileSource::open(golden(draft)).unwrap());
    pollster::block_on(async {
        let engine = Engine::load(&source, &exact_on_cpu(options), &mut |_| Ok(())).await?;
        engine.with_draft(&OneFile(&draft), None, &mut |_| Ok(())).await
    })
}

fn engine(name: &str, draft: &str) -> Engine {
    load(name, draft, &LoadOptions::default()).unwrap()
}

fn start(engine: &Engine, request: &Value) -> Generation {
    engine.complete(CompletionRequest::parse(request.clone()).unwrap()).unwrap()
}

type Answer = (String, Vec<u32>, FinishReason);

/// The answer, and how many tokens were drafted and accepted.
async fn rest(generation: &mut Generation) -> rillm::Result<(Answer, Option<(usize, usize)>)> {
    let mut chunks: Vec<Chunk> = vec![];
    while let Some(chunk) = generation.next().await? {
        chunks.push(chunk);
    }
    let last = chunks.last().unwrap();
    let timings = last.timings.unwrap();
    let answer = (
        chunks.iter().map(|chunk| chunk.text.as_str()).collect(),
        chunks.iter().flat_map(|chunk| chunk.token_ids.clone()).collect(),
        last.finish_reason.unwrap(),
    );
    Ok((answer, timings.draft_tokens.zip(timings.accepted_draft_tokens)))
}

fn generate(engine: &Engine, request: &Value) -> (Answer, Option<(usize, usize)>) {
    pollster::block_on(rest(&mut start(engine, request))).unwrap()
}

fn plain(prompt: &[u32], max_tokens: usize) -> Value {
    json!({"prompt": prompt, "temperature": 0, "max_tokens": max_tokens, "ignore_eos": true})
}

fn drafted(mut request: Value, max_tokens: usize) -> Value {
    request["speculation"] = json!({"type": "draft_model", "max_tokens": max_tokens});
    request
}

fn prompts() -> [Vec<u32>; 4] {
    [vec![7], (0..37).map(|i| i * i * 7 % 200).collect(), [11, 45, 78, 102, 34, 99].repeat(5), vec![42; 12]]
}

/// How many tokens were drafted and accepted over all prompts.
fn answers_are_those_of_plain_greedy(engine: &Engine) -> (usize, usize) {
    let mut all = (0, 0);
    for prompt in prompts() {
        let (wanted, none) = generate(engine, &plain(&prompt, 60));
        assert_eq!(none, None);
        for max_tokens in [1, 3, 7] {
            let (answer, counts) = generate(engine, &drafted(plain(&prompt, 60), max_tokens));
            assert_eq!(answer, wanted, "{prompt:?}, drafts of {max_tokens}");
            let (draft_tokens, accepted) = counts.unwrap();
            assert!(accepted <= draft_tokens && accepted < wanted.1.len());
            all = (all.0 + draft_tokens, all.1 + accepted);
        }
    }
    all
}

#[test]
fn a_model_accepts_all_drafts_of_its_own() {
    for name in ["tiny_llama/tied-q4_0.gguf", "tiny_qwen2/untied-q4_0.gguf"] {
        let (draft_tokens, accepted) = answers_are_those_of_plain_greedy(&engine(name, name));
        println!("{name}: {accepted} of {draft_tokens}");
        assert_eq!(accepted, draft_tokens, "{name}");
    }
}

#[test]
fn drafts_of_another_model_are_accepted_where_they_are_right() {
    let (draft_tokens, accepted) =
        answers_are_those_of_plain_greedy(&engine("tiny_llama/tied-f32.gguf", "tiny_llama/tied-q4_0.gguf"));
    println!("{accepted} of {draft_tokens}");
    assert!(accepted > 0 && accepted < draft_tokens, "{accepted} of {draft_tokens}");
}

/// With a draft model there are fewer passes of the model itself: five drafts and the token after them by one.
#[test]
fn a_warm_pass_compiles_and_creates_nothing() {
    let name = "tiny_llama/tied-q4_0.gguf";
    let engine = engine(name, name);
    let request = drafted(plain(&[5, 6, 7], 61), 5);
    let (wanted, _) = generate(&engine, &request);
    generate(&engine, &request);
    let mut generation = start(&engine, &request);
    let first = pollster::block_on(generation.next()).unwrap().unwrap();
    assert_eq!(first.token_ids, wanted.1[..1]);
    engine.reset_stats();
    let (answer, counts) = pollster::block_on(rest(&mut generation)).unwrap();
    assert_eq!((&answer.1[..], counts), (&wanted.1[1..], Some((50, 50))));
    let stats = engine.stats();
    assert_eq!((stats.pipelines_created, stats.buffers_created), (0, 0));
    // Ten passes, each one read-back and one submit.
    assert_eq!((stats.maps, stats.submits), (10, 10));
}

#[test]
fn it_ends_where_it_should() {
    let name = "tiny_llama/tied-q8_0.gguf";
    // The end of the context.
    for context_length in 26..34 {
        let options = LoadOptions { context_length: Some(context_length), ..Default::default() };
        let engine = load(name, "tiny_llama/tied-q4_0.gguf", &options).unwrap();
        let prompt = [11, 45, 78, 102, 34, 99].repeat(4);
        let (wanted, _) = generate(&engine, &plain(&prompt, 1000));
        assert_eq!((wanted.1.len(), wanted.2), (context_length - prompt.len(), FinishReason::Length));
        for _ in 0..2 {
            assert_eq!(generate(&engine, &drafted(plain(&prompt, 1000), 7)).0, wanted, "{context_length}");
        }
    }
    let engine = engine(name, name);
    let (whole, _) = generate(&engine, &plain(&[5, 6, 7], 60));
    for max_tokens in [1, 2, 7, 8, 9, 30] {
        assert_eq!(generate(&engine, &drafted(plain(&[5, 6, 7], max_tokens), 7)).0.1, whole.1[..max_tokens]);
    }
    // A stop string in the middle of what is accepted at once.
    let stop: String = whole.0.chars().skip(9).take(3).collect();
    let mut stopped = plain(&[5, 6, 7], 60);
    stopped["stop"] = json!(stop);
    let (wanted, _) = generate(&engine, &stopped);
    assert_eq!(wanted.2, FinishReason::Stop);
    assert_eq!(generate(&engine, &drafted(stopped, 7)).0, wanted);
    // Cancelled and dropped in the middle, and then again from the start.
    for cancels in [true, false] {
        let mut generation = start(&engine, &drafted(plain(&[5, 6, 7], 60), 4));
        for _ in 0..3 {
            pollster::block_on(generation.next()).unwrap().unwrap();
        }
        if cancels {
            generation.cancel();
            let last = pollster::block_on(generation.next()).unwrap().unwrap();
            assert_eq!(last.finish_reason, Some(FinishReason::Cancelled));
        }
        drop(generation);
        let (answer, counts) = generate(&engine, &drafted(plain(&[5, 6, 7], 60), 4));
        assert_eq!(answer, whole);
        assert!(counts.unwrap().1 > 40, "the draft model is free again: {counts:?}");
    }
}

/// A context that moves on under a draft model: the draft's own session follows, and the answer is that of plain steps with the same shifts.
#[test]
fn drafts_go_on_where_the_context_is_shifted() {
    for (name, draft) in [("tied-q4_0.gguf", "tied-q4_0.gguf"), ("tied-f32.gguf", "tied-q4_0.gguf")] {
        // Odd, so that halves are not whole; passes of a draft end before the end of the context, at it, or would go beyond.
        for context_length in [33, 40] {
            let options = LoadOptions {
                context_length: Some(context_length),
                precision: Some(rillm::engine::Precision::Exact),
                ..Default::default()
            };
            let [name, draft] = [name, draft].map(|file| format!("tiny_llama/{file}"));
            let engine = load(&name, &draft, &options).unwrap();
            let mut asked = plain(&prompts()[1][..20], 150);
            asked["context_shift"] = json!({"sinks": 3});
            let (wanted, _) = generate(&engine, &asked);
            assert_eq!(wanted.1.len(), 150);
            for max_tokens in [1, 4, 7] {
                let mut generation = start(&engine, &drafted(asked.clone(), max_tokens));
                let (mut tokens, mut timings) = (Vec::<u32>::new(), None);
                while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
                    tokens.extend(&chunk.token_ids);
                    timings = chunk.timings.or(timings);
                }
                let timings = timings.unwrap();
                assert_eq!(tokens, wanted.1, "{name}, {draft}, {context_length}, drafts of {max_tokens}");
                assert!(timings.context_shifts.unwrap() >= 6, "{timings:?}");
                // Also after the first shift, before which there is room for 20.
                assert!(timings.accepted_draft_tokens.unwrap() > 20, "{timings:?}");
            }
        }
    }
}

/// One of several requests has the draft model, the others decode without.
#[test]
fn several_at_once_give_what_each_gives_alone() {
    let name = "tiny_llama/tied-q4_0.gguf";
    let engine = load(name, name, &LoadOptions { max_sequences: Some(4), ..Default::default() }).unwrap();
    let prompts = prompts();
    let wanted: Vec<Answer> = prompts.iter().map(|prompt| generate(&engine, &plain(prompt, 40)).0).collect();
    let runs = prompts.iter().enumerate().map(|(index, prompt)| {
        let request = if index < 2 { drafted(plain(prompt, 40), 5) } else { plain(prompt, 40) };
        let engine = &engine;
        async move { rest(&mut start(engine, &request)).await.unwrap() }
    });
    let got = pollster::block_on(join_all(runs));
    assert_eq!(got.iter().map(|(answer, _)| answer.clone()).collect::<Vec<_>>(), wanted);
    let counts: Vec<_> = got.iter().map(|(_, counts)| *counts).collect();
    assert!(counts[0].unwrap().0 + counts[1].unwrap().0 > 0 && counts[2].is_none(), "{counts:?}");
}

#[test]
fn what_can_not_be_had_is_refused() {
    let error =
        load("tiny_llama/tied-q4_0.gguf", "tiny_llama/untied-q8_0.gguf", &LoadOptions::default()).err().unwrap();
    assert_eq!(error.code(), Code::VocabularyMismatch, "{error}");
    // A file that is none.
    let source = FileSource::open(golden("tiny_llama/tied-q4_0.gguf")).unwrap();
    let none = MemorySource::new(vec![7; 100]);
    let error = pollster::block_on(async {
        let engine = Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(())).await?;
        engine.with_draft(&OneFile(&none), None, &mut |_| Ok(())).await
    });
    assert_eq!(error.err().unwrap().code(), Code::NotGguf);
    // Ended by the caller.
    let draft = FileSource::open(golden("tiny_llama/tied-q4_0.gguf")).unwrap();
    let error = pollster::block_on(async {
        let engine = Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(())).await?;
        let mut until_weights = |progress: rillm::engine::Progress| match progress.phase {
            Phase::Weights => Err(rillm::Error::new(Code::Aborted, "enough")),
            _ => Ok(()),
        };
        engine.with_draft(&OneFile(&draft), None, &mut until_weights).await
    });
    assert_eq!(error.err().unwrap().code(), Code::Aborted);

    let without =
        pollster::block_on(Engine::load(&source, &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(()))).unwrap();
    assert!(without.info().draft.is_none());
    let with = engine("tiny_llama/tied-q4_0.gguf", "tiny_llama/tied-f16.gguf");
    assert_eq!(with.info().draft.as_ref().unwrap().quantization, "F16");
    let mut sampled = drafted(plain(&[1], 5), 3);
    sampled["temperature"] = json!(0.5);
    for (engine, request, word) in [
        (&without, drafted(plain(&[1], 5), 3), "draft"),
        (&with, drafted(plain(&[1], 5), 8), "max_tokens"),
        (&with, drafted(plain(&[1], 5), 0), "max_tokens"),
        (&with, sampled, "temperature"),
    ] {
        let error = engine.complete(CompletionRequest::parse(request.clone()).unwrap()).err().unwrap();
        assert_eq!(error.code(), Code::InvalidRequest, "{request}");
        assert!(error.message().contains(word), "{request}: {error}");
    }
    assert_eq!(generate(&with, &plain(&[1], 5)).0.1.len(), 5);
}
