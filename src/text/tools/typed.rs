//! Values written as text in tags: where they end, and what they mean.

use serde_json::Value;

use super::call_python::literal;
use super::json::{Fed, Scanner};
use super::markers::{Found, find};
use super::schema::Kind;

/// Looks for the tag that closes a value while the text grows. Searches no text twice.
#[derive(Default)]
pub(super) struct ValueEnd {
    /// How many bytes of the text were searched.
    searched: usize,
    first: Option<usize>,
    /// Follows the value if it may be JSON, since a tag in a JSON string does not close it.
    json: Option<Scanner>,
}

impl ValueEnd {
    /// Where the tag is that closes a value of one of these types, or of any type. `None` if more text is needed.
    pub fn find(&mut self, text: &str, close: &str, types: Option<&[Kind]>) -> Option<usize> {
        let first = match self.first {
            Some(first) => first,
            None => {
                let first = self.next(text, close)?;
                if !may_be_json(text.trim_start(), types) {
                    return Some(first);
                }
                self.first = Some(first);
                self.searched = text.len() - text.trim_start().len();
                self.json = Some(Scanner::new());
                first
            }
        };
        while let Some(scanner) = &mut self.json {
            let c = text[self.searched..].chars().next()?;
            match scanner.feed(c, &mut String::new()) {
                Ok(Fed::Taken) => {}
                Ok(_) => self.json = None,
                // It only looked like JSON at first.
                Err(_) => return Some(first),
            }
            self.searched += c.len_utf8();
        }
        self.next(text, close)
    }

    fn next(&mut self, text: &str, close: &str) -> Option<usize> {
        match find(&text[self.searched..], &[close], false) {
            Found::Marker { start, .. } => Some(self.searched + start),
            Found::NoneBefore(certain) => {
                self.searched += certain;
                None
            }
        }
    }
}

fn may_be_json(text: &str, types: Option<&[Kind]>) -> bool {
    let kind = match text.chars().next() {
        Some('[') => "array",
        Some('{') => "object",
        Some('"') => return types.is_none(),
        _ => return false,
    };
    types.is_none_or(|types| types.contains(&kind))
}

/// The value of a text, by the allowed types if they are known.
pub(super) fn typed(text: &str, types: Option<&[Kind]>) -> Value {
    let parsed = serde_json::from_str(text.trim()).ok().or_else(|| literal(text));
    let allows = |name: &str| types.is_none_or(|types| types.contains(&name));
    let fits = match &parsed {
        None => false,
        Some(Value::Null) => allows("null"),
        Some(Value::Bool(_)) => allows("boolean"),
        Some(Value::Number(number)) => {
            allows("number") || (number.as_f64().is_some_and(|n| n.fract() == 0.0) && allows("integer"))
        }
        Some(Value::String(_)) => types.is_none(),
        Some(Value::Array(_)) => allows("array"),
        Some(Value::Object(_)) => allows("object"),
    };
    match parsed {
        Some(parsed) if fits || !allows("string") => parsed,
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::schema::types_of;
    use super::*;

    #[test]
    fn the_schema_says_what_a_text_means() {
        for (text, schema, wanted) in [
            ("12", json!({"type": "string"}), json!("12")),
            ("12", json!({"type": "integer"}), json!(12)),
            ("12", json!({}), json!(12)),
            ("[1, 2]", json!({"type": "array"}), json!([1, 2])),
            ("True", json!({"type": "boolean"}), json!(true)),
            ("null", json!({"type": ["string", "null"]}), json!(null)),
            ("12", json!({"type": ["string", "null"]}), json!("12")),
            ("twelve", json!({"type": "integer"}), json!("twelve")),
            ("red", json!({"enum": ["red", "green"]}), json!("red")),
            ("{\"a\": 1}", json!({"anyOf": [{"type": "object"}, {"type": "null"}]}), json!({"a": 1})),
            ("two words", json!({}), json!("two words")),
        ] {
            assert_eq!(typed(text, types_of(&schema, &serde_json::Map::new()).as_deref()), wanted, "{text} {schema}");
        }
    }

    #[test]
    fn a_tag_in_a_text_of_json_closes_nothing() {
        let anything: Option<&[Kind]> = None;
        for (text, types, wanted) in [
            ("[\"a</p>b\"]</p>", anything, Some(10)),
            ("\n{\"a\": \"</p>\"}\n</p>", Some(&["object", "string"][..]), Some(15)),
            ("[\"a</p>b\"", anything, None),
            ("[\"a</p>b\"]</", anything, None),
            ("[link](a \"b)</p> \"]</p>", anything, Some(12)),
            ("[\"a</p>b\"]</p>", Some(&["string"]), Some(3)),
            ("\"a</p>", Some(&["null", "string"]), Some(2)),
            ("1</p>", anything, Some(1)),
        ] {
            assert_eq!(ValueEnd::default().find(text, "</p>", types), wanted, "{text:?}");
            // The same for text that comes character by character.
            let mut end = ValueEnd::default();
            let places = text.char_indices().map(|(at, c)| at + c.len_utf8());
            let mut found = places.map(|at| end.find(&text[..at], "</p>", types));
            assert_eq!(found.find(Option::is_some).flatten(), wanted, "{text:?}");
        }
    }
}
