//! From chats and texts to tokens, and which of them are learnt: of a chat what the assistant says, of a text all.

use serde_json::{Map, Value, json};

use super::loss::Example;
use crate::engine::Engine;
use crate::engine::request::ChatRequest;
use crate::error::Result;

/// What a chat may hold besides its messages.
const CHAT_FIELDS: [&str; 3] = ["messages", "tools", "chat_template_kwargs"];

/// The examples of `data`, whose first item messages call `name[first]`: texts, `{text}`, or chats `{messages, tools, chat_template_kwargs}`. None may have more
/// than `longest` tokens. A chat is one example, or one for each answer if the template writes earlier answers otherwise than the last.
pub(super) fn examples(
    engine: &Engine,
    (name, first): (&str, usize),
    data: &[Value],
    longest: usize,
) -> Result<Vec<Example>> {
    let mut all = Vec::new();
    let vocabulary = engine.transformer()?.config().vocab_size;
    for (index, item) in (first..).zip(data) {
        let place = format!("{name}[{index}]");
        let found = match item {
            Value::String(text) => of_text(engine, text).map(|example| vec![example]),
            Value::Object(fields) if fields.contains_key("messages") => of_chat(engine, fields),
            Value::Object(fields) if fields.len() == 1 => match fields.get("text") {
                Some(Value::String(text)) => of_text(engine, text).map(|example| vec![example]),
                _ => Err(unknown(item)),
            },
            _ => Err(unknown(item)),
        };
        let found = found.map_err(|error| error.context(&place))?;
        found.iter().try_for_each(|example| example.check(vocabulary)).map_err(|error| error.context(&place))?;
        if let Some(example) = found.iter().find(|example| example.ids.len() > longest) {
            bail!(
                ContextLengthExceeded,
                "{place} has {} tokens, and an example may have {longest}; shorten it, or raise maxLength if there is memory",
                example.ids.len()
            );
        }
        all.extend(found);
    }
    Ok(all)
}

fn unknown(item: &Value) -> crate::Error {
    let text: String = item.to_string().chars().take(60).collect();
    err!(InvalidRequest, "{text} is neither a text, nor {{\"text\": …}}, nor a chat {{\"messages\": […]}}")
}

/// A text between the tokens that the model's texts begin and end with.
fn of_text(engine: &Engine, text: &str) -> Result<Example> {
    if text.is_empty() {
        bail!(InvalidRequest, "the text is empty");
    }
    let tokenizer = engine.tokenizer();
    let mut ids = tokenizer.encode(text, true, false)?;
    // Some tokenizers write it themselves.
    ids.extend(tokenizer.eos().filter(|eos| ids.last() != Some(eos)));
    if ids.len() < 2 {
        bail!(InvalidRequest, "the text is one token, and the first is never learnt");
    }
    Ok(Example::whole(ids))
}

fn of_chat(engine: &Engine, fields: &Map<String, Value>) -> Result<Vec<Example>> {
    if let Some(field) = fields.keys().find(|field| !CHAT_FIELDS.contains(&field.as_str())) {
        bail!(InvalidRequest, "the chat has the unknown field {field:?}; known are {}", CHAT_FIELDS.join(", "));
    }
    let Some(Value::Array(messages)) = fields.get("messages") else { bail!(InvalidRequest, "messages is no array") };
    let is_answer = |message: &Value| message["role"] == "assistant";
    match messages.last() {
        None => bail!(InvalidRequest, "messages is empty"),
        Some(last) if !is_answer(last) => bail!(
            InvalidRequest,
            "the last message has the role {}, wanted \"assistant\": answers are what is learnt",
            last["role"]
        ),
        Some(_) => {}
    }
    // The tokens of the first messages, with the beginning of an answer after them or without.
    let ids = |count: usize, begins_answer: bool| {
        let mut request = fields.clone();
        request["messages"] = json!(messages[..count]);
        request.insert("add_generation_prompt".to_owned(), json!(begins_answer));
        engine.prompt_ids(&ChatRequest::parse(Value::Object(request))?.chat)
    };
    let mut answers = Vec::new();
    for (place, _) in messages.iter().enumerate().filter(|(_, message)| is_answer(message)) {
        let (prompt, before) = (ids(place, true)?, ids(place, false)?);
        let whole = ids(place + 1, false)?;
        let begin = shared(&prompt, &whole);
        // The rest may differ in how an answer begins, such as with reasoning.
        if begin < shared(&before, &prompt) || begin == whole.len() {
            bail!(
                InvalidRequest,
                "the chat template writes the messages before messages[{place}] otherwise once that is there, so it can't be said what the answer is"
            );
        }
        answers.push((begin, whole));
    }
    let Some((_, whole)) = answers.last().cloned() else { bail!(Internal, "the last message is an answer") };
    if answers.iter().all(|(_, ids)| shared(ids, &whole) == ids.len()) {
        let mut counts = vec![false; whole.len()];
        answers.iter().for_each(|(begin, ids)| counts[*begin..ids.len()].fill(true));
        return Ok(vec![Example { ids: whole, counts }]);
    }
    let single = |(begin, ids): (usize, Vec<u32>)| {
        let counts = (0..ids.len()).map(|place| place >= begin).collect();
        Example { ids, counts }
    };
    Ok(answers.into_iter().map(single).collect())
}

/// How many tokens both begin with.
fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
