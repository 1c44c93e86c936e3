//! What a grammar may have at most. The grammar engine recurses over what it compiles, on a stack of 2 MB in a page, and its own limits show only
//! in the middle of an answer: so what is too much is refused before the grammar is compiled.

use serde_json::{Map, Value};

use super::grammar::Grammar;
use crate::error::Result;

/// JSON values in a schema.
const MOST_VALUES: usize = 100_000;
/// Keys of an object in a schema, such as properties.
const MOST_KEYS: usize = 1_000;
/// Properties of an object that may be left out. The grammar engine keeps four items for each and at most 2,000 for a place in the text.
const MOST_OPTIONAL: usize = 400;
/// Ways to choose one alternative of each `anyOf` and `oneOf` in an `allOf`: each way is compiled.
const MOST_WAYS: usize = 1_000;
/// Values of an `enum`, or choices.
const MOST_CHOICES: usize = 20_000;
/// Bytes of a regular expression, and of all choices together.
const LONGEST_EXPRESSION: usize = 100_000;
/// Bytes of a Lark grammar.
const LONGEST_LARK: usize = 1_000_000;
/// Rules of a Lark grammar, of which each may refer to the next. More than three times as many fit the stack.
const MOST_RULES: usize = 500;
/// Definitions of a schema, of which each may refer to the next. As many again and more fit the stack.
const MOST_DEFINITIONS: usize = 300;

/// `Code::InvalidRequest` for more than the grammar engine can take.
pub(crate) fn check(grammar: &Grammar) -> Result<()> {
    match grammar {
        Grammar::JsonSchema(schema) => Schema::default().check(schema),
        Grammar::Regex(pattern) => check_expression(pattern.len(), "the regular expression"),
        Grammar::Choice(choices) => {
            check_choices(choices.len(), "there are")?;
            check_expression(choices.iter().map(String::len).sum(), "the choices together")
        }
        Grammar::Lark(text) => check_lark(text),
    }
}

fn check_expression(length: usize, what: &str) -> Result<()> {
    if length > LONGEST_EXPRESSION {
        bail!(InvalidRequest, "{what} has {length} bytes, wanted at most {LONGEST_EXPRESSION}");
    }
    Ok(())
}

fn check_choices(count: usize, what: &str) -> Result<()> {
    if count > MOST_CHOICES {
        bail!(InvalidRequest, "{what} {count} values to choose from, wanted at most {MOST_CHOICES}");
    }
    Ok(())
}

fn check_lark(text: &str) -> Result<()> {
    if text.len() > LONGEST_LARK {
        bail!(InvalidRequest, "the grammar has {} bytes, wanted at most {LONGEST_LARK}", text.len());
    }
    // A rule begins its line with its name.
    let is_rule = |line: &&str| line.starts_with(|first: char| first.is_alphabetic() || first == '_' || first == '?');
    let rules = text.lines().filter(is_rule).count();
    if rules > MOST_RULES {
        bail!(InvalidRequest, "the grammar has {rules} rules, wanted at most {MOST_RULES}");
    }
    Ok(())
}

/// Counts what a schema has.
#[derive(Default)]
struct Schema {
    values: usize,
}

impl Schema {
    /// JSON is nested at most 128 deep, because its reader takes no more.
    fn check(&mut self, value: &Value) -> Result<()> {
        self.values += 1;
        if self.values > MOST_VALUES {
            bail!(InvalidRequest, "the schema has more than {MOST_VALUES} values");
        }
        match value {
            Value::Object(fields) => {
                check_object(fields)?;
                fields.values().try_for_each(|value| self.check(value))
            }
            Value::Array(values) => values.iter().try_for_each(|value| self.check(value)),
            _ => Ok(()),
        }
    }
}

fn check_object(fields: &Map<String, Value>) -> Result<()> {
    if fields.len() > MOST_KEYS {
        bail!(InvalidRequest, "the schema has an object of {} keys, wanted at most {MOST_KEYS}", fields.len());
    }
    for key in ["$defs", "definitions"] {
        let count = fields.get(key).and_then(Value::as_object).map_or(0, Map::len);
        if count > MOST_DEFINITIONS {
            bail!(InvalidRequest, "the schema has {count} definitions, wanted at most {MOST_DEFINITIONS}");
        }
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let required = fields.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let required = required.iter().filter(|name| name.as_str().is_some_and(|name| properties.contains_key(name)));
        let optional = properties.len().saturating_sub(required.count());
        if optional > MOST_OPTIONAL {
            bail!(
                InvalidRequest,
                "the schema has an object with {optional} properties that may be left out, wanted at most {MOST_OPTIONAL}; \
                 list them in `required`"
            );
        }
    }
    if let Some(values) = fields.get("enum").and_then(Value::as_array) {
        check_choices(values.len(), "the schema has an enum of")?;
    }
    if let Some(parts) = fields.get("allOf").and_then(Value::as_array) {
        let alternatives = |part: &Value| {
            let of = |key: &str| part.get(key).and_then(Value::as_array).map_or(1, |list| list.len().max(1));
            of("anyOf").saturating_mul(of("oneOf"))
        };
        let ways = parts.iter().map(alternatives).fold(1usize, usize::saturating_mul);
        if ways > MOST_WAYS {
            bail!(
                InvalidRequest,
                "the schema has an allOf whose alternatives can be combined in {ways} ways, wanted at most {MOST_WAYS}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Code;

    fn refused(grammar: &Grammar) -> Option<String> {
        check(grammar).err().map(|error| {
            assert_eq!(error.code(), Code::InvalidRequest);
            error.message().to_owned()
        })
    }

    /// At the limit and one above.
    fn changes_at(limit: usize, grammar: impl Fn(usize) -> Grammar, word: &str) {
        assert_eq!(refused(&grammar(limit)), None, "{word}");
        let message = refused(&grammar(limit + 1)).unwrap_or_default();
        assert!(message.contains(word), "{message:?}");
    }

    #[test]
    fn what_is_too_much_is_refused_and_what_just_fits_is_not() {
        let object = |n: usize| (0..n).map(|i| (format!("p{i}"), json!({}))).collect::<Map<_, _>>();
        let names = |n: usize| (0..n).map(|i| format!("p{i}")).collect::<Vec<_>>();
        changes_at(MOST_OPTIONAL, |n| Grammar::JsonSchema(json!({"properties": object(n)})), "left out");
        changes_at(
            MOST_KEYS,
            |n| Grammar::JsonSchema(json!({"items": {"properties": object(n), "required": names(n)}})),
            "keys",
        );
        changes_at(MOST_DEFINITIONS, |n| Grammar::JsonSchema(json!({"$defs": object(n)})), "definitions");
        changes_at(MOST_CHOICES, |n| Grammar::JsonSchema(json!({"enum": names(n)})), "enum");
        changes_at(MOST_CHOICES, |n| Grammar::Choice(vec!["a".to_owned(); n]), "choose");
        changes_at(MOST_VALUES - 2, |n| Grammar::JsonSchema(json!({"examples": vec![0; n]})), "values");
        changes_at(LONGEST_EXPRESSION, |n| Grammar::Regex("a".repeat(n)), "regular expression");
        changes_at(LONGEST_EXPRESSION, |n| Grammar::Choice(vec!["a".repeat(n)]), "choices");
        changes_at(LONGEST_LARK, |n| Grammar::Lark(" ".repeat(n)), "bytes");
        changes_at(MOST_RULES, |n| Grammar::Lark("a: \"b\"\n".repeat(n)), "rules");
        let any = |n: usize| json!({"anyOf": vec![json!({}); n]});
        changes_at(10, |n| Grammar::JsonSchema(json!({"allOf": [any(10), any(10), any(n)]})), "ways");
        changes_at(6, |n| Grammar::JsonSchema(json!({"allOf": vec![any(3); n]})), "ways");
        // The product does not overflow.
        assert!(refused(&Grammar::JsonSchema(json!({"allOf": vec![any(900); 900]}))).is_some());
        // What is required and no property counts for nothing.
        let schema = json!({"properties": object(MOST_OPTIONAL + 1), "required": ["x", "y", 5, "p0"]});
        assert_eq!(refused(&Grammar::JsonSchema(schema)), None);
    }
}
