//! Keys of `config.json` → metadata values.

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};
use crate::model::arch::{ConfigKey, ConstValue, KeyMapping};
use crate::model::gguf::{Array, Value};

/// The metadata key (without the architecture) and the value for a key of `config.json`; `None` if it becomes no metadata.
pub(super) fn translate(key: &ConfigKey, config: &Map<String, Json>) -> Result<Option<(&'static str, Value)>> {
    let ConfigKey { key, mapping, required } = *key;
    let value = match (config.get(key), mapping) {
        (Some(Json::Null), KeyMapping::NumberOrNone(name)) => return Ok(Some((name, Value::U64(0)))),
        (None | Some(Json::Null), _) if required => {
            bail!(InvalidMetadata, "config.json has no key {key:?}, which this model_type needs")
        }
        (None | Some(Json::Null), _) => return Ok(None),
        (Some(value), _) => value,
    };
    Ok(match mapping {
        KeyMapping::Integer(name) => Some((name, integers(value).ok_or_else(|| mismatch(key, value, "an integer"))?)),
        KeyMapping::Float(name) => Some((name, Value::F64(float(key, value)?))),
        KeyMapping::NumberOrNone(name) => match (value.as_u64(), float(key, value)?) {
            (Some(number), _) if number > 0 => Some((name, Value::U64(number))),
            (None, number) if number > 0.0 => Some((name, Value::F64(number))),
            _ => return Err(mismatch(key, value, "a number above 0, or null")),
        },
        KeyMapping::Bool(name) => {
            Some((name, Value::Bool(value.as_bool().ok_or_else(|| mismatch(key, value, "true or false"))?)))
        }
        KeyMapping::Text(name) => {
            let text = value.as_str().ok_or_else(|| mismatch(key, value, "a text"))?;
            Some((name, Value::String(text.to_owned())))
        }
        KeyMapping::InverseSqrt(name) => match float(key, value)? {
            number if number > 0.0 => Some((name, Value::F64(1.0 / number.sqrt()))),
            _ => return Err(mismatch(key, value, "a number above 0")),
        },
        KeyMapping::OneUnless(condition, name) => {
            let is = |key: &str, value: Option<&Json>| match value {
                None | Some(Json::Null) => Ok(false),
                Some(Json::Bool(is)) => Ok(*is),
                Some(other) => Err(mismatch(key, other, "true or false")),
            };
            let applies = is(key, Some(value))? && !is(condition, config.get(condition))?;
            applies.then_some((name, Value::U64(1)))
        }
        KeyMapping::IntegerIf(condition, name) => match config.get(condition) {
            None | Some(Json::Null | Json::Bool(false)) => None,
            Some(Json::Bool(true)) => Some((name, integers(value).ok_or_else(|| mismatch(key, value, "an integer"))?)),
            Some(other) => return Err(mismatch(condition, other, "true or false")),
        },
        KeyMapping::HasWindows(name) => match (value.as_bool(), config.get("layer_types")) {
            (None, _) => return Err(mismatch(key, value, "true or false")),
            (Some(false), _) => None,
            (Some(true), _) if !config.contains_key("sliding_window") => {
                bail!(InvalidMetadata, "config.json has {key:?}: true and no key \"sliding_window\"")
            }
            (Some(true), Some(types @ Json::Array(_))) => Some((name, windows("layer_types", types)?)),
            (Some(true), _) => {
                let count = |key: &str| match config.get(key).map(|value| (value, value.as_u64())) {
                    Some((_, Some(count))) if count <= MAX_LAYERS => Ok(count),
                    Some((value, _)) => Err(mismatch(key, value, "a number of layers")),
                    None => bail!(InvalidMetadata, "config.json has windows (use_sliding_window) and no key {key:?}"),
                };
                let (first, layers) = (count("max_window_layers")?, count("num_hidden_layers")?);
                Some((name, Value::Array(Array::Bool((0..layers).map(|layer| layer >= first).collect()))))
            }
        },
        KeyMapping::Windows(name) => Some((name, windows(key, value)?)),
        KeyMapping::Recurrent(name) => Some((name, kinds_of_layers(key, value, "linear_attention")?)),
        KeyMapping::AllowOnly(allowed) => {
            let is = |constant: &ConstValue| match *constant {
                ConstValue::Bool(wanted) => value.as_bool() == Some(wanted),
                ConstValue::Number(wanted) => value.as_f64() == Some(wanted),
                ConstValue::Text(wanted) => value.as_str() == Some(wanted),
                ConstValue::MultipleOf(..) | ConstValue::Of(_) => false, // of defaults only
            };
            if !allowed.iter().any(is) {
                bail!(
                    UnsupportedArchitecture,
                    "config.json has {key:?}: {}, which is not supported for this model_type",
                    shortened(value)
                );
            }
            None
        }
    })
}

/// More than any model has.
const MAX_LAYERS: u64 = 1 << 16;

/// Which layers have a window, from each layer's kind of attention.
fn windows(key: &str, value: &Json) -> Result<Value> {
    kinds_of_layers(key, value, "sliding_attention")
}

/// Whether each layer is of a kind; the others have full attention.
fn kinds_of_layers(key: &str, value: &Json, kind: &str) -> Result<Value> {
    let Json::Array(layers) = value else { return Err(mismatch(key, value, "an array of texts")) };
    let is_of_kind = |layer: &Json| match layer.as_str() {
        Some("full_attention") => Ok(false),
        Some(other) if other == kind => Ok(true),
        _ => bail!(
            UnsupportedArchitecture,
            "config.json has a layer with {} in {key:?}; supported are \"full_attention\" and {kind:?}",
            shortened(layer)
        ),
    };
    Ok(Value::Array(Array::Bool(layers.iter().map(is_of_kind).collect::<Result<_>>()?)))
}

/// A finite number.
pub(super) fn float(key: &str, value: &Json) -> Result<f64> {
    value.as_f64().filter(|number| number.is_finite()).ok_or_else(|| mismatch(key, value, "a number"))
}

pub(super) fn mismatch(key: &str, value: &Json, wanted: &str) -> Error {
    err!(InvalidMetadata, "config.json has {key:?}: {}, wanted {wanted}", shortened(value))
}

fn integers(value: &Json) -> Option<Value> {
    match value {
        Json::Array(values) => {
            values.iter().map(Json::as_i64).collect::<Option<_>>().map(|v| Value::Array(Array::I64(v)))
        }
        _ => value.as_u64().map(Value::U64).or_else(|| value.as_i64().map(Value::I64)),
    }
}

/// A value for a message, shortened if it is long.
pub(super) fn shortened(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
