//! What takes the place of the operators whose cost depends on their operands (`checked.rs` puts it there): each pays first.
//!
//! The names are no identifiers, so no template can name, call or replace them.

use minijinja::value::{Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, tests};

use super::budget::{pay, refused};
use super::python::{slice, to_python_string};
use super::values::{ITEM, Namespace, admit, list, measure, pay_for_text, tuple};

pub(super) const ADD: &str = "+";
pub(super) const MULTIPLY: &str = "*";
pub(super) const CONCATENATE: &str = "~";
pub(super) const SLICE: &str = "[:]";
pub(super) const ITEM_OF: &str = "[]";
pub(super) const LIST: &str = "[,]";
pub(super) const TUPLE: &str = "(,)";
pub(super) const DICT: &str = "{,}";
pub(super) const EQUAL: &str = "==";
pub(super) const UNEQUAL: &str = "!=";
pub(super) const LESS: &str = "<";
pub(super) const LESS_OR_EQUAL: &str = "<=";
pub(super) const GREATER: &str = ">";
pub(super) const GREATER_OR_EQUAL: &str = ">=";
pub(super) const IN: &str = "a in b";
pub(super) const COMPARE: &str = "a < b < c";
pub(super) const ITERATE: &str = "for a in b";
pub(super) const UNPACK: &str = "a, b =";
pub(super) const ARGUMENTS: &str = "f(*a)";
pub(super) const NAMED_ARGUMENTS: &str = "f(**a)";
pub(super) const CHANGED: &str = "loop.changed";
pub(super) const SET_ATTRIBUTE: &str = "a.b =";
pub(super) const OTHER_TEMPLATE: &str = "include a";

pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function(ADD, add);
    environment.add_function(MULTIPLY, multiply);
    environment.add_function(CONCATENATE, concatenate);
    environment.add_function(SLICE, |state: &mut State, value: &Value, start: &Value, stop: &Value, step: &Value| {
        slice(state, value, &[start.clone(), stop.clone(), step.clone()])
    });
    environment.add_function(ITEM_OF, item_of);
    // Lists of arguments hold the named ones too.
    environment.add_function(LIST, |state: &mut State, items: Rest<ValueOrKwargs>| list(state, items.into_values()));
    environment.add_function(TUPLE, |state: &mut State, items: Rest<Value>| tuple(state, items.0));
    environment.add_function(DICT, |state: &mut State, items: Rest<Value>| {
        for key in items.iter().step_by(2) {
            pay_for_key(state, key)?;
        }
        let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        admit(state, Value::from_pairs(pairs))
    });
    for name in [EQUAL, UNEQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, IN] {
        environment.add_function(name, move |state: &mut State, left: &Value, right: &Value| {
            compare(state, left, right, name)
        });
    }
    environment.add_function(COMPARE, |state: &mut State, left: &Value, right: &Value, operator: &str| {
        let result = compare(state, left, right, operator)?;
        Ok::<_, Error>(Value::from(Tuple::from([Value::from(result), right.clone()])))
    });
    environment.add_function(ITERATE, |state: &mut State, value: &Value| {
        // The characters of a text are counted.
        pay(state, value.as_str().map_or(0, |text| text.len() as u64))?;
        Ok::<_, Error>(value.clone())
    });
    environment.add_function(UNPACK, |state: &mut State, value: &Value| {
        pay_for_items(state, value)?;
        Ok::<_, Error>(value.clone())
    });
    environment.add_function(CHANGED, |state: &mut State, values: Rest<Value>| {
        let values = list(state, values.0)?;
        let size = measure(state, &values)?.size;
        pay(state, size)?;
        Ok::<_, Error>(values)
    });
    environment.add_function(ARGUMENTS, |state: &mut State, lists: Rest<ValueOrKwargs>| {
        let mut all = Vec::new();
        for list in lists.iter() {
            for item in list.try_iter()?.checked() {
                let item = item?;
                pay(state, ITEM + item.as_str().map_or(0, |text| text.len() as u64))?;
                all.push(item);
            }
        }
        Ok::<_, Error>(Value::from(all))
    });
    environment.add_function(NAMED_ARGUMENTS, |state: &mut State, dicts: Rest<ValueOrKwargs>| {
        let mut all = Vec::new();
        for dict in dicts.iter() {
            let Some(pairs) =
                dict.as_object().filter(|_| dict.kind() == ValueKind::Map).and_then(|dict| dict.try_iter_pairs())
            else {
                return Err(refused(format!("arguments after ** are a {}, wanted a dict", dict.kind())));
            };
            for pair in pairs {
                pay_for_key(state, &pair.0)?;
                all.push(pair);
            }
        }
        Ok(Value::from_pairs(all))
    });
    environment.add_function(SET_ATTRIBUTE, |state: &mut State, value: &Value, namespace: &Value, name: &str| {
        pay(state, ITEM)?;
        match namespace.downcast_object_ref::<Namespace>() {
            Some(namespace) => namespace.set(name, value.clone()),
            None => Err(refused(format!("can only assign to namespaces, not {}", namespace.kind()))),
        }
    });
    environment.add_function(OTHER_TEMPLATE, |name: &Value| -> Result<Value, Error> {
        let name: String = name.as_str().unwrap_or_default().chars().take(100).collect();
        Err(refused(format!("the template asks for another template, {name:?}, and there is none")))
    });
    environment.add_function("namespace", namespace);
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    refused(format!("tried to use {operator} operator on unsupported types {} and {}", left.kind(), right.kind()))
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn add(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        pay_for_text(state, (left.len() + right.len()) as u64)?;
        return Ok(Value::from([left, right].concat()));
    }
    if is_list(left) && is_list(right) {
        if left.is_tuple() != right.is_tuple() {
            return Err(unsupported("+", left, right));
        }
        pay_for_items(state, left)?;
        pay_for_items(state, right)?;
        let items = left.try_iter()?.checked().chain(right.try_iter()?.checked()).collect::<Result<Vec<_>, _>>()?;
        return if left.is_tuple() { tuple(state, items) } else { list(state, items) };
    }
    calculate(left, right, "+", i128::checked_add, |left, right| left + right)
}

fn multiply(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let (repeated, times) = if left.as_str().is_some() || is_list(left) { (left, right) } else { (right, left) };
    if repeated.as_str().is_none() && !is_list(repeated) {
        return calculate(left, right, "*", i128::checked_mul, |left, right| left * right);
    }
    let times = match times.kind() {
        // Python gives nothing for a negative number.
        ValueKind::Number | ValueKind::Bool if times.is_integer() || times.kind() == ValueKind::Bool => {
            u64::try_from(i128::try_from(times.clone())?.max(0)).unwrap_or(u64::MAX)
        }
        _ => return Err(unsupported("*", left, right)),
    };
    if let Some(text) = repeated.as_str() {
        pay_for_text(state, (text.len() as u64).saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times as usize)));
    }
    let size = measure(state, repeated)?.size;
    pay(state, size.saturating_mul(times))?;
    let items = repeated.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
    let items = std::iter::repeat_n(items, times as usize).flatten().collect();
    if repeated.is_tuple() { tuple(state, items) } else { list(state, items) }
}

/// Numbers, and `true` and `false` as 1 and 0.
fn calculate(
    left: &Value,
    right: &Value,
    operator: &str,
    whole: fn(i128, i128) -> Option<i128>,
    fraction: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let is_number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(left) || !is_number(right) {
        return Err(unsupported(operator, left, right));
    }
    let is_fraction = |value: &Value| value.kind() == ValueKind::Number && !value.is_integer();
    if is_fraction(left) || is_fraction(right) {
        return Ok(Value::from(fraction(number(left)?, number(right)?)));
    }
    let (left, right) = (i128::try_from(left.clone())?, i128::try_from(right.clone())?);
    match whole(left, right) {
        Some(result) => Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from)),
        None => Err(refused(format!("unable to calculate {left} {operator} {right}"))),
    }
}

fn number(value: &Value) -> Result<f64, Error> {
    match i128::try_from(value.clone()) {
        Ok(whole) if value.is_integer() || value.kind() == ValueKind::Bool => Ok(whole as f64),
        _ => f64::try_from(value.clone()),
    }
}

fn concatenate(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let mut size = 0_u64;
    for value in [left, right] {
        size = size.saturating_add(match value.as_str() {
            Some(text) => text.len() as u64,
            // What is not a text is written like code, where a byte may take five.
            None => measure(state, value)?.size.saturating_mul(5),
        });
    }
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        pay_for_text(state, size)?;
        return Ok(Value::from([left, right].concat()));
    }
    pay(state, size)?;
    admit(state, Value::from(to_python_string(left) + &to_python_string(right)))
}

/// `value[key]`.
fn item_of(state: &mut State, value: &Value, key: &Value) -> Result<Value, Error> {
    match value.as_str() {
        // The characters of a text are counted from its beginning.
        Some(text) => pay(state, text.len() as u64)?,
        None if value.kind() == ValueKind::Iterable => pay_for_items(state, value)?,
        None => {}
    }
    pay_for_key(state, key)?;
    value.get_item(key)
}

fn compare(state: &mut State, left: &Value, right: &Value, operator: &str) -> Result<bool, Error> {
    match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => pay(state, (left.len() + right.len()) as u64 / 8)?,
        // A text and a number, say, are told apart at once.
        _ if left.as_object().is_some() || right.as_object().is_some() => {
            let size = measure(state, left)?.size + measure(state, right)?.size;
            pay(state, size)?;
        }
        _ => {}
    }
    Ok(match operator {
        EQUAL => left == right,
        UNEQUAL => left != right,
        LESS => left < right,
        LESS_OR_EQUAL => left <= right,
        GREATER => left > right,
        GREATER_OR_EQUAL => left >= right,
        IN if right.is_undefined() => false,
        IN if right.as_str().is_some() || right.as_object().is_some() => tests::is_in(state, left, right)?,
        _ => return Err(refused("cannot perform a containment check on this value")),
    })
}

/// Pays for what a key of a dict costs: it is hashed.
fn pay_for_key(state: &mut State, key: &Value) -> Result<(), Error> {
    let size = match key.as_str() {
        Some(text) => text.len() as u64,
        None if key.as_object().is_some() => measure(state, key)?.size,
        None => 0,
    };
    pay(state, size + ITEM)
}

/// Pays for a walk over the items of a value.
fn pay_for_items(state: &mut State, value: &Value) -> Result<(), Error> {
    let items = match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or(0),
    };
    pay(state, (items as u64).saturating_mul(ITEM))
}

/// `namespace(dict, name=value, …)`.
fn namespace(state: &mut State, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let namespace = Namespace::default();
    for dict in arguments.iter() {
        let pairs = dict.as_object().filter(|_| dict.kind() == ValueKind::Map).and_then(|dict| dict.try_iter_pairs());
        let Some(pairs) = pairs else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a namespace is made of a dict, not a {}", dict.kind()),
            ));
        };
        for (key, value) in pairs {
            pay_for_key(state, &key)?;
            namespace.set(&to_python_string(&key), value)?;
        }
    }
    Ok(Value::from_object(namespace))
}
