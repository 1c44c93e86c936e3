//! Masks, checks and forced tokens against brute force on a small vocabulary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]
#![cfg(not(target_arch = "wasm32"))]

use std::rc::Rc;

use rillm_grammar::{Grammars, Vocabulary};

/// 0 is the end, 1 and 2 are control tokens, the rest is text.
struct Words {
    words: Vec<Vec<u8>>,
    control: Vec<bool>,
}

impl Words {
    fn new() -> Self {
        let mut words: Vec<Vec<u8>> = vec![b"<|end|>".to_vec(), b"<tool>".to_vec(), b"</tool>".to_vec()];
        words.extend((0..=255u8).map(|byte| vec![byte]));
        let texts = [
            "{\"", "\":", "\": ", ", ", ", \"", "name", "age", "true", "false", "null", "12", "123", " a", " b", "ab",
            "abc", "}", "]}", "\"}", "\\n", "é", "😀", "yes", "no", "maybe", "may", "  ", "\n", "tr", "ue", "nu", "ll",
        ];
        words.extend(texts.iter().map(|text| text.as_bytes().to_vec()));
        let control = (0..words.len()).map(|id| id < 3).collect();
        Self { words, control }
    }

    /// Longest first.
    fn tokenize(words: &[Vec<u8>], text: &str) -> Vec<u32> {
        let mut rest = text.as_bytes();
        let mut ids = Vec::new();
        while !rest.is_empty() {
            let (id, word) = words
                .iter()
                .enumerate()
                .skip(3)
                .filter(|(_, word)| rest.starts_with(word))
                .max_by_key(|(_, word)| word.len())
                .unwrap();
            ids.push(id as u32);
            rest = &rest[word.len()..];
        }
        ids
    }

    fn grammars(self: &Rc<Self>) -> Grammars {
        let words: Vec<&[u8]> = self.words.iter().map(Vec::as_slice).collect();
        let vocabulary = Vocabulary { words, control: &self.control, ends: &[0] };
        let own = self.clone();
        Grammars::new(&vocabulary, move |text| Self::tokenize(&own.words, text)).unwrap()
    }

    fn text(&self, ids: &[u32]) -> String {
        String::from_utf8(ids.iter().flat_map(|id| self.words[*id as usize].clone()).collect()).unwrap()
    }
}

fn schema(schema: &str) -> String {
    let mut schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    schema["x-guidance"] =
        serde_json::json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
    serde_json::json!({"json_schema": schema}).to_string()
}

/// A walk by seeded choices among what is allowed; at each place the mask is compared with asking for every single token.
fn walk(grammars: &Grammars, words: &Words, grammar: &str, seed: u64) -> String {
    let mut matching = grammars.compile(grammar).unwrap();
    let mut ids: Vec<u32> = Vec::new();
    let mut random = seed;
    let mut next = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n
    };
    loop {
        let here = matching.advance(&[]).unwrap();
        assert_eq!(here.taken, 0);
        if here.is_complete {
            return words.text(&ids);
        }
        let mut bits = vec![u32::MAX; words.words.len().div_ceil(32) + 1];
        matching.mask(&mut bits).unwrap();
        let allowed: Vec<u32> =
            (0..32 * bits.len() as u32).filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 != 0).collect();
        // Brute force: the same walk again, and one token more.
        let brute: Vec<u32> = (0..32 * bits.len() as u32)
            .filter(|id| {
                let mut again = matching.clone();
                again.advance(&[*id]).unwrap().taken == 1
            })
            .collect();
        assert_eq!(allowed, brute, "{grammar} after {:?}", words.text(&ids));
        if let Some(&forced) = here.forced.first() {
            assert_eq!(allowed, [forced]);
        }
        // The end is taken seldom, so that texts get some length.
        let others: Vec<u32> = allowed.iter().copied().filter(|id| *id != 0).collect();
        let chosen = if others.is_empty() || (allowed.contains(&0) && (ids.len() > 20 || next(8) == 0)) {
            0
        } else {
            others[next(others.len())]
        };
        let advance = matching.advance(&[chosen]).unwrap();
        assert_eq!(advance.taken, 1);
        if chosen == 0 {
            assert!(advance.is_complete);
            return words.text(&ids);
        }
        ids.push(chosen);
        if ids.len() > 40 {
            return String::new();
        }
    }
}

#[test]
fn masks_are_what_asking_for_each_token_gives() {
    let words = Rc::new(Words::new());
    let grammars = words.grammars();
    let cases = [
        schema(
            r#"{"type":"object","properties":{"name":{"enum":["ab","abc","a\"b"]},"age":{"type":"integer","minimum":0,"maximum":120}},"required":["name","age"],"additionalProperties":false}"#,
        ),
        schema(r#"{"type":"array","items":{"type":"boolean"},"maxItems":3}"#),
        schema(r#"{"anyOf":[{"type":"null"},{"const":[1,2]},{"type":"string","maxLength":3}]}"#),
        serde_json::json!({"regex": "(yes|no|may(be)?) [0-9]{1,3}"}).to_string(),
        serde_json::json!({"choice": ["yes", "no", "maybe", "may", "é😀"]}).to_string(),
        serde_json::json!({"lark": "start: <tool> /[a-c]{1,3}/ </tool> | \"no\""}).to_string(),
    ];
    for grammar in &cases {
        for seed in 0..3 {
            walk(&grammars, &words, grammar, seed);
        }
    }
}

#[test]
fn what_is_forced_need_not_be_asked_for() {
    let words = Rc::new(Words::new());
    let grammars = words.grammars();
    let grammar = schema(
        r#"{"type":"object","properties":{"name":{"const":"ab"},"age":{"type":"boolean"}},"required":["name","age"],"additionalProperties":false}"#,
    );
    let mut matching = grammars.compile(&grammar).unwrap();
    let here = matching.advance(&[]).unwrap();
    assert_eq!(words.text(&here.forced), r#"{"name": "ab", "age": "#);
    // A token that says the same in other pieces is not what is forced.
    assert_eq!(matching.advance(&[3 + u32::from(b'{')]).unwrap().taken, 0);
    let advance = matching.advance(&here.forced).unwrap();
    assert_eq!((advance.taken, advance.forced.len(), advance.is_complete), (here.forced.len(), 0, false));
    let t = Words::tokenize(&words.words, "true");
    let advance = matching.advance(&t).unwrap();
    assert_eq!(words.text(&advance.forced), "}");
    let advance = matching.advance(&advance.forced).unwrap();
    assert_eq!((advance.taken, advance.is_complete), (1, true));
    // Whatever comes later is not taken.
    assert_eq!(matching.advance(&[5]).unwrap().taken, 0);
    let mut bits = vec![0; 10];
    matching.mask(&mut bits).unwrap();
    assert_eq!(bits.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
    assert_eq!(bits[0], 1, "the end");
}

#[test]
fn a_run_is_taken_up_to_what_is_not_allowed() {
    let words = Rc::new(Words::new());
    let grammars = words.grammars();
    let mut matching = grammars.compile(r#"{"regex": "^[a-c]+[0-9]?$"}"#).unwrap();
    let run = Words::tokenize(&words.words, "abcab1xx");
    let advance = matching.advance(&run).unwrap();
    assert_eq!(words.text(&run[..advance.taken]), "abcab1");
    assert!(advance.is_complete);
    let mut matching = grammars.compile(r#"{"regex": "[a-c]+"}"#).unwrap();
    // The end is allowed in its place only.
    assert_eq!(matching.advance(&[0]).unwrap().taken, 0);
    let advance = matching.advance(&[3 + u32::from(b'a'), 0, 3 + u32::from(b'a')]).unwrap();
    assert_eq!((advance.taken, advance.is_complete), (2, true));
}

#[test]
fn what_can_not_be_done_is_refused_with_its_reason() {
    let words = Rc::new(Words::new());
    let grammars = words.grammars();
    for (grammar, wanted) in [
        (r#"{"regex": "a(b"}"#, "unclosed group"),
        (r#"{"regex": "a(?=b)"}"#, "look-around"),
        (r#"{"lark": "start: \"a\"\nfoo ::: 1"}"#, "2("),
        (r#"{"lark": "start: missing"}"#, "missing"),
        (r#"{"lark": ""}"#, "start"),
        (r#"{"choice": []}"#, "choices"),
        (r#"{"json_schema": {"type": "object", "unevaluatedProperties": false}}"#, "unevaluatedProperties"),
        (r#"{"json_schema": {"type": "integer", "minimum": 3, "maximum": 1}}"#, "nsatisfiable"),
        (r#"{"json_schema": false}"#, "nsatisfiable"),
        (r#"{"json_schema": {"type": "strnig"}}"#, "strnig"),
        (r##"{"json_schema": {"$ref": "#/$defs/a"}}"##, "$defs"),
        (r#"{"json_schema": 7}"#, "schema"),
        (r#"{"json_schema": {"type": "string", "pattern": "["}}"#, "["),
        (r#"{"json_schema": {"type": "string", "format": "unheard-of"}}"#, "unheard-of"),
        (r#"{"foo": 1}"#, "foo"),
        (r#"{"#, "EOF"),
    ] {
        match grammars.compile(grammar) {
            Ok(_) => panic!("{grammar} was taken"),
            Err(error) => {
                println!("{grammar}\n    {error}");
                assert!(error.contains(wanted), "{grammar}: {error}");
            }
        }
    }
}
