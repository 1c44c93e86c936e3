//! Sessions of a small model: a sound one with the changes that an input names, as it is then and with the sums that it ought to have. A
//! conversation that is restored goes on.

use rillm::engine::request::ChatRequest;
use rillm::engine::source::MemorySource;
use rillm::engine::{Engine, LoadOptions};
use rillm::gpu::DeviceKind;
use rillm::{Code, Result};
use serde_json::{Value, json};

const MODEL: &[u8] = include_bytes!("../../tests/golden/tiny_llama/tied-q8_0.gguf");
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";
/// Before a header: eight letters, a version and the header's length. After it comes its sum.
const BEFORE: usize = 16;
const SUM: usize = 4;

thread_local! {
    static ENGINE: (Engine, Vec<u8>) = {
        let options = LoadOptions { device_kind: DeviceKind::Cpu, context_length: Some(64), ..LoadOptions::default() };
        let source = MemorySource::new(MODEL.to_vec());
        pollster::block_on(async {
            let engine = Engine::load(&source, &options, &mut |_| Ok(())).await.unwrap();
            let mut bytes = Vec::new();
            let mut write = |piece: Vec<u8>| {
                bytes.extend(piece);
                Ok(())
            };
            let messages = json!([{"role": "user", "content": "a few words"}]);
            let conversation = json!({"messages": messages, "chat_template": TEMPLATE});
            engine.save_session(&conversation, None, &mut write).await.unwrap();
            (engine, bytes)
        })
    };
}

pub fn run(bytes: &[u8]) {
    ENGINE.with(|(engine, sound)| {
        let mut session = sound.clone();
        let mut changes = bytes;
        while change(&mut session, &mut changes).is_some() {}
        restore(engine, &session);
        if summed(&mut session).is_some() {
            restore(engine, &session);
        }
    });
}

/// Takes a change off the input: what it does, and where.
fn change(session: &mut Vec<u8>, changes: &mut &[u8]) -> Option<()> {
    let kind = *changes.split_off_first()?;
    let at = u16::from_le_bytes(changes.split_off(..2)?.try_into().ok()?) as usize % (session.len() + 1);
    match kind % 4 {
        0 => session.truncate(at),
        1 => {
            let length = *changes.split_off_first()? as usize;
            session.drain(at..(at + length).min(session.len()));
        }
        2 => {
            let length = *changes.split_off_first()? as usize;
            session.splice(at..at, changes.split_off(..length)?.iter().copied());
        }
        _ => {
            let length = *changes.split_off_first()? as usize % 9;
            let new = changes.split_off(..length)?;
            session.get_mut(at..at + length)?.copy_from_slice(new);
        }
    }
    Some(())
}

/// Corrects the sums of the session's header, of the sequence's and of its states, as far as there are these.
fn summed(session: &mut [u8]) -> Option<()> {
    let sequence = number(session, BEFORE - 4)?.checked_add(BEFORE + SUM)?;
    sum(session, 0, sequence - SUM)?;
    let count = number(session, sequence + BEFORE - 4)?.checked_add(sequence + BEFORE)?;
    let states = number(session, count)?.checked_mul(4)?.checked_add(count + 4 + 4 + SUM)?;
    sum(session, sequence, states - SUM)?;
    sum(session, states, session.len().checked_sub(SUM)?)
}

fn number(session: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(session.get(at..at + 4)?.try_into().ok()?) as usize)
}

fn sum(session: &mut [u8], from: usize, to: usize) -> Option<()> {
    let sum = crc32fast::hash(session.get(from..to)?);
    session.get_mut(to..to + SUM)?.copy_from_slice(&sum.to_le_bytes());
    Some(())
}

fn restore(engine: &Engine, session: &[u8]) {
    let source = MemorySource::new(session.to_vec()).with_name("a.session");
    match pollster::block_on(engine.restore_session(&source)) {
        Ok(restored) => check(go_on(engine, restored.conversation)),
        Err(error) => check(Err(error)),
    }
}

/// One token more of what was restored.
fn go_on(engine: &Engine, mut conversation: Value) -> Result<()> {
    if let Some(fields) = conversation.as_object_mut() {
        fields.insert("max_tokens".to_owned(), json!(1));
    }
    let mut generation = engine.chat(ChatRequest::parse(conversation)?)?;
    while pollster::block_on(generation.next())?.is_some() {}
    Ok(())
}

/// What a file holds is never a fault of the engine.
fn check(done: Result<()>) {
    if let Err(error) = done {
        assert_ne!(error.code(), Code::Internal, "{error}");
    }
}
