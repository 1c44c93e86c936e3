//! Grammars of tool calls: the grammar engine takes them, and what they admit is read back as calls that obey their schemas.

use rillm::Result;
use rillm::engine::grammars::{Constraint, GrammarCompiler, GrammarLoader, GrammarVocabulary};
use rillm::native::LinkedGrammars;
use rillm::text::grammar::Grammar;
use rillm::text::tools::ToolGrammar;

use super::*;

/// Bytes, an end, and markers as control tokens.
pub(super) struct Words {
    words: Vec<Vec<u8>>,
    grammars: Rc<dyn GrammarCompiler>,
}

impl Words {
    pub(super) fn new(controls: &[&str]) -> Self {
        let mut words = vec![b"<|the_end|>".to_vec()];
        words.extend(controls.iter().map(|marker| marker.as_bytes().to_vec()));
        words.extend((0..=254u8).map(|byte| vec![byte]));
        let first_byte = words.len() as u32 - 255;
        let vocabulary = GrammarVocabulary {
            bytes: words.concat(),
            lengths: words.iter().map(|word| word.len() as u32).collect(),
            control: (0..words.len()).map(|id| id < first_byte as usize).collect(),
            ends: vec![0],
            tokenize: Box::new(move |text| text.bytes().map(|byte| first_byte + u32::from(byte)).collect()),
        };
        let grammars = pollster::block_on(LinkedGrammars.load(vocabulary)).unwrap();
        Self { words, grammars }
    }

    pub(super) fn control(&self, marker: &str) -> Option<u32> {
        let controls = &self.words[1..self.words.len() - 255];
        controls.iter().position(|word| word == marker.as_bytes()).map(|at| at as u32 + 1)
    }

    fn compile(&self, lark: String) -> Box<dyn Constraint> {
        self.try_compile(&lark).unwrap_or_else(|error| panic!("{error}\n{lark}"))
    }

    pub(super) fn try_compile(&self, lark: &str) -> Result<Box<dyn Constraint>> {
        self.grammars.compile(&Grammar::Lark(lark.to_owned()).to_json())
    }

    /// The tokens of a text, and of its end.
    pub(super) fn tokens(&self, mut text: &str) -> Vec<u32> {
        let first_byte = self.words.len() as u32 - 255;
        let mut tokens = Vec::new();
        while let Some(byte) = text.bytes().next() {
            let controls = self.words[1..first_byte as usize].iter().enumerate();
            let control = controls.filter(|(_, word)| text.as_bytes().starts_with(word));
            let (id, length) = match control.max_by_key(|(_, word)| word.len()) {
                Some((at, word)) => (at as u32 + 1, word.len()),
                None if byte < 128 => (first_byte + u32::from(byte), 1),
                None => {
                    let c = text.chars().next().map_or(1, char::len_utf8);
                    tokens.extend(text.bytes().take(c - 1).map(|byte| first_byte + u32::from(byte)));
                    (first_byte + u32::from(text.as_bytes()[c - 1]), c)
                }
            };
            tokens.push(id);
            text = &text[length..];
        }
        tokens.push(0);
        tokens
    }
}

fn schemas() -> Rc<Tools> {
    Rc::new(
        Tools::new(&[
            json!({"type": "function", "function": {"name": "alarm", "parameters": {"type": "object", "properties": {
                "day": {"enum": ["monday", "friday"]}, "hour": {"type": "integer", "minimum": 0, "maximum": 23}, "loud": {"type": "boolean"},
            }, "required": ["day"], "additionalProperties": false}}}),
            json!({"type": "function", "function": {"name": "say", "parameters": {"type": "object", "properties": {
                "text": {"type": "string"}, "to": {"type": "array", "items": {"type": "integer"}}, "how": {"type": "object", "properties": {"fast": {"type": "boolean"}}, "required": ["fast"], "additionalProperties": false},
            }, "required": ["text", "how"], "additionalProperties": false}}}),
            json!({"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}}),
            json!({"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {
                "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-f<\\]]"}, "note": {"type": ["string", "null", "boolean"], "maxLength": 6},
                "nights": {"type": "integer", "minimum": 2, "exclusiveMaximum": 15, "multipleOf": 2}, "with": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "array", "items": {"const": "x</parameter>"}, "minItems": 1, "maxItems": 2}]},
            }, "required": ["code", "nights"], "additionalProperties": false}}}),
        ])
        .unwrap(),
    )
}

/// An independent validator's word on the arguments of a function.
pub(super) fn obeys(tools: &Tools, name: &str, arguments: &Value) -> bool {
    let schema = Value::Object(tools.get(name).unwrap().parameters.clone());
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap().is_valid(arguments)
}

/// What ends a text in some format.
const CLOSERS: [&str; 5] = ["\n</parameter>", "</arg_value>", "<escape>", "<|\"|>", "</｜DSML｜parameter>"];

/// Writes at random what a grammar admits, ends texts soon, and stops after so many bytes.
fn walk(words: &Words, mut constraint: Box<dyn Constraint>, seed: &mut u64) -> (String, bool) {
    let mut next = |below: usize| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) as usize % below
    };
    let mut written = Vec::new();
    let mut bits = vec![0u32; words.words.len().div_ceil(32)];
    let mut state = constraint.advance(&[]).unwrap();
    let (mut recent, mut closing) = (0, Vec::new());
    while !state.is_complete && written.len() < 3000 {
        let token = match state.forced.first() {
            Some(token) => *token,
            None => {
                bits.fill(0);
                constraint.mask(&mut bits).unwrap();
                let allowed: Vec<u32> =
                    (0..words.words.len() as u32).filter(|id| bits[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
                if allowed.contains(&0) && (recent > 1 || next(4) > 0) {
                    break;
                }
                recent += 1;
                // Free text ends by a marker, which chance alone would not write.
                if allowed.len() > 150 && closing.is_empty() && next(8) == 0 {
                    let closer = CLOSERS[next(CLOSERS.len())];
                    // What is a control token no model spells out.
                    if words.control(closer).is_none() {
                        closing = closer.bytes().rev().collect();
                    }
                }
                let first_byte = words.words.len() as u32 - 255;
                if let Some(byte) = closing.pop() {
                    let id = first_byte + u32::from(byte);
                    if allowed.contains(&id) {
                        written.push(byte);
                        state = constraint.advance(&[id]).unwrap();
                        continue;
                    }
                    closing.clear();
                }
                // Readable text, and what may end it rather often.
                let wanted: Vec<u32> = allowed
                    .iter()
                    .copied()
                    .filter(|id| {
                        let word = &words.words[*id as usize];
                        word.len() > 1
                            || b"\"<}])]\n".contains(&word[0])
                            || (next(6) == 0 && word[0].is_ascii_alphanumeric())
                    })
                    .collect();
                let from = if wanted.is_empty() { &allowed } else { &wanted };
                from[next(from.len())]
            }
        };
        if token == 0 {
            break;
        }
        written.extend_from_slice(&words.words[token as usize]);
        let taken = constraint.advance(&[token]).unwrap();
        assert_eq!(taken.taken, 1);
        state = taken;
    }
    (String::from_utf8_lossy(&written).into_owned(), written.len() < 3000)
}

#[test]
fn what_a_grammar_admits_is_read_as_calls() {
    let tools = schemas();
    let mut seed = 7u64;
    let mut calls = 0;
    for &format in ToolFormat::ALL {
        for template in format.form_words() {
            let markers = format.markers;
            // Markers are control tokens in some models, and text in others.
            for words in [Words::new(&[]), Words::new(markers)] {
                let compile = |choice: &ToolChoice, parallel: bool| {
                    let grammar = ToolGrammar {
                        format,
                        tools: &tools,
                        choice,
                        parallel,
                        reasoning: None,
                        template,
                        control: &|marker| words.control(marker),
                    };
                    words.compile(grammar.lark().unwrap().unwrap())
                };
                let named = ToolChoice::Function("say".to_owned());
                let begins = [&named, &ToolChoice::Required]
                    .map(|choice| [true, false].map(|parallel| compile(choice, parallel)));
                let mut whole = 0;
                for round in 0..12 {
                    let begin = &begins[usize::from(round % 3 != 0)][round % 2];
                    let (text, is_whole) = walk(&words, begin.fork().unwrap().unwrap(), &mut seed);
                    if !is_whole {
                        continue;
                    }
                    whole += 1;
                    let settings = AnswerSettings { tools: Some((format, tools.clone())), ..of_format(format) };
                    let read = read_in(&[&text], &settings, End::Complete);
                    assert_eq!((read.content.as_str(), read.malformed), ("", 0), "{format:?} {text:?} {read:?}");
                    assert!(!read.calls.is_empty(), "{format:?} {text:?}");
                    if round % 3 == 0 || round % 2 == 1 {
                        assert_eq!(read.calls.len(), 1, "{format:?} {text:?}");
                    }
                    for (name, arguments) in &read.calls {
                        assert!(
                            obeys(&tools, name, &serde_json::from_str(arguments).unwrap()),
                            "{format:?} {text:?} {arguments}"
                        );
                        assert!(round % 3 != 0 || name == "say");
                    }
                    calls += read.calls.len();
                }
                assert!(whole > 2, "{format:?}: {whole}");
                // Where calling is the model's choice, it may say anything else.
                let mut free = compile(&ToolChoice::Auto, true);
                let said = if format.channels.is_some() { "<|channel|>final<|message|>" } else { "" };
                let plain = format!("{said}Hello, world.");
                let ids = words.tokens(&plain);
                let mut taken = 0;
                while taken < ids.len() {
                    let state = free.advance(&ids[taken..=taken]).unwrap();
                    assert_eq!(state.taken, 1, "{format:?} at {taken} of {plain:?}");
                    taken += 1;
                }
            }
        }
    }
    assert!(calls > 200, "{calls}");
}

/// Reasoning may stand before the calls.
#[test]
fn a_grammar_lets_the_model_think() {
    let tools = schemas();
    let words = Words::new(&[]);
    let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
    for (beginning, thought) in [
        (Beginning::Inside, "Hm < hm.\n</think>\n\n"),
        (Beginning::Undecided, "<think>Hm.</think>"),
        (Beginning::Undecided, ""),
    ] {
        let grammar = ToolGrammar {
            format: format_named("hermes"),
            tools: &tools,
            choice: &ToolChoice::Required,
            parallel: false,
            reasoning: Some((markers, beginning)),
            template: "",
            control: &|_| None,
        };
        let mut constraint = words.compile(grammar.lark().unwrap().unwrap());
        let text = format!("{thought}<tool_call>\n{{\"name\": \"now\", \"arguments\": {{}}}}\n</tool_call>");
        for (at, byte) in text.bytes().enumerate() {
            let state = constraint.advance(&[words.words.len() as u32 - 255 + u32::from(byte)]).unwrap();
            assert_eq!(state.taken, 1, "{:?}", &text[..at]);
        }
    }
}

/// Where the end of reasoning is a control token, the grammar asks for that token.
#[test]
fn the_end_of_reasoning_may_be_a_control_token() {
    let tools = schemas();
    let markers = ReasoningMarkers { open: "<think>", close: "</think>" };
    let words = Words::new(&["<think>", "</think>"]);
    for (beginning, thought) in
        [(Beginning::Inside, "Hm.</think>"), (Beginning::Undecided, "<think>Hm.</think>"), (Beginning::Undecided, "")]
    {
        let grammar = ToolGrammar {
            format: format_named("hermes"),
            tools: &tools,
            choice: &ToolChoice::Required,
            parallel: false,
            reasoning: Some((markers, beginning)),
            template: "",
            control: &|marker| words.control(marker),
        };
        let mut constraint = words.compile(grammar.lark().unwrap().unwrap());
        let text = format!("{thought}<tool_call>\n{{\"name\": \"now\", \"arguments\": {{}}}}\n</tool_call>");
        for token in words.tokens(&text) {
            let state = constraint.advance(&[token]).unwrap();
            assert!(state.taken == 1 || state.is_complete, "{beginning:?}: {token}");
        }
    }
}
