//! Adapters as files: a folder as PEFT has it, and a GGUF file as llama.cpp's `convert_lora_to_gguf.py` makes it.
//!
//! Sources: `peft.LoraConfig`, the format of safetensors (https://huggingface.co/docs/safetensors), and the GGUF specification
//! (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::file::{CONFIG, WEIGHTS, WRAPPED};
use super::order::{Reordered, reordered};
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
struct Stored<'a> {
    name: String,
    rows: usize,
    columns: usize,
    values: &'a [f32],
    /// The order of its rows, if it is another one than that of the values.
    order: Option<Reordered>,
}

impl Stored<'_> {
    /// In the file's order: copied one matrix at a time, since all of them may be gigabytes.
    fn in_order(&self) -> Cow<'_, [f32]> {
        match self.order {
            Some(order) => Cow::Owned(order.rows(self.values, self.columns)),
            None => Cow::Borrowed(self.values),
        }
    }
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
        let order = order(config, pair, Some(rope))?;
        Ok((format!("{WRAPPED}{module}.lora_A.weight"), format!("{WRAPPED}{module}.lora_B.weight"), order))
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
        let order = order(config, pair, config.arch.rope)?;
        Ok((format!("{}.lora_a", pair.tensor), format!("{}.lora_b", pair.tensor), order))
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
    for Stored { name, rows, columns, values, .. } in &matrices {
        text(&mut file, name);
        file.extend(2u32.to_le_bytes());
        // The length of a row comes first.
        file.extend((*columns as u64).to_le_bytes());
        file.extend((*rows as u64).to_le_bytes());
        file.extend(GGUF_F32_TENSOR.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset += (values.len() * 4).next_multiple_of(GGUF_ALIGNMENT) as u64;
    }
    let padding = (matrices.len() + 1) * GGUF_ALIGNMENT;
    reserve(&mut file, offset as usize + padding)?;
    for matrix in &matrices {
        file.resize(file.len().next_multiple_of(GGUF_ALIGNMENT), 0);
        file.extend(matrix.in_order().iter().flat_map(|value| value.to_le_bytes()));
    }
    file.resize(file.len().next_multiple_of(GGUF_ALIGNMENT), 0);
    Ok(file)
}

/// Makes room for these bytes and no more. A vector that grows by itself may take twice as many, and ends the program where there is no room.
pub fn reserve(file: &mut Vec<u8>, bytes: usize) -> Result<()> {
    file.try_reserve_exact(bytes).map_err(|_| err!(OutOfMemory, "there is no room for a file of {bytes} bytes"))
}

/// A and B of each pair, by the names that `named` gives them, with B in the order that it says.
fn stored<'a>(
    adapter: &'a AdapterValues,
    mut named: impl FnMut(&PairValues) -> Result<(String, String, Option<Reordered>)>,
) -> Result<Vec<Stored<'a>>> {
    let rank = adapter.rank;
    let mut all = Vec::with_capacity(2 * adapter.pairs.len());
    for pair in &adapter.pairs {
        let (down_name, up_name, order) = named(pair)?;
        let values = [&pair.down, &pair.up].into_iter().flatten();
        if let Some(value) = values.into_iter().find(|value| !value.is_finite()) {
            bail!(NumericalError, "the adapter holds {value} for {}, wanted finite numbers", pair.tensor);
        }
        all.push(Stored { name: down_name, rows: rank, columns: pair.columns, values: &pair.down, order: None });
        all.push(Stored { name: up_name, rows: pair.rows, columns: rank, values: &pair.up, order });
    }
    Ok(all)
}

/// How the rows of B get into the order of `theirs`.
fn order(config: &Config, pair: &PairValues, theirs: Option<RopeKind>) -> Result<Option<Reordered>> {
    Ok(reordered(config, (&pair.tensor, &pair.tensor), theirs)?.map(Reordered::back))
}

fn safetensors(matrices: &[Stored<'_>]) -> Result<Vec<u8>> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut begin = 0;
    for Stored { name, rows, columns, values, .. } in matrices {
        let end = begin + values.len() * 4;
        header.insert(name.clone(), json!({"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}));
        begin = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    // Data begins at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = Vec::new();
    reserve(&mut file, 8 + text.len() + begin)?;
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text);
    for matrix in matrices {
        file.extend(matrix.in_order().iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(file)
}
