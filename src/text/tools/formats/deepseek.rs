//! DeepSeek: `<｜tool▁calls▁begin｜>`, then each call, then `<｜tool▁calls▁end｜>`. A call in V3 and R1 is
//! `<｜tool▁call▁begin｜>function<｜tool▁sep｜>name`, a line break, the arguments in a fence and `<｜tool▁call▁end｜>`. From V3.1 on it has
//! `name<｜tool▁sep｜>` and the arguments between these. From V3.2 on calls are in tags: `<｜DSML｜invoke name="name"><｜DSML｜parameter
//! name="key" string="true">value</｜DSML｜parameter></｜DSML｜invoke>`.
//!
//! Sources: the chat templates of DeepSeek-V3, R1 and V3.1, https://huggingface.co/deepseek-ai/DeepSeek-V3.2/tree/main/encoding and
//! https://huggingface.co/deepseek-ai/DeepSeek-V4-Pro/blob/main/encoding/README.md.

use super::super::format::{Call, Calls, Form, Piece, ToolFormat};
use super::super::sections::{Head, SectionReader, Sections};
use super::super::tags::{TagReader, Tags};
use super::hermes::HERMES;

const OPEN: &str = "<｜tool▁calls▁begin｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const CLOSE: &str = "<｜tool▁calls▁end｜>";

const SECTIONS: Sections = Sections {
    // Distilled models write underscores or spaces instead.
    opens: &[OPEN, "<｜tool_calls_begin｜>", "<｜tool calls begin｜>", "<｜tool\\_calls\\_begin｜>"],
    call: CALL,
    head: Head::Name { end: SEPARATOR, before_line: "function" },
    fences: &["```json", "```"],
    ends: &[CALL_END, "```"],
    close: Some(CLOSE),
};

pub(super) const DEEPSEEK: ToolFormat = ToolFormat {
    name: "deepseek",
    signs: &[&[OPEN], &[CALL]],
    markers: &[OPEN, CALL, SEPARATOR, CALL_END, CLOSE],
    syntax: || Box::new(SectionReader::new(&SECTIONS)),
    forms: &[
        Form {
            word: "```json",
            trigger: OPEN,
            after_trigger: "",
            calls: Calls::InOneBlock { separator: "\n", close: CLOSE },
            call: Call::Json(&[
                Piece::Text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
                Piece::Name,
                Piece::Text("\n```json\n"),
                Piece::Arguments,
                Piece::Text("\n```<｜tool▁call▁end｜>"),
            ]),
        },
        Form {
            word: "",
            trigger: OPEN,
            after_trigger: "",
            calls: Calls::InOneBlock { separator: "", close: CLOSE },
            call: Call::Json(&[
                Piece::Text(CALL),
                Piece::Name,
                Piece::Text(SEPARATOR),
                Piece::Arguments,
                Piece::Text(CALL_END),
            ]),
        },
    ],
    ..HERMES
};

const V32_TAGS: Tags = Tags {
    open: "<｜DSML｜function_calls>",
    close: "</｜DSML｜function_calls>",
    function: "<｜DSML｜invoke name=\"",
    name_end: "\">",
    function_close: "</｜DSML｜invoke>",
    key: "<｜DSML｜parameter name=\"",
    key_end: "\">",
    is_text: Some("\" string=\""),
    value: "",
    value_close: "</｜DSML｜parameter>",
    value_ends: &["</｜DSML｜parameter>"],
    lines: false,
};
const V4_TAGS: Tags = Tags { open: "<｜DSML｜tool_calls>", close: "</｜DSML｜tool_calls>", ..V32_TAGS };

pub(super) const DEEPSEEK_V32: ToolFormat = ToolFormat {
    name: "deepseek_v32",
    // V3.2 and V4 have different blocks around calls. Templates write the beginning of their tags with a variable.
    signs: &[&["｜DSML｜", "function_calls>"]],
    markers: &["｜DSML｜"],
    syntax: || Box::new(TagReader::new(&V32_TAGS)),
    forms: &[Form {
        word: "",
        trigger: V32_TAGS.open,
        after_trigger: "\n",
        calls: Calls::InOneBlock { separator: "\n", close: "\n</｜DSML｜function_calls>" },
        call: Call::Tags(&V32_TAGS),
    }],
    ..HERMES
};

pub(super) const DEEPSEEK_V4: ToolFormat = ToolFormat {
    name: "deepseek_v4",
    signs: &[&["｜DSML｜", "tool_calls>"]],
    syntax: || Box::new(TagReader::new(&V4_TAGS)),
    forms: &[Form {
        word: "",
        trigger: V4_TAGS.open,
        after_trigger: "\n",
        calls: Calls::InOneBlock { separator: "\n", close: "\n</｜DSML｜tool_calls>" },
        call: Call::Tags(&V4_TAGS),
    }],
    ..DEEPSEEK_V32
};
