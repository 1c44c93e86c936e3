//! Models whose layers with full attention have another rope than those with a window (LFM3), and other heads besides (Gemma 4).
//!
//! Published files have `global_head_dim` and `num_global_key_value_heads`; those that transformers 5 saves have `per_layer_config` with what a
//! layer has otherwise than the model.
//!
//! Sources: transformers' `configuration_gemma4.py`, `modeling_rope_utils.py` and `integrations/heterogeneity`.

use serde_json::{Map, Value as Json, json};

use super::config_json::{float, mismatch, shortened};
use super::rope::Rope;
use crate::error::Result;
use crate::model::arch::ByKind;
use crate::model::gguf::{Array, Value};

type Config = Map<String, Json>;

/// More than any model has.
const MAX_LAYERS: u64 = 1 << 12;
const MAX_HEAD_DIM: u64 = 1 << 16;
/// What divides the frequencies of pairs that don't turn, as in llama.cpp's files.
const UNTURNED: f32 = 1e30;

const FULL: &str = "full_attention";
const WINDOWED: &str = "sliding_attention";

/// Heads of a layer.
#[derive(Clone, Copy)]
struct Heads {
    dim: u64,
    kv: u64,
}

/// The metadata of what differs by kind, if ropes do.
pub(super) fn translate(config: &mut Config, by_kind: ByKind) -> Result<Option<Rope>> {
    match by_kind {
        ByKind::Nothing => refuse_overrides(config).map(|()| None),
        ByKind::Ropes { turned } => {
            refuse_overrides(config)?;
            let heads = Heads { dim: needed(config, "head_dim")?, kv: 0 };
            check_length(heads)?;
            let mut metadata = Vec::new();
            let factors = ropes(config, heads, heads, turned, &mut metadata)?;
            Ok(Some(Rope { metadata, computed: vec![("rope_freqs.weight", factors)] }))
        }
        ByKind::HeadsAndRopes { turned } => heads_and_ropes(config, turned).map(Some),
    }
}

/// Heads, feed-forwards and ropes. Completes `layer_types`, as transformers does.
fn heads_and_ropes(config: &mut Config, turned: f64) -> Result<Rope> {
    let layers = count(config, "num_hidden_layers")?.unwrap_or(0);
    if !(1..=MAX_LAYERS).contains(&layers) {
        bail!(InvalidMetadata, "config.json has num_hidden_layers: {layers}, wanted 1 to {MAX_LAYERS}");
    }
    let layers = layers as usize;
    let is_full = layer_types(config, layers)?;
    let windowed = Heads { dim: needed(config, "head_dim")?, kv: needed(config, "num_key_value_heads")? };
    let values_are_keys = switch(config, "attention_k_eq_v")?;
    let full = match config.get("per_layer_config") {
        None | Some(Json::Null) => Heads {
            dim: count(config, "global_head_dim")?.unwrap_or(512),
            kv: count(config, "num_global_key_value_heads")?.filter(|_| values_are_keys).unwrap_or(windowed.kv),
        },
        Some(overrides) => full_heads(overrides, windowed, &is_full)?,
    };
    check_length(full)?;
    let mut metadata = vec![
        ("attention.key_length", Value::U64(full.dim)),
        ("attention.value_length", Value::U64(full.dim)),
        ("attention.key_length_swa", Value::U64(windowed.dim)),
        ("attention.value_length_swa", Value::U64(windowed.dim)),
        ("attention.values_are_keys", Value::Bool(values_are_keys)),
        ("attention.head_count_kv", of_layers(&is_full, |is_full| if is_full { full.kv } else { windowed.kv })?),
    ];
    if switch(config, "use_double_wide_mlp")? {
        let reusing = count(config, "num_kv_shared_layers")?.unwrap_or(0);
        let n_ff = needed(config, "intermediate_size")?;
        let reuses = |layer: usize| (layer as u64) >= (layers as u64).saturating_sub(reusing);
        let reuses: Vec<bool> = (0..layers).map(reuses).collect();
        let wide = n_ff.saturating_mul(2);
        metadata.push(("feed_forward_length", of_layers(&reuses, |reuses| if reuses { wide } else { n_ff })?));
    }
    let factors = ropes(config, full, windowed, turned, &mut metadata)?;
    Ok(Rope { metadata, computed: vec![("rope_freqs.weight", factors)] })
}

fn check_length(heads: Heads) -> Result<()> {
    if heads.dim > MAX_HEAD_DIM {
        bail!(InvalidMetadata, "config.json gives heads of {} elements, wanted at most {MAX_HEAD_DIM}", heads.dim);
    }
    Ok(())
}

/// Refuses models whose layers differ by `per_layer_config`, of an architecture of which that is not known.
fn refuse_overrides(config: &Config) -> Result<()> {
    match config.get("per_layer_config") {
        None | Some(Json::Null) => Ok(()),
        Some(Json::Object(overrides)) if overrides.is_empty() => Ok(()),
        Some(overrides) => bail!(
            UnsupportedArchitecture,
            "config.json has \"per_layer_config\": {}, which is not supported for this model_type",
            shortened(overrides)
        ),
    }
}

/// Which layers have full attention. The last one always has, and without the key five of six have a window.
fn layer_types(config: &mut Config, layers: usize) -> Result<Vec<bool>> {
    let mut types = match config.get("layer_types") {
        None | Some(Json::Null) => {
            (0..layers).map(|layer| json!(if (layer + 1) % 6 == 0 { FULL } else { WINDOWED })).collect()
        }
        Some(Json::Array(types)) if types.len() == layers => types.clone(),
        Some(other) => return Err(mismatch("layer_types", other, "an array with a text for each layer")),
    };
    if let Some(last) = types.last_mut() {
        *last = json!(FULL);
    }
    let is_full = types.iter().map(|kind| kind.as_str() == Some(FULL)).collect();
    config.insert("layer_types".to_owned(), Json::Array(types));
    Ok(is_full)
}

/// The heads of layers with full attention, by what these have otherwise than the model.
fn full_heads(overrides: &Json, windowed: Heads, is_full: &[bool]) -> Result<Heads> {
    let Json::Object(overrides) = overrides else {
        return Err(mismatch("per_layer_config", overrides, "an object with layers"));
    };
    let mut of_layers = vec![windowed; is_full.len()];
    for (layer, keys) in overrides {
        let (Some(of_layer), Json::Object(keys)) =
            (layer.parse::<usize>().ok().and_then(|layer| of_layers.get_mut(layer)), keys)
        else {
            bail!(InvalidMetadata, "config.json has per_layer_config for {layer:?}: {}", shortened(keys));
        };
        for (key, value) in keys {
            let number = match key.as_str() {
                "head_dim" => &mut of_layer.dim,
                "num_key_value_heads" => &mut of_layer.kv,
                _ => bail!(
                    UnsupportedArchitecture,
                    "config.json has {key:?}: {} for layer {layer}: not supported; of layers only head_dim and num_key_value_heads may differ",
                    shortened(value)
                ),
            };
            *number = value.as_u64().ok_or_else(|| mismatch(key, value, "an integer"))?;
        }
    }
    let heads = |wanted: bool| {
        let mut of_kind = of_layers.iter().zip(is_full).filter(|(_, is_full)| **is_full == wanted);
        let first = of_kind.next().map_or(windowed, |(heads, _)| *heads);
        if of_kind.any(|(heads, _)| (heads.dim, heads.kv) != (first.dim, first.kv)) {
            bail!(
                UnsupportedArchitecture,
                "config.json has per_layer_config: {}: layers of one kind have different heads, which is not supported",
                shortened(&Json::Object(overrides.clone()))
            );
        }
        Ok(first)
    };
    let of_windowed = heads(false)?;
    if is_full.contains(&false) && (of_windowed.dim, of_windowed.kv) != (windowed.dim, windowed.kv) {
        bail!(
            UnsupportedArchitecture,
            "config.json has per_layer_config for layers with a window: only those with full attention may have other heads"
        );
    }
    heads(true)
}

/// Adds the bases of both ropes. Returns what divides the frequencies of layers with full attention: of their pairs only the first turn.
fn ropes(
    config: &Config,
    full: Heads,
    windowed: Heads,
    turned: f64,
    metadata: &mut Vec<(&'static str, Value)>,
) -> Result<Vec<f32>> {
    let defaults = json!({
        FULL: {"rope_type": "proportional", "partial_rotary_factor": turned, "rope_theta": 1e6},
        WINDOWED: {"rope_type": "default", "rope_theta": 1e4},
    });
    let parameters = config.get("rope_parameters").filter(|parameters| !parameters.is_null()).unwrap_or(&defaults);
    let of_kind = |kind: &str| match parameters.get(kind) {
        Some(Json::Object(of_kind)) => Ok(of_kind),
        _ => Err(mismatch("rope_parameters", parameters, &format!("an object with an object {kind:?}"))),
    };
    let number = |of_kind: &Config, key: &str, default: f64| match of_kind.get(key) {
        None | Some(Json::Null) => Ok(default),
        Some(value) => float(key, value),
    };
    let rope_type = |of_kind: &Config| match of_kind.get("rope_type") {
        None | Some(Json::Null) => Ok("default".to_owned()),
        Some(value) => value.as_str().map(str::to_owned).ok_or_else(|| mismatch("rope_type", value, "a text")),
    };
    let refused = |kind: &str, found: &str| {
        err!(
            UnsupportedArchitecture,
            "config.json has rope_type {found:?} for {kind}; supported are \"proportional\" for {FULL} and \"default\" for both kinds"
        )
    };
    let of_windowed = of_kind(WINDOWED)?;
    match rope_type(of_windowed)?.as_str() {
        "default" => {}
        other => return Err(refused(WINDOWED, other)),
    }
    let of_full = of_kind(FULL)?;
    let (turned, factor) = match rope_type(of_full)?.as_str() {
        "default" => (1.0, 1.0),
        "proportional" => (number(of_full, "partial_rotary_factor", 1.0)?, number(of_full, "factor", 1.0)?),
        other => return Err(refused(FULL, other)),
    };
    if !(0.0..=1.0).contains(&turned) || factor <= 0.0 {
        bail!(
            InvalidMetadata,
            "config.json has partial_rotary_factor: {turned} and factor: {factor}, wanted 0 to 1 and above 0"
        );
    }
    metadata.extend([
        ("rope.freq_base", Value::F64(number(of_full, "rope_theta", 10000.0)?)),
        ("rope.freq_base_swa", Value::F64(number(of_windowed, "rope_theta", 10000.0)?)),
        ("rope.dimension_count", Value::U64(full.dim)),
        ("rope.dimension_count_swa", Value::U64(windowed.dim)),
    ]);
    let pairs = full.dim as usize / 2;
    let turning = ((turned * full.dim as f64) / 2.0).floor() as usize;
    Ok((0..pairs).map(|pair| if pair < turning { factor as f32 } else { UNTURNED }).collect())
}

/// A number of each layer.
fn of_layers(layers: &[bool], number: impl Fn(bool) -> u64) -> Result<Value> {
    let number = |layer: &bool| {
        let number = number(*layer);
        i64::try_from(number).map_err(|_| err!(InvalidMetadata, "config.json has {number}, more than is read"))
    };
    Ok(Value::Array(Array::I64(layers.iter().map(number).collect::<Result<_>>()?)))
}

fn count(config: &Config, key: &str) -> Result<Option<u64>> {
    match config.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| mismatch(key, value, "an integer")),
    }
}

fn needed(config: &Config, key: &str) -> Result<u64> {
    count(config, key)?
        .ok_or_else(|| err!(InvalidMetadata, "config.json has no key {key:?}, which this model_type needs"))
}

fn switch(config: &Config, key: &str) -> Result<bool> {
    match config.get(key) {
        None | Some(Json::Null) => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| mismatch(key, value, "true or false")),
    }
}
