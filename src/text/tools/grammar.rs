//! Grammars for answers with tool calls, in llguidance's variant of Lark: how a family writes calls, with arguments that obey each
//! function's schema. Where the model may choose, text is free up to what opens a call.
//!
//! Sources: llguidance's docs/syntax.md and docs/toolcalls.md; the families' formats as in the files beside this one.

use super::arguments::{python, tagged, unquoted};
use super::definition::{Tool, ToolChoice, Tools};
use super::lark::Lark;
use super::{ToolFormat, function_gemma, kimi, xml};
use crate::error::Result;
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

impl ToolGrammar<'_> {
    /// The grammar; none where the model is not to call anything. An `invalid_request` names what of a function's schema can't be
    /// kept in the family's notation; where arguments are JSON, the grammar engine says so.
    pub fn lark(&self) -> Result<Option<String>> {
        let tools: Vec<&Tool> = match self.choice {
            ToolChoice::None => return Ok(None),
            ToolChoice::Function(name) => self.tools.get(name).into_iter().collect(),
            ToolChoice::Auto | ToolChoice::Required => self.tools.iter().collect(),
        };
        let mut lark = Lark::new(self.control);
        let start = match self.format {
            ToolFormat::Harmony => self.harmony(&mut lark, &tools),
            _ => self.marked(&mut lark, &tools)?,
        };
        Ok(Some(format!("start: {start}\n{}", lark.rules)))
    }

    fn is_free(&self) -> bool {
        *self.choice == ToolChoice::Auto
    }

    fn marked(&self, lark: &mut Lark, tools: &[&Tool]) -> Result<String> {
        let shape = self.shape();
        let call = |tool: &&Tool| {
            self.call(lark, tool).map_err(|error| error.context(format!("the function {:?}", tool.name)))
        };
        let calls: Vec<String> = tools.iter().map(call).collect::<Result<_>>()?;
        let call = lark.rule(&calls.join(" | "));
        let several = |lark: &mut Lark, separator: &str| {
            if self.parallel && !self.is_named() {
                format!("{call} ({}{call})*", lark.text_or_nothing(separator))
            } else {
                call.clone()
            }
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
            return Ok(match shape.calls {
                Calls::EachInABlock { separator, .. } if self.parallel && !self.is_named() => {
                    let separator = lark.text_or_nothing(separator);
                    format!("{reasoning}{first} ({separator}{first})*")
                }
                _ => format!("{reasoning}{first}"),
            });
        }
        if shape.trigger.is_empty() {
            // The first character tells a call from an answer.
            let tail = lark.terminal("/[^{](?s:.*)/");
            return Ok(format!("{reasoning}({body} | {tail})?"));
        }
        let (open, tail) = lark.until(shape.trigger);
        let repeated = if self.parallel { "*" } else { "?" };
        Ok(format!("{reasoning}({open} {body}){repeated} {tail}?"))
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
            ToolFormat::DeepSeekV32 => Shape {
                trigger: "<｜DSML｜function_calls>",
                behind_trigger: "\n",
                calls: Calls::InOneBlock { separator: "\n", close: "\n</｜DSML｜function_calls>" },
            },
            ToolFormat::DeepSeekV4 => Shape {
                trigger: "<｜DSML｜tool_calls>",
                behind_trigger: "\n",
                calls: Calls::InOneBlock { separator: "\n", close: "\n</｜DSML｜tool_calls>" },
            },
            ToolFormat::Kimi => Shape {
                trigger: kimi::OPEN,
                behind_trigger: "",
                calls: Calls::InOneBlock { separator: "", close: kimi::CLOSE },
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
    fn call(&self, lark: &mut Lark, tool: &Tool) -> Result<String> {
        let name = &tool.name;
        let object = |lark: &mut Lark, head: String| {
            format!("{} {} {}", lark.text(&head), lark.json(&tool.parameters), lark.text("}"))
        };
        Ok(match self.format {
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
            ToolFormat::Qwen3Coder | ToolFormat::Seed => tagged(lark, tool, xml::QWEN3_CODER)?,
            ToolFormat::MiniMax => tagged(lark, tool, xml::MINIMAX)?,
            ToolFormat::Glm => tagged(lark, tool, xml::GLM)?,
            ToolFormat::DeepSeekV32 | ToolFormat::DeepSeekV4 => tagged(lark, tool, xml::DEEPSEEK_V32)?,
            ToolFormat::Kimi => {
                let index = lark.terminal("/0|[1-9][0-9]{0,5}/");
                format!(
                    "{} {index} {} {} {}",
                    lark.text(&format!("{}functions.{name}:", kimi::CALL)),
                    lark.text(kimi::ARGUMENTS),
                    lark.json(&tool.parameters),
                    lark.text(kimi::CALL_END)
                )
            }
            ToolFormat::Lfm2 => python(lark, tool)?,
            ToolFormat::FunctionGemma => unquoted(lark, tool, function_gemma::FUNCTION_GEMMA)?,
            ToolFormat::Gemma4 => unquoted(lark, tool, function_gemma::GEMMA4)?,
            _ => object(lark, format!("{{\"name\": \"{name}\", \"arguments\": ")),
        })
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
