//! Grammars of answers, as plain data. The grammar engine that reads them (llguidance) is not part of this crate.

use serde::Serialize;
use serde_json::{Value, json};

/// A formal language that an answer must follow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// JSON that fits a schema (https://json-schema.org, as far as llguidance implements it), laid out as in [`laid_out`].
    JsonSchema(Value),
    /// Texts that a regular expression matches as a whole, in the syntax of the Rust crate `regex`.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A context-free grammar in llguidance's variant of Lark. `<[id]>` is a special token by its id, and `%json {…}` is a schema.
    Lark(String),
}

impl Grammar {
    /// JSON of a schema.
    pub fn json_schema(schema: Value) -> Self {
        Self::JsonSchema(laid_out(schema))
    }

    /// Any JSON object.
    pub fn json_object() -> Self {
        Self::json_schema(json!({"type": "object"}))
    }

    /// The JSON for the grammar engine: `{"regex": "[a-z]+"}`.
    pub fn to_json(&self) -> String {
        json!(self).to_string()
    }
}

/// The schema with llguidance's options for white space: one space after each comma and colon and none elsewhere, like Python's `json`,
/// which models have read most. If white space is free, small models may write it without end. Fixed white space is forced, so it costs no
/// step. A schema with its own `x-guidance` keeps it.
pub fn laid_out(schema: Value) -> Value {
    let mut schema = match schema {
        // Allows everything.
        Value::Bool(true) => json!({}),
        other => other,
    };
    if let Some(fields) = schema.as_object_mut() {
        fields
            .entry("x-guidance")
            .or_insert_with(|| json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grammar_travels_as_one_field() {
        assert_eq!(Grammar::Regex("[a-z]+".to_owned()).to_json(), r#"{"regex":"[a-z]+"}"#);
        assert_eq!(Grammar::Choice(vec!["a".to_owned(), "\"".to_owned()]).to_json(), r#"{"choice":["a","\""]}"#);
        let Grammar::JsonSchema(schema) = Grammar::json_object() else { panic!() };
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["x-guidance"]["whitespace_flexible"], false);
    }

    #[test]
    fn a_layout_of_its_own_stays() {
        let own = json!({"type": "array", "x-guidance": {"whitespace_flexible": true}});
        assert_eq!(laid_out(own.clone()), own);
        assert_eq!(laid_out(json!(false)), json!(false));
        assert!(laid_out(json!(true)).is_object());
    }
}
