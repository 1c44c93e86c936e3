//! Grammars for arguments that are not one JSON object: in tags, as Python's keyword arguments, or as objects without quotes. A schema that
//! such a grammar can't enforce is refused.

use serde_json::{Map, Value};

use super::definition::Tool;
use super::lark::Lark;
use super::regex::escaped;
use super::schema::{self, Allowed, Property, Values, allowed, refused, types_of};
use super::string_terms::terms;
use super::tags::Tags;
use super::unquoted::Quoting;
use crate::error::Result;

/// `<function=name><parameter=key>value</parameter></function>` and similar forms.
pub(super) fn tagged(lark: &mut Lark, tool: &Tool, tags: &Tags) -> Result<String> {
    let head = format!("{}{}{}{}", tags.function, tool.name, tags.name_end, "\n");
    let properties =
        properties(lark, &schema::arguments(&tool.parameters)?, "", |lark, Property { name, schema, .. }| {
            if name.contains(['<', '>', '"', '\n']) || name.trim() != name || name.is_empty() {
                return unwritable();
            }
            let value = match tags.is_text {
                Some(_) => declared(lark, schema, &tool.parameters, tags)?,
                None => by_schema(lark, schema, &tool.parameters, tags)?,
            };
            Ok(format!("{} {value} {}", lark.text(&format!("{}{name}", tags.key)), lark.text("\n")))
        })?;
    Ok(format!("{} {properties} {}", lark.text(&head), lark.text(tags.function_close)))
}

/// A value in tags, after its key; the schema says whether it is a text.
fn by_schema(lark: &mut Lark, schema: &Value, root: &Map<String, Value>, tags: &Tags) -> Result<String> {
    let line = if tags.lines { "\n" } else { "" };
    let between = if tags.value.is_empty() { String::new() } else { format!("\n{}", tags.value) };
    let open = lark.text(&format!("{}{between}{line}", tags.key_end));
    let close = format!("{line}{}", tags.value_close);
    let types = types_of(schema, root).unwrap_or_default();
    if !types.contains(&"string") {
        let value = lark.value(with_definitions(schema, root));
        return Ok(format!("{open} {value} {}", lark.text(&close)));
    }
    let Allowed::Values(values) = allowed(schema, root)? else { return refused("anyOf") };
    let (mut plain, mut brackets) = (Vec::new(), Vec::new());
    let mut texts = Vec::new();
    for one in &values {
        match one.kind {
            "string" => texts.push(terms(one)?),
            "array" | "object" => {
                let value = lark.value(with_definitions(&Value::Object(one.schema()), root));
                brackets.push(format!("{value} {}", lark.text(&close)));
            }
            _ => plain.push(vec![word(one)?]),
        }
    }
    // A text must not look like a value of another type, because the parser would read it as that.
    let mut others: Vec<String> = types.iter().filter_map(|name| read_as(name)).map(str::to_owned).collect();
    if tags.lines {
        others.push("~/(?s:.*)\\r/".to_owned());
    }
    texts.iter_mut().for_each(|terms| terms.extend(others.clone()));
    texts.extend(plain);
    let text = lark.held_text(&texts, &[tags.value_close], &close);
    brackets.push(text);
    Ok(format!("{open} ({})", brackets.join(" | ")))
}

/// A value in tags that say whether it is a text.
fn declared(lark: &mut Lark, schema: &Value, root: &Map<String, Value>, tags: &Tags) -> Result<String> {
    let head = |is_text: bool| format!("{}{is_text}{}", tags.is_text.unwrap_or_default(), tags.key_end);
    let mut choices = Vec::new();
    let json = |lark: &mut Lark, schema: Value| {
        let value = lark.value(schema);
        format!("{} {value} {}", lark.text(&head(false)), lark.text(tags.value_close))
    };
    let types = types_of(schema, root).unwrap_or_default();
    if !types.contains(&"string") {
        let json = json(lark, with_definitions(schema, root));
        if !matches!(allowed(schema, root), Ok(Allowed::Anything)) {
            return Ok(json);
        }
        let text = lark.held_text(&[Vec::new()], &[tags.value_close], tags.value_close);
        return Ok(format!("({json} | {} {text})", lark.text(&head(true))));
    }
    let Allowed::Values(values) = allowed(schema, root)? else { return refused("anyOf") };
    let (texts, others): (Vec<&Values>, Vec<&Values>) = values.iter().partition(|one| one.kind == "string");
    for one in others {
        choices.push(json(lark, with_definitions(&Value::Object(one.schema()), root)));
    }
    let texts = texts.into_iter().map(terms).collect::<Result<Vec<_>>>()?;
    if !texts.is_empty() {
        let text = lark.held_text(&texts, &[tags.value_close], tags.value_close);
        choices.push(format!("{} {text}", lark.text(&head(true))));
    }
    Ok(format!("({})", choices.join(" | ")))
}

/// Numbers that fit a double.
const INTEGER: &str = "-?(0|[1-9][0-9]{0,18})";
const NUMBER: &str = "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?";

/// A term for values of a kind that texts may be mixed with.
fn word(values: &Values) -> Result<String> {
    if let Some(choices) = values.choices() {
        values.refuse(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])?;
        let choices: Vec<String> = choices.iter().map(|choice| escaped(&choice.to_string())).collect();
        return Ok(format!("/(?:{})/", choices.join("|")));
    }
    // A terminal can't use the engine's numbers.
    if let Some(keyword) = values.keywords.keys().next() {
        return refused(keyword);
    }
    Ok(match values.kind {
        "integer" => format!("/{INTEGER}/"),
        "number" => format!("/{NUMBER}/"),
        "boolean" => "/true|false/".to_owned(),
        _ => "/null/".to_owned(),
    })
}

/// A term for texts that the parser would read as a value of this type.
fn read_as(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "integer" | "number" => "~/\\s*-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?\\s*/",
        "boolean" => "~/\\s*([tT]rue|[fF]alse)\\s*/",
        "null" => "~/\\s*(null|None)\\s*/",
        "array" => "~/\\s*[\\[(](?s:.*)/",
        "object" => "~/\\s*\\{(?s:.*)/",
        _ => return None,
    })
}

/// `name(key=value, …)`, with values as JSON.
pub(super) fn python(lark: &mut Lark, tool: &Tool) -> Result<String> {
    let properties =
        properties(lark, &schema::arguments(&tool.parameters)?, ", ", |lark, Property { name, schema, .. }| {
            let begins = |c: char| c.is_alphabetic() || c == '_';
            if !name.starts_with(begins) || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return unwritable();
            }
            let value = lark.value(with_definitions(schema, &tool.parameters));
            Ok(format!("{} {value}", lark.text(&format!("{name}="))))
        })?;
    Ok(format!("{} {properties} {}", lark.text(&format!("{}(", tool.name)), lark.text(")")))
}

/// `name{key:value,…}`, with the family's quotes around texts.
pub(super) fn unquoted(lark: &mut Lark, tool: &Tool, quoting: &Quoting) -> Result<String> {
    let notation = Unquoted { root: &tool.parameters, quote: quoting.quote };
    let object = notation.object(lark, &schema::arguments(&tool.parameters)?, 0)?;
    Ok(format!("{} {object}", lark.text(&tool.name)))
}

struct Unquoted<'a> {
    root: &'a Map<String, Value>,
    quote: &'static str,
}

impl Unquoted<'_> {
    fn object(&self, lark: &mut Lark, object: &Values, depth: usize) -> Result<String> {
        let properties = properties(lark, object, ",", |lark, Property { name, schema, .. }| {
            if name.contains([':', '{', '}', '[', ']', ',', '"', '<']) || name.trim() != name || name.is_empty() {
                return unwritable();
            }
            let value = self.value(lark, schema, depth + 1)?;
            Ok(format!("{} {value}", lark.text(&format!("{name}:"))))
        })?;
        let object = format!("{} {properties} {}", lark.text("{"), lark.text("}"));
        Ok(lark.rule(&object))
    }

    fn value(&self, lark: &mut Lark, schema: &Value, depth: usize) -> Result<String> {
        if depth > schema::MAX_DEPTH {
            bail!(InvalidRequest, "the schema nests objects and lists deeper than {}", schema::MAX_DEPTH);
        }
        let Allowed::Values(values) = allowed(schema, self.root)? else {
            let text = self.text(lark, &[]);
            let word = lark.terminal(&format!("/{NUMBER}|true|false|null/"));
            return Ok(lark.rule(&format!("{text} | {word}")));
        };
        let values: Vec<String> = values.iter().map(|one| self.of_kind(lark, one, depth)).collect::<Result<_>>()?;
        Ok(lark.rule(&values.join(" | ")))
    }

    fn of_kind(&self, lark: &mut Lark, values: &Values, depth: usize) -> Result<String> {
        Ok(match values.kind {
            "string" => self.text(lark, &terms(values)?),
            "object" => self.object(lark, values, depth)?,
            "array" => self.array(lark, values, depth)?,
            // Numbers, true, false and null are those of JSON.
            "integer" if values.keywords.is_empty() => lark.terminal(&format!("/{INTEGER}/")),
            "number" if values.keywords.is_empty() => lark.terminal(&format!("/{NUMBER}/")),
            _ => lark.value(Value::Object(values.schema())),
        })
    }

    fn text(&self, lark: &mut Lark, terms: &[String]) -> String {
        let text = lark.held_text(&[terms.to_vec()], &[self.quote], self.quote);
        format!("{} {text}", lark.text(self.quote))
    }

    fn array(&self, lark: &mut Lark, array: &Values, depth: usize) -> Result<String> {
        array.refuse(&["enum", "prefixItems", "additionalItems"])?;
        let count = |name: &str| match array.keywords.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|count| *count <= MAX_ITEMS) {
                Some(count) => Ok(Some(count)),
                None => bail!(InvalidRequest, "the schema keyword {name:?} is {value}, wanted 0 to {MAX_ITEMS}"),
            },
        };
        let (least, most) = (count("minItems")?.unwrap_or(0), count("maxItems")?);
        if most.is_some_and(|most| least > most) {
            bail!(InvalidRequest, "the schema's minItems, {least}, is greater than its maxItems");
        }
        let (open, close) = (lark.text("["), lark.text("]"));
        if most == Some(0) {
            return Ok(format!("{open} {close}"));
        }
        let item = self.value(lark, array.keywords.get("items").unwrap_or(&Value::Bool(true)), depth + 1)?;
        let more = most.map(|most| (most - 1).to_string()).unwrap_or_default();
        let optional = if least == 0 { "?" } else { "" };
        let least = least.saturating_sub(1);
        Ok(format!("{open} ({item} ({} {item}){{{least},{more}}}){optional} {close}", lark.text(",")))
    }
}

/// The grammar has a rule for each item of a list.
const MAX_ITEMS: u64 = 4096;

fn unwritable<T>() -> Result<T> {
    bail!(InvalidRequest, "the name can't be written in this model's notation of arguments; choose another")
}

/// Properties in the schema's order. Those that are not required may be left out. `property` writes one, and `comma` is between two.
fn properties(
    lark: &mut Lark,
    object: &Values,
    comma: &str,
    mut property: impl FnMut(&mut Lark, &Property) -> Result<String>,
) -> Result<String> {
    // From the last one back: the rest after a property, if some property was written before and if none was.
    let (mut after_some, mut after_none) = (String::new(), String::new());
    for one in schema::properties(object)?.iter().rev() {
        let written = property(lark, one).map_err(|error| error.context(format!("the property {:?}", one.name)))?;
        let choice = |lark: &mut Lark, body: String, other: &str| match (one.is_required, other) {
            (true, _) => lark.rule(&body),
            (false, "") => lark.rule(&format!("({body})?")),
            (false, other) => lark.rule(&format!("{body} | {other}")),
        };
        let separator = lark.text_or_nothing(comma);
        let some = format!("{separator}{written} {after_some}");
        let none = format!("{written} {after_some}");
        let next_some = choice(lark, some, &after_some);
        after_none = choice(lark, none, &after_none);
        after_some = next_some;
    }
    Ok(after_none)
}

/// A property's schema, with the definitions that it may refer to.
fn with_definitions(schema: &Value, root: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut() {
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(name) {
                fields.entry(name).or_insert_with(|| definitions.clone());
            }
        }
    }
    schema
}
