//! Grammars for answers with tool calls, in llguidance's variant of Lark: how a family writes calls, with arguments that obey each
//! function's schema. Where the model may choose, text is free up to what opens a call.
//!
//! Sources: llguidance's docs/syntax.md and docs/toolcalls.md; the families' formats as in the files beside this one.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::definition::{Tool, ToolChoice, Tools};
use super::xml::types_of;
use super::{ToolFormat, function_gemma, xml};
use crate::text::grammar::laid_out;
use crate::text::reasoning::{Beginning, ReasoningMarkers};

/// What an answer is to be.
pub struct ToolGrammar<'a> {
    pub format: ToolFormat,
    pub tools: &'a Tools,
    pub choice: &'a ToolChoice,
    /// Several calls are allowed.
    pub parallel: bool,
    pub reasoning: Option<(ReasoningMarkers, Beginning)>,
    /// The model's chat template: some families have two forms.
    pub template: &'a str,
    /// The id of a control token by its text.
    pub control: &'a dyn Fn(&str) -> Option<u32>,
}

/// Free text, in a regular expression.
const ANY: &str = "(?s:.*)";

impl ToolGrammar<'_> {
    /// The grammar; none where the model is not to call anything.
    pub fn lark(&self) -> Option<String> {
        let tools: Vec<&Tool> = match self.choice {
            ToolChoice::None => return None,
            ToolChoice::Function(name) => self.tools.get(name).into_iter().collect(),
            ToolChoice::Auto | ToolChoice::Required => self.tools.iter().collect(),
        };
        let mut lark = Lark { rules: String::new(), names: 0, control: self.control };
        let start = match self.format {
            ToolFormat::Harmony => self.harmony(&mut lark, &tools),
            _ => self.marked(&mut lark, &tools),
        };
        Some(format!("start: {start}\n{}", lark.rules))
    }

    fn is_free(&self) -> bool {
        *self.choice == ToolChoice::Auto
    }

    fn marked(&self, lark: &mut Lark, tools: &[&Tool]) -> String {
        let shape = self.shape();
        let calls: Vec<String> = tools.iter().map(|tool| self.call(lark, tool)).collect();
        let call = lark.rule(&calls.join(" | "));
        let several = |lark: &mut Lark, separator: &str| match self.parallel && !self.is_named() {
            true => format!("{call} ({}{call})*", lark.text_or_nothing(separator)),
            false => call.clone(),
        };
        // All behind the trigger.
        let body = match shape.calls {
            Calls::InOneBlock { separator, close } => {
                let calls = several(lark, separator);
                format!("{}{calls} {}", lark.text_or_nothing(shape.behind_trigger), lark.text_or_nothing(close))
            }
            Calls::EachInABlock { close, .. } => {
                format!("{}{call} {}", lark.text_or_nothing(shape.behind_trigger), lark.text_or_nothing(close))
            }
        };
        let body = lark.rule(&body);
        let reasoning = self.reasoning_prefix(lark);
        if !self.is_free() {
            let first = format!("{} {body}", lark.text_or_nothing(shape.trigger));
            return match shape.calls {
                Calls::EachInABlock { separator, .. } if self.parallel && !self.is_named() => {
                    let separator = lark.text_or_nothing(separator);
                    format!("{reasoning}{first} ({separator}{first})*")
                }
                _ => format!("{reasoning}{first}"),
            };
        }
        if shape.trigger.is_empty() {
            // The first character tells a call from an answer.
            let tail = lark.terminal("/[^{](?s:.*)/");
            return format!("{reasoning}({body} | {tail})?");
        }
        let (open, tail) = lark.until(shape.trigger);
        let repeated = if self.parallel { "*" } else { "?" };
        format!("{reasoning}({open} {body}){repeated} {tail}?")
    }

    fn is_named(&self) -> bool {
        matches!(self.choice, ToolChoice::Function(_))
    }

    /// What may stand before the first call.
    fn reasoning_prefix(&self, lark: &mut Lark) -> String {
        let Some((markers, beginning)) = self.reasoning else { return String::new() };
        let space = lark.terminal("/[ \\n]{1,4}/");
        match beginning {
            Beginning::Outside => String::new(),
            Beginning::Inside => format!("{} {space}? ", lark.until(markers.close).0),
            Beginning::Undecided => {
                let open = lark.text(markers.open);
                format!("({open} {} {space}?)? ", lark.until(markers.close).0)
            }
        }
    }

    fn harmony(&self, lark: &mut Lark, tools: &[&Tool]) -> String {
        let calls: Vec<String> = tools
            .iter()
            .map(|tool| {
                let head = format!("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", tool.name);
                format!("{} {}", lark.text(&head), lark.json(&tool.parameters))
            })
            .collect();
        let call = lark.rule(&calls.join(" | "));
        let (end, _) = lark.until("<|end|>");
        let analysis =
            format!("({} {end} {})*", lark.text("<|channel|>analysis<|message|>"), lark.text("<|start|>assistant"));
        if !self.is_free() {
            return format!("{analysis} {call}");
        }
        let said =
            format!("({} {end} {})?", lark.text("<|channel|>commentary<|message|>"), lark.text("<|start|>assistant"));
        let any = lark.terminal("/(?s:.+)/");
        let answer = format!("{} {any}?", lark.text("<|channel|>final<|message|>"));
        format!("{analysis} {said} ({call} | {answer})")
    }

    fn shape(&self) -> Shape {
        let array = |trigger, open, close| Shape {
            trigger,
            behind_trigger: open,
            calls: Calls::InOneBlock { separator: ", ", close },
        };
        let each = |trigger, behind_trigger, close| Shape {
            trigger,
            behind_trigger,
            calls: Calls::EachInABlock { close, separator: "\n" },
        };
        match self.format {
            ToolFormat::Hermes | ToolFormat::Gemma | ToolFormat::Generic => each("<tool_call>", "\n", "\n</tool_call>"),
            ToolFormat::Qwen3Coder => each("<tool_call>", "\n", "\n</tool_call>"),
            ToolFormat::Seed => each("<seed:tool_call>", "\n", "\n</seed:tool_call>"),
            ToolFormat::MiniMax => Shape {
                trigger: "<minimax:tool_call>",
                behind_trigger: "\n",
                calls: Calls::InOneBlock { separator: "\n", close: "\n</minimax:tool_call>" },
            },
            ToolFormat::Glm => each("<tool_call>", "", ""),
            ToolFormat::Llama3 => {
                Shape { trigger: "", behind_trigger: "", calls: Calls::InOneBlock { separator: "; ", close: "" } }
            }
            ToolFormat::Mistral if self.template.contains("[ARGS]") => Shape {
                trigger: "[TOOL_CALLS]",
                behind_trigger: "",
                calls: Calls::EachInABlock { close: "", separator: "" },
            },
            ToolFormat::Mistral => array("[TOOL_CALLS]", "[", "]"),
            ToolFormat::Phi if self.template.contains("functools") => array("functools[", "", "]"),
            ToolFormat::Phi => array("<|tool_call|>", "[", "]<|/tool_call|>"),
            ToolFormat::DeepSeek => Shape {
                trigger: "<｜tool▁calls▁begin｜>",
                behind_trigger: "",
                calls: Calls::InOneBlock {
                    separator: if self.is_deepseek_v3() { "\n" } else { "" },
                    close: "<｜tool▁calls▁end｜>",
                },
            },
            ToolFormat::Jamba => array("<tool_calls>", "[\n", "\n]</tool_calls>"),
            ToolFormat::Cohere => array("<|START_ACTION|>", "[\n    ", "\n]<|END_ACTION|>"),
            ToolFormat::Nemotron => array("<TOOLCALL>", "[", "]</TOOLCALL>"),
            ToolFormat::Lfm2 => array("<|tool_call_start|>", "[", "]<|tool_call_end|>"),
            ToolFormat::FunctionGemma => Shape {
                trigger: "<start_function_call>",
                behind_trigger: "call:",
                calls: Calls::EachInABlock { close: "<end_function_call>", separator: "" },
            },
            ToolFormat::Gemma4 => Shape {
                trigger: "<|tool_call>",
                behind_trigger: "call:",
                calls: Calls::EachInABlock { close: "<tool_call|>", separator: "" },
            },
            // It has no blocks; `harmony` is its grammar.
            ToolFormat::Harmony => each("", "", ""),
        }
    }

    fn is_deepseek_v3(&self) -> bool {
        self.template.contains("```json")
    }

    /// One call, without what stands around all of them.
    fn call(&self, lark: &mut Lark, tool: &Tool) -> String {
        let name = &tool.name;
        let object = |lark: &mut Lark, head: String| {
            format!("{} {} {}", lark.text(&head), lark.json(&tool.parameters), lark.text("}"))
        };
        match self.format {
            ToolFormat::Llama3 => object(lark, format!("{{\"name\": \"{name}\", \"parameters\": ")),
            ToolFormat::Cohere => {
                object(lark, format!("{{\"tool_call_id\": \"0\", \"tool_name\": \"{name}\", \"parameters\": "))
            }
            ToolFormat::Mistral if self.template.contains("[ARGS]") => {
                format!("{} {}", lark.text(&format!("{name}[ARGS]")), lark.json(&tool.parameters))
            }
            ToolFormat::DeepSeek if self.is_deepseek_v3() => format!(
                "{} {} {}",
                lark.text(&format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n")),
                lark.json(&tool.parameters),
                lark.text("\n```<｜tool▁call▁end｜>")
            ),
            ToolFormat::DeepSeek => format!(
                "{} {} {}",
                lark.text(&format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>")),
                lark.json(&tool.parameters),
                lark.text("<｜tool▁call▁end｜>")
            ),
            ToolFormat::Qwen3Coder | ToolFormat::Seed => tagged(lark, tool, xml::QWEN3_CODER),
            ToolFormat::MiniMax => tagged(lark, tool, xml::MINIMAX),
            ToolFormat::Glm => tagged(lark, tool, xml::GLM),
            ToolFormat::Lfm2 => python(lark, tool),
            ToolFormat::FunctionGemma => unquoted(lark, tool, function_gemma::FUNCTION_GEMMA.quote),
            ToolFormat::Gemma4 => unquoted(lark, tool, function_gemma::GEMMA4.quote),
            _ => object(lark, format!("{{\"name\": \"{name}\", \"arguments\": ")),
        }
    }
}

/// How calls stand in an answer.
struct Shape {
    /// What opens a call or all of them; empty where the answer is one.
    trigger: &'static str,
    behind_trigger: &'static str,
    calls: Calls,
}

enum Calls {
    InOneBlock { separator: &'static str, close: &'static str },
    EachInABlock { close: &'static str, separator: &'static str },
}

/// The rules of a grammar as they come about.
struct Lark<'a> {
    rules: String,
    names: usize,
    control: &'a dyn Fn(&str) -> Option<u32>,
}

impl Lark<'_> {
    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn rule(&mut self, body: &str) -> String {
        let name = self.name("r");
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    fn terminal(&mut self, body: &str) -> String {
        let name = self.name("T");
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// A text in which markers that are control tokens stand for these.
    fn text(&self, text: &str) -> String {
        let markers = known_markers().filter_map(|marker| Some((marker, (self.control)(marker)?)));
        let markers: Vec<(&str, u32)> = markers.collect();
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let first = markers.iter().filter_map(|(marker, id)| Some((rest.find(marker)?, *marker, *id)));
            let first = first.min_by_key(|(at, marker, _)| (*at, std::cmp::Reverse(marker.len())));
            let end = first.map_or(rest.len(), |(at, ..)| at);
            if end > 0 {
                parts.push(Value::from(&rest[..end]).to_string());
            }
            rest = &rest[end..];
            if let Some((_, marker, id)) = first {
                parts.push(format!("<[{id}]>"));
                rest = &rest[marker.len()..];
            }
        }
        parts.join(" ")
    }

    fn text_or_nothing(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { format!("{} ", self.text(text)) }
    }

    /// Free text up to a marker and the marker, and free text that has none.
    fn until(&mut self, marker: &str) -> (String, String) {
        if let Some(id) = (self.control)(marker) {
            let text = self.terminal("/(?s:.+)/");
            return (self.rule(&format!("{text}? <[{id}]>")), text);
        }
        let marker = escaped(marker);
        let open = self.name("lazy");
        let _ = writeln!(self.rules, "{open}[lazy]: /{ANY}{marker}/");
        let tail = self.terminal(&format!("/(?s:.+)/ & ~/{ANY}{marker}{ANY}/"));
        (open, tail)
    }

    /// JSON that a schema admits.
    fn json(&mut self, schema: &Map<String, Value>) -> String {
        let mut schema = schema.clone();
        // Arguments are an object, also where the schema does not say so.
        schema.entry("type").or_insert_with(|| json!("object"));
        self.value(Value::Object(schema))
    }

    fn value(&mut self, schema: Value) -> String {
        self.rule(&format!("%json {}", laid_out(schema)))
    }

    /// Properties one behind the other, in the order of the schema; those that are not required may be left out. `property` writes
    /// one, and `comma` stands between two.
    fn properties(
        &mut self,
        tool: &Map<String, Value>,
        comma: &str,
        mut property: impl FnMut(&mut Self, &str, Value) -> String,
    ) -> String {
        let required: Vec<&str> =
            tool.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let Some(properties) = tool.get("properties").and_then(Value::as_object) else { return String::new() };
        // From the last one on: what follows a property, where one was written already and where none was.
        let (mut behind_some, mut behind_none) = (String::new(), String::new());
        for (name, schema) in properties.iter().rev() {
            let written = property(self, name, with_definitions(schema, tool));
            let is_required = required.contains(&name.as_str());
            let choice = |lark: &mut Self, one: String, other: &str| match (is_required, other) {
                (true, _) => lark.rule(&one),
                (false, "") => lark.rule(&format!("({one})?")),
                (false, other) => lark.rule(&format!("{one} | {other}")),
            };
            let separator = if comma.is_empty() { String::new() } else { format!("{} ", self.text(comma)) };
            let some = format!("{separator}{written} {behind_some}");
            let none = format!("{written} {behind_some}");
            let next_some = choice(self, some, &behind_some);
            behind_none = choice(self, none, &behind_none);
            behind_some = next_some;
        }
        behind_none
    }
}

/// Markers that are control tokens in some model.
fn known_markers() -> impl Iterator<Item = &'static str> {
    ToolFormat::ALL.into_iter().flat_map(ToolFormat::markers).chain([
        "<think>",
        "[THINK]",
        "<seed:think>",
        "<|START_THINKING|>",
        "<|channel>",
    ])
}

/// The schema of a property, which may refer to definitions beside it.
fn with_definitions(schema: &Value, tool: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = tool.get(name) {
                fields.entry(name).or_insert_with(|| definitions.clone());
            }
        }
    }
    schema
}

/// A text as a regular expression in slashes has it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if r"\.+*?()|[]{}^$/".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn is_text(schema: &Value) -> bool {
    types_of(schema).is_some_and(|types| types == ["string"])
}

/// The texts of an `enum` or `const`.
fn choices(schema: &Value) -> Option<Vec<&str>> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => values.iter().map(Value::as_str).collect(),
        (_, Some(value)) => Some(vec![value.as_str()?]),
        _ => None,
    }
}

/// `<function=name><parameter=key>value</parameter></function>` and its kin. Texts are as they are: of a schema of a text only its
/// choices are held to.
fn tagged(lark: &mut Lark, tool: &Tool, tags: xml::Tags) -> String {
    let head = format!("{}{}{}{}", tags.function, tool.name, tags.name_end, "\n");
    let properties = lark.properties(&tool.parameters, "", |lark, key, schema| {
        let line = if tags.lines { "\n" } else { "" };
        let between = if tags.value.is_empty() { String::new() } else { format!("\n{}", tags.value) };
        let open = format!("{}{key}{}{between}{line}", tags.key, tags.key_end);
        let close = format!("{line}{}", tags.value_close);
        let value = match choices(&schema) {
            Some(choices) if is_text(&schema) => {
                let choices: Vec<String> = choices.into_iter().map(|choice| lark.text(choice)).collect();
                format!("({}) {}", choices.join(" | "), lark.text(&close))
            }
            _ if is_text(&schema) => match (lark.control)(tags.value_close) {
                Some(_) => lark.until(tags.value_close).0,
                None => lark.until(&close).0,
            },
            _ => format!("{} {}", lark.value(schema), lark.text(&close)),
        };
        format!("{} {value} {}", lark.text(&open), lark.text("\n"))
    });
    format!("{} {properties} {}", lark.text(&head), lark.text(tags.function_close))
}

/// `name(key=value, …)`, with values as JSON.
fn python(lark: &mut Lark, tool: &Tool) -> String {
    let properties = lark.properties(&tool.parameters, ", ", |lark, key, schema| {
        format!("{} {}", lark.text(&format!("{key}=")), lark.value(schema))
    });
    format!("{} {properties} {}", lark.text(&format!("{}(", tool.name)), lark.text(")"))
}

/// `name{key:value,…}`, with texts between quotes of their own.
fn unquoted(lark: &mut Lark, tool: &Tool, quote: &'static str) -> String {
    let object = unquoted_object(lark, &tool.parameters, quote, 0);
    format!("{} {object}", lark.text(&tool.name))
}

/// Deeper than this, and where a schema says nothing simple, any value may stand.
const MAX_DEPTH: usize = 8;

fn unquoted_object(lark: &mut Lark, schema: &Map<String, Value>, quote: &'static str, depth: usize) -> String {
    let properties = lark.properties(schema, ",", |lark, key, schema| {
        format!("{} {}", lark.text(&format!("{key}:")), unquoted_value(lark, &schema, quote, depth + 1))
    });
    let object = format!("{} {properties} {}", lark.text("{"), lark.text("}"));
    lark.rule(&object)
}

fn unquoted_value(lark: &mut Lark, schema: &Value, quote: &'static str, depth: usize) -> String {
    let types = types_of(schema).unwrap_or_default();
    if let Some(choices) = choices(schema) {
        let choices: Vec<String> =
            choices.into_iter().map(|choice| lark.text(&format!("{quote}{choice}{quote}"))).collect();
        return lark.rule(&choices.join(" | "));
    }
    let mut values = Vec::new();
    for name in &types {
        values.push(match name.as_str() {
            "string" => format!("{} {}", lark.text(quote), lark.until(quote).0),
            "object" if depth < MAX_DEPTH => match schema.as_object() {
                Some(schema) => unquoted_object(lark, schema, quote, depth),
                None => continue,
            },
            "array" if depth < MAX_DEPTH => {
                let item = unquoted_value(lark, schema.get("items").unwrap_or(&json!({})), quote, depth + 1);
                format!("{} ({item} ({} {item})*)? {}", lark.text("["), lark.text(","), lark.text("]"))
            }
            "integer" => lark.terminal("/-?(0|[1-9][0-9]{0,18})/"),
            "number" => lark.terminal("/-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?/"),
            "boolean" => lark.terminal("/true|false/"),
            "null" => lark.text("null"),
            _ => continue,
        });
    }
    if values.is_empty() {
        let text = format!("{} {}", lark.text(quote), lark.until(quote).0);
        let word = lark.terminal("/-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?|true|false|null/");
        values = vec![text, word];
    }
    lark.rule(&values.join(" | "))
}
