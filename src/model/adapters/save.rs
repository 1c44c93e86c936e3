//! Adapters as files: a folder as PEFT has it, and a GGUF file as llama.cpp's `convert_lora_to_gguf.py` makes it.
//!
//! Sources: `peft.LoraConfig`, the format of safetensors (https://huggingface.co/docs/safetensors), and the GGUF specification
//! (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::file::{CONFIG, WEIGHTS, WRAPPED};
use super::order::reordered;
use super::values::{AdapterValues, PairValues};
use crate::error::Result;
use crate::model::arch::RopeKind;
use crate::model::config::Config;
use crate::model::hugging_face;

/// Tensors begin at multiples of this in a GGUF file that names no other.
const GGUF_ALIGNMENT: usize = 32;
const GGUF_VERSION: u32 = 3;
/// Ids of types of values and tensors in the GGUF specification.
const GGUF_STRING: u32 = 8;
const GGUF_F32_VALUE: u32 = 6;
const GGUF_F32_TENSOR: u32 = 0;

/// A matrix of a file.
struct Stored {
    name: String,
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

/// `adapter_config.json` and `adapter_model.safetensors` of an adapter for a model with this configuration, which `peft` loads onto the same
/// model in transformers. `base` is the name of that model, if it has one.
pub fn peft_folder(config: &Config, adapter: &AdapterValues, base: Option<&str>) -> Result<Vec<(String, Vec<u8>)>> {
    let mut modules = BTreeSet::new();
    let matrices = stored(adapter, |pair| {
        let Some((module, rope)) = hugging_face::module_of(config.arch, &pair.tensor) else {
            bail!(
                UnsupportedAdapter,
                "{} of the architecture {:?} is no module of its own in transformers, so PEFT's format can't hold an adapter for it; save \
                 it as GGUF",
                pair.tensor,
                config.arch.name
            )
        };
        modules.extend(module.rsplit('.').next().map(str::to_owned));
        let up = in_order(config, pair, Some(rope), adapter.rank)?;
        Ok((format!("{WRAPPED}{module}.lora_A.weight"), format!("{WRAPPED}{module}.lora_B.weight"), up))
    })?;
    let fields = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "target_modules": modules,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "use_rslora": false,
        "use_dora": false,
        "init_lora_weights": true,
        "modules_to_save": null,
        "rank_pattern": {},
        "alpha_pattern": {},
        "inference_mode": true,
    });
    let text = serde_json::to_vec_pretty(&fields).map_err(|error| err!(Internal, "{CONFIG}: {error}"))?;
    Ok(vec![(CONFIG.to_owned(), text), (WEIGHTS.to_owned(), safetensors(&matrices)?)])
}

/// The same adapter as a GGUF file, which llama.cpp loads onto the same model (`--lora`).
pub fn gguf_file(config: &Config, adapter: &AdapterValues) -> Result<Vec<u8>> {
    let matrices = stored(adapter, |pair| {
        let up = in_order(config, pair, config.arch.rope, adapter.rank)?;
        Ok((format!("{}.lora_a", pair.tensor), format!("{}.lora_b", pair.tensor), up))
    })?;
    let mut file = b"GGUF".to_vec();
    file.extend(GGUF_VERSION.to_le_bytes());
    file.extend((matrices.len() as u64).to_le_bytes());
    let texts = [("general.architecture", config.arch.name), ("general.type", "adapter"), ("adapter.type", "lora")];
    file.extend((texts.len() as u64 + 1).to_le_bytes());
    let text = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    for (key, value) in texts {
        text(&mut file, key);
        file.extend(GGUF_STRING.to_le_bytes());
        text(&mut file, value);
    }
    text(&mut file, "adapter.lora.alpha");
    file.extend(GGUF_F32_VALUE.to_le_bytes());
    file.extend((adapter.alpha as f32).to_le_bytes());
    let mut offset = 0u64;
    for Stored { name, rows, columns, values } in &matrices {
        text(&mut file, name);
        file.extend(2u32.to_le_bytes());
        // The length of a row comes first.
        file.extend((*columns as u64).to_le_bytes());
        file.extend((*rows as u64).to_le_bytes());
        file.extend(GGUF_F32_TENSOR.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset += (values.len() * 4).next_multiple_of(GGUF_ALIGNMENT) as u64;
    }
    for Stored { values, .. } in &matrices {
        file.resize(file.len().next_multiple_of(GGUF_ALIGNMENT), 0);
        file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    file.resize(file.len().next_multiple_of(GGUF_ALIGNMENT), 0);
    Ok(file)
}

/// A and B of each pair, by the names that `named` gives them, with B as `named` has it.
fn stored(
    adapter: &AdapterValues,
    mut named: impl FnMut(&PairValues) -> Result<(String, String, Vec<f32>)>,
) -> Result<Vec<Stored>> {
    let rank = adapter.rank;
    let mut all = Vec::with_capacity(2 * adapter.pairs.len());
    for pair in &adapter.pairs {
        let (down_name, up_name, up) = named(pair)?;
        let values = [&pair.down, &up].into_iter().flatten();
        if let Some(value) = values.into_iter().find(|value| !value.is_finite()) {
            bail!(NumericalError, "the adapter holds {value} for {}, wanted finite numbers", pair.tensor);
        }
        all.push(Stored { name: down_name, rows: rank, columns: pair.columns, values: pair.down.clone() });
        all.push(Stored { name: up_name, rows: pair.rows, columns: rank, values: up });
    }
    Ok(all)
}

/// B with its rows in the order of `theirs`.
fn in_order(config: &Config, pair: &PairValues, theirs: Option<RopeKind>, rank: usize) -> Result<Vec<f32>> {
    Ok(match reordered(config, (&pair.tensor, &pair.tensor), theirs)? {
        Some(to_model) => to_model.back().rows(&pair.up, rank),
        None => pair.up.clone(),
    })
}

fn safetensors(matrices: &[Stored]) -> Result<Vec<u8>> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut begin = 0;
    for Stored { name, rows, columns, values } in matrices {
        let end = begin + values.len() * 4;
        header.insert(name.clone(), json!({"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}));
        begin = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    // Data begins at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text);
    file.extend(matrices.iter().flat_map(|matrix| &matrix.values).flat_map(|value| value.to_le_bytes()));
    Ok(file)
}
