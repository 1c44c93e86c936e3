//! What a schema says of arguments, in every family's notation: held to, or refused by name.

use rillm::engine::grammars::Constraint;
use rillm::text::tools::ToolGrammar;
use serde_json::Map;

use super::grammars::{Words, obeys};
use super::written::written;
use super::*;

/// A schema of one argument, a value that obeys it and some that do not, by the keyword that says so.
struct Case {
    keyword: &'static str,
    schema: Value,
    right: Value,
    wrong: Vec<Value>,
    /// Every family is held to it; otherwise it may be refused.
    held: bool,
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let case = |held: bool, keyword, schema, right, wrong: Value| {
        let Value::Array(wrong) = wrong else { panic!("wrong values are a list") };
        Case { keyword, schema, right, wrong, held }
    };
    let held = |keyword, schema, right, wrong| case(true, keyword, schema, right, wrong);
    let either = |keyword, schema, right, wrong| case(false, keyword, schema, right, wrong);
    vec![
        held("type", json!({"type": "integer"}), json!(12), json!([1.5, true, null])),
        held("type", json!({"type": "number"}), json!(-1.5), json!([true, null])),
        held("type", json!({"type": "boolean"}), json!(false), json!([1, null])),
        held("type", json!({"type": "null"}), json!(null), json!([1, true])),
        held("type", json!({"type": ["string", "null"]}), json!("a b"), json!([["x"], {}])),
        held("type", json!({"type": ["integer", "null"]}), json!(null), json!([1.5, true])),
        held("enum", json!({"enum": ["red", "light blue"]}), json!("light blue"), json!(["blue", "re", ""])),
        held("enum", json!({"type": "integer", "enum": [1, 20]}), json!(20), json!([2, 10, 201])),
        held("enum", json!({"enum": ["a", 1, null, true]}), json!(1), json!(["b", 2, false])),
        held("const", json!({"const": "x"}), json!("x"), json!(["y", "xx"])),
        held("const", json!({"const": 7}), json!(7), json!([8, 77])),
        held("const", json!({"const": true}), json!(true), json!([false])),
        held("minLength", json!({"type": "string", "minLength": 3}), json!("äöü"), json!(["", "äö"])),
        held("maxLength", json!({"type": "string", "maxLength": 3}), json!(""), json!(["abcd"])),
        held("maxLength", json!({"type": ["string", "null"], "maxLength": 3}), json!("abc"), json!(["abcd"])),
        held(
            "pattern",
            json!({"type": "string", "pattern": "^[a-c]+\\d$"}),
            json!("abc1"),
            json!(["abc", "d1", "a1 ", "a٣"]),
        ),
        held("pattern", json!({"type": "string", "pattern": "b."}), json!("abc"), json!(["ab", "ac"])),
        held("format", json!({"type": "string", "format": "date"}), json!("2024-02-29"), json!(["2024-02-30", "2024"])),
        held("minimum", json!({"type": "integer", "minimum": 3}), json!(10), json!([2, 0, -4])),
        held("minimum", json!({"type": "number", "minimum": 0.5}), json!(0.75), json!([0.25, -1, 0])),
        held("maximum", json!({"type": "integer", "maximum": 30}), json!(-4), json!([31, 100])),
        held("exclusiveMinimum", json!({"type": "integer", "exclusiveMinimum": 3}), json!(4), json!([3])),
        held("exclusiveMaximum", json!({"type": "number", "exclusiveMaximum": 3}), json!(2.5), json!([3, 3.5])),
        held("multipleOf", json!({"type": "integer", "multipleOf": 4}), json!(12), json!([2, 13])),
        held("items", json!({"type": "array", "items": {"type": "integer"}}), json!([1, 2]), json!([[true], [1, "a"]])),
        held(
            "items",
            json!({"type": "array", "items": {"type": "string", "maxLength": 2}}),
            json!(["ab"]),
            json!([["abc"]]),
        ),
        held(
            "minItems",
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 2}),
            json!([1, 2]),
            json!([[], [1]]),
        ),
        held(
            "maxItems",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
            json!([]),
            json!([[1, 2, 3]]),
        ),
        held("maxItems", json!({"type": "array", "maxItems": 0}), json!([]), json!([[1]])),
        held(
            "properties",
            object(json!({"a": {"type": "integer", "maximum": 5}}), json!({})),
            json!({"a": 5}),
            json!([{"a": 6}, {"a": null}]),
        ),
        held(
            "required",
            object(json!({"a": {"type": "integer"}}), json!({"required": ["a"]})),
            json!({"a": 1}),
            json!([{}]),
        ),
        held(
            "required",
            json!({"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}}),
            json!({"a": 1}),
            json!([{}, {"a": true}]),
        ),
        held(
            "additionalProperties",
            object(json!({"a": {"type": "integer"}}), json!({})),
            json!({}),
            json!([{"b": 1}]),
        ),
        held(
            "anyOf",
            json!({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "null"}]}),
            json!(3),
            json!([6, true]),
        ),
        held(
            "anyOf",
            json!({"anyOf": [{"type": "string", "maxLength": 2}, {"const": "long"}]}),
            json!("long"),
            json!(["abc"]),
        ),
        held("oneOf", json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}), json!(null), json!([true])),
        held("$ref", json!({"$ref": "#/$defs/color"}), json!("red"), json!(["blue"])),
        held("$ref", json!({"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}]}), json!("red"), json!(["blue"])),
        held("$ref", json!({"$ref": "#/$defs/size"}), json!({"w": 1}), json!([{"w": 10}, {}])),
        held("$ref", json!({"$ref": "#/$defs/label"}), json!({"l": "12"}), json!([{"l": 12}, {"l": "123"}])),
        held("allOf", json!({"allOf": [{"$ref": "#/$defs/label"}]}), json!({"l": "12"}), json!([{"l": "123"}])),
        held("allOf", json!({"allOf": [{"$ref": "#/$defs/color"}]}), json!("red"), json!(["blue"])),
        either("allOf", json!({"allOf": [{"type": "integer"}, {"maximum": 5}]}), json!(5), json!([6])),
        either(
            "oneOf",
            json!({"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 3}]}),
            json!(1),
            json!([4]),
        ),
        either("minimum", json!({"type": ["integer", "string"], "minimum": 3}), json!(3), json!([2])),
        either("pattern", json!({"type": "string", "pattern": "(?=a)a"}), json!("a"), json!(["b"])),
        either("pattern", json!({"type": "string", "pattern": "\\ba"}), json!("a"), json!(["ba"])),
        either("format", json!({"type": "string", "format": "regex"}), json!("a"), json!(["("])),
        either(
            "prefixItems",
            json!({"type": "array", "prefixItems": [{"type": "integer"}]}),
            json!([1]),
            json!([[true]]),
        ),
        either(
            "uniqueItems",
            json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}),
            json!([1, 2]),
            json!([[1, 1]]),
        ),
        either(
            "contains",
            json!({"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}}),
            json!([1]),
            json!([[2]]),
        ),
        either(
            "minProperties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "minProperties": 1, "additionalProperties": false}),
            json!({"a": 1}),
            json!([{}]),
        ),
        either(
            "maxProperties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "maxProperties": 1, "additionalProperties": false}),
            json!({"a": 1}),
            json!([{"a": 1, "b": 1}]),
        ),
        either(
            "patternProperties",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "patternProperties": {"^a": {"maximum": 5}}, "additionalProperties": false}),
            json!({"a": 1}),
            json!([{"a": 6}]),
        ),
        either(
            "propertyNames",
            object(json!({"a": {"type": "integer"}}), json!({"propertyNames": {"maxLength": 0}})),
            json!({}),
            json!([{"a": 1}]),
        ),
        either(
            "dependentRequired",
            object(
                json!({"a": {"type": "integer"}, "b": {"type": "integer"}}),
                json!({"dependentRequired": {"a": ["b"]}}),
            ),
            json!({}),
            json!([{"a": 1}]),
        ),
        either(
            "dependentSchemas",
            object(json!({"a": {"type": "integer"}}), json!({"dependentSchemas": {"a": false}})),
            json!({}),
            json!([{"a": 1}]),
        ),
        either(
            "unevaluatedProperties",
            json!({"type": "object", "unevaluatedProperties": false}),
            json!({}),
            json!([{"a": 1}]),
        ),
        either("unevaluatedItems", json!({"type": "array", "unevaluatedItems": false}), json!([]), json!([[1]])),
        either("not", json!({"type": "integer", "not": {"const": 1}}), json!(2), json!([1])),
        either("if", json!({"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 6}}), json!(6), json!([7])),
        either("$dynamicRef", json!({"$dynamicRef": "#/$defs/color"}), json!("red"), json!(["blue"])),
    ]
}

/// A schema of an object with these properties and no others.
pub(super) fn object(properties: Value, more: Value) -> Value {
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    schema
}

/// A function with these parameters, which may refer to definitions.
pub(super) fn tool_of(mut parameters: Value) -> Rc<Tools> {
    parameters["$defs"] = json!({
        "color": {"type": "string", "enum": ["red", "green"]},
        "label": object(json!({"l": {"type": "string", "maxLength": 2}}), json!({"required": ["l"]})),
        "size": object(json!({"w": {"type": "integer", "maximum": 9}}), json!({"required": ["w"]})),
    });
    Rc::new(Tools::new(&[json!({"type": "function", "function": {"name": "f", "parameters": parameters}})]).unwrap())
}

/// The grammar of a forced call.
pub(super) struct Admission<'a> {
    words: &'a Words,
    begin: Box<dyn Constraint>,
}

impl<'a> Admission<'a> {
    /// The grammar, or why there is none.
    pub(super) fn new(
        words: &'a Words,
        format: &'static ToolFormat,
        template: &str,
        tools: &Tools,
    ) -> Result<Self, String> {
        let choice = ToolChoice::Required;
        let control = |marker: &str| words.control(marker);
        let grammar = ToolGrammar {
            format,
            tools,
            choice: &choice,
            parallel: false,
            reasoning: None,
            template,
            control: &control,
        };
        let refused = |error: rillm::Error| {
            assert_eq!(error.code(), Code::InvalidRequest);
            error.to_string()
        };
        let lark = grammar.lark().map_err(refused)?.unwrap();
        Ok(Self { words, begin: words.try_compile(&lark).map_err(refused)? })
    }

    /// Whether it admits a text.
    pub(super) fn admits(&self, text: &str) -> bool {
        let mut constraint = self.begin.fork().unwrap().unwrap();
        for token in self.words.tokens(text) {
            let state = constraint.advance(&[token]).unwrap();
            if state.taken == 0 {
                // Nothing but the end may follow, and has been taken for granted.
                return state.is_complete && token == 0;
            }
        }
        true
    }
}

fn each_notation(mut run: impl FnMut(&'static ToolFormat, &str, &Words)) {
    for &format in ToolFormat::ALL {
        for template in format.form_words() {
            // Markers are control tokens in some models, and text in others.
            for words in [Words::new(&[]), Words::new(format.markers)] {
                run(format, template, &words);
            }
        }
    }
}

/// What a family's grammar makes of a case, where the value is the argument `v` or all of the arguments.
fn check(case: &Case, is_whole: bool, format: &'static ToolFormat, template: &str, words: &Words) {
    let Case { keyword, schema, right, wrong, held } = case;
    let arguments = |value: &Value| match (is_whole, value) {
        (true, Value::Object(fields)) => fields.clone(),
        _ => Map::from_iter([("v".to_owned(), value.clone())]),
    };
    let tools = if is_whole {
        tool_of(schema.clone())
    } else {
        tool_of(object(json!({"v": schema}), json!({"required": ["v"]})))
    };
    let obey = |value: &Value| obeys(&tools, "f", &json!(arguments(value)));
    assert!(obey(right) && !wrong.iter().any(obey), "{keyword}: {schema}");
    let text = written(format, template, &arguments(right));
    let grammar = match Admission::new(words, format, template, &tools) {
        Ok(grammar) => grammar,
        Err(error) => {
            assert!(!held, "{format:?} {schema}: {error}");
            // Of the least and the most llguidance speaks at once, and of a pattern as an expression.
            let name = keyword.trim_start_matches("min").trim_start_matches("max");
            let says = [name, "regex"].into_iter().any(|word| error.contains(word));
            assert!(says, "{format:?} {keyword}: {error}");
            return;
        }
    };
    assert!(grammar.admits(&text), "{format:?} {schema} does not admit {text:?}");
    let read = |text: &str| {
        let settings = AnswerSettings { tools: Some((format, tools.clone())), ..of_format(format) };
        let read = read_in(&[text], &settings, End::Complete);
        serde_json::from_str::<Value>(&read.calls[0].1).unwrap()
    };
    assert_eq!(read(&text), json!(arguments(right)), "{format:?} {text:?}");
    for wrong in wrong {
        let text = written(format, template, &arguments(wrong));
        // Without quotes a list may also be a text.
        let is_wrong = grammar.admits(&text) && read(&text) == json!(arguments(wrong));
        assert!(!is_wrong, "{format:?} {schema} admits {text:?}");
    }
}

#[test]
fn every_keyword_is_held_to_or_refused_by_name() {
    let cases = cases();
    each_notation(|format, template, words| {
        for case in &cases {
            check(case, false, format, template, words);
            if case.right.is_object() {
                check(case, true, format, template, words);
            }
        }
    });
}

/// What a notation can't say is an error that tells where it is.
#[test]
fn what_is_refused_is_named_with_its_place() {
    let words = Words::new(&[]);
    for (format, parameters, says) in [
        ("gemma4", json!({"properties": {"a": {"type": "array", "uniqueItems": true}}}), "\"uniqueItems\""),
        ("gemma4", json!({"properties": {"a": {"properties": {"a:b": {}}, "type": "object"}}}), "the property \"a:b\""),
        ("gemma4", json!({"properties": {"a": {"$ref": "#/properties/a"}}}), "\"$ref\""),
        ("gemma4", json!({"properties": {"a": {"$ref": "#/$defs/none"}}}), "\"#/$defs/none\""),
        ("gemma4", json!({"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/a"}}}}), "nests"),
        ("gemma4", json!({"properties": {"a": {"type": "text"}}}), "\"type\""),
        ("gemma4", json!({"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}}), "minLength"),
        ("qwen3_coder", json!({"properties": {"a": {"type": "string", "format": "regex"}}}), "\"format\" is \"regex\""),
        ("qwen3_coder", json!({"properties": {"a": {"type": "string", "not": {}}}}), "\"not\""),
        ("qwen3_coder", json!({"properties": {"a>": {}}}), "the property \"a>\""),
        ("qwen3_coder", json!({"anyOf": [{"required": ["a"]}]}), "the function \"f\""),
        ("lfm2", json!({"properties": {"a-b": {}}}), "the property \"a-b\""),
        ("kimi", json!({"properties": {"a": {"type": "array", "uniqueItems": true}}}), "\"uniqueItems\""),
    ] {
        let error = Admission::new(&words, format_named(format), "", &tool_of(parameters.clone())).err().unwrap();
        assert!(error.contains(says), "{format:?} {parameters}: {error}");
    }
}
