//! What form the answer has: OpenAI's `response_format`, and vLLM's `structured_outputs`.

use serde::Deserialize;
use serde_json::Value;

use super::group;
use crate::error::Result;
use crate::text::grammar::Grammar;

group! {
    #[derive(Clone, Debug)]
    pub struct StructuredFields {
        pub response_format: Option<ResponseFormat>,
        /// An extension, in vLLM's words.
        pub structured_outputs: Option<StructuredOutputs>,
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    Text {},
    JsonObject {},
    JsonSchema { json_schema: NamedSchema },
}

/// A schema as OpenAI's API names it. Whatever `strict` says, the schema is kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSchema {
    pub name: Option<String>,
    pub description: Option<String>,
    pub schema: Value,
    pub strict: Option<bool>,
}

/// One of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StructuredOutputs {
    /// A schema, or its text.
    pub json: Option<Value>,
    pub regex: Option<String>,
    pub choice: Option<Vec<String>>,
    /// In llguidance's variant of Lark.
    pub grammar: Option<String>,
    pub json_object: Option<bool>,
}

impl StructuredFields {
    /// What the answer is held to, if it is to anything.
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

/// A grammar and the field of a request that it is from, which errors name.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::engine) struct GrammarRequest {
    pub field: &'static str,
    pub grammar: Grammar,
    /// The answer is what the grammar admits to the letter, a space at its beginning too.
    pub is_whole: bool,
}

/// The field that a grammar is from where a call is the model's choice.
pub(in crate::engine) const FREE_CALLS: &str = "tools";
