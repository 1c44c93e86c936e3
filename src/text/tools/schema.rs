//! A JSON schema's rules for values that are not written as JSON: for each kind its keywords, after following references. A keyword that
//! can't be enforced is refused by name.
//!
//! Source: https://json-schema.org/draft/2020-12/json-schema-validation

use serde_json::{Map, Value, json};

use crate::error::Result;

/// A JSON type, by its name in a schema.
pub(super) type Kind = &'static str;

const KINDS: [Kind; 7] = ["string", "integer", "number", "boolean", "null", "array", "object"];

/// Keywords that apply to values of one kind.
const OF_TEXTS: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];
const OF_NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const OF_ARRAYS: [&str; 5] = ["items", "prefixItems", "additionalItems", "minItems", "maxItems"];
const OF_OBJECTS: [&str; 6] =
    ["properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"];
/// Keywords that say which schemas apply.
const APPLICATORS: [&str; 4] = ["$ref", "anyOf", "oneOf", "allOf"];
/// Keywords that the grammars here can't enforce. A keyword that is in none of these lists only describes the value.
const REFUSED: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
];

/// The limit for nested references, objects and lists: a schema may refer to itself.
pub(super) const MAX_DEPTH: usize = 16;

/// The values of one kind with their keywords. A `const` becomes an `enum` of one value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub kind: Kind,
    pub keywords: Map<String, Value>,
}

impl Values {
    /// The same as a JSON schema.
    pub fn schema(&self) -> Map<String, Value> {
        let mut schema = self.keywords.clone();
        schema.insert("type".to_owned(), json!(self.kind));
        schema
    }

    /// The values of `enum`, if there is one.
    pub fn choices(&self) -> Option<&Vec<Value>> {
        self.keywords.get("enum").and_then(Value::as_array)
    }

    /// Refuses the first of these keywords that is in the schema.
    pub fn refuse(&self, keywords: &[&str]) -> Result<()> {
        match keywords.iter().find(|keyword| self.keywords.contains_key(**keyword)) {
            Some(keyword) => refused(keyword),
            None => Ok(()),
        }
    }

    fn overlap(&self, other: &Self) -> bool {
        let is_number = |kind: Kind| matches!(kind, "integer" | "number");
        let same = self.kind == other.kind || (is_number(self.kind) && is_number(other.kind));
        match (self.choices(), other.choices()) {
            (Some(ones), Some(others)) if same => ones.iter().any(|one| others.contains(one)),
            _ => same,
        }
    }
}

/// What a schema allows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Allowed {
    Anything,
    Values(Vec<Values>),
}

pub(super) fn refused<T>(keyword: &str) -> Result<T> {
    bail!(
        InvalidRequest,
        "the schema keyword {keyword:?} can't be kept in this model's notation of arguments; leave it out"
    )
}

/// What a schema allows. It may refer to definitions in `root`.
pub(super) fn allowed(schema: &Value, root: &Map<String, Value>) -> Result<Allowed> {
    allowed_at(schema, root, 0)
}

fn allowed_at(schema: &Value, root: &Map<String, Value>, depth: usize) -> Result<Allowed> {
    let fields = match schema {
        Value::Bool(true) => return Ok(Allowed::Anything),
        Value::Object(fields) => fields,
        Value::Bool(false) => bail!(InvalidRequest, "the schema is false, which no value obeys"),
        other => bail!(InvalidRequest, "the schema is {other}, wanted an object"),
    };
    if let Some(keyword) = REFUSED.iter().find(|keyword| fields.contains_key(**keyword)) {
        return refused(keyword);
    }
    if depth > MAX_DEPTH {
        return refused("$ref");
    }
    let applicator = APPLICATORS.into_iter().find_map(|name| Some((name, fields.get(name)?)));
    let Some((name, value)) = applicator else { return of_kinds(fields) };
    // This keyword and those beside it would all apply.
    if fields.keys().any(|key| key != name && is_assertion(key)) {
        return refused(name);
    }
    match (name, value) {
        ("$ref", Value::String(reference)) => match followed(reference, root) {
            Some(schema) => allowed_at(schema, root, depth + 1),
            None => bail!(
                InvalidRequest,
                "the schema keyword \"$ref\" names {reference:?}, which the function's parameters do not have"
            ),
        },
        ("allOf", Value::Array(schemas)) if schemas.len() == 1 => allowed_at(&schemas[0], root, depth + 1),
        ("anyOf" | "oneOf", Value::Array(schemas)) if !schemas.is_empty() => {
            let mut all: Vec<Values> = Vec::new();
            for schema in schemas {
                match allowed_at(schema, root, depth + 1)? {
                    Allowed::Anything if name == "anyOf" => return Ok(Allowed::Anything),
                    Allowed::Anything => return refused(name),
                    // oneOf forbids values that two of its schemas allow.
                    Allowed::Values(values)
                        if name == "oneOf" && values.iter().any(|one| all.iter().any(|other| one.overlap(other))) =>
                    {
                        return refused(name);
                    }
                    Allowed::Values(values) => all.extend(values),
                }
            }
            Ok(Allowed::Values(all))
        }
        (name, _) => refused(name),
    }
}

fn is_assertion(key: &str) -> bool {
    matches!(key, "type" | "enum" | "const")
        || OF_TEXTS.contains(&key)
        || OF_NUMBERS.contains(&key)
        || OF_ARRAYS.contains(&key)
        || OF_OBJECTS.contains(&key)
        || APPLICATORS.contains(&key)
}

/// The part of the function's parameters that a reference such as `#/$defs/Color` names.
fn followed<'a>(reference: &str, root: &'a Map<String, Value>) -> Option<&'a Value> {
    let mut path = reference.strip_prefix("#/")?.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    let first = root.get(&path.next()?)?;
    path.try_fold(first, |value, part| match value {
        Value::Array(values) => values.get(part.parse::<usize>().ok()?),
        value => value.get(&part),
    })
}

fn of_kinds(fields: &Map<String, Value>) -> Result<Allowed> {
    let choices = match (fields.get("enum"), fields.get("const")) {
        (Some(Value::Array(values)), None) => Some(values.clone()),
        (None, Some(value)) => Some(vec![value.clone()]),
        (None, None) => None,
        _ => return refused("enum"),
    };
    let kinds: Vec<Kind> = match fields.get("type") {
        Some(Value::String(name)) => vec![known(name)?],
        Some(Value::Array(names)) => {
            let names = names.iter().map(|name| known(name.as_str().unwrap_or_default()));
            names.collect::<Result<_>>()?
        }
        Some(_) => return refused("type"),
        None if choices.is_none() && !fields.keys().any(|key| is_assertion(key)) => return Ok(Allowed::Anything),
        // Numbers include integers.
        None => KINDS.into_iter().filter(|kind| *kind != "integer").collect(),
    };
    let mut values = Vec::new();
    for kind in kinds {
        let own: &[&str] = match kind {
            "string" => &OF_TEXTS,
            "integer" | "number" => &OF_NUMBERS,
            "array" => &OF_ARRAYS,
            "object" => &OF_OBJECTS,
            _ => &[],
        };
        let mut keywords: Map<String, Value> =
            fields.iter().filter(|(key, _)| own.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect();
        if let Some(choices) = &choices {
            let of_kind: Vec<Value> = choices.iter().filter(|value| is_of(kind, value)).cloned().collect();
            if of_kind.is_empty() {
                continue;
            }
            keywords.insert("enum".to_owned(), Value::Array(of_kind));
        }
        values.push(Values { kind, keywords });
    }
    if values.is_empty() {
        bail!(InvalidRequest, "the schema's enum or const has no value of its type");
    }
    Ok(Allowed::Values(values))
}

fn known(name: &str) -> Result<Kind> {
    match KINDS.into_iter().find(|kind| *kind == name) {
        Some(kind) => Ok(kind),
        None => bail!(InvalidRequest, "the schema keyword \"type\" has {name:?}, wanted one of {KINDS:?}"),
    }
}

fn is_of(kind: Kind, value: &Value) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => {
            kind == "number" || (kind == "integer" && number.as_f64().is_some_and(|number| number.fract() == 0.0))
        }
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// A property of an object.
pub(super) struct Property {
    pub name: String,
    pub schema: Value,
    pub is_required: bool,
}

/// The arguments of a function: an object, even if the schema does not say so.
pub(super) fn arguments(parameters: &Map<String, Value>) -> Result<Values> {
    let mut schema = parameters.clone();
    if !APPLICATORS.iter().any(|name| schema.contains_key(*name)) {
        schema.entry("type").or_insert_with(|| json!("object"));
    }
    match allowed(&Value::Object(schema), parameters)? {
        Allowed::Values(mut values) if values.len() == 1 && values[0].kind == "object" => Ok(values.remove(0)),
        _ => bail!(InvalidRequest, "the function's parameters are not a schema of one object"),
    }
}

/// The properties that an object may have, in order: those that the schema names. Others are optional, so they are never written.
pub(super) fn properties(object: &Values) -> Result<Vec<Property>> {
    object.refuse(&["enum", "patternProperties"])?;
    let keywords = &object.keywords;
    let required: Vec<&str> =
        keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut properties: Vec<Property> = match keywords.get("properties") {
        None => Vec::new(),
        Some(Value::Object(named)) => named
            .iter()
            .map(|(name, schema)| (name, schema, required.contains(&name.as_str())))
            // A property that must be absent is never written.
            .filter(|(_, schema, is_required)| *is_required || **schema != Value::Bool(false))
            .map(|(name, schema, is_required)| Property { name: name.clone(), schema: schema.clone(), is_required })
            .collect(),
        Some(_) => return refused("properties"),
    };
    for name in &required {
        if !properties.iter().any(|property| property.name == *name) {
            let schema = keywords.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
            properties.push(Property { name: (*name).to_owned(), schema, is_required: true });
        }
    }
    let wanted = properties.iter().filter(|property| property.is_required).count() as u64;
    let number = |name: &str| keywords.get(name).map(|value| value.as_u64().unwrap_or(u64::MAX));
    if number("minProperties").is_some_and(|least| least > wanted) {
        return refused("minProperties");
    }
    if keywords.get("maxProperties").is_some_and(|most| most.as_u64().unwrap_or(0) < properties.len() as u64) {
        return refused("maxProperties");
    }
    Ok(properties)
}

/// The schema of an argument, if the parameters have one. For parsers.
pub(super) fn of_argument<'a>(parameters: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let mut object = parameters;
    for _ in 0..MAX_DEPTH {
        if let Some(schema) = object.get("properties").and_then(|properties| properties.get(name)) {
            return Some(schema);
        }
        object = match (object.get("$ref"), object.get("allOf"), object.get("additionalProperties")) {
            (Some(Value::String(reference)), ..) => followed(reference, parameters)?.as_object()?,
            (None, Some(Value::Array(schemas)), _) if schemas.len() == 1 => schemas[0].as_object()?,
            (_, _, others) => return others,
        };
    }
    None
}

/// The types that a schema allows, if it names them in a simple way.
pub(super) fn types_of(schema: &Value, root: &Map<String, Value>) -> Option<Vec<Kind>> {
    types_at(schema, root, 0)
}

fn types_at(schema: &Value, root: &Map<String, Value>, depth: usize) -> Option<Vec<Kind>> {
    let of_value = |value: &Value| KINDS.into_iter().find(|kind| is_of(kind, value));
    let named = |name: &str| KINDS.into_iter().find(|kind| *kind == name);
    let mut types: Vec<Kind> = match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::String(name)), ..) => named(name).into_iter().collect(),
        (Some(Value::Array(names)), ..) => names.iter().filter_map(Value::as_str).filter_map(named).collect(),
        (_, Some(Value::Array(values)), _) => values.iter().filter_map(of_value).collect(),
        (.., Some(value)) => of_value(value).into_iter().collect(),
        _ if depth > MAX_DEPTH => return None,
        _ => match (schema.get("$ref"), schema.get("allOf")) {
            (Some(reference), _) => types_at(followed(reference.as_str()?, root)?, root, depth + 1)?,
            (None, Some(Value::Array(schemas))) if schemas.len() == 1 => types_at(&schemas[0], root, depth + 1)?,
            _ => {
                let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
                choices.iter().map(|schema| types_at(schema, root, depth + 1)).collect::<Option<Vec<_>>>()?.concat()
            }
        },
    };
    types.sort();
    types.dedup();
    (!types.is_empty()).then_some(types)
}
