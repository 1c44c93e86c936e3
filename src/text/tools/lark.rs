//! Writes the rules of a grammar in llguidance's variant of Lark: texts whose markers may be control tokens, free text up to a marker, and
//! JSON that follows a schema.
//!
//! Source: llguidance's docs/syntax.md.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::regex::{ANY, escaped, without};
use crate::text::grammar::laid_out;

/// The rules so far.
pub(super) struct Lark<'a> {
    pub rules: String,
    names: usize,
    /// Texts that may be control tokens.
    markers: Vec<&'static str>,
    control: &'a dyn Fn(&str) -> Option<u32>,
}

impl<'a> Lark<'a> {
    /// `control` returns the id of a control token by its text; `markers` are the texts to look up.
    pub fn new(markers: Vec<&'static str>, control: &'a dyn Fn(&str) -> Option<u32>) -> Self {
        Self { rules: String::new(), names: 0, markers, control }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    pub fn rule(&mut self, body: &str) -> String {
        let name = self.name("r");
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    pub fn terminal(&mut self, body: &str) -> String {
        let name = self.name("T");
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// The first control token in a text, with the text before it, its id and the text after it.
    fn first_control<'t>(&self, text: &'t str) -> Option<(&'t str, u32, &'t str)> {
        let markers = self.markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker)));
        let known = markers.filter_map(|(at, marker)| Some((at, marker, (self.control)(marker)?)));
        let (at, marker, id) = known.min_by_key(|(at, marker, _)| (*at, std::cmp::Reverse(marker.len())))?;
        Some((&text[..at], id, &text[at + marker.len()..]))
    }

    /// A text in which markers are replaced by their control tokens.
    pub fn text(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (plain, control, after) = match self.first_control(rest) {
                Some((before, id, after)) => (before, Some(id), after),
                None => (rest, None, ""),
            };
            if !plain.is_empty() {
                parts.push(quoted(plain));
            }
            parts.extend(control.map(|id| format!("<[{id}]>")));
            rest = after;
        }
        parts.join(" ")
    }

    pub fn text_or_nothing(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { format!("{} ", self.text(text)) }
    }

    /// Free text up to and including a marker, and free text without one.
    pub fn until(&mut self, marker: &str) -> (String, String) {
        if let Some((before, id, after)) = self.first_control(marker) {
            let tail = self.terminal("/(?s:.+)/");
            let text = match before {
                "" => format!("{tail}?"),
                before => self.terminal(&format!("/{ANY}{}/", escaped(before))),
            };
            let after = self.text_or_nothing(after);
            return (self.rule(&format!("{text} <[{id}]> {after}")), tail);
        }
        let open = self.name("lazy");
        let _ = writeln!(self.rules, "{open}[lazy]: /{ANY}{}/", escaped(marker));
        let tail = self.terminal(&format!("/(?s:.+)/ & {}", without(marker)));
        (open, tail)
    }

    /// A text that matches all terms of one of `texts`, then the marker. The text contains no marker of `ends`.
    pub fn held_text(&mut self, texts: &[Vec<String>], ends: &[&str], marker: &str) -> String {
        // Negations alone would also allow control tokens and bytes that are not text.
        let always = [format!("/{ANY}/")].into_iter().chain(ends.iter().map(|end| without(end)));
        let always: Vec<String> = always.collect();
        let texts: Vec<String> = texts.iter().map(|terms| [terms.as_slice(), &always].concat().join(" & ")).collect();
        let text = texts.join(" | ");
        match self.first_control(marker) {
            Some((before, id, after)) => {
                let before = if before.is_empty() { String::new() } else { quoted(before) };
                let text = self.terminal(&format!("({text}) {before}"));
                let after = self.text_or_nothing(after);
                self.rule(&format!("{text} <[{id}]> {after}"))
            }
            None => {
                let name = self.name("lazy");
                let _ = writeln!(self.rules, "{name}[lazy]: ({text}) {}", quoted(marker));
                name
            }
        }
    }

    /// A JSON object that follows a schema.
    pub fn json(&mut self, schema: &Map<String, Value>) -> String {
        let mut schema = schema.clone();
        // Arguments are an object, even if the schema does not say so.
        schema.entry("type").or_insert_with(|| json!("object"));
        self.value(Value::Object(schema))
    }

    /// JSON that follows a schema.
    pub fn value(&mut self, schema: Value) -> String {
        self.rule(&format!("%json {}", laid_out(schema)))
    }
}

/// A text in Lark's quotes.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
