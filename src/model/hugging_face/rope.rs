//! Rope in `config.json` → rope in a GGUF file: metadata keys, and tensors of frequency factors.
//!
//! Files of transformers up to version 4 have `rope_theta` and `rope_scaling`; those of version 5 have `rope_parameters` with both.
//!
//! Sources: transformers' `modeling_rope_utils` for the meaning; llama.cpp's `gguf-py/gguf/constants.py` for the names.

use std::f64::consts::PI;

use serde_json::{Map, Value as Json};

use super::config_json::{float, mismatch};
use crate::error::{Error, Result};
use crate::model::arch::HuggingFace;
use crate::model::gguf::Value;

type Config = Map<String, Json>;

#[derive(Default)]
pub(super) struct Rope {
    /// Keys without the architecture.
    pub metadata: Vec<(&'static str, Value)>,
    /// Tensors computed from the configuration.
    pub computed: Vec<(&'static str, Vec<f32>)>,
}

pub(super) fn translate(config: &Config, hf: &HuggingFace) -> Result<Rope> {
    let mut rope = Rope::default();
    let object = |key: &str| match config.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(object)) => Ok(Some(object)),
        Some(other) => Err(mismatch(key, other, "an object")),
    };
    let parameters = object("rope_parameters")?;
    // Models with two kinds of layers have one object for each kind.
    let by_layer = |kind: &str| match parameters.and_then(|parameters| parameters.get(kind)) {
        Some(Json::Object(object)) => Some(object),
        _ => None,
    };
    let scaling = by_layer("full_attention").or(parameters).or(object("rope_scaling")?);
    let number = |key: &str| number_of(scaling, config, key);

    // Where attention is over latents, rope has a part of the head by itself.
    let (turned, plain) = (number("qk_rope_head_dim")?, number("qk_nope_head_dim")?);
    let head_dim = match (turned.or(number("head_dim")?), number("hidden_size")?, number("num_attention_heads")?) {
        (Some(head_dim), ..) => head_dim,
        (None, Some(width), Some(heads)) if heads >= 1.0 => (width / heads).floor(),
        _ => return Ok(rope), // no decoder; what it needs is asked for elsewhere
    };
    if let (Some(_), Some(part)) = (turned, number("partial_rotary_factor")?.filter(|part| *part != 1.0)) {
        bail!(
            UnsupportedArchitecture,
            "config.json has partial_rotary_factor: {part} and qk_rope_head_dim: rope on a part of that is not supported"
        );
    }
    let rotated = if hf.partial_rope { number("partial_rotary_factor")? } else { None };
    let rope_dim = match rotated {
        Some(factor) if factor > 0.0 && factor <= 1.0 => (head_dim * factor).floor(),
        Some(factor) => {
            bail!(InvalidMetadata, "config.json has partial_rotary_factor: {factor}, wanted above 0 and at most 1")
        }
        None => head_dim,
    };
    if !(2.0..=65536.0).contains(&rope_dim) {
        bail!(InvalidMetadata, "by config.json rope rotates {rope_dim} elements of a head, wanted 2 to 65536");
    }
    let mut theta = number("rope_theta")?;
    // The base of a fixed factor, as NTK-aware scaling stretches it.
    let alpha = if hf.rope_alpha { number("alpha")?.filter(|alpha| *alpha > 0.0) } else { None };
    if let Some(alpha) = alpha {
        theta = Some(theta.unwrap_or(10000.0) * alpha.powf(rope_dim / (rope_dim - 2.0)));
    }
    let ntk = if hf.rope_ntk { ntk_factor(scaling)? } else { None };
    if let Some(factor) = ntk {
        // Pair i turns more slowly by factor^(2 (i + 1) / dim), so the last one by the whole factor: a larger base, and a scaling of all
        // pairs (Su 2023, https://kexue.fm/archives/9706).
        theta = Some(theta.unwrap_or(10000.0) * factor);
        rope.metadata.push(("rope.scaling.type", Value::String("linear".to_owned())));
        rope.metadata.push(("rope.scaling.factor", Value::F64(factor.powf(2.0 / rope_dim))));
    }
    if let Some(theta) = theta {
        rope.metadata.push(("rope.freq_base", Value::F64(theta)));
    }
    if rotated.is_some() {
        rope.metadata.push(("rope.dimension_count", Value::U64(rope_dim as u64)));
    }
    if let Some(kind) = by_layer("sliding_attention").and_then(|local| local.get("rope_type"))
        && kind.as_str() != Some("default")
    {
        bail!(
            UnsupportedArchitecture,
            "config.json has rope_type: {kind} for sliding_attention, which is not supported; only \"default\" is"
        );
    }
    let local = match by_layer("sliding_attention") {
        Some(local) => number_of(Some(local), config, "rope_theta")?,
        None => number("rope_local_base_freq")?,
    };
    if let Some(local) = local {
        rope.metadata.push(("rope.freq_base_swa", Value::F64(local)));
    }

    let Some(scaling) = scaling else { return Ok(rope) };
    let kind = match scaling.get("rope_type").or(scaling.get("type")) {
        None | Some(Json::Null) => "default",
        Some(Json::String(kind)) => kind,
        Some(other) => return Err(mismatch("rope_type", other, "a text")),
    };
    let needed = |key: &str| {
        number(key)?
            .ok_or_else(|| err!(InvalidMetadata, "config.json has rope scaling of type {kind:?} without {key:?}"))
    };
    match kind {
        "default" => {}
        "ntk" if hf.rope_ntk => {}
        "dynamic" if alpha.is_some() => {}
        "llama3" => {
            let old = needed("original_max_position_embeddings")?;
            let (factor, low, high) = (needed("factor")?, needed("low_freq_factor")?, needed("high_freq_factor")?);
            let factors = llama3_factors(theta.unwrap_or(10000.0), rope_dim as usize, factor, low, high, old);
            if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
                bail!(InvalidMetadata, "the factors of config.json's rope scaling \"llama3\" give no frequencies");
            }
            rope.computed.push(("rope_freqs.weight", factors));
        }
        "longrope" | "su" => {
            rope.metadata.push(("rope.scaling.type", Value::String("longrope".to_owned())));
            let old = needed("original_max_position_embeddings")?;
            rope.metadata.push(("rope.scaling.original_context_length", Value::U64(old as u64)));
            for (key, tensor) in
                [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
            {
                rope.computed.push((tensor, factors(scaling, key, rope_dim as usize / 2)?));
            }
            // Phi-3.5-MoE has a factor for short contexts and one for long ones, which are equal.
            let attention = match (number("short_mscale")?, number("long_mscale")?) {
                (Some(short), Some(long)) if short != long => bail!(
                    UnsupportedArchitecture,
                    "config.json has short_mscale: {short} and long_mscale: {long}; only equal ones are supported"
                ),
                (short, long) => short.or(long).or(number("attention_factor")?),
            };
            if let Some(attention) = attention {
                rope.metadata.push(("rope.scaling.attn_factor", Value::F64(attention)));
            }
        }
        _ => {
            // Linear, dynamic and yarn; `Config` refuses others by name.
            rope.metadata.push(("rope.scaling.type", Value::String(kind.to_owned())));
            for (key, name) in [
                ("factor", "rope.scaling.factor"),
                ("beta_fast", "rope.scaling.yarn_beta_fast"),
                ("beta_slow", "rope.scaling.yarn_beta_slow"),
            ] {
                if let Some(value) = number(key)? {
                    rope.metadata.push((name, Value::F64(value)));
                }
            }
            // Dynamic scaling starts from the model's own context length.
            let old = if kind == "dynamic" { None } else { number("original_max_position_embeddings")? };
            if let Some(old) = old {
                rope.metadata.push(("rope.scaling.original_context_length", Value::U64(old as u64)));
            }
            if kind == "yarn" {
                if let (Some(beta), Some(old)) = (number("llama_4_scaling_beta")?, old) {
                    rope.metadata.push(("attention.temperature_scale", Value::F64(beta)));
                    rope.metadata.push(("attention.temperature_length", Value::U64(old as u64)));
                }
                match scaling.get("truncate") {
                    None | Some(Json::Null) => {}
                    Some(Json::Bool(truncate)) => {
                        rope.metadata.push(("rope.scaling.yarn_truncate", Value::Bool(*truncate)));
                    }
                    Some(other) => return Err(mismatch("truncate", other, "true or false")),
                }
                // GGUF files hold a multiplier of the usual factor, 1 + ln(factor) / 10.
                let usual = |weight: f64| Ok::<_, Error>(1.0 + 0.1 * weight * needed("factor")?.max(1.0).ln());
                let attention = match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
                    (Some(attention), ..) => Some(attention),
                    (None, Some(one), Some(all)) if one != 0.0 && all != 0.0 => Some(usual(one)? / usual(all)?),
                    _ => None,
                };
                if let Some(attention) = attention {
                    rope.metadata.push(("rope.scaling.yarn_attn_factor", Value::F64(attention / usual(1.0)?)));
                }
            }
        }
    }
    if let (Some(turned), Some(plain), true) = (turned, plain, kind != "default") {
        // Whatever the kind, since attention over latents takes it so.
        let multiplier = match number("mscale_all_dim")?.filter(|weight| *weight != 0.0) {
            Some(weight) => 1.0 + 0.1 * weight * needed("factor")?.max(1.0).ln(),
            None => 1.0,
        };
        rope.metadata.push(("attention.scale", Value::F64(multiplier * multiplier / (turned + plain).sqrt())));
    }
    Ok(rope)
}

/// The factor of a scaling called `ntk`, if it changes anything.
fn ntk_factor(scaling: Option<&Config>) -> Result<Option<f64>> {
    let Some(scaling) = scaling else { return Ok(None) };
    let kind = scaling.get("rope_type").or(scaling.get("type")).and_then(Json::as_str).unwrap_or("default");
    if kind == "default" {
        return Ok(None);
    }
    if kind != "ntk" {
        bail!(
            UnsupportedArchitecture,
            "config.json has rope scaling of type {kind:?}; for this model_type only \"ntk\" is supported"
        );
    }
    if let Some(mixed) = scaling.get("mixed_b").filter(|mixed| !mixed.is_null()) {
        bail!(
            UnsupportedArchitecture,
            "config.json has rope scaling \"ntk\" with mixed_b: {mixed}, which is not supported"
        );
    }
    let factor = number_of(Some(scaling), scaling, "factor")?;
    match factor {
        Some(factor) if factor.is_finite() && factor >= 1.0 => Ok(Some(factor).filter(|factor| *factor > 1.0)),
        _ => {
            bail!(InvalidMetadata, "config.json has rope scaling \"ntk\" with a factor of {factor:?}, wanted 1 or more")
        }
    }
}

/// A number from rope's own object or, if there is none, from the whole configuration.
fn number_of(scaling: Option<&Config>, config: &Config, key: &str) -> Result<Option<f64>> {
    let found = |object: &Config| object.get(key).filter(|value| !value.is_null()).map(|value| float(key, value));
    scaling.and_then(found).or_else(|| found(config)).transpose()
}

fn factors(scaling: &Config, key: &str, pairs: usize) -> Result<Vec<f32>> {
    let Some(Json::Array(values)) = scaling.get(key) else {
        bail!(InvalidMetadata, "config.json has rope scaling \"longrope\" without an array {key:?}");
    };
    if values.len() != pairs {
        bail!(
            InvalidMetadata,
            "config.json has {key:?} of {} numbers, wanted {pairs}, one for each pair",
            values.len()
        );
    }
    values.iter().map(|value| Ok(float(key, value)? as f32)).collect()
}

/// The divisors of frequencies: 1 for fast ones, `factor` for slow ones, and smooth values between.
fn llama3_factors(theta: f64, rope_dim: usize, factor: f64, low: f64, high: f64, old_context: f64) -> Vec<f32> {
    (0..rope_dim / 2)
        .map(|i| {
            let wavelength = 2.0 * PI * theta.powf(2.0 * i as f64 / rope_dim as f64);
            let turns = old_context / wavelength;
            let divisor = if turns > high {
                1.0
            } else if turns < low {
                factor
            } else {
                let smooth = (turns - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            };
            divisor as f32
        })
        .collect()
}
