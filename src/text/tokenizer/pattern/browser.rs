//! Expressions on the browser's `RegExp`.
//!
//! A text crosses to JavaScript and back once, whatever is found in it: `replace` puts a mark before and after every match, and where the
//! marks are in bytes is read off the text that comes back.

use std::ops::Range;

use js_sys::JsString;
use wasm_bindgen::prelude::*;

use super::javascript::JavaScript;
use crate::error::Result;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = RegExp)]
    type RegExp;

    #[wasm_bindgen(constructor, js_class = "RegExp", catch)]
    fn new(source: &str, flags: &str) -> Result<RegExp, JsValue>;

    #[wasm_bindgen(extends = js_sys::Object, js_name = String)]
    type Text;

    #[wasm_bindgen(method, js_class = "String", catch)]
    fn replace(this: &Text, expression: &RegExp, replacement: &str) -> Result<JsString, JsValue>;
}

pub(in crate::text::tokenizer) struct Engine(RegExp);

impl Engine {
    pub(super) fn new(expression: &str, translated: &JavaScript) -> Result<Self> {
        let flags = if translated.any_case { "giv" } else { "gv" };
        RegExp::new(&translated.source, flags)
            .map(Self)
            .map_err(|cause| err!(UnsupportedTokenizer, "expression {expression:?}: {}", message(&cause)))
    }

    pub(super) fn find_all(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let Some(mark) = absent(text) else {
            bail!(InvalidRequest, "the text holds every character for private use, and none is left to mark words");
        };
        let marked = Text::from(JsValue::from_str(text)).replace(&self.0, &format!("{mark}$&{mark}"));
        let marked = marked.map(String::from).map_err(|cause| {
            err!(
                InvalidRequest,
                "an expression of the tokenizer gave up on the text ({}); break up very long runs",
                message(&cause)
            )
        })?;
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        for (n, part) in marked.split(mark).enumerate() {
            let end = at + part.len();
            // JavaScript finds an empty match also where another ends.
            if n % 2 == 1 && (at < end || found.last().is_none_or(|last| last.end < at)) {
                found.push(at..end);
            }
            at = end;
        }
        if at != text.len() {
            bail!(Internal, "a text of {} bytes came back from an expression with {at}", text.len());
        }
        Ok(found)
    }
}

/// A character that a text does not hold: a control character, or else one for private use.
fn absent(text: &str) -> Option<char> {
    if !text.contains('\u{1}') {
        return Some('\u{1}');
    }
    let mut held = [false; 0xFFFE];
    for character in text.chars() {
        if let Some(held) = (character as usize).checked_sub(0xF_0000).and_then(|at| held.get_mut(at)) {
            *held = true;
        }
    }
    let free = held.iter().position(|held| !held)?;
    char::from_u32(0xF_0000 + u32::try_from(free).ok()?)
}

fn message(cause: &JsValue) -> String {
    match cause.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().into(),
        None => format!("{cause:?}"),
    }
}
