//! The lists and dicts of a rendering, which know how large they are, and namespaces.
//!
//! A list may hold another one many times, and itself nested in itself, so what it takes to print, compare or free it does not follow
//! from the memory that it takes. Each list and dict is measured when it is made, as if every part of it were written out, and is refused
//! where it is too large or too deep. None is lazy, and what can change later (loops, namespaces) is not let into it: so what was
//! measured holds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Serde, Tuple};
use minijinja::{Error, State, Value};
use serde_json::Value as Json;

use super::budget::{pay, refused};

/// Bytes of a text or of a list with all that it holds.
pub(super) const LARGEST_VALUE: u64 = 32 << 20;

/// Levels of lists and dicts in each other. JSON of requests has 128 at most.
pub(super) const DEEPEST_VALUE: u32 = 200;

/// What an item takes by itself.
pub(super) const ITEM: u64 = 24;

/// Units for an item that is looked at.
const VISIT: u64 = 8;

/// How large a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// Bytes of texts, and [`ITEM`] for each item at any depth.
    pub(super) size: u64,
    /// Items at any depth.
    pub(super) count: u64,
    /// Levels of containers: 0 for a text.
    pub(super) depth: u32,
}

impl Measure {
    fn text(text: &str) -> Self {
        Self { size: text.len() as u64 + ITEM, count: 1, depth: 0 }
    }

    fn add(&mut self, item: Self) -> Result<(), Error> {
        self.size = self.size.saturating_add(item.size);
        self.count = self.count.saturating_add(item.count);
        self.depth = self.depth.max(item.depth.saturating_add(1));
        if self.size > LARGEST_VALUE {
            return Err(too_large());
        }
        if self.depth > DEEPEST_VALUE {
            return Err(refused(format!("lists or dicts are nested more than {DEEPEST_VALUE} deep")));
        }
        Ok(())
    }
}

fn too_large() -> Error {
    refused(format!("a value has more than {LARGEST_VALUE} bytes"))
}

/// A list or a dict whose measure is known.
struct Made {
    object: DynObject,
    repr: ObjectRepr,
    measure: Measure,
}

impl fmt::Debug for Made {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.object, formatter)
    }
}

impl Object for Made {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.repr
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.object.get_value(key)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.object.get_value_by_str(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.object.enumerate()
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.object.enumerator_len()
    }

    fn call_method(self: &Arc<Self>, state: &mut State, method: &str, args: &[Value]) -> Result<Value, Error> {
        self.object.call_method(state, method, args)
    }
}

/// Attributes that a template may set, which its own scopes do not allow: `namespace(found=false)`.
#[derive(Debug, Default)]
pub(super) struct Namespace(Mutex<BTreeMap<Arc<str>, Value>>);

impl Object for Namespace {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let attributes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Enumerator::Values(attributes.keys().cloned().map(Value::from).collect())
    }
}

impl Namespace {
    /// Sets an attribute. A namespace in a namespace could hold itself, which nothing could print or free.
    pub(super) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if value.downcast_object_ref::<Self>().is_some() {
            return Err(refused("a namespace can't hold a namespace"));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), value);
        Ok(())
    }

    /// How large all attributes are together. Loops and macros print their name alone.
    fn measure(&self, visited: &mut u64) -> Result<Measure, Error> {
        let mut whole = Measure::text("");
        for (name, value) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            whole.add(Measure::text(name))?;
            whole.add(if is_changing(value) { Measure::text("") } else { measure_at(value, 0, visited)? })?;
        }
        Ok(whole)
    }
}

/// Whether a value is one of the template's loops, macros, modules or namespaces, whose size is not known.
fn is_changing(value: &Value) -> bool {
    let name = value.as_object().map_or("", DynObject::type_name);
    ["::Loop", "::Macro", "::Module", "::Namespace"].iter().any(|ending| name.ends_with(ending))
}

/// How large a value is.
pub(super) fn measure(state: &mut State, value: &Value) -> Result<Measure, Error> {
    let mut visited = 0;
    let measured = measure_at(value, 0, &mut visited);
    pay(state, visited * VISIT)?;
    measured
}

/// How large a value is that is about to be printed.
pub(super) fn measure_to_print(state: &mut State, value: &Value) -> Result<Measure, Error> {
    let mut visited = 0;
    let measured = match value.downcast_object_ref::<Namespace>() {
        Some(namespace) => namespace.measure(&mut visited),
        None if is_changing(value) => Ok(Measure::text("")),
        None => measure_at(value, 0, &mut visited),
    };
    pay(state, visited * VISIT)?;
    measured
}

/// Counts the items that it looks at: what has been measured before is not looked at again.
fn measure_at(value: &Value, level: u32, visited: &mut u64) -> Result<Measure, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Measure::text(text));
    }
    let mut whole = Measure::text("");
    let Some(object) = value.as_object() else { return Ok(whole) };
    if let Some(made) = object.downcast_ref::<Made>() {
        return Ok(made.measure);
    }
    if is_changing(value) {
        return Err(refused("a loop, a macro or a namespace is no value for a list, a dict, a filter or an operator"));
    }
    if level > DEEPEST_VALUE {
        return Err(refused(format!("lists or dicts are nested more than {DEEPEST_VALUE} deep")));
    }
    match object.repr() {
        ObjectRepr::Map => {
            for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                *visited += 2;
                whole.add(measure_at(&key, level + 1, visited)?)?;
                whole.add(measure_at(&value, level + 1, visited)?)?;
            }
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                *visited += 1;
                whole.add(measure_at(&item, level + 1, visited)?)?;
            }
        }
        _ => {}
    }
    Ok(whole)
}

/// Pays for a text that is about to be made.
pub(super) fn pay_for_text(state: &mut State, bytes: u64) -> Result<(), Error> {
    if bytes > LARGEST_VALUE {
        return Err(too_large());
    }
    pay(state, bytes + ITEM)
}

/// A value that something has made for the template: measured, and paid for.
pub(super) fn admit(state: &mut State, value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        pay_for_text(state, text.len() as u64)?;
        return Ok(value);
    }
    let Some(object) = value.as_object() else { return Ok(value) };
    let repr = object.repr();
    if object.downcast_ref::<Made>().is_some() || is_changing(&value) || matches!(repr, ObjectRepr::Plain) {
        return Ok(value);
    }
    let object = match repr {
        ObjectRepr::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()?.checked() {
                pay(state, ITEM)?;
                items.push(item?);
            }
            DynObject::from(Arc::new(items))
        }
        _ => object.clone(),
    };
    pay(state, ITEM.saturating_mul(object.enumerator_len().unwrap_or(0) as u64 + 2))?;
    let measure = measure(state, &Value::from_dyn_object(object.clone()))?;
    if value.is_tuple() {
        return Ok(value);
    }
    Ok(Value::from_object(Made { object, repr, measure }))
}

/// A list of these items.
pub(super) fn list(state: &mut State, items: Vec<Value>) -> Result<Value, Error> {
    admit(state, Value::from(items))
}

/// A tuple of these items.
pub(super) fn tuple(state: &mut State, items: Vec<Value>) -> Result<Value, Error> {
    admit(state, Value::from(Tuple::from(items)))
}

/// The variables of a rendering.
pub(super) fn from_json(json: &Json) -> Result<Value, Error> {
    let (value, repr) = match json {
        Json::Array(items) => {
            (Value::from(items.iter().map(from_json).collect::<Result<Vec<_>, _>>()?), ObjectRepr::Seq)
        }
        Json::Object(entries) => {
            let pairs = entries.iter().map(|(key, value)| Ok((Value::from(key.as_str()), from_json(value)?)));
            (Value::from_pairs(pairs.collect::<Result<Vec<_>, Error>>()?), ObjectRepr::Map)
        }
        scalar => return Ok(Value::from(Serde(scalar))),
    };
    let measure = measure_at(&value, 0, &mut 0)?;
    match value.as_object() {
        Some(object) => Ok(Value::from_object(Made { object: object.clone(), repr, measure })),
        None => Ok(value),
    }
}
