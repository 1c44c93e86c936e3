//! Texts that stand without quotes: what their schema says of them, and what would end them.

use serde_json::Map;

use super::grammars::Words;
use super::keywords::{Admission, object, tool_of};
use super::written::{spaced, written};
use super::*;

/// The values of `v` that a family admits, of those.
fn admitted<'v>(format: &'static ToolFormat, words: &Words, schema: &Value, values: &'v [&'v str]) -> Vec<&'v str> {
    let tools = tool_of(object(json!({"v": schema}), json!({"required": ["v"]})));
    let grammar =
        Admission::new(words, format, "", &tools).unwrap_or_else(|error| panic!("{format:?} {schema}: {error}"));
    let is_admitted = |value: &str| {
        let text = written(format, "", &Map::from_iter([("v".to_owned(), json!(value))]));
        grammar.admits(&text)
    };
    values.iter().copied().filter(|value| is_admitted(value)).collect()
}

/// Where texts stand in JSON, llguidance holds them to patterns and formats itself: elsewhere the same texts are right.
#[test]
fn texts_obey_the_same_in_every_notation() {
    let formats: &[(&str, &[&str])] = &[
        ("date", &["2024-01-31", "2024-02-29", "2024-02-30", "2024-04-31", "2024-13-01", "24-01-01", "2024-01-01 "]),
        ("time", &["12:00:00Z", "23:59:60z", "24:00:00Z", "12:00:00.125+05:30", "12:00:00", "12:00:00.Z", "1:00:00Z"]),
        (
            "date-time",
            &["2024-01-31T12:00:00Z", "2024-01-31t12:00:00-01:00", "2024-01-31 12:00:00Z", "2024-01-31T12:00Z"],
        ),
        (
            "duration",
            &["P1Y2M3D", "P1Y2D", "PT1H", "PT1H2S", "PT1M2S", "P1W", "P1W2D", "P1DT", "P", "PT", "P1DT2H3M4S", "P2M"],
        ),
        (
            "email",
            &["a@b", "a.b+c@d-e.f", "a@[127.0.0.1]", "a@[300.0.0.1]", "@b", "a@", "a..b@c", ".a@b", "a@-b", "a b@c"],
        ),
        ("hostname", &["a", "a-b.c1", "-a", "a-", "a..b", "a.", "a_b", "\u{e4}"]),
        ("ipv4", &["1.2.3.4", "255.255.255.255", "256.1.1.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "199.249.0.10"]),
        (
            "ipv6",
            &[
                "::",
                "::1",
                "1::",
                "1:2:3:4:5:6:7:8",
                "1:2:3:4:5:6:7",
                "1::3:4:5:6:7:8",
                "1::8::9",
                "g::",
                "fe80::1:2",
                "12345::",
            ],
        ),
        (
            "uuid",
            &[
                "123e4567-e89b-12d3-a456-426614174000",
                "123E4567-E89B-12D3-A456-426614174000",
                "123e4567e89b12d3a456426614174000",
                "x23e4567-e89b-12d3-a456-426614174000",
            ],
        ),
        (
            "uri",
            &[
                "http://a.b/c?d#e",
                "a:",
                "mailto:a@b",
                "http://u:p@[::1]:80/x%20y",
                "//a",
                "http://a b",
                "1a:b",
                "a:/b//c",
                "a://",
                "urn:x:y",
                "http://a/<b>",
                "a:%zz",
            ],
        ),
    ];
    let patterns: &[(&str, &[&str])] = &[
        ("^a|b$", &["ab", "ba", "a", "b", "ca", "bc", "cab"]),
        ("^(?:a|bc)*$", &["", "a", "abca", "abc ", "b"]),
        ("[^x]y", &["ay", "xy", "y", "xay"]),
        ("^[\\w.-]{2,3}$", &["a.", "a-b", "a", "abcd", "\u{e4}b"]),
        ("^\\S+/\\d{2}$", &["a/12", "a b/12", "/12", "a/1"]),
        ("^.$", &["a", "\u{e4}", "\u{1f600}", "", "ab"]),
        ("\\.(png|jpe?g)$", &["a.png", ".jpg", "a.jpeg", "a.png ", "apng"]),
    ];
    let schemas = formats
        .iter()
        .map(|(name, texts)| (json!({"type": "string", "format": name}), *texts))
        .chain(patterns.iter().map(|(pattern, texts)| (json!({"type": "string", "pattern": pattern}), *texts)));
    let words = Words::new(&[]);
    for (schema, texts) in schemas {
        let wanted = admitted(format_named("hermes"), &words, &schema, texts);
        assert!(!wanted.is_empty() && wanted.len() < texts.len(), "{schema} {wanted:?}");
        for format in ["qwen3_coder", "glm", "deepseek_v32", "gemma4"].map(format_named) {
            assert_eq!(admitted(format, &words, &schema, texts), wanted, "{format:?} {schema}");
        }
    }
}

/// A text holds nothing that would end it, and is not read as a value of another type.
#[test]
fn a_text_is_read_as_what_it_was_written() {
    let texts = [
        "",
        "a\nb\n",
        "\n",
        "a\r",
        "</parameter>",
        "a</parameter>b",
        "a</parameter\n>",
        "</arg_value>",
        "<escape>",
        "<|\"|>",
        "</｜DSML｜parameter>",
        "null",
        " null ",
        "None",
        "true",
        "12",
        "-1.5e3",
        "1.",
        "[1]",
        "[",
        "{\"a\": 1}",
        "(1, 2)",
        "\"a\"",
        "\"",
    ];
    let schemas = [
        json!({"type": "string"}),
        json!({"type": "string", "maxLength": 20}),
        json!({"type": ["string", "null"]}),
        json!({"type": ["string", "integer", "boolean"]}),
        json!({"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}),
    ];
    for &format in ToolFormat::ALL.iter().filter(|format| format.has_bare_texts()) {
        for words in [Words::new(&[]), Words::new(format.markers)] {
            for schema in &schemas {
                let tools = tool_of(object(json!({"v": schema}), json!({"required": ["v"]})));
                let admitted = admitted(format, &words, schema, &texts);
                assert!(admitted.len() > 12, "{format:?} {schema}: {admitted:?}");
                for text in admitted {
                    let arguments = Map::from_iter([("v".to_owned(), json!(text))]);
                    let settings = AnswerSettings { tools: Some((format, tools.clone())), ..of_format(format) };
                    let read = read_all_ways(&written(format, "", &arguments), &settings, End::Complete);
                    assert_eq!(read.calls.len(), 1, "{format:?} {schema} {text:?}: {read:?}");
                    let read = &serde_json::from_str::<Value>(&read.calls[0].1).unwrap()["v"];
                    // What is admitted as another value is that value to the letter.
                    let is_other = !read.is_string() && spaced(read) == text;
                    assert!(*read == json!(text) || is_other, "{format:?} {schema} {text:?}: {read}");
                }
            }
        }
    }
}
