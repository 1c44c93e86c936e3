//! Answers as the families write them, after their documented formats and templates.

use super::*;

struct Case {
    format: &'static str,
    text: &'static str,
    content: &'static str,
    calls: &'static [(&'static str, &'static str)],
}

const fn case(
    format: &'static str,
    text: &'static str,
    content: &'static str,
    calls: &'static [(&'static str, &'static str)],
) -> Case {
    Case { format, text, content, calls }
}

const WEATHER: (&str, &str) = ("get_weather", "{\"city\": \"Paris\"}");

const CASES: &[Case] = &[
    case(
        "hermes",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        "",
        &[WEATHER],
    ),
    case(
        "hermes",
        "Let me look.\n\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>\n<tool_call>\n{\"arguments\": {\"query\": \"a </tool_call> \\\"b\\\"\"}, \"name\": \"search\"}\n</tool_call>",
        "Let me look.",
        &[WEATHER, ("search", "{\"query\": \"a </tool_call> \\\"b\\\"\"}")],
    ),
    case("hermes", "<tool_call>{\"name\": \"now\"}</tool_call> Done.", "Done.", &[("now", "{}")]),
    case("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": null}\n</tool_call>", "", &[("now", "{}")]),
    // Arguments as text, a line break in a string, a function that the request does not have, no end.
    case(
        "hermes",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}</tool_call>",
        "",
        &[("get_weather", "{\"city\": \"Oslo\"}")],
    ),
    case(
        "hermes",
        "<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"a\nb\"}}</tool_call>",
        "",
        &[("python", "{\"code\": \"a\\nb\"}")],
    ),
    case(
        "hermes",
        "<tool_call>{\"name\": \"other\", \"arguments\": {\"x\": [1, {\"y\": null}]}}",
        "",
        &[("other", "{\"x\": [1, {\"y\": null}]}")],
    ),
    case(
        "hermes",
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"now\", \"arguments\": {}}}</tool_call>",
        "",
        &[("now", "{}")],
    ),
    case(
        "qwen3_coder",
        "I check.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        "I check.",
        &[("get_weather", "{\"city\": \"Paris\", \"days\": 3}")],
    ),
    case(
        "qwen3_coder",
        "<tool_call>\n<function=python>\n<parameter=code>\nif a < b:\n    print(\"x\")\n\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=search>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=filters>\n{\"k\": 1}\n</parameter>\n</function>\n</tool_call>",
        "",
        &[
            ("python", "{\"code\": \"if a < b:\\n    print(\\\"x\\\")\\n\"}"),
            ("search", "{\"tags\": [\"a\",\"b\"], \"exact\": true, \"filters\": {\"k\":1}}"),
        ],
    ),
    case("qwen3_coder", "<function=now>\n</function>", "", &[("now", "{}")]),
    case(
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>{\"city\": \"Paris\"}</function>\n</tool_call>",
        "",
        &[WEATHER],
    ),
    case(
        "qwen3_coder",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
        "",
        &[WEATHER],
    ),
    // A tag in a text of JSON closes nothing.
    case(
        "qwen3_coder",
        "<tool_call>\n<function=search>\n<parameter=tags>\n[\"a\\n</parameter>\"]\n</parameter>\n</function>\n</tool_call>",
        "",
        &[("search", "{\"tags\": [\"a\\n</parameter>\"]}")],
    ),
    case(
        "seed",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
        "",
        &[WEATHER],
    ),
    case(
        "minimax",
        "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case(
        "glm",
        "Sure.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
        "Sure.",
        &[("get_weather", "{\"city\": \"Paris\", \"days\": 2}"), ("now", "{}")],
    ),
    case(
        "glm",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        "",
        &[WEATHER],
    ),
    case("llama3", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "", &[WEATHER]),
    case(
        "llama3",
        "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
        "",
        &[WEATHER],
    ),
    case(
        "llama3",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"now\", \"parameters\": {}}",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case("llama3", "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "", &[WEATHER]),
    case(
        "llama3",
        "<|python_tag|>search.call(query=\"the (end), or 'x'\", exact=True)",
        "",
        &[("search", "{\"query\": \"the (end), or 'x'\", \"exact\": true}")],
    ),
    case("llama3", "<|python_tag|>brave_search.call(query=\"x\")", "", &[("brave_search", "{\"query\": \"x\"}")]),
    case(
        "llama3",
        "<|python_tag|>import math\nprint(\"π\", math.pi)",
        "",
        &[("python", "{\"code\": \"import math\\nprint(\\\"π\\\", math.pi)\"}")],
    ),
    case(
        "llama3",
        "[get_weather(city='Paris'), search(query=\"\", tags=['a', \"b\"], filters={'k': None})]",
        "",
        &[WEATHER, ("search", "{\"query\": \"\", \"tags\": [\"a\",\"b\"], \"filters\": {\"k\":null}}")],
    ),
    // An answer in JSON, and one that speaks of a function.
    case("llama3", "{\"name\": \"Ada\", \"age\": 36}", "{\"name\": \"Ada\", \"age\": 36}", &[]),
    case(
        "llama3",
        "The call {\"name\": \"now\", \"parameters\": {}} tells it.",
        "The call {\"name\": \"now\", \"parameters\": {}} tells it.",
        &[],
    ),
    case(
        "mistral",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"D681PevKs\"}]",
        "",
        &[WEATHER],
    ),
    case(
        "mistral",
        "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case(
        "mistral",
        "I look.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
        "I look.",
        &[WEATHER, ("now", "{}")],
    ),
    case("mistral", "[TOOL_CALLS]get_weather{\"city\": \"Paris\"}", "", &[WEATHER]),
    case("gemma", "```tool_code\nget_weather(city=\"Paris\")\n```", "", &[WEATHER]),
    case(
        "gemma",
        "Sure!\n```tool_code\nprint(get_weather(city=\"Paris\"))\nnow()\n```\nWait.",
        "Sure!Wait.",
        &[WEATHER, ("now", "{}")],
    ),
    case("gemma", "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n```", "", &[WEATHER]),
    case("gemma", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}", "", &[WEATHER]),
    case(
        "gemma",
        "[get_weather(city=\"Paris\", days=-2)]",
        "",
        &[("get_weather", "{\"city\": \"Paris\", \"days\": -2}")],
    ),
    case("gemma", "```json\n{\"name\": \"Ada\"}\n```", "```json\n{\"name\": \"Ada\"}\n```", &[]),
    case(
        "function_gemma",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>",
        "",
        &[WEATHER],
    ),
    case(
        "function_gemma",
        "<start_function_call>call:search{query:<escape>a \"b\", {c}\n<escape>,exact:true,tags:[<escape>x<escape>,2,null],filters:{k:{},n:-1.5}}<end_function_call><start_function_call>call:now{}<end_function_call>",
        "",
        &[
            (
                "search",
                "{\"query\": \"a \\\"b\\\", {c}\\n\", \"exact\": true, \"tags\": [\"x\", 2, null], \"filters\": {\"k\": {}, \"n\": -1.5}}",
            ),
            ("now", "{}"),
        ],
    ),
    case("function_gemma", "<start_function_call>call:get_weather{city:Paris}<end_function_call>", "", &[WEATHER]),
    case(
        "gemma4",
        "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|><|tool_call>call:now{}<tool_call|>",
        "",
        &[("get_weather", "{\"city\": \"Paris\", \"days\": 3}"), ("now", "{}")],
    ),
    case("phi", "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]", "", &[WEATHER]),
    case(
        "phi",
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, {\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case("phi", "<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>", "", &[("now", "{}")]),
    case("phi", "Python's functools is a module.", "Python's functools is a module.", &[]),
    case(
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case(
        "deepseek",
        "I check.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "I check.",
        &[WEATHER],
    ),
    case("deepseek", "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}", "", &[WEATHER]),
    case(
        "deepseek_v32",
        "I check.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "I check.",
        &[("get_weather", "{\"city\": \"Paris\", \"days\": 3}"), ("now", "{}")],
    ),
    // The tag says what is a text: of a function that the request does not have, and against the schema.
    case(
        "deepseek_v32",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"other\">\n<｜DSML｜parameter name=\"a\" string=\"true\">\n12\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">[\"</｜DSML｜parameter>\", {\"k\": null}]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"days\" string=\"true\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "",
        &[
            ("other", "{\"a\": \"\\n12\\n\", \"b\": [\"</｜DSML｜parameter>\",{\"k\":null}]}"),
            ("get_weather", "{\"days\": \"3\"}"),
        ],
    ),
    case(
        "deepseek_v4",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        "",
        &[WEATHER],
    ),
    case(
        "kimi",
        "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        "I look.",
        &[WEATHER, ("now", "{}")],
    ),
    // Line breaks between, names without what Kimi puts around them, no end.
    case(
        "kimi",
        "<|tool_calls_section_begin|>\n<|tool_call_begin|>\nget_weather:12 <|tool_call_argument_begin|>\n{\"city\": \"Paris\"}\n<|tool_call_end|>\n<|tool_call_begin|>now<|tool_call_argument_begin|>{}",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case("harmony", "<|channel|>final<|message|>Hello.", "Hello.", &[]),
    case("harmony", "Hello.", "Hello.", &[]),
    case(
        "harmony",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
        "I look.",
        &[WEATHER],
    ),
    case("harmony", " to=functions.now<|channel|>commentary json<|message|>{}", "", &[("now", "{}")]),
    case(
        "harmony",
        "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Paris\"}<|end|><|start|>assistant to=functions.now<|channel|>commentary<|message|>{}<|call|>",
        "",
        &[WEATHER, ("now", "{}")],
    ),
    case(
        "jamba",
        "<tool_calls>[\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n]</tool_calls>",
        "",
        &[WEATHER],
    ),
    case(
        "cohere",
        "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n]<|END_ACTION|>",
        "",
        &[WEATHER],
    ),
    case("nemotron", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "", &[("now", "{}")]),
    case("lfm2", "<|tool_call_start|>[get_weather(city=\"Paris\")]<|tool_call_end|>Checking.", "Checking.", &[WEATHER]),
    case(
        "generic",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>",
        "",
        &[WEATHER],
    ),
    case("generic", "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```", "", &[WEATHER]),
    case("generic", "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]", "", &[WEATHER]),
];

pub(super) fn has_case(format: &str) -> bool {
    CASES.iter().any(|case| case.format == format)
}

#[test]
fn calls_are_read() {
    for Case { format, text, content, calls } in CASES {
        let read = read_all_ways(text, &of_format(format_named(format)), End::Complete);
        let calls: Vec<(String, String)> =
            calls.iter().map(|(name, arguments)| (name.to_string(), arguments.to_string())).collect();
        let wanted = Read { content: content.to_string(), calls, ids: read.ids.clone(), ..Read::default() };
        assert_eq!(read, wanted, "{format:?} {text:?}");
    }
}

/// Cut off anywhere, what was whole is whole, and the last call has a beginning of its arguments.
#[test]
fn what_is_cut_off_stays_what_it_was() {
    for Case { format, text, calls, .. } in CASES {
        for (at, _) in text.char_indices() {
            let read = read_in(&[&text[..at]], &of_format(format_named(format)), End::Cut);
            let known = &calls[..read.calls.len().min(calls.len())];
            assert!(
                read.calls
                    .iter()
                    .map(|(name, arguments)| (name.as_str(), arguments.as_str()))
                    .eq(known.iter().copied()),
                "{format:?} {:?}: {read:?}",
                &text[..at]
            );
            if let Some((name, arguments)) = &read.open {
                let (wanted_name, wanted) = calls[read.calls.len()];
                assert!(
                    name == wanted_name && wanted.starts_with(arguments.as_str()),
                    "{format:?} {:?}: {read:?}",
                    &text[..at]
                );
            }
            assert_eq!(read.malformed, 0, "{format:?} {:?}: {read:?}", &text[..at]);
        }
    }
}

/// Arguments come before the call is over, and piece by piece.
#[test]
fn arguments_are_streamed() {
    for (format, text) in [
        ("hermes", "<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"one two"),
        ("qwen3_coder", "<tool_call>\n<function=python>\n<parameter=code>\none two"),
        ("function_gemma", "<start_function_call>call:python{code:<escape>one two"),
        ("deepseek", "<｜tool▁call▁begin｜>python<｜tool▁sep｜>{\"code\": \"one two"),
        (
            "deepseek_v32",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"python\">\n<｜DSML｜parameter name=\"code\" string=\"true\">one two",
        ),
        ("harmony", "<|channel|>commentary to=functions.python<|message|>{\"code\": \"one two"),
        ("mistral", "[TOOL_CALLS]python[ARGS]{\"code\": \"one two"),
        ("llama3", "{\"name\": \"python\", \"parameters\": {\"code\": \"one two"),
    ] {
        let mut answer = Answer::new(of_format(format_named(format)));
        let parts: Vec<Part> = text.chars().flat_map(|c| answer.push(&c.to_string())).collect();
        let pieces: Vec<&str> = parts
            .iter()
            .filter_map(|part| if let Part::Arguments(text) = part { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(parts[0], Part::Call { name: "python".to_owned(), id: None }, "{format:?}");
        assert_eq!(pieces.concat(), "{\"code\": \"one two", "{format:?}");
        assert!(pieces.len() > 5, "{format:?}: {pieces:?}");
    }
}

#[test]
fn ids_of_the_model_are_kept() {
    for (format, text, id) in [
        ("mistral", "[TOOL_CALLS][{\"id\": \"D681PevKs\", \"name\": \"now\", \"arguments\": {}}]", "D681PevKs"),
        ("mistral", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", "abcdefghi"),
    ] {
        assert_eq!(read_all_ways(text, &of_format(format_named(format)), End::Complete).ids, [id]);
    }
    let call = |id: &str| format!("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>");
    let text = ["functions.now:3", "functions.search:4", "now:5", "now"].map(call).concat();
    let text = format!("<|tool_calls_section_begin|>{text}<|tool_calls_section_end|>");
    let read = read_all_ways(&text, &of_format(format_named("kimi")), End::Complete);
    assert_eq!(read.ids, ["functions.now:3", "functions.search:4", "now:5"]);
    assert_eq!(read.calls.iter().map(|call| call.0.as_str()).collect::<Vec<_>>(), ["now", "search", "now", "now"]);
    // The same id twice names two calls: one of them gets another.
    let read = read_all_ways(&call("functions.now:0").repeat(2), &of_format(format_named("kimi")), End::Complete);
    assert_eq!((read.ids.len(), read.calls.len()), (1, 2));
}

/// A broken call comes back as the text that it is, and says so.
#[test]
fn broken_calls_are_text() {
    for (format, text) in [
        ("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": }}</tool_call>"),
        ("hermes", "<tool_call>{'name': 'now'}</tool_call>"),
        ("hermes", "<tool_call>{\"arguments\": {}}</tool_call>"),
        ("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"),
        ("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1"),
        ("hermes", "<tool_call>now()</tool_call>"),
        ("hermes", "<tool_call>{\"name\": \"now\", \"name\": \"search\"}</tool_call>"),
        ("qwen3_coder", "<tool_call><function=now><parameter=a>1</tool_call>"),
        ("qwen3_coder", "<tool_call>\n<function=get_weather>\nParis\n</function>\n</tool_call>"),
        ("glm", "<tool_call></tool_call>"),
        ("mistral", "[TOOL_CALLS] now(1)"),
        ("mistral", "[TOOL_CALLS]now[ARGS][1]"),
        ("function_gemma", "<start_function_call>call:now{a}<end_function_call>"),
        ("function_gemma", "<start_function_call>now{}<end_function_call>"),
        ("gemma", "```tool_code\nx = 1\n```"),
        ("phi", "functools[now]"),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{a}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("llama3", "<|python_tag|>search.call(\"positional\")"),
        (
            "deepseek_v32",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n<｜DSML｜parameter name=\"a\" string=\"maybe\">1</｜DSML｜parameter>",
        ),
        (
            "deepseek_v32",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"now\">\n<｜DSML｜parameter name=\"a\" string=\"false\">[\"a</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>[1]"),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}"),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0 {}"),
    ] {
        let read = read_all_ways(text, &of_format(format_named(format)), End::Complete);
        assert_eq!(
            (read.content.as_str(), read.malformed, read.calls.len()),
            (text, 1, 0),
            "{format:?} {text:?}: {read:?}"
        );
    }
}

/// After a broken call the next one is read.
#[test]
fn calls_after_a_broken_one_are_read() {
    let text = "<tool_call>{oops}</tool_call>\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let read = read_all_ways(text, &of_format(format_named("hermes")), End::Complete);
    assert_eq!((read.content.as_str(), read.malformed), ("<tool_call>{oops}</tool_call>", 1));
    assert_eq!(read.calls, [("now".to_owned(), "{}".to_owned())]);
}

/// A name that does not end is given up at the same place, however the text is cut.
#[test]
fn long_names_are_read_the_same_in_any_pieces() {
    for (format, before, after) in [
        ("function_gemma", "<start_function_call>call:now{", ":1}<end_function_call>"),
        ("function_gemma", "<start_function_call>call:now{<escape>", "<escape>:1}<end_function_call>"),
        ("function_gemma", "<start_function_call>call:", "{}<end_function_call>"),
        ("deepseek", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\n", "\n```json\n{}\n```<｜tool▁call▁end｜>"),
        ("deepseek", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
        ("mistral", "[TOOL_CALLS]", "[ARGS]{}"),
        ("kimi", "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("qwen3_coder", "<tool_call><function=", ">\n</function></tool_call>"),
        ("qwen3_coder", "<tool_call><function=now><parameter=", ">1</parameter></function></tool_call>"),
        (
            "deepseek_v32",
            "<｜DSML｜invoke name=\"now\"><｜DSML｜parameter name=\"",
            "\" string=\"true\">1</｜DSML｜parameter></｜DSML｜invoke>",
        ),
        ("lfm2", "<|tool_call_start|>[", "(a=1)]<|tool_call_end|>"),
        ("llama3", "<|python_tag|>", ".call(a=1)"),
        ("harmony", "<|channel|>commentary to=functions.", "<|message|>{}<|call|>"),
    ] {
        for length in [240, 254, 255, 256, 257, 300, 520] {
            let text = format!("{before}{}{after}", "a".repeat(length));
            let read = read_all_ways(&text, &of_format(format_named(format)), End::Complete);
            assert!(read.calls.len() <= 1 && read.open.is_none(), "{format:?} {length}: {read:?}");
        }
    }
}
