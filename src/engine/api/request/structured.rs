//! The form of the answer: OpenAI's `response_format`, and vLLM's `structured_outputs`.

use serde::Deserialize;
use serde_json::Value;

use super::group;
use crate::error::Result;
use crate::text::grammar::Grammar;

group! {
    /// The form of the answer.
    #[derive(Clone, Debug)]
    pub struct StructuredFields {
        /// Holds the answer to a JSON schema, or to any JSON object. The first such request of an engine fetches a second wasm and makes a
        /// table of the model's tokens (about half a second for 150,000). A schema that is not supported rejects with `invalid_request`
        /// before anything is generated. The answer is complete if `finish_reason` is `stop`, and cut if it is `length`. Not with
        /// `ignore_eos`.
        ///
        /// Each token is chosen from those that the schema allows in its place; `top_k`, `top_p` and the like come after that. What is
        /// learned of a schema is kept, so later requests with the same schema are faster.
        pub response_format: Option<ResponseFormat>,
        /// The same, also for regular expressions, choices and grammars. An extension, with vLLM's name.
        pub structured_outputs: Option<StructuredOutputs>,
    }
}

/// `text` (the default): any text. `json_object`: any JSON object. `json_schema`: JSON that the schema allows. JSON comes with a space
/// after each comma and colon and no other white space, unless the schema has `x-guidance`, llguidance's own options
/// (`{"x-guidance": {"whitespace_flexible": true}}`).
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// Any text: the default.
    Text {},
    /// Any JSON object.
    JsonObject {},
    /// JSON that a schema allows.
    JsonSchema {
        /// What the answer is held to.
        json_schema: NamedSchema,
    },
}

/// A schema as OpenAI's API names it.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct NamedSchema {
    /// Not used.
    pub name: Option<String>,
    /// Not used: tell the model in a message what you want.
    pub description: Option<String>,
    /// The JSON schema.
    #[cfg_attr(test, ts(type = "object | boolean"))]
    pub schema: Value,
    /// Not used: the schema always holds.
    pub strict: Option<bool>,
}

/// Exactly one of these fields must be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields, default)]
pub struct StructuredOutputs {
    /// A JSON schema, or its text.
    #[cfg_attr(test, ts(type = "object | boolean | string | null"))]
    pub json: Option<Value>,
    /// A regular expression that the whole answer matches, in the syntax of Rust's `regex`, without look-around.
    pub regex: Option<String>,
    /// The answer is one of these texts.
    pub choice: Option<Vec<String>>,
    /// A context-free grammar in llguidance's variant of Lark; its first rule is `start`.
    pub grammar: Option<String>,
    /// True: any JSON object.
    pub json_object: Option<bool>,
}

impl StructuredFields {
    /// What the answer is held to, if anything.
    pub(in crate::engine::api) fn grammar(self) -> Result<Option<GrammarRequest>> {
        let format = match self.response_format {
            None | Some(ResponseFormat::Text {}) => None,
            Some(ResponseFormat::JsonObject {}) => Some(("response_format", Grammar::json_object())),
            Some(ResponseFormat::JsonSchema { json_schema }) => {
                Some(("response_format.json_schema.schema", Grammar::json_schema(json_schema.schema)))
            }
        };
        let asked = match (format, self.structured_outputs) {
            (Some(_), Some(_)) => {
                bail!(
                    InvalidRequest,
                    "response_format and structured_outputs exclude each other; give only one of them"
                )
            }
            (format, None) => format,
            (None, Some(outputs)) => Some(outputs.grammar()?),
        };
        Ok(asked.map(|(field, grammar)| GrammarRequest { field, grammar, is_whole: true }))
    }
}

impl StructuredOutputs {
    fn grammar(self) -> Result<(&'static str, Grammar)> {
        let json = self.json.map(|schema| match schema {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|error| err!(InvalidRequest, "structured_outputs.json is no JSON schema: {error}")),
            schema => Ok(schema),
        });
        let mut asked = Vec::new();
        if let Some(schema) = json.transpose()? {
            asked.push(("structured_outputs.json", Grammar::json_schema(schema)));
        }
        asked.extend(self.regex.map(|regex| ("structured_outputs.regex", Grammar::Regex(regex))));
        if let Some(choice) = self.choice {
            if choice.is_empty() {
                bail!(InvalidRequest, "structured_outputs.choice is empty, wanted at least one text");
            }
            asked.push(("structured_outputs.choice", Grammar::Choice(choice)));
        }
        asked.extend(self.grammar.map(|lark| ("structured_outputs.grammar", Grammar::Lark(lark))));
        if self.json_object == Some(true) {
            asked.push(("structured_outputs.json_object", Grammar::json_object()));
        }
        match (asked.pop(), asked.len()) {
            (Some(one), 0) => Ok(one),
            (_, others) => bail!(
                InvalidRequest,
                "structured_outputs has {} of json, regex, choice, grammar and json_object, wanted one",
                if others == 0 { 0 } else { others + 1 }
            ),
        }
    }
}

/// A grammar, and the field of the request that it came from.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) struct GrammarRequest {
    /// The name of that field, for errors.
    pub field: &'static str,
    /// What the answer is held to.
    pub grammar: Grammar,
    /// The grammar is for the whole answer, also for a space at its beginning.
    pub is_whole: bool,
}

/// The field that a grammar comes from if the model may leave calls out.
pub(in crate::engine) const FREE_CALLS: &str = "tools";
