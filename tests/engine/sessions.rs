//! Conversations that are saved and restored, in another engine: what follows is what would have followed.

use rillm::engine::folder::OneFile;
use rillm::engine::request::ChatRequest;
use rillm::engine::source::MemorySource;
use rillm::engine::{Engine, KvFormat, LoadOptions, Session};
use rillm::model::checkpoint::{Checkpoint, TensorValues};
use rillm::{Code, Error, Result};
use serde_json::{Value, json};

use crate::support::engines::{exact_on_cpu, load, try_load};
use crate::support::errors::check_error;
use crate::support::files::{demo_model, golden};

const QUESTIONS: [&str; 3] = ["What is 12 plus 30?", "How many letters has the word house?", "What is 7 times 8?"];

fn demo(options: &LoadOptions) -> Engine {
    load(demo_model(), options)
}

/// Answers, token by token, and how many tokens of the prompt were cached.
fn ask(engine: &Engine, conversation: &[Value], more: Value) -> (String, Vec<u32>, usize) {
    let mut request = json!({"messages": conversation, "max_tokens": 24, "temperature": 0});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut generation = engine.chat(ChatRequest::parse(request).unwrap()).unwrap();
    let (mut text, mut tokens, mut cached) = (String::new(), vec![], 0);
    while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
        text += &chunk.text;
        tokens.extend(chunk.token_ids);
        if let Some(usage) = chunk.usage {
            cached = usage.prompt_tokens_details.cached_tokens;
        }
    }
    (text, tokens, cached)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A number with as many digits as one can have.
fn attachment() -> Value {
    json!({"title": "Sums", "seconds": 23.150000000000002})
}

fn save(engine: &Engine, conversation: &Value) -> Result<(Session, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    let session = pollster::block_on(engine.save_session(conversation, Some(attachment()), &mut write))?;
    Ok((session, bytes))
}

fn restore(engine: &Engine, bytes: &[u8]) -> Result<Session> {
    pollster::block_on(engine.restore_session(&MemorySource::new(bytes.to_vec()).with_name("a.session")))
}

/// A conversation of two questions that this engine answered.
fn conversation(engine: &Engine) -> Vec<Value> {
    let mut messages = vec![];
    for question in &QUESTIONS[..2] {
        messages.push(user(question));
        let (text, _, _) = ask(engine, &messages, json!({}));
        messages.push(json!({"role": "assistant", "content": text}));
    }
    messages
}

#[test]
fn a_restored_conversation_goes_on_as_the_first_would_have() {
    for options in [LoadOptions::default(), LoadOptions { kv_cache: Some(KvFormat::Q8_0), ..LoadOptions::default() }] {
        let first = demo(&options);
        let mut messages = conversation(&first);
        let (session, bytes) = save(&first, &json!({"messages": messages})).unwrap();
        assert_eq!(session.conversation, json!({"messages": messages}));
        assert_eq!(session.attachment, Some(attachment()));
        assert!(session.created > 1_700_000_000);
        let again = save(&first, &json!({"messages": messages})).unwrap().1;
        // But for the second at which it was saved.
        assert_eq!(again.len(), bytes.len());

        let other = demo(&LoadOptions { max_sequences: Some(2), ..options.clone() });
        assert_eq!(restore(&other, &bytes).unwrap(), session);
        messages.push(user(QUESTIONS[2]));
        for more in [json!({}), json!({"temperature": 1, "seed": 7})] {
            let wanted = ask(&first, &messages, more.clone());
            let found = ask(&other, &messages, more);
            assert_eq!((found.0, found.1), (wanted.0, wanted.1));
            // A seeded request takes over only what passes over several tokens computed.
            assert!(found.2 > 15 && session.tokens > 40, "{} and {} cached", found.2, session.tokens);
        }
        // A branch of it, and it itself again.
        restore(&other, &bytes).unwrap();
        let branch = [&messages[..2], &[user("What is 5 plus 5?")]].concat();
        assert_eq!(ask(&other, &branch, json!({})).1, ask(&first, &branch, json!({})).1);
    }
}

#[test]
fn a_conversation_that_nobody_asked_is_taken_in_to_be_saved() {
    let (first, other) = (demo(&LoadOptions::default()), demo(&LoadOptions::default()));
    let system = "You answer questions about numbers, words and names. You answer with one word or one number.";
    let messages = vec![json!({"role": "system", "content": system}), user(QUESTIONS[0])];
    let (session, bytes) = save(&first, &json!({"messages": messages[..1], "add_generation_prompt": false})).unwrap();
    assert_eq!(restore(&other, &bytes).unwrap().tokens, session.tokens);
    let (text, _, cached) = ask(&other, &messages, json!({}));
    assert_eq!((text, cached), (ask(&demo(&LoadOptions::default()), &messages, json!({})).0, session.tokens));
}

/// The demo model with one other weight: names, types and sizes are the same.
fn retrained() -> Engine {
    let mut file = std::fs::read(demo_model()).unwrap();
    let source = MemorySource::new(file.clone());
    let offset = pollster::block_on(async {
        let folder = OneFile(&source);
        let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
        match &checkpoint.tensor("blk.1.attn_q.weight").unwrap().values {
            TensorValues::Stored { parts, .. } => parts[0].offset as usize,
            _ => unreachable!(),
        }
    });
    // After the scale of its first block.
    file[offset + 5] ^= 1;
    pollster::block_on(Engine::load(&MemorySource::new(file), &exact_on_cpu(&LoadOptions::default()), &mut |_| Ok(())))
        .unwrap()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let engine = demo(&LoadOptions::default());
    let messages = conversation(&engine);
    let (_, bytes) = save(&engine, &json!({"messages": messages})).unwrap();
    let refused = |conversation: Value| save(&engine, &conversation).unwrap_err();
    check_error(&refused(json!([])), Code::InvalidRequest, &["the conversation", "wanted an object"]);
    check_error(&refused(json!({})), Code::InvalidRequest, &["messages"]);
    check_error(&refused(json!({"messages": []})), Code::InvalidRequest, &["messages is empty"]);
    check_error(
        &refused(json!({"messages": messages, "temperature": 1})),
        Code::InvalidRequest,
        &["temperature", "unknown field"],
    );
    let long = user(&"many words ".repeat(2000));
    check_error(
        &refused(json!({"messages": [long]})),
        Code::ContextLengthExceeded,
        &["the conversation has", "contextLength"],
    );

    let other = try_load(golden("tiny_llama/tied-q8_0.gguf"), &LoadOptions::default()).unwrap();
    check_error(
        &restore(&other, &bytes).unwrap_err(),
        Code::SessionMismatch,
        &["the session is of", "this engine runs", "Q4_0", "Q8_0"],
    );
    let int8 = demo(&LoadOptions { kv_cache: Some(KvFormat::Q8_0), ..LoadOptions::default() });
    check_error(&restore(&int8, &bytes).unwrap_err(), Code::SessionMismatch, &["q8_0", "kvCache"]);
    check_error(&restore(&retrained(), &bytes).unwrap_err(), Code::SessionMismatch, &["other weights", "same file"]);
    let short = demo(&LoadOptions { context_length: Some(64), ..LoadOptions::default() });
    check_error(
        &restore(&short, &bytes).unwrap_err(),
        Code::ContextLengthExceeded,
        &["tokens were saved", "contextLength"],
    );
    // What comes next works.
    assert!(ask(&short, &[user(QUESTIONS[0])], json!({})).0.contains("42"));
}

#[test]
fn damage_is_noticed_wherever_it_is() {
    let engine = demo(&LoadOptions::default());
    let messages = conversation(&engine);
    let (_, bytes) = save(&engine, &json!({"messages": messages})).unwrap();
    let code = |damaged: &[u8]| restore(&engine, damaged).map_err(|error: Error| error.code());
    for cut in (0..1500).chain((0..bytes.len()).step_by(1009)) {
        assert_eq!(code(&bytes[..cut]), Err(Code::InvalidFile), "cut at {cut}");
    }
    for at in (0..1500).chain((1500..bytes.len()).step_by(509)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        // And it is not taken for another model.
        assert_eq!(code(&damaged).err(), Some(Code::InvalidFile), "byte {at}");
    }
    assert_eq!(code(b"RILLMSES"), Err(Code::InvalidFile));
    assert_eq!(code(&std::fs::read(demo_model()).unwrap()[..5000]), Err(Code::InvalidFile));
    assert!(code(&bytes).is_ok());
}

/// Who writes a file can write its checksums too.
#[test]
fn numbers_that_fit_the_checksums_and_nothing_else_are_refused() {
    let engine = demo(&LoadOptions::default());
    let messages = conversation(&engine);
    let (session, bytes) = save(&engine, &json!({"messages": messages})).unwrap();
    let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // The heads of the session and of the sequence in it, as `api/session.rs` and `decode/saved_sequence.rs` describe them.
    let sequence = 16 + number(&bytes, 12) + 4;
    let count = sequence + 16 + number(&bytes, sequence + 12);
    let tokens = count + 4;
    let computed = tokens + 4 * session.tokens;
    assert_eq!(number(&bytes, count), session.tokens);
    let states = computed + 8;
    let with = |at: usize, value: u64, length: usize| {
        let mut changed = bytes.clone();
        changed[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        for (from, to) in [(0, sequence - 4), (sequence, states - 4), (states, bytes.len() - 4)] {
            let sum = crc32fast::hash(&changed[from..to]);
            changed[to..to + 4].copy_from_slice(&sum.to_le_bytes());
        }
        changed
    };
    assert_eq!(with(computed, number(&bytes, computed) as u64, 4), bytes, "the sums are where they are thought to be");
    let most = u64::from(u32::MAX);
    for (at, length, values) in [
        (12, 4, vec![0, 1, most]),
        (sequence + 12, 4, vec![0, 1, most]),
        (count, 4, vec![0, session.tokens as u64 - 1, session.tokens as u64 + 1, 1 << 30, most]),
        (tokens, 4, vec![engine.info().vocab_size as u64, most]),
        (states, 8, vec![0, 4, 6, 1 << 20, 1 << 40, u64::MAX]),
    ] {
        for value in values {
            let code = restore(&engine, &with(at, value, length)).err().map(|error| error.code());
            assert_eq!(code, Some(Code::InvalidFile), "{value} at byte {at}");
        }
    }
    // More than there are is as many as there are.
    assert_eq!(restore(&engine, &with(computed, most, 4)).unwrap().tokens, session.tokens);
    let question = [&messages[..], &[user(QUESTIONS[2])]].concat();
    let other = demo(&LoadOptions::default());
    restore(&other, &bytes).unwrap();
    assert_eq!(ask(&engine, &question, json!({})).1, ask(&other, &question, json!({})).1);
}
