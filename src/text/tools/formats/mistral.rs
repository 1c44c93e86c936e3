//! Mistral: `[TOOL_CALLS]` and an array of calls in JSON (up to tokenizer v7), or the name, perhaps `[CALL_ID]` and an id,
//! `[ARGS]` and the arguments, with `[TOOL_CALLS]` before each call (from v11 on).
//!
//! Source: https://docs.mistral.ai/ and the chat templates of Mistral 7B v0.3, Small 3.1, Small 3.2 and Magistral.

use super::super::format::{Call, Calls, Form, Piece, ToolFormat};
use super::super::sections::{Head, SectionReader, Sections};
use super::hermes::{self, HERMES};

const OPEN: &str = "[TOOL_CALLS]";
const ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";

const SECTIONS: Sections = Sections {
    opens: &[],
    call: OPEN,
    head: Head::Word { id: ID, end: ARGUMENTS },
    fences: &[],
    ends: &[],
    close: None,
};

pub(super) const MISTRAL: ToolFormat = ToolFormat {
    name: "mistral",
    signs: &[&[OPEN], &["[AVAILABLE_TOOLS]"]],
    markers: &[OPEN, ID, ARGUMENTS],
    // Mistral's templates refuse other lengths.
    call_id: ("", 9),
    syntax: || Box::new(SectionReader::new(&SECTIONS)),
    forms: &[
        Form {
            word: ARGUMENTS,
            trigger: OPEN,
            after_trigger: "",
            calls: Calls::EachInABlock { separator: "", close: "" },
            call: Call::Json(&[Piece::Name, Piece::Text(ARGUMENTS), Piece::Arguments]),
        },
        Form {
            word: "",
            trigger: OPEN,
            after_trigger: "[",
            calls: Calls::InOneBlock { separator: ", ", close: "]" },
            call: hermes::CALL,
        },
    ],
    ..HERMES
};
