//! The kinds of grammars, what a request may say, and that masks, steps ahead and forced tokens give one answer.

use rillm::Code;
use rillm::engine::FinishReason;
use serde_json::{Value, json};

use super::*;

use crate::support::engines::exact_on_cpu;

fn structured(outputs: Value) -> Value {
    json!({"structured_outputs": outputs})
}

fn schema(schema: Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema}}})
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": false,
    })
}

#[test]
fn an_answer_is_what_its_grammar_admits() {
    let engine = engine();
    let question = "Tell me a story about a fox.";
    let answer = chat(&engine, &ask(question, structured(json!({"choice": ["red fox", "grey wolf", "brown bear"]}))));
    assert!(["red fox", "grey wolf", "brown bear"].contains(&answer.text.as_str()), "{answer:?}");
    assert_eq!(answer.reason, FinishReason::Stop);
    assert_eq!(answer.usage.completion_tokens, answer.tokens.len());

    let answer = chat(&engine, &ask(question, structured(json!({"regex": r"^[A-Z]{3}-\d{4}(/\d)?$"}))));
    let (letters, digits) = answer.text.split_once('-').unwrap();
    assert!(letters.len() == 3 && letters.chars().all(|c| c.is_ascii_uppercase()), "{answer:?}");
    assert!(digits.len() == 4 || (digits.len() == 6 && digits.as_bytes()[4] == b'/'), "{answer:?}");
    assert_eq!(answer.reason, FinishReason::Stop);

    let lark = "start: item (\", \" item){1,2} \".\"\nitem: COLOR \" \" ANIMAL\nCOLOR: \"red\" | \"blue\"\nANIMAL: \"cat\" | \"dog\"\n";
    let answer = chat(&engine, &ask(question, structured(json!({"grammar": lark}))));
    let items: Vec<&str> = answer.text.strip_suffix('.').unwrap().split(", ").collect();
    assert!((2..=3).contains(&items.len()), "{answer:?}");
    for item in items {
        assert!(["red cat", "red dog", "blue cat", "blue dog"].contains(&item), "{answer:?}");
    }

    for more in [structured(json!({"json_object": true})), json!({"response_format": {"type": "json_object"}})] {
        let answer = chat(&engine, &ask("Anna is 12 years old. Answer in JSON with the keys name and age.", more));
        assert_eq!(answer.text, r#"{"name": "Anna", "age": 12}"#);
        assert_eq!(answer.reason, FinishReason::Stop);
    }
    for more in
        [schema(person()), structured(json!({"json": person()})), structured(json!({"json": person().to_string()}))]
    {
        let answer = chat(&engine, &ask(question, more));
        let value: Value = serde_json::from_str(&answer.text).unwrap();
        assert!(value["name"].is_string() && value["age"].as_u64().is_some_and(|age| age <= 120), "{answer:?}");
        assert_eq!(answer.reason, FinishReason::Stop);
    }
}

/// What a plain loop gives: forced tokens, and else the most probable token of those that are allowed.
fn greedy_by_hand(engine: &Engine, prompt: &[u32], grammar: &str, longest: usize) -> Vec<u32> {
    let tokenizer = engine.tokenizer();
    let words: Vec<Vec<u8>> =
        (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token_bytes_with_control(id).unwrap().to_vec()).collect();
    let control: Vec<bool> = (0..words.len() as u32).map(|id| tokenizer.is_control(id)).collect();
    let vocabulary = rillm_grammar::Vocabulary {
        words: words.iter().map(Vec::as_slice).collect(),
        control: &control,
        ends: tokenizer.end_of_generation(),
    };
    // As the demo model's tokenizer has it: nothing is put in front of a text.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo/rillm-demo-q4_0.gguf");
    let own = with_tokenizer(&path);
    let grammars =
        rillm_grammar::Grammars::new(&vocabulary, move |text| own.tokenizer().encode(text, false, false).unwrap())
            .unwrap();
    let mut matching = grammars.compile(grammar).unwrap();
    let vocab_size = engine.info().vocab_size;
    let mut answer: Vec<u32> = vec![];
    loop {
        let state = matching.advance(&[]).unwrap();
        if state.is_complete || answer.len() == longest {
            return answer;
        }
        let token = match state.forced.first() {
            Some(forced) => *forced,
            None => {
                let mut bits = vec![0; vocab_size.div_ceil(32)];
                matching.mask(&mut bits).unwrap();
                let ids = [prompt, &answer].concat();
                let logits =
                    pollster::block_on(async { engine.forward(&ids).await.unwrap().readback().await.unwrap() });
                let row = &logits[(ids.len() - 1) * vocab_size..];
                let allowed = (0..vocab_size).filter(|id| bits[id / 32] >> (id % 32) & 1 == 1);
                allowed.reduce(|best, id| if row[id] > row[best] { id } else { best }).unwrap() as u32
            }
        };
        assert_eq!(matching.advance(&[token]).unwrap().taken, 1);
        answer.push(token);
    }
}

fn with_tokenizer(path: &Path) -> Engine {
    pollster::block_on(Engine::load(
        &FileSource::open(path).unwrap(),
        &exact_on_cpu(&LoadOptions::default()),
        &mut |_| Ok(()),
    ))
    .unwrap()
}

#[test]
fn greedy_answers_are_those_of_a_plain_loop() {
    let engine = engine();
    let more = r#"{"type":"object","properties":{"colors":{"type":"array","items":{"enum":["red","green","dark blue"]},"minItems":2,"maxItems":4},"note":{"type":"string","maxLength":30},"ok":{"type":"boolean"}},"required":["colors","note","ok"],"additionalProperties":false}"#;
    let more: Value = serde_json::from_str(more).unwrap();
    let laid_out = |schema: Value| rillm::text::grammar::Grammar::json_schema(schema).to_json();
    let cases = [
        ("Tell me a story.", schema(more.clone()), laid_out(more)),
        ("Anna is 12 years old. Answer in JSON with the keys name and age.", schema(person()), laid_out(person())),
        (
            "Hello!",
            structured(json!({"regex": "([a-z]{2,7} ){4}[0-9]+"})),
            json!({"regex": "([a-z]{2,7} ){4}[0-9]+"}).to_string(),
        ),
    ];
    for (question, more, grammar) in cases {
        let request = ask(question, more);
        let answer = chat(&engine, &request);
        let parsed = ChatRequest::parse(request).unwrap();
        let prompt = engine.prompt(&parsed.chat).unwrap();
        let prompt = engine.tokenizer().encode(&prompt, false, true).unwrap();
        assert_eq!(prompt.len(), answer.usage.prompt_tokens);
        let mut tokens = answer.tokens.clone();
        if engine.tokenizer().end_of_generation().contains(tokens.last().unwrap()) {
            tokens.pop();
        }
        let mut wanted = greedy_by_hand(&engine, &prompt, &grammar, 120);
        if engine.tokenizer().end_of_generation().contains(wanted.last().unwrap()) {
            wanted.pop();
        }
        let text = |ids: &[u32]| engine.tokenizer().decode(ids).unwrap();
        assert_eq!(tokens, wanted, "{:?} and {:?}", text(&tokens), text(&wanted));
    }
}

#[test]
fn a_grammar_that_admits_everything_changes_nothing() {
    let engine = engine();
    let anything = structured(json!({"grammar": "start: /(.|\\n)*/"}));
    for settings in [
        json!({"temperature": 0}),
        json!({"temperature": 1.0, "seed": 7}),
        json!({"temperature": 1.3, "top_p": 0.9, "seed": 11}),
    ] {
        let mut request = ask("Tell me a story about a fox.", json!({"max_tokens": 60}));
        request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let free = chat(&engine, &request);
        request.as_object_mut().unwrap().extend(anything.as_object().unwrap().clone());
        assert_eq!(chat(&engine, &request), free, "{settings}");
    }
}

/// With log probabilities every token is chosen by a mask, forced ones too, and nothing runs ahead.
#[test]
fn running_ahead_takes_the_tokens_that_masks_take() {
    let engine = engine();
    let cases = [
        (schema(person()), json!({"temperature": 1.5, "seed": 3})),
        (schema(person()), json!({"temperature": 1.0, "seed": 4})),
        (
            structured(json!({"regex": "([a-z]{2,7} ){8}[0-9]+"})),
            json!({"temperature": 1.0, "seed": 8, "frequency_penalty": 0.7, "repetition_penalty": 1.2}),
        ),
        (structured(json!({"regex": "([a-z]{2,7} ){6}[0-9]+"})), json!({"temperature": 1.2, "seed": 5})),
        (structured(json!({"regex": "[A-Z][a-z]+( [a-z]+){4,9}\\."})), json!({"temperature": 0.8, "seed": 6})),
    ];
    for (more, settings) in cases {
        let mut request = ask("Tell me a story about a fox.", more.clone());
        request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let ahead = chat(&engine, &request);
        request["logprobs"] = json!(true);
        let masked = chat(&engine, &request);
        assert_eq!(
            (ahead.text, ahead.tokens, ahead.reason),
            (masked.text, masked.tokens, masked.reason),
            "{more} {settings}"
        );
    }
}

/// Pearson's chi-square test of what is drawn under a mask against the model's distribution over what is left.
#[test]
fn masked_tokens_are_drawn_from_what_the_model_says_about_them() {
    let engine = engine();
    let words = ["Once", "One", "There", "A", "In", "The", "It", "Long"];
    let request = ask("Tell me a story.", structured(json!({"choice": words})));
    let prompt = engine.prompt(&ChatRequest::parse(request.clone()).unwrap().chat).unwrap();
    let prompt = engine.tokenizer().encode(&prompt, false, true).unwrap();
    let logits = pollster::block_on(async { engine.forward(&prompt).await.unwrap().readback().await.unwrap() });
    let row = &logits[(prompt.len() - 1) * engine.info().vocab_size..];
    let temperature = 2.0;
    // Every token that begins one of the texts is left.
    let begins = |id: &u32| {
        let bytes = engine.tokenizer().token_bytes(*id).unwrap();
        !bytes.is_empty() && words.iter().any(|word| word.as_bytes().starts_with(bytes))
    };
    let left: Vec<u32> = (0..engine.tokenizer().vocab_size() as u32).filter(begins).collect();
    let scaled = |id: &u32| f64::from(row[*id as usize]) / temperature;
    let largest = left.iter().map(scaled).fold(f64::MIN, f64::max);
    let total: f64 = left.iter().map(|id| (scaled(id) - largest).exp()).sum();
    const DRAWS: usize = 200;
    let mut drawn = vec![0usize; left.len()];
    for seed in 0..DRAWS {
        let mut request = request.clone();
        for (name, value) in [("temperature", json!(temperature)), ("max_tokens", json!(1)), ("seed", json!(seed))] {
            request[name] = value;
        }
        let token = chat(&engine, &request).tokens[0];
        drawn[left.iter().position(|id| *id == token).unwrap()] += 1;
    }
    // Tokens that are expected seldom are one class.
    let (mut chi_square, mut rest, mut classes) = (0.0, (0.0, 0.0), 0u32);
    for (id, drawn) in left.iter().zip(&drawn) {
        let expected = DRAWS as f64 * (scaled(id) - largest).exp() / total;
        if expected < 5.0 {
            rest = (rest.0 + expected, rest.1 + *drawn as f64)
        } else {
            chi_square += (*drawn as f64 - expected).powi(2) / expected;
            classes += 1;
        }
    }
    if rest.0 >= 1.0 {
        chi_square += (rest.1 - rest.0).powi(2) / rest.0;
        classes += 1;
    }
    assert!(classes >= 2, "the model is too sure for this test: {drawn:?}");
    // Five standard deviations above the mean of the distribution.
    let freedom = f64::from(classes - 1);
    assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square} of {freedom}: {drawn:?}");
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let engine = engine();
    for settings in [
        json!({"seed": 5}),
        json!({"seed": 5, "top_k": 20, "top_p": 0.9}),
        json!({"seed": 6, "min_p": 0.1}),
        json!({"seed": 6, "typical_p": 0.9}),
    ] {
        let mut request = ask("Tell me a story.", schema(person()));
        request["temperature"] = json!(1.5);
        request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let first = chat(&engine, &request);
        // The second time its prompt is in the cache, and other tokens come back at other times.
        assert_eq!(chat(&engine, &request).tokens, first.tokens, "{settings}");
        request["seed"] = json!(17);
        let other = chat(&engine, &request);
        let value: Value = serde_json::from_str(&other.text).unwrap();
        assert!(value["name"].is_string() && value["age"].is_u64(), "{other:?}");
    }
}

#[test]
fn what_ends_an_answer_ends_it_under_a_grammar_too() {
    let engine = engine();
    let question = "Tell me a story.";
    // The length, in the middle of what is forced as well.
    for longest in [1, 2, 5, 9] {
        let answer =
            chat(&engine, &ask(question, json!({"max_tokens": longest, "structured_outputs": {"json": person()}})));
        assert_eq!((answer.tokens.len(), answer.reason), (longest, FinishReason::Length), "{answer:?}");
        assert!(r#"{"name": ""#.starts_with(&answer.text[..answer.text.len().min(10)]), "{answer:?}");
    }
    let answer = chat(&engine, &ask(question, json!({"stop": ["age"], "structured_outputs": {"json": person()}})));
    assert!(answer.text.starts_with(r#"{"name": ""#) && answer.text.ends_with(r#"", ""#), "{answer:?}");
    assert_eq!(answer.reason, FinishReason::Stop);
    // What leaves no choice.
    let answer = chat(&engine, &ask(question, structured(json!({"choice": ["yes, of course"]}))));
    assert_eq!((answer.text.as_str(), answer.reason), ("yes, of course", FinishReason::Stop));
    let answer = chat(&engine, &ask(question, structured(json!({"choice": [""]}))));
    assert_eq!((answer.text.as_str(), answer.reason), ("", FinishReason::Stop));
    let answer = chat(&engine, &ask(question, structured(json!({"choice": [" a", " b"]}))));
    assert!([" a", " b"].contains(&answer.text.as_str()), "{answer:?}");
    // Cancelled in the middle; the engine goes on.
    let mut generation =
        engine.chat(ChatRequest::parse(ask(question, structured(json!({"regex": "[a-z ]{100}"})))).unwrap()).unwrap();
    pollster::block_on(generation.next()).unwrap().unwrap();
    generation.cancel();
    let chunk = pollster::block_on(generation.next()).unwrap().unwrap();
    assert_eq!(chunk.finish_reason, Some(FinishReason::Cancelled));
    drop(generation);
    let free = ask("Hello!", json!({}));
    let before = chat(&engine, &free);
    chat(&engine, &ask("Hello!", structured(json!({"regex": "[0-9]{30}"}))));
    assert_eq!(chat(&engine, &free), before, "the session vouches for what is in its cache");
}

#[test]
fn constrained_and_free_requests_run_at_once() {
    let engine = load(&LoadOptions { max_sequences: Some(3), ..LoadOptions::default() });
    let requests = [
        ask("Tell me a story.", schema(person())),
        ask("Tell me a story about a fox.", json!({"max_tokens": 40})),
        ask("Hello!", structured(json!({"regex": "([a-z]{2,7} ){4}[0-9]{3}"}))),
    ];
    let alone: Vec<Answer> = requests.iter().map(|request| chat(&engine, request)).collect();
    let mut generations: Vec<_> =
        requests.iter().map(|request| engine.chat(ChatRequest::parse(request.clone()).unwrap()).unwrap()).collect();
    let mut tokens = vec![vec![]; 3];
    let mut open = 3;
    while open > 0 {
        open = 0;
        for (generation, tokens) in generations.iter_mut().zip(&mut tokens) {
            if let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
                tokens.extend(chunk.token_ids);
                open += 1;
            }
        }
    }
    for (tokens, alone) in tokens.iter().zip(&alone) {
        assert_eq!(tokens, &alone.tokens);
    }
}

#[test]
fn what_can_not_be_had_is_refused_before_it_begins() {
    let engine = engine();
    let format = |format: Value| json!({"response_format": format});
    let cases = [
        (structured(json!({"choice": []})), "structured_outputs.choice"),
        (structured(json!({})), "structured_outputs has 0"),
        (structured(json!({"json_object": false})), "structured_outputs has 0"),
        (structured(json!({"regex": "a", "choice": ["b"]})), "structured_outputs has 2"),
        (structured(json!({"regex": "a(b"})), "structured_outputs.regex: "),
        (structured(json!({"regex": "a(?=b)"})), "look-around"),
        (structured(json!({"grammar": "start: \"a\"\nfoo ::: 1"})), "structured_outputs.grammar: 2("),
        (structured(json!({"json": "{"})), "structured_outputs.json"),
        (structured(json!({"json": 3})), "structured_outputs.json: "),
        (structured(json!({"structural_tag": "x"})), "structural_tag"),
        (format(json!({"type": "json"})), "response_format"),
        (format(json!({"type": "json_schema"})), "json_schema"),
        (format(json!({"type": "json_schema", "json_schema": {"name": "a"}})), "schema"),
        (format(json!({"type": "text", "schema": {}})), "schema"),
        (schema(json!({"type": "integer", "minimum": 3, "maximum": 1})), "nsatisfiable"),
        (schema(json!({"type": "object", "unevaluatedProperties": false})), "unevaluatedProperties"),
        (schema(json!({"oneOf": [{"type": "integer"}, {"minimum": 3}]})), "oneOf"),
        (
            json!({"response_format": {"type": "json_object"}, "structured_outputs": {"json_object": true}}),
            "exclude each other",
        ),
        (json!({"response_format": {"type": "json_object"}, "ignore_eos": true}), "ignore_eos"),
    ];
    for (more, wanted) in cases {
        let error = refusal(&engine, &ask("Hello!", more.clone()));
        assert_eq!(error.code(), Code::InvalidRequest, "{more}: {error}");
        assert!(error.message().contains(wanted), "{more}: {error}");
    }
    // Null and text are as if nothing was said.
    let plain = chat(&engine, &ask("Hello!", json!({})));
    assert_eq!(chat(&engine, &ask("Hello!", format(json!({"type": "text"})))), plain);
    assert_eq!(chat(&engine, &ask("Hello!", json!({"response_format": null, "structured_outputs": null}))), plain);
}
