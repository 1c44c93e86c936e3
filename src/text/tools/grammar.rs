//! Grammars for answers with tool calls, in llguidance's variant of Lark: a family's form of calls, with arguments that follow each
//! function's schema. If the model may choose, text is free until a call opens.
//!
//! Sources: llguidance's docs/syntax.md and docs/toolcalls.md; the families' formats as in `formats`.

use super::arguments::{python, tagged, unquoted};
use super::definition::{Tool, ToolChoice, Tools};
use super::format::{Call, Calls, Form, Piece, ToolFormat};
use super::lark::Lark;
use crate::error::Result;
use crate::text::reasoning::{Beginning, ReasoningMarkers};

/// The form of an answer with tool calls.
pub struct ToolGrammar<'a> {
    /// How the model writes calls.
    pub format: &'a ToolFormat,
    /// The functions that may be called.
    pub tools: &'a Tools,
    /// Whether the answer must have a call, and to which function.
    pub choice: &'a ToolChoice,
    /// Whether several calls are allowed.
    pub parallel: bool,
    /// Markers of the reasoning, and how the answer begins; `None` if there is no reasoning.
    pub reasoning: Option<(ReasoningMarkers, Beginning)>,
    /// The model's chat template, since some families have two forms.
    pub template: &'a str,
    /// The id of a control token by its text.
    pub control: &'a dyn Fn(&str) -> Option<u32>,
}

impl ToolGrammar<'_> {
    /// The grammar; `None` if the model must not call functions. `Code::InvalidRequest` names the part of a function's schema that can't be
    /// enforced in the family's form. If arguments are JSON, the grammar engine reports that instead.
    pub fn lark(&self) -> Result<Option<String>> {
        let tools: Vec<&Tool> = match self.choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Function(name) => self.tools.get(name).into_iter().collect(),
            ToolChoice::Auto | ToolChoice::Required => self.tools.iter().collect(),
        };
        let of_reasoning = self.reasoning.iter().flat_map(|(markers, _)| markers.tokens());
        let markers = self.format.markers.iter().copied().chain(of_reasoning);
        let mut lark = Lark::new(markers.collect(), self.control);
        let start = match self.format.form(self.template) {
            Some(form) => self.marked(form, &mut lark, &tools)?,
            None => self.in_channels(&mut lark, &tools),
        };
        Ok(Some(format!("start: {start}\n{}", lark.rules)))
    }

    fn is_free(&self) -> bool {
        *self.choice == ToolChoice::Auto
    }

    fn marked(&self, form: &Form, lark: &mut Lark, tools: &[&Tool]) -> Result<String> {
        let written = |tool: &&Tool| {
            call(&form.call, lark, tool).map_err(|error| error.context(format!("the function {:?}", tool.name)))
        };
        let calls: Vec<String> = tools.iter().map(written).collect::<Result<_>>()?;
        let call = lark.rule(&calls.join(" | "));
        let several = |lark: &mut Lark, separator: &str| {
            if self.parallel && !self.is_named() {
                format!("{call} ({}{call})*", lark.text_or_nothing(separator))
            } else {
                call.clone()
            }
        };
        // The text after the trigger.
        let body = match form.calls {
            Calls::InOneBlock { separator, close } => {
                let calls = several(lark, separator);
                format!("{}{calls} {}", lark.text_or_nothing(form.after_trigger), lark.text_or_nothing(close))
            }
            Calls::EachInABlock { close, .. } => {
                format!("{}{call} {}", lark.text_or_nothing(form.after_trigger), lark.text_or_nothing(close))
            }
        };
        let body = lark.rule(&body);
        let reasoning = self.reasoning_prefix(lark);
        if !self.is_free() {
            let first = format!("{} {body}", lark.text_or_nothing(form.trigger));
            return Ok(match form.calls {
                Calls::EachInABlock { separator, .. } if self.parallel && !self.is_named() => {
                    let separator = lark.text_or_nothing(separator);
                    format!("{reasoning}{first} ({separator}{first})*")
                }
                _ => format!("{reasoning}{first}"),
            });
        }
        if form.trigger.is_empty() {
            // The first character tells a call from an answer.
            let tail = lark.terminal("/[^{](?s:.*)/");
            return Ok(format!("{reasoning}({body} | {tail})?"));
        }
        let (open, tail) = lark.until(form.trigger);
        let repeated = if self.parallel { "*" } else { "?" };
        Ok(format!("{reasoning}({open} {body}){repeated} {tail}?"))
    }

    fn is_named(&self) -> bool {
        matches!(self.choice, ToolChoice::Function(_))
    }

    /// The text that may come before the first call.
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

    fn in_channels(&self, lark: &mut Lark, tools: &[&Tool]) -> String {
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
}

/// One call, without the text around all calls.
fn call(call: &Call, lark: &mut Lark, tool: &Tool) -> Result<String> {
    match call {
        Call::Json(pieces) => Ok(with_json(pieces, lark, tool)),
        Call::Tags(tags) => tagged(lark, tool, tags),
        Call::Python => python(lark, tool),
        Call::Unquoted(quoting) => unquoted(lark, tool, quoting),
    }
}

fn with_json(pieces: &[Piece], lark: &mut Lark, tool: &Tool) -> String {
    let (mut parts, mut text) = (Vec::new(), String::new());
    for piece in pieces {
        let rule = match piece {
            Piece::Text(piece) => {
                text.push_str(piece);
                continue;
            }
            Piece::Name => {
                text.push_str(&tool.name);
                continue;
            }
            Piece::Number => lark.terminal("/0|[1-9][0-9]{0,5}/"),
            Piece::Arguments => lark.json(&tool.parameters),
        };
        parts.push(lark.text(&std::mem::take(&mut text)));
        parts.push(rule);
    }
    if !text.is_empty() {
        parts.push(lark.text(&text));
    }
    parts.join(" ")
}
