//! Keys of `config.json` → metadata values.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};
use crate::model::arch::{ConfigKey, ConstValue, KeyMapping, LayerKind};
use crate::model::gguf::{Array, Value};
use crate::tensor::ops::erfc;

/// The metadata key (without the architecture) and the value for a key of `config.json`; `None` if it becomes no metadata.
pub(super) fn translate(key: &ConfigKey, config: &Map<String, Json>) -> Result<Option<(&'static str, Value)>> {
    let ConfigKey { key, mapping, required } = *key;
    let value = match (config.get(key), mapping) {
        (Some(Json::Null), KeyMapping::NumberOrNone(name)) => return Ok(Some((name, Value::U64(0)))),
        (None | Some(Json::Null), KeyMapping::TextIs(_, name)) => return Ok(Some((name, Value::Bool(false)))),
        (None | Some(Json::Null), _) if required => {
            bail!(InvalidMetadata, "config.json has no key {key:?}, which this model_type needs")
        }
        (None | Some(Json::Null), _) => return Ok(None),
        (Some(value), _) => value,
    };
    Ok(match mapping {
        KeyMapping::Integer(name) => Some((name, integers(value).ok_or_else(|| mismatch(key, value, "an integer"))?)),
        KeyMapping::IntegerOrAuto(_) if value.as_str() == Some("auto") => None,
        KeyMapping::IntegerOrAuto(name) => {
            Some((name, integers(value).ok_or_else(|| mismatch(key, value, "an integer or \"auto\""))?))
        }
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
        KeyMapping::Sum(other, name) => {
            let integer = |key: &str, value: &Json| value.as_u64().ok_or_else(|| mismatch(key, value, "an integer"));
            let Some(more) = config.get(other) else {
                bail!(InvalidMetadata, "config.json has no key {other:?}, which this model_type needs")
            };
            match integer(key, value)?.checked_add(integer(other, more)?) {
                Some(sum) => Some((name, Value::U64(sum))),
                None => return Err(mismatch(key, value, "a smaller integer")),
            }
        }
        KeyMapping::OverSqrt(other, name) | KeyMapping::Under(other, name) => {
            let Some(more) = config.get(other) else {
                bail!(InvalidMetadata, "config.json has no key {other:?}, which this model_type needs")
            };
            let (own, more) = (float(key, value)?, float(other, more)?);
            let result = if matches!(mapping, KeyMapping::Under(..)) { more / own } else { own / more.sqrt() };
            if !(own > 0.0 && more > 0.0 && result.is_finite()) {
                return Err(mismatch(key, value, "a number above 0"));
            }
            Some((name, Value::F64(result)))
        }
        KeyMapping::LateWindows(_) if config.get("layer_types").is_some_and(|types| !types.is_null()) => None,
        KeyMapping::LateWindows(name) => Some((name, late_windows(key, config)?)),
        KeyMapping::IntegerIfText(condition, text, name) => match config.get(condition).and_then(Json::as_str) {
            Some(found) if found == text => {
                Some((name, integers(value).ok_or_else(|| mismatch(key, value, "an integer"))?))
            }
            _ => None,
        },
        KeyMapping::Gating(name) => match value.as_str() {
            Some("softmax") => Some((name, Value::U64(1))),
            Some("sigmoid") => Some((name, Value::U64(2))),
            _ => bail!(
                UnsupportedArchitecture,
                "config.json has {key:?}: {}; supported are \"softmax\" and \"sigmoid\"",
                shortened(value)
            ),
        },
        KeyMapping::HasWindows(name) => match (value.as_bool(), config.get("layer_types")) {
            (None, _) => return Err(mismatch(key, value, "true or false")),
            (Some(false), _) => None,
            (Some(true), _) if !config.contains_key("sliding_window") => {
                bail!(InvalidMetadata, "config.json has {key:?}: true and no key \"sliding_window\"")
            }
            (Some(true), Some(types @ Json::Array(_))) => Some((name, windows("layer_types", types, &[])?)),
            (Some(true), _) => Some((name, late_windows("max_window_layers", config)?)),
        },
        KeyMapping::Quantiles(name) => {
            let Json::Array(shares) = value else { return Err(mismatch(key, value, "an array of numbers")) };
            let quantile = |share: &Json| match float(key, share)? {
                share if share <= 0.0 => Ok(f32::NEG_INFINITY),
                share if share < 1.0 => Ok(normal_quantile(share) as f32),
                _ => Err(mismatch(key, share, "a number below 1")),
            };
            Some((name, Value::Array(Array::F32(shares.iter().map(quantile).collect::<Result<_>>()?))))
        }
        KeyMapping::Windows(name) => Some((name, windows(key, value, &[])?)),
        KeyMapping::WindowsBeside(name, other) => Some((name, windows(key, value, &[other])?)),
        KeyMapping::Floats(name) => {
            let Json::Array(values) = value else { return Err(mismatch(key, value, "an array of numbers")) };
            let numbers = values.iter().map(|value| Ok(float(key, value)? as f32)).collect::<Result<_>>()?;
            Some((name, Value::Array(Array::F32(numbers))))
        }
        KeyMapping::TextIs(text, name) => {
            Some((name, Value::Bool(value.as_str().ok_or_else(|| mismatch(key, value, "a text"))? == text)))
        }
        KeyMapping::NoLimit => {
            // transformers writes infinities as objects; those that Python writes are null.
            let is_open =
                |value: &Json| value.is_null() || value.get("__float__").and_then(Json::as_str) == Some("Infinity");
            match value.as_array().map(Vec::as_slice) {
                Some([least, most]) if least.as_f64() == Some(0.0) && is_open(most) => None,
                _ => bail!(
                    UnsupportedArchitecture,
                    "config.json has {key:?}: {}; only steps without a limit are supported",
                    shortened(value)
                ),
            }
        }
        KeyMapping::AttentionPeriod => Some(("layer_kinds", attention_period(key, value, config)?)),
        KeyMapping::AttentionLayers => Some(("layer_kinds", attention_layers(key, value, config)?)),
        KeyMapping::AdjustedFeedForward(name) => Some((name, Value::U64(adjusted_feed_forward(key, value, config)?))),
        KeyMapping::LayerKinds(kinds) => Some(("layer_kinds", layer_kinds(key, value, kinds)?)),
        KeyMapping::AllowOnly(allowed) => {
            // Some lists are texts with bars in older files.
            let texts = value.as_array().map(|items| items.iter().map(Json::as_str).collect::<Option<Vec<&str>>>());
            let listed = texts.flatten().map(|texts| texts.join("|"));
            let is = |constant: &ConstValue| match *constant {
                ConstValue::Bool(wanted) => value.as_bool() == Some(wanted),
                ConstValue::Number(wanted) => value.as_f64() == Some(wanted),
                ConstValue::Text(wanted) => value.as_str().or(listed.as_deref()) == Some(wanted),
                ConstValue::MultipleOf(..) | ConstValue::Of(_) | ConstValue::LengthOf(_) => false, // of defaults only
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

/// The number below which this share of normally distributed ones lies.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if 0.5 * erfc(-middle * std::f64::consts::FRAC_1_SQRT_2) < share { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// More than any model has.
const MAX_LAYERS: u64 = 1 << 16;

/// Which layers have a window, from each layer's kind of attention. The others have full attention.
fn windows(key: &str, value: &Json, others: &[&str]) -> Result<Value> {
    let kinds = [&["full_attention", "sliding_attention"], others].concat();
    let windows = each_of(key, value, &kinds)?.into_iter().map(|kind| kind == 1).collect();
    Ok(Value::Array(Array::Bool(windows)))
}

/// The kind of each layer.
fn layer_kinds(key: &str, value: &Json, kinds: &[(&str, LayerKind)]) -> Result<Value> {
    let theirs: Vec<&str> = kinds.iter().map(|(theirs, _)| *theirs).collect();
    let numbers = each_of(key, value, &theirs)?.into_iter().map(|index| kinds[index].1 as u32).collect();
    Ok(Value::Array(Array::U32(numbers)))
}

/// The kinds of all layers, of which these have attention.
fn attention_layers(key: &str, value: &Json, config: &Map<String, Json>) -> Result<Value> {
    let wanted = || mismatch(key, value, "an array of numbers of layers");
    let numbers = value.as_array().ok_or_else(wanted)?.iter().map(Json::as_u64).collect::<Option<BTreeSet<u64>>>();
    let numbers = numbers.ok_or_else(wanted)?;
    let layers = count(config, "num_hidden_layers")?;
    if numbers.iter().any(|number| *number >= layers) {
        return Err(wanted());
    }
    let kind = |layer| if numbers.contains(&layer) { LayerKind::Attention } else { LayerKind::Recurrent };
    Ok(Value::Array(Array::U32((0..layers).map(|layer| kind(layer) as u32).collect())))
}

/// The kinds of all layers, of which every n-th has attention.
fn attention_period(key: &str, value: &Json, config: &Map<String, Json>) -> Result<Value> {
    let (offset, layers) = (count(config, "attn_layer_offset")?, count(config, "num_hidden_layers")?);
    let period = value.as_u64().filter(|period| *period > offset);
    let period = period.ok_or_else(|| mismatch(key, value, "a number of layers above attn_layer_offset"))?;
    let kind = |layer| if layer % period == offset { LayerKind::Attention } else { LayerKind::Recurrent };
    Ok(Value::Array(Array::U32((0..layers).map(|layer| kind(layer) as u32).collect())))
}

/// A number of layers.
/// The layers from the number of a key on have a window.
fn late_windows(key: &str, config: &Map<String, Json>) -> Result<Value> {
    let (first, layers) = (count(config, key)?, count(config, "num_hidden_layers")?);
    Ok(Value::Array(Array::Bool((0..layers).map(|layer| layer >= first).collect())))
}

fn count(config: &Map<String, Json>, key: &str) -> Result<u64> {
    match config.get(key).map(|value| (value, value.as_u64())) {
        Some((_, Some(count))) if count <= MAX_LAYERS => Ok(count),
        Some((value, _)) => Err(mismatch(key, value, "a number of layers")),
        None => bail!(InvalidMetadata, "config.json has no key {key:?}, wanted a number of layers"),
    }
}

/// LFM2's length of the feed-forward, as `KeyMapping::AdjustedFeedForward` says.
fn adjusted_feed_forward(key: &str, value: &Json, config: &Map<String, Json>) -> Result<u64> {
    let (key, value) = match config.get("block_ff_dim") {
        Some(own) if !own.is_null() => ("block_ff_dim", own),
        _ => (key, value),
    };
    let fits = |length: &u64| *length > 0 && *length < 1 << 32;
    let length = value.as_u64().filter(fits).ok_or_else(|| mismatch(key, value, "an integer above 0"))?;
    match config.get("block_auto_adjust_ff_dim") {
        Some(Json::Bool(true)) => {}
        Some(Json::Bool(false)) => return Ok(length),
        other => return Err(mismatch("block_auto_adjust_ff_dim", other.unwrap_or(&Json::Null), "true or false")),
    }
    let of = |key: &str| {
        Ok::<_, Error>(config.get(key).filter(|value| !value.is_null()).map(|value| (value, float(key, value))))
    };
    let two_thirds = 2 * length / 3;
    let Some((_, multiplier)) = of("block_ffn_dim_multiplier")? else { return Ok(two_thirds) };
    let Some((given, multiple)) = of("block_multiple_of")? else { return Ok(two_thirds) };
    let (multiplier, multiple) = (multiplier?, multiple?);
    if !(1.0..4294967296.0).contains(&multiple) || !(0.0..1e6).contains(&multiplier) {
        return Err(mismatch("block_multiple_of", given, "an integer above 0"));
    }
    Ok(((multiplier * two_thirds as f64) as u64).next_multiple_of(multiple as u64))
}

/// For each text of an array, or for each character of a text, which of some it is.
fn each_of(key: &str, value: &Json, texts: &[&str]) -> Result<Vec<usize>> {
    let characters;
    let layers = match value {
        Json::Array(layers) => layers,
        Json::String(text) if text.len() as u64 <= MAX_LAYERS => {
            characters = text.chars().map(|character| Json::from(character.to_string())).collect();
            &characters
        }
        _ => return Err(mismatch(key, value, "an array of texts")),
    };
    let index = |layer: &Json| match layer.as_str().and_then(|text| texts.iter().position(|known| *known == text)) {
        Some(index) => Ok(index),
        None => bail!(
            UnsupportedArchitecture,
            "config.json has a layer with {} in {key:?}; supported are {texts:?}",
            shortened(layer)
        ),
    };
    layers.iter().map(index).collect()
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

#[cfg(test)]
mod tests {
    use super::normal_quantile;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (share, wanted) in
            [(0.95, 1.6448536269514722), (0.5, 0.0), (0.025, -1.959963984540054), (0.999, 3.090232306167813)]
        {
            assert!((normal_quantile(share) - wanted).abs() < 1e-9, "{share}: {}", normal_quantile(share));
        }
    }
}
