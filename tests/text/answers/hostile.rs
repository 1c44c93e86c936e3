//! Answers that no model should write, for every format of the list: calls within calls, markers in arguments, halves of characters,
//! calls without an end.

use std::time::{Duration, Instant};

use serde_json::Map;

use super::keywords::{object, tool_of};
use super::written::written;
use super::*;

/// Every format with a word that chooses each of its forms.
fn each_form(mut run: impl FnMut(&'static ToolFormat, &'static str)) {
    for &format in ToolFormat::ALL {
        format.form_words().into_iter().for_each(|template| run(format, template));
    }
}

fn call_with(format: &ToolFormat, template: &str, text: &str) -> String {
    written(format, template, &Map::from_iter([("v".to_owned(), json!(text))]))
}

fn settings(format: &'static ToolFormat) -> AnswerSettings {
    let tools = tool_of(object(json!({"v": {"type": "string"}}), json!({})));
    AnswerSettings { tools: Some((format, tools)), ..of_format(format) }
}

#[test]
fn every_format_has_cases_and_a_name_of_its_own() {
    for (at, format) in ToolFormat::ALL.iter().enumerate() {
        assert!(families::has_case(format.name), "no case in families.rs for {format:?}");
        assert!(ToolFormat::ALL[..at].iter().all(|other| other != format), "{format:?} is there twice");
        assert!(!format.markers.is_empty() && format.call_id.1 > 0, "{format:?}");
    }
}

/// What a text says is text, whatever opens or closes calls elsewhere.
#[test]
fn markers_in_arguments_are_text() {
    let all: Vec<&str> = ToolFormat::ALL.iter().flat_map(|format| format.markers.iter().copied()).collect();
    each_form(|format, template| {
        // Without JSON's quotes, what ends a text can't stand in it.
        let may_stand = |marker: &&&str| !format.has_bare_texts() || !format.markers.contains(*marker);
        let text = all.iter().filter(may_stand).copied().collect::<Vec<_>>().join(" ");
        let read = read_in(&[&call_with(format, template, &text)], &settings(format), End::Complete);
        assert_eq!((read.content.as_str(), read.malformed, read.calls.len()), ("", 0, 1), "{format:?}: {read:?}");
        assert_eq!(serde_json::from_str::<Value>(&read.calls[0].1).unwrap(), json!({"v": text}), "{format:?}");
    });
}

/// A call that breaks off anywhere, and another call in it.
#[test]
fn calls_within_calls_read_the_same_in_any_pieces() {
    each_form(|format, template| {
        let call = call_with(format, template, "a\u{1f600}b");
        for (at, _) in call.char_indices() {
            let text = format!("{}{call} Omega", &call[..at]);
            for end in [End::Complete, End::Cut] {
                let whole = read_in(&[&text], &settings(format), end);
                let characters: Vec<String> = text.chars().map(String::from).collect();
                let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
                assert_eq!(read_in(&characters, &settings(format), end), whole, "{format:?} {text:?}");
                assert!(format!("{whole:?}").contains("Omega") || end == End::Cut, "{format:?} {text:?}: {whole:?}");
            }
        }
    });
}

/// A function that the request does not have is a call or text, and never half of each.
#[test]
fn unknown_names_are_a_call_or_text() {
    each_form(|format, template| {
        let text = call_with(format, template, "a");
        let read = read_all_ways(&text, &of_format(format), End::Complete);
        let is_call = read.calls == [("f".to_owned(), read.calls.first().map_or(String::new(), |call| call.1.clone()))];
        assert!(is_call && read.content.is_empty() || read.content == text, "{format:?}: {read:?}");
    });
}

/// JSON escapes characters by halves. One half alone is no text, and a call with it is none.
#[test]
fn half_a_character_breaks_a_call() {
    each_form(|format, template| {
        if format.has_bare_texts() {
            return;
        }
        let call = call_with(format, template, "HERE");
        for (escaped, wanted) in
            [("\\ud83d\\ude00", Some("\u{1f600}")), ("\\ud83d", None), ("\\ude00", None), ("\\ud83d\\u0041", None)]
        {
            let text = call.replace("HERE", escaped);
            let read = read_all_ways(&text, &settings(format), End::Complete);
            let values: Vec<Value> =
                read.calls.iter().map(|call| serde_json::from_str::<Value>(&call.1).unwrap()["v"].clone()).collect();
            assert_eq!(values, Vec::from_iter(wanted.map(|text| json!(text))), "{format:?} {text:?}: {read:?}");
            assert_eq!(read.malformed > 0 || read.content == text, wanted.is_none(), "{format:?} {text:?}: {read:?}");
        }
    });
}

/// How long a text takes that comes character by character.
fn time(settings: &AnswerSettings, begin: &str, filler: &str, length: usize) -> Duration {
    let mut answer = Answer::new(settings.clone());
    answer.push(begin);
    let start = Instant::now();
    for at in 0..length {
        let at = at % filler.len();
        answer.push(&filler[at..=at]);
    }
    answer.finish(End::Cut);
    start.elapsed()
}

/// Whatever a call breaks off in, and whatever follows without an end, costs a character as much as any other.
#[test]
#[ignore = "compares times, for which the machine has to be idle"]
fn what_has_no_end_takes_linear_time() {
    let all = std::env::var("RILLM_EVERY_CUT").is_ok();
    let thinking = AnswerSettings {
        reasoning: Some((ReasoningMarkers { open: "<think>", close: "</think>" }, Beginning::Undecided)),
        ..settings(ToolFormat::GENERIC)
    };
    let mut cases: Vec<(AnswerSettings, String)> =
        ["", "<think>", "<think>a", "<think>a</think>"].map(|begin| (thinking.clone(), begin.to_owned())).into();
    each_form(|format, template| {
        let tools = tool_of(object(json!({"v": {"type": "array"}}), json!({})));
        let listed = AnswerSettings { tools: Some((format, tools)), ..of_format(format) };
        let list = written(format, template, &Map::from_iter([("v".to_owned(), json!(["a", 1]))]));
        let text = call_with(format, template, "ab");
        for (settings, call) in [(settings(format), text), (listed, list)] {
            let places: Vec<usize> = call.char_indices().map(|(at, _)| at).skip(1).collect();
            let step = if all { 1 } else { 9 };
            cases.extend(places.iter().rev().step_by(step).map(|at| (settings.clone(), call[..*at].to_owned())));
        }
    });
    let fillers: &[&str] = if all { &["a", " ", "\n", "1, ", "<", "[", "a=1, ", "\"", "</"] } else { &["a", " "] };
    for (settings, begin) in &cases {
        for filler in fillers {
            // Four times the text takes four times as long, or sixteen times. Others may use the machine: it counts what was possible
            // once.
            let is_linear = (0..5).any(|_| {
                let short = time(settings, begin, filler, 6_000);
                time(settings, begin, filler, 24_000) < 8 * short + Duration::from_millis(20)
            });
            assert!(is_linear, "{:?} {begin:?} {filler:?}", settings.tools.as_ref().map(|(format, _)| *format));
        }
    }
}
