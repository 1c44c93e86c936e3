//! Biases, bans, penalties and DRY in generations, on a native GPU: each greedy answer is the one that plain loops over the model's
//! logits give, whatever part of the text the cache held before, and beside others. What a chance is in, is the same each time.

use std::collections::HashMap;

use crate::support::engines::{engine, load};
use futures_util::future::join_all;
use rillm::Code;
use rillm::engine::request::CompletionRequest;
use rillm::engine::{Engine, FinishReason, LoadOptions, StopReason};
use rillm::text::detokenize::StreamDecoder;
use serde_json::{Value, json};

async fn complete(engine: &Engine, request: &Value) -> rillm::Result<(Vec<u32>, FinishReason)> {
    let mut generation = engine.complete(CompletionRequest::parse(request.clone())?)?;
    let (mut tokens, mut reason) = (Vec::new(), None);
    while let Some(chunk) = generation.next().await? {
        tokens.extend(chunk.token_ids);
        reason = chunk.finish_reason;
    }
    Ok((tokens, reason.unwrap()))
}

fn tokens(engine: &Engine, request: &Value) -> Vec<u32> {
    pollster::block_on(complete(engine, request)).unwrap().0
}

fn with(request: &Value, more: &Value) -> Value {
    let mut request = request.clone();
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

/// Small enough that a greedy answer soon goes in circles.
const MODEL: &str = "tiny_llama/tied-q8_0.gguf";
const PROMPT: [u32; 9] = [11, 45, 78, 102, 45, 78, 7, 11, 45];
const LENGTH: usize = 40;

fn request(more: Value) -> Value {
    with(&json!({"prompt": PROMPT, "max_tokens": LENGTH, "temperature": 0, "ignore_eos": true}), &more)
}

/// Requests with each of the settings, and some together.
fn settings() -> Vec<Value> {
    let plain = tokens(&engine(MODEL, 1), &request(json!({})));
    let bias: HashMap<String, f32> =
        [(plain[0].to_string(), -100.0), (plain[3].to_string(), -2.5), ("77".to_owned(), 3.5)].into();
    vec![
        json!({"logit_bias": bias}),
        json!({"suppress_tokens": [plain[0], plain[1], plain[2], 5]}),
        json!({"repetition_penalty": 1.4}),
        json!({"repetition_penalty": 1.4, "repeat_last_n": 5}),
        json!({"repetition_penalty": 0.8}),
        json!({"frequency_penalty": 0.7}),
        json!({"presence_penalty": 1.5, "repeat_last_n": 12}),
        json!({"frequency_penalty": 1.0, "presence_penalty": -0.5, "repetition_penalty": 1.1, "logit_bias": {"9": 1}}),
        json!({"dry_multiplier": 1.5}),
        json!({"dry_multiplier": 2, "dry_base": 1.3, "dry_allowed_length": 1, "dry_penalty_last_n": 16}),
        json!({"dry_multiplier": 3, "dry_allowed_length": 3, "presence_penalty": 0.4, "suppress_tokens": [plain[5]]}),
    ]
}

/// What the engine is to do, by the logits of whole texts and without any of its kernels for sampler.
fn reference(engine: &Engine, settings: &Value) -> Vec<u32> {
    let number = |name: &str, default: f64| settings[name].as_f64().unwrap_or(default) as f32;
    let window = |name: &str, length: usize| match settings[name].as_i64().unwrap_or(-1) {
        -1 => 0,
        last => length.saturating_sub(last as usize),
    };
    let breakers = match settings["dry_sequence_breakers"].as_array() {
        Some(texts) => texts.iter().map(|text| text.as_str().unwrap()).collect(),
        None => vec!["\n", ":", "\"", "*"],
    };
    let bytes_of = |token: u32| engine.tokenizer().token_bytes_with_control(token).unwrap();
    let breaks = |token: u32| {
        breakers.iter().any(|breaker| bytes_of(token).windows(breaker.len()).any(|window| window == breaker.as_bytes()))
    };
    // Whether a breaker ends with the last token: it stands in it, or begins within one and goes on with all that follow.
    let ends_with_breaker = |text: &[u32]| {
        breaks(text[text.len() - 1])
            || (1..text.len()).any(|first| {
                let rest: Vec<u8> = text[first..].iter().flat_map(|token| bytes_of(*token)).copied().collect();
                breakers.iter().any(|breaker| {
                    let beginning = breaker.as_bytes().strip_suffix(&rest[..]).unwrap_or_default();
                    !beginning.is_empty() && bytes_of(text[first - 1]).ends_with(beginning)
                })
            })
    };
    let mut text = PROMPT.to_vec();
    while text.len() < PROMPT.len() + LENGTH {
        let mut logits = pollster::block_on(async { engine.forward(&text).await?.readback().await }).unwrap();
        let vocabulary = logits.len() / text.len();
        let mut logits = logits.split_off(vocabulary * (text.len() - 1));
        for (id, bias) in settings["logit_bias"].as_object().into_iter().flatten() {
            logits[id.parse::<usize>().unwrap()] += bias.as_f64().unwrap() as f32;
        }
        let start = window("repeat_last_n", text.len());
        for (token, logit) in logits.iter_mut().enumerate() {
            let penalty = number("repetition_penalty", 1.0);
            if text[start..].contains(&(token as u32)) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
            let answer = &text[start.max(PROMPT.len())..];
            let count = answer.iter().filter(|said| **said == token as u32).count();
            if count > 0 {
                *logit -= count as f32 * number("frequency_penalty", 0.0) + number("presence_penalty", 0.0);
            }
        }
        // For each token that would go on with a repetition, the longest one.
        let text_in_window = &text[window("dry_penalty_last_n", text.len())..];
        let mut longest: HashMap<u32, usize> = HashMap::new();
        let comparable =
            (0..text.len()).find(|back| ends_with_breaker(&text[..text.len() - back])).unwrap_or(text.len());
        for next in 1..text_in_window.len() {
            let mut repeated = 0;
            while repeated < next.min(comparable)
                && text_in_window[next - 1 - repeated] == text_in_window[text_in_window.len() - 1 - repeated]
            {
                repeated += 1;
            }
            let before = longest.entry(text_in_window[next]).or_default();
            *before = repeated.max(*before);
        }
        let (multiplier, base) = (number("dry_multiplier", 0.0), number("dry_base", 1.75));
        let allowed = number("dry_allowed_length", 2.0) as usize;
        for (token, repeated) in longest {
            if repeated >= allowed && !breaks(token) {
                logits[token as usize] -= multiplier * base.powi((repeated - allowed) as i32);
            }
        }
        for id in settings["suppress_tokens"].as_array().into_iter().flatten() {
            logits[id.as_u64().unwrap() as usize] = f32::NEG_INFINITY;
        }
        let best = (1..vocabulary).fold(0, |best, token| if logits[token] > logits[best] { token } else { best });
        text.push(best as u32);
    }
    text.split_off(PROMPT.len())
}

#[test]
fn greedy_answers_are_those_of_plain_loops() {
    let engine = engine(MODEL, 1);
    let plain = tokens(&engine, &request(json!({})));
    assert_eq!(plain, reference(&engine, &json!({})));
    for settings in settings() {
        let wanted = reference(&engine, &settings);
        assert_ne!(wanted, plain, "{settings} changes nothing");
        assert_eq!(tokens(&engine, &request(settings.clone())), wanted, "{settings}");
        // Again, now with the prompt in the cache: it still counts.
        assert_eq!(tokens(&engine, &request(settings.clone())), wanted, "{settings}, from the cache");
        // Behind the beginning of its answer, which is a part of the prompt now.
        if settings["frequency_penalty"].is_null() && settings["presence_penalty"].is_null() {
            let longer: Vec<u32> = PROMPT.iter().chain(&wanted[..15]).copied().collect();
            let rest = json!({"prompt": longer, "max_tokens": LENGTH - 15});
            assert_eq!(
                tokens(&engine, &with(&request(settings.clone()), &rest)),
                wanted[15..],
                "{settings}, gone on with"
            );
        }
        assert_eq!(tokens(&engine, &request(json!({}))), plain, "after {settings}");
    }
    // A window of nothing is none.
    let off = json!({"repetition_penalty": 2, "repeat_last_n": 0, "dry_multiplier": 3, "dry_penalty_last_n": 0});
    assert_eq!(tokens(&engine, &request(off)), plain);
}

/// Breakers that no token holds: the end of one token, and others.
#[test]
fn breakers_of_several_tokens_end_repetitions() {
    let engine = engine(MODEL, 1);
    let tokenizer = engine.tokenizer();
    let dry = |breakers: &[&str]| json!({"dry_multiplier": 2, "dry_allowed_length": 1, "dry_sequence_breakers": breakers, "max_tokens": LENGTH});
    let without = tokens(&engine, &request(dry(&["*"])));
    let text = [&PROMPT[..], &without].concat();
    let (mut tried, mut felt) = (0, 0);
    for count in [2, 3] {
        for at in 0..text.len() - 5 {
            let (first, rest) = (text[at], &text[at + 1..at + count]);
            let texts = [&[first][..], rest].map(|ids| tokenizer.decode(ids).unwrap());
            // As the tokenizer writes it, and not in the middle of a character.
            let is_text = texts.iter().all(|text| !text.is_empty() && text.is_ascii());
            if !is_text || tokenizer.encode_inside(&texts[1]) != rest {
                continue;
            }
            let breaker = format!("{}{}", &texts[0][texts[0].len() - 1..], texts[1]);
            let answer = tokens(&engine, &request(dry(&[&breaker, "*"])));
            (tried, felt) = (tried + 1, felt + usize::from(answer != without));
            if tried % 4 == 0 || (answer != without && felt < 5) {
                assert_eq!(answer, reference(&engine, &dry(&[&breaker, "*"])), "{breaker:?}");
            }
        }
    }
    assert!(tried > 8 && felt > 2, "{tried} tried, {felt} felt");
}

/// Everything that has a chance in it, and mirostat, whose state goes from one token to the next.
fn drawn() -> Vec<Value> {
    vec![
        json!({"typical_p": 0.7}),
        json!({"xtc_probability": 0.6, "xtc_threshold": 0.02}),
        json!({"mirostat": 2, "mirostat_tau": 4}),
        json!({"typical_p": 0.9, "top_k": 50, "xtc_probability": 0.5, "xtc_threshold": 0.05, "min_p": 0.001}),
        json!({"mirostat": 2, "mirostat_tau": 2, "mirostat_eta": 0.4, "frequency_penalty": 0.5}),
        json!({"repetition_penalty": 1.2, "top_p": 0.9}),
        json!({"top_n_sigma": 1.2}),
        json!({"dynatemp_range": 0.8, "dynatemp_exponent": 1.5, "top_p": 0.9}),
        json!({"dry_multiplier": 1, "temperature": 0.7}),
    ]
    .into_iter()
    .enumerate()
    .map(|(seed, more)| with(&request(json!({"temperature": 1.3, "seed": seed})), &more))
    .collect()
}

#[test]
fn answers_are_the_same_alone_and_beside_others() {
    let engine = engine(MODEL, 8);
    let mut requests = drawn();
    requests.extend(settings().into_iter().step_by(2).map(request));
    requests.push(request(json!({})));
    requests.push(request(json!({"temperature": 1, "seed": 3, "top_p": 0.8})));
    // Of different lengths, so that they join and leave at different times.
    for (index, request) in requests.iter_mut().enumerate() {
        request["max_tokens"] = json!(LENGTH - index);
    }
    let wanted: Vec<_> = requests.iter().map(|request| tokens(&engine, request)).collect();
    for (first, count) in [(0, 8), (7, 8), (2, 2), (0, 3), (8, 2)] {
        let some = &requests[first..first + count];
        let answers = pollster::block_on(join_all(some.iter().map(|request| complete(&engine, request))));
        for (index, answer) in answers.into_iter().enumerate() {
            let index = first + index;
            assert_eq!(answer.unwrap().0, wanted[index], "{} among {count} from {first}", requests[index]);
        }
    }
    for (request, wanted) in requests.iter().zip(&wanted) {
        assert_eq!(tokens(&engine, request), *wanted, "{request}, alone again");
    }
}

/// Where the engine has no step of several sequences, they take turns.
#[test]
fn answers_are_the_same_in_turns() {
    let options = LoadOptions { max_sequences: Some(3), unfused_ops: true, ..Default::default() };
    let engine = load(MODEL, &options);
    let requests = [&drawn()[2..4], &[request(json!({"dry_multiplier": 1.5}))]].concat();
    let wanted: Vec<_> = requests.iter().map(|request| tokens(&engine, request)).collect();
    let answers = pollster::block_on(join_all(requests.iter().map(|request| complete(&engine, request))));
    assert_eq!(answers.into_iter().map(|answer| answer.unwrap().0).collect::<Vec<_>>(), wanted);
}

/// Mirostat allows what it says: replayed with the logits of the whole text, no token's surprise is above what was allowed, and over
/// many tokens the surprise is near the target.
#[test]
fn mirostat_keeps_to_what_it_allows() {
    let engine = engine(MODEL, 1);
    let (tau, eta) = (3.0, 0.2);
    let request = json!({"mirostat": 2, "mirostat_tau": tau, "mirostat_eta": eta, "seed": 5, "temperature": 1.5, "max_tokens": 150});
    let answer = tokens(&engine, &with(&self::request(json!({})), &request));
    let text: Vec<u32> = PROMPT.iter().chain(&answer).copied().collect();
    let logits = pollster::block_on(async { engine.forward(&text).await?.readback().await }).unwrap();
    let vocabulary = logits.len() / text.len();
    let (mut mu, mut sum) = (2.0 * tau, 0.0);
    for (index, token) in answer.iter().enumerate() {
        let row = &logits[(PROMPT.len() + index - 1) * vocabulary..][..vocabulary];
        let weights: Vec<f64> =
            row.iter().map(|logit| (f64::from(*logit) / 1.5).exp2().powf(std::f64::consts::LOG2_E)).collect();
        let total: f64 = weights.iter().sum();
        let surprise = |weight: f64, total: f64| (total / weight).log2();
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let weight = weights[*token as usize];
        // Logits of a whole text and of single tokens differ in their last bits.
        assert!(weight == largest || surprise(weight, total) <= mu + 1e-3, "token {index} of the answer");
        let kept = weights.iter().filter(|weight| **weight == largest || surprise(**weight, total) <= mu);
        let observed = surprise(weight, kept.sum());
        mu -= eta * (observed - tau);
        sum += observed;
    }
    let mean = sum / answer.len() as f64;
    assert!((mean - tau).abs() < 0.3, "a mean surprise of {mean:.2} bits");
}

#[test]
fn the_end_waits_for_min_tokens() {
    let engine = engine(MODEL, 1);
    let end = engine.tokenizer().end_of_generation()[0];
    let eager = json!({"logit_bias": {end.to_string(): 100}, "ignore_eos": false});
    let run = |more: Value| pollster::block_on(complete(&engine, &with(&request(eager.clone()), &more))).unwrap();
    assert_eq!(run(json!({})), (vec![end], FinishReason::Stop));
    for min_tokens in [1, 7, LENGTH] {
        let (tokens, reason) = run(json!({"min_tokens": min_tokens}));
        assert_eq!(tokens.iter().position(|token| *token == end), (min_tokens < LENGTH).then_some(min_tokens));
        let wanted = if min_tokens < LENGTH { FinishReason::Stop } else { FinishReason::Length };
        assert_eq!((tokens.len(), reason), ((min_tokens + 1).min(LENGTH), wanted));
    }
}

/// Of the texts that end an answer those do that reach beyond its first `min_tokens` tokens.
#[test]
fn stop_strings_wait_for_min_tokens() {
    let engine = engine(MODEL, 1);
    let without_ends = request(json!({"suppress_tokens": engine.tokenizer().end_of_generation()}));
    let mut decoder = StreamDecoder::continuing();
    let plain = tokens(&engine, &without_ends);
    let pieces: Vec<String> = plain.iter().map(|id| decoder.push(engine.tokenizer(), *id).unwrap()).collect();
    let whole = pieces.concat();
    let read = |more: Value| {
        let request = CompletionRequest::parse(with(&without_ends, &more)).unwrap();
        let mut generation = engine.complete(request).unwrap();
        let (mut text, mut reason) = (String::new(), None);
        while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
            text.push_str(&chunk.text);
            reason = reason.or(chunk.stop_reason);
        }
        (text, reason)
    };
    let (mut stopped, mut waited) = (0, 0);
    let has_letters = |piece: &str| piece.is_ascii() && !piece.is_empty();
    for at in (0..12).filter(|at| has_letters(&pieces[*at]) && has_letters(&pieces[at + 1])) {
        // Two tokens, the end of one and the beginning of the next, and a letter.
        let both = format!("{}{}", pieces[at], pieces[at + 1]);
        for stop in [both.as_str(), &both[both.len() / 2..], &both[..1]] {
            for min_tokens in [0, at + 1, at + 2, LENGTH] {
                let exempt: usize = pieces[..min_tokens].iter().map(String::len).sum();
                let places = whole.char_indices().filter(|(start, _)| whole[*start..].starts_with(stop));
                let found = places.map(|(start, _)| start).find(|start| start + stop.len() > exempt);
                let wanted = whole[..found.unwrap_or(whole.len())].to_owned();
                let (text, reason) = read(json!({"stop": stop, "min_tokens": min_tokens}));
                assert_eq!(text, wanted, "{stop:?} not in the first {min_tokens} tokens");
                assert_eq!(reason, found.map(|_| StopReason::Text(stop.to_owned())));
                stopped += usize::from(found.is_some());
                waited += usize::from(found != whole.find(stop));
            }
        }
    }
    assert!(stopped > 10 && waited > 10, "{stopped} stopped, {waited} waited");
}

#[test]
fn bad_words_do_not_come() {
    let engine = engine(MODEL, 1);
    let plain = tokens(&engine, &request(json!({})));
    // Words of the answer, of several tokens.
    let text = |ids: &[u32]| engine.tokenizer().decode(ids).unwrap();
    let word = (0..plain.len() - 3)
        .map(|at| text(&plain[at..at + 2]))
        .find(|word| {
            let ids = engine.tokenizer().encode(word.trim_start(), false, true).unwrap();
            ids.len() > 1 && plain.windows(ids.len()).any(|window| window == ids)
        })
        .expect("a word of the answer");
    let without = tokens(&engine, &request(json!({"bad_words": [word]})));
    let ids = engine.tokenizer().encode(word.trim_start(), false, true).unwrap();
    assert!(!without.windows(ids.len()).any(|window| window == ids), "{word:?}");
    // Up to its last token the answer is what it was.
    let at = plain.windows(ids.len()).position(|window| window == ids).unwrap() + ids.len() - 1;
    assert_eq!(without[..at], plain[..at]);
    assert_ne!(without[at], plain[at]);
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let engine = engine(MODEL, 1);
    let vocabulary = engine.info().vocab_size as u32;
    let all: Vec<u32> = (0..vocabulary).collect();
    let lookup = json!({"type": "prompt_lookup"});
    for (more, names) in [
        (json!({"logit_bias": {"x": 1}}), vec!["logit_bias"]),
        (json!({"logit_bias": {"999999": 1}}), vec!["logit_bias", "999999"]),
        (json!({"logit_bias": {"1": 101}}), vec!["logit_bias", "101"]),
        (json!({"suppress_tokens": [vocabulary]}), vec!["suppress_tokens"]),
        (json!({"suppress_tokens": all}), vec!["suppress_tokens", "bad_words"]),
        (json!({"bad_words": [" "]}), vec!["bad_words"]),
        (json!({"bad_words": ["x".repeat(9000)]}), vec!["bad_words"]),
        (json!({"min_tokens": 41}), vec!["min_tokens", "max_tokens"]),
        (json!({"repeat_last_n": -2}), vec!["repeat_last_n"]),
        (json!({"dry_penalty_last_n": -2}), vec!["dry_penalty_last_n"]),
        (json!({"repetition_penalty": 0}), vec!["repetition_penalty"]),
        (json!({"frequency_penalty": 3}), vec!["frequency_penalty"]),
        (json!({"dry_multiplier": 1, "dry_sequence_breakers": [""]}), vec!["dry_sequence_breakers"]),
        (
            json!({"dry_multiplier": 1, "dry_sequence_breakers": ["no room for this".repeat(30)]}),
            vec!["dry_sequence_breakers", "room"],
        ),
        (json!({"mirostat": 1}), vec!["mirostat"]),
        (json!({"mirostat_tau": 4}), vec!["mirostat_tau"]),
        (json!({"mirostat": 2}), vec!["mirostat", "temperature"]),
        (json!({"mirostat": 2, "temperature": 1, "typical_p": 0.5}), vec!["mirostat", "typical_p"]),
        (json!({"xtc_probability": 0.5}), vec!["xtc_probability", "temperature"]),
        (json!({"presence_penalty": 1, "speculation": lookup}), vec!["speculation", "penalty"]),
    ] {
        let error = pollster::block_on(complete(&engine, &request(more.clone()))).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{more}: {error}");
        assert!(names.iter().all(|name| error.message().contains(name)), "{more}: {error}");
    }
    // And the engine goes on.
    assert_eq!(tokens(&engine, &request(json!({}))).len(), LENGTH);
}
