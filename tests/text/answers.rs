//! Tool calls and reasoning in what models write: a table of answers for each family, whatever pieces they come in.

use std::path::Path;
use std::rc::Rc;

use proptest::prelude::*;
use rillm::error::Code;
use rillm::text::answer::{Answer, AnswerSettings};
use rillm::text::reasoning::{Beginning, ReasoningMarkers};
use rillm::text::tools::{End, Part, ToolChoice, ToolFormat, Tools};
use serde_json::{Value, json};

mod families;
mod fragments;
mod grammars;
mod hostile;
mod keywords;
mod reasoning;
mod texts;
mod written;

fn tools() -> Rc<Tools> {
    let tool = |name: &str, properties: Value| json!({"type": "function", "function": {"name": name, "description": "…", "parameters": {"type": "object", "properties": properties}}});
    Rc::new(
        Tools::new(&[
            tool("get_weather", json!({"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"enum": ["C", "F"]}})),
            tool("search", json!({"query": {"type": "string"}, "filters": {"type": "object"}, "tags": {"type": "array"}, "exact": {"type": "boolean"}})),
            tool("python", json!({"code": {"type": "string"}})),
            tool("now", json!({})),
        ])
        .unwrap(),
    )
}

/// An answer as a reader has it at the end.
#[derive(Clone, Debug, Default, PartialEq)]
struct Read {
    reasoning: String,
    content: String,
    /// Names and arguments of whole calls.
    calls: Vec<(String, String)>,
    ids: Vec<String>,
    /// A call that was cut off.
    open: Option<(String, String)>,
    malformed: usize,
}

fn read_in(pieces: &[&str], settings: &AnswerSettings, end: End) -> Read {
    let mut answer = Answer::new(settings.clone());
    let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| answer.push(piece)).collect();
    parts.extend(answer.finish(end));
    let mut read = Read::default();
    for part in parts {
        match part {
            Part::Reasoning(text) => read.reasoning.push_str(&text),
            Part::Content(text) => read.content.push_str(&text),
            Part::Call { name, id } => {
                assert_eq!(read.open, None, "a call begins within a call");
                read.open = Some((name, String::new()));
                read.ids.extend(id);
            }
            Part::Arguments(text) => read.open.as_mut().expect("arguments without a call").1.push_str(&text),
            Part::CallEnd => {
                let call = read.open.take().expect("the end of no call");
                let arguments: Value =
                    serde_json::from_str(&call.1).unwrap_or_else(|cause| panic!("{:?}: {cause}", call.1));
                assert!(arguments.is_object());
                read.calls.push(call);
            }
            Part::Malformed { begun, .. } => {
                assert_eq!(begun, read.open.is_some());
                read.open = None;
                read.malformed += 1;
            }
        }
    }
    read
}

fn format_named(name: &str) -> &'static ToolFormat {
    ToolFormat::ALL.iter().find(|format| format.name == name).unwrap_or_else(|| panic!("no format has the name {name}"))
}

fn of_format(format: &'static ToolFormat) -> AnswerSettings {
    let channels = format.channels.map(|_| (String::new(), false));
    AnswerSettings { tools: Some((format, tools())), reasoning: None, channels }
}

/// Reads a text whole, character by character, and cut in two at every place: all must be the same.
fn read_all_ways(text: &str, settings: &AnswerSettings, end: End) -> Read {
    let whole = read_in(&[text], settings, end);
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_eq!(read_in(&characters, settings, end), whole, "character by character: {text:?}");
    for (at, _) in text.char_indices() {
        let (first, second) = text.split_at(at);
        assert_eq!(read_in(&[first, second], settings, end), whole, "cut at {at}: {first:?} {second:?}");
    }
    whole
}

/// Pieces of all formats, put together at random.
fn fragments() -> impl Strategy<Value = Vec<&'static str>> {
    let known = prop::sample::select(fragments::FRAGMENTS);
    prop::collection::vec(known, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// No text makes a parser panic, lose text, or depend on how the text is cut.
    #[test]
    fn any_text_reads_the_same_in_any_pieces(pieces in fragments(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8), is_cut in any::<bool>()) {
        let text = pieces.concat();
        let end = if is_cut { End::Cut } else { End::Complete };
        let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        if !places.is_empty() {
            let mut chosen: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).collect();
            chosen.extend([0, text.len()]);
            chosen.sort();
            places = chosen;
        }
        let cut: Vec<&str> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        for &format in ToolFormat::ALL {
            let settings = of_format(format);
            let whole = read_in(&[&text], &settings, end);
            prop_assert_eq!(&read_in(&pieces, &settings, end), &whole, "{:?} {:?}", format, pieces);
            prop_assert_eq!(&read_in(&cut, &settings, end), &whole, "{:?} {:?}", format, cut);
            // Letters that stand in no call and no marker are there.
            for word in ["Alpha", "Omega"] {
                // In a header of Harmony's they are no part of what is said, and half a key can't be told of a call that is cut.
                let is_half_a_key = is_cut && whole.open.is_some();
                if format.channels.is_none() && !is_half_a_key && text.contains(word) {
                    let all = format!("{}{}{:?}{:?}", whole.reasoning, whole.content, whole.calls, whole.open);
                    prop_assert!(all.contains(word), "{:?} loses {} of {:?}: {:?}", format, word, text, whole);
                }
            }
        }
    }
}

/// A format that finds nothing to parse gives the text as it is.
#[test]
fn plain_text_stays_as_it_is() {
    for text in [
        "",
        "Hello.",
        "  two\n\nlines \n",
        "a < b and [1] or {x}",
        "{\"answer\": 42}\n",
        "[1, 2]",
        "```json\n{\"a\": 1}\n```\n",
        "`<tool` <",
        "\u{1F600} é",
    ] {
        for &format in ToolFormat::ALL {
            for end in [End::Complete, End::Cut] {
                let read = read_all_ways(text, &of_format(format), end);
                assert_eq!(read, Read { content: text.to_owned(), ..Read::default() }, "{format:?} {end:?}");
            }
        }
    }
}

/// The format follows from the markers in the template of a published model.
#[test]
fn formats_are_told_by_the_template() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/chat-templates.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED formats_are_told_by_the_template: {} is not there", path.display());
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let format_of = |name: &str| {
        let case = cases.iter().find(|case| case["name"].as_str().unwrap().starts_with(name)).unwrap();
        ToolFormat::of_template(case["template"].as_str().unwrap())
    };
    for (name, format) in [
        ("NousResearch/Hermes-2-Pro", "hermes"),
        ("Qwen/Qwen2.5-7B", "hermes"),
        ("HuggingFaceTB/SmolLM3", "hermes"),
        ("Qwen/Qwen3.5", "qwen3_coder"),
        ("zai-org/GLM", "glm"),
        ("meta-llama/Llama-3.1", "llama3"),
        ("meta-llama/Llama-3.2", "llama3"),
        ("CISCai/Mistral", "mistral"),
        ("deepseek-ai/DeepSeek-R1", "deepseek"),
        ("CohereLabs/c4ai-command-a", "cohere"),
        ("ai21labs", "jamba"),
        ("HuggingFaceH4/zephyr-7b-beta", "generic"),
    ] {
        assert_eq!(format_of(name).name, format, "{name}");
    }
}

/// The same for templates that are not among those: by what makes them recognisable.
#[test]
fn markers_in_a_template_tell_the_format() {
    for (template, format) in [
        ("{{ '<|start|>' }}{{ '<|channel|>analysis<|message|>' }}", "harmony"),
        ("<start_of_turn> <start_function_call>call:", "function_gemma"),
        ("<start_of_turn>{{ role }}", "gemma"),
        ("<|turn> <|tool_call>call:{{ name }}", "gemma4"),
        ("<|tool|>{{ tools }}<|/tool|>", "phi"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"),
        ("<seed:tool_call>\n<function={{ f }}>\n<parameter=a>", "seed"),
        (
            "{% set dsml_token = '｜DSML｜' %}<{{ dsml_token }}function_calls>{% if message.tool_calls %}<｜tool▁calls▁begin｜>",
            "deepseek_v32",
        ),
        ("{% set dsml_token = '｜DSML｜' %}<{{ dsml_token }}tool_calls>", "deepseek_v4"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>", "kimi"),
        ("{{ '<|im_system|>tool_declare<|im_middle|>' }}{{ tools | tojson }}", "kimi"),
        ("<|im_start|>", "generic"),
    ] {
        assert_eq!(ToolFormat::of_template(template).name, format, "{template}");
    }
}

#[test]
fn tools_are_checked() {
    let function = |function: Value| json!({"type": "function", "function": function});
    for (tools, says) in [
        (json!(["x"]), "tools[0] is \"x\""),
        (json!([{"type": "retrieval"}]), "tools[0].type is \"retrieval\""),
        (json!([{"function": {"name": "a"}}]), "tools[0].type is null"),
        (json!([{"type": "function", "name": "a"}]), "tools[0] has the field \"name\""),
        (json!([{"type": "function"}]), "tools[0].function is null"),
        (json!([function(json!({}))]), "tools[0].function.name is null"),
        (json!([function(json!({"name": ""}))]), "tools[0].function.name is \"\""),
        (json!([function(json!({"name": "two words"}))]), "tools[0].function.name is \"two words\""),
        (json!([function(json!({"name": "a".repeat(65)}))]), "wanted 1 to 64"),
        (
            json!([function(json!({"name": "a"})), function(json!({"name": "a"}))]),
            "tools[1].function.name is \"a\", as that of tools[0]",
        ),
        (json!([function(json!({"name": "a", "description": 1}))]), "tools[0].function.description is 1"),
        (json!([function(json!({"name": "a", "strict": "yes"}))]), "tools[0].function.strict is \"yes\""),
        (json!([function(json!({"name": "a", "parameters": []}))]), "tools[0].function.parameters is []"),
        (
            json!([function(json!({"name": "a", "parameters": {"type": "string"}}))]),
            "tools[0].function.parameters.type is \"string\"",
        ),
        (
            json!([function(json!({"name": "a", "parameters": {"properties": {"b": 3}}}))]),
            "parameters.properties.b is 3",
        ),
        (json!([function(json!({"name": "a", "parameters": {"required": "b"}}))]), "parameters.required is \"b\""),
    ] {
        let error = Tools::new(tools.as_array().unwrap()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.to_string().contains(says), "{error} / {says}");
    }
    let many: Vec<Value> = (0..129).map(|index| function(json!({"name": format!("f{index}")}))).collect();
    assert!(Tools::new(&many).unwrap_err().to_string().contains("129 functions"));
}

#[test]
fn the_choice_is_checked_against_the_tools() {
    let tools = tools();
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choice = |choice: Value, tools: &Tools| ToolChoice::new(Some(&choice), tools);
    assert_eq!(ToolChoice::new(None, &tools).unwrap(), ToolChoice::Auto);
    assert_eq!(choice(json!("none"), &Tools::default()).unwrap(), ToolChoice::None);
    assert_eq!(choice(json!("required"), &tools).unwrap(), ToolChoice::Required);
    assert_eq!(choice(named("search"), &tools).unwrap(), ToolChoice::Function("search".to_owned()));
    for (value, says) in [
        (named("missing"), "\"missing\", and the request's tools are"),
        (json!("always"), "tool_choice is \"always\", wanted \"none\""),
        (json!(3), "tool_choice is 3"),
        (json!({"type": "function"}), "tool_choice is {\"type\":\"function\"}"),
        (json!({"type": "function", "function": {"name": "search"}, "x": 1}), "wanted"),
    ] {
        let error = choice(value, &tools).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(choice(json!("required"), &Tools::default()).unwrap_err().to_string().contains("no tools"));
}
