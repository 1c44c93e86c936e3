//! Tool calls and reasoning in what a model writes. The first byte chooses the family, the second how the answer begins and ends, the
//! third how long the pieces are that it comes in; the rest is the answer. However it comes, its parts are the same, and the arguments
//! of a whole call are an object.

use std::rc::Rc;

use rillm::text::answer::{Answer, AnswerSettings};
use rillm::text::reasoning::{Beginning, ReasoningMarkers};
use rillm::text::tools::{End, Part, ToolFormat, Tools};
use serde_json::{Value, json};

fn tools() -> Rc<Tools> {
    let tool = |name: &str, properties: Value| {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}})
    };
    let all = [
        tool("get_weather", json!({"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["C", "F"]}})),
        tool("search", json!({"query": {"type": "string"}, "filters": {"type": "object"}, "tags": {"type": "array"}, "exact": {"type": "boolean"}})),
        tool("now", json!({})),
    ];
    Rc::new(Tools::new(&all).unwrap())
}

/// What a reader has at the end.
#[derive(Debug, Default, PartialEq)]
struct Read {
    reasoning: String,
    content: String,
    calls: Vec<(String, Option<String>, String)>,
    open: bool,
    malformed: usize,
}

fn read<'t>(pieces: impl Iterator<Item = &'t str>, settings: &AnswerSettings, end: End) -> Read {
    let mut answer = Answer::new(settings.clone());
    let mut parts: Vec<Part> = pieces.flat_map(|piece| answer.push(piece)).collect();
    parts.extend(answer.finish(end));
    let mut read = Read::default();
    for part in parts {
        match part {
            Part::Reasoning(text) => read.reasoning.push_str(&text),
            Part::Content(text) => read.content.push_str(&text),
            Part::Call { name, id } => {
                assert!(!read.open, "a call begins within a call");
                read.open = true;
                read.calls.push((name, id, String::new()));
            }
            Part::Arguments(text) => {
                assert!(read.open, "arguments without a call");
                read.calls.last_mut().unwrap().2.push_str(&text);
            }
            Part::CallEnd => {
                assert!(read.open, "the end of no call");
                read.open = false;
                let arguments: Value = serde_json::from_str(&read.calls.last().unwrap().2).unwrap();
                assert!(arguments.is_object());
            }
            Part::Malformed { begun, .. } => {
                assert_eq!(begun, read.open);
                if begun {
                    read.calls.pop();
                }
                read.open = false;
                read.malformed += 1;
            }
        }
    }
    read
}

pub fn run(bytes: &[u8]) {
    let [format, mode, length, text @ ..] = bytes else { return };
    let format = ToolFormat::ALL[usize::from(*format) % ToolFormat::ALL.len()];
    let text = String::from_utf8_lossy(text);
    let end = if mode & 1 == 0 { End::Complete } else { End::Cut };
    let beginning = match mode >> 1 & 3 {
        0 => None,
        1 => Some(Beginning::Undecided),
        2 => Some(Beginning::Inside),
        _ => Some(Beginning::Outside),
    };
    let channels = format.channels.map(|_| (String::new(), mode & 8 != 0));
    let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
    let reasoning = beginning.filter(|_| channels.is_none()).map(|beginning| (markers, beginning));
    let settings = AnswerSettings { tools: Some((format, tools())), reasoning, channels };
    let whole = read(std::iter::once(&*text), &settings, end);
    let length = usize::from(*length % 9) + 1;
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(length).chain([text.len()]).collect();
    let pieces = places.windows(2).map(|pair| &text[pair[0]..pair[1]]);
    assert_eq!(read(pieces, &settings, end), whole);
}
