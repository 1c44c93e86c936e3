//! What tensors of a file lack that their architecture says: our names where llama.cpp's differ, norms that multiply by one, and numbers
//! that stand in the metadata.

use std::collections::HashSet;

use super::{Part, TensorInfo, TensorValues, coders};
use crate::error::Result;
use crate::model::arch::{Arch, RecurrenceKind};
use crate::model::gguf::{GgmlType, Metadata, Value};

/// More than any model has.
const MAX_LAYERS: u32 = 4096;
/// Residual streams that a file may have a stack of matrices for.
const MAX_STREAMS: u64 = 64;
/// Numbers of norms that multiply by one, in one of each layer's.
const MAX_UNITS: u64 = 1 << 22;

/// The tensors of a GGUF file as the architecture of its metadata wants them. An architecture that is not supported is refused elsewhere.
pub(super) fn of_gguf(metadata: &Metadata, mut tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    let Some(arch) = arch_of(metadata)? else { return Ok(tensors) };
    if !arch.predicts_further {
        drop_further_layers(arch, metadata, &mut tensors)?;
    }
    coders::rename(arch, &mut tensors);
    let names: HashSet<String> = tensors.iter().map(|tensor| tensor.name.clone()).collect();
    for tensor in &mut tensors {
        // The norm's name has no ending in files of Falcon-H1.
        if tensor.name.ends_with(".ffn_norm") {
            tensor.name.push_str(".weight");
        }
        if let Some(name) = our_name(arch, &names, &tensor.name) {
            tensor.name = name;
        }
        // Files have it as a vector or as a matrix of one row.
        let is_row = tensor.name.ends_with(".ffn_gate_inp_shexp.weight") || tensor.name == "cls.output.weight";
        if is_row && tensor.dims.len() == 1 {
            tensor.dims.push(1);
        }
        // Numbers of heads or groups, side by side.
        let is_of_heads = [".ssm_a", ".ssm_d", ".ssm_norm.weight"].iter().any(|end| tensor.name.ends_with(end));
        if arch.recurrence == Some(RecurrenceKind::Mamba2) && is_of_heads {
            tensor.dims = vec![tensor.elements()];
        }
    }
    if !arch.altup.is_empty() {
        tensors = apart(tensors);
    }
    tensors.extend(xielu(arch, metadata)?);
    let mut seen = HashSet::new();
    if let Some(twice) = tensors.iter().find(|tensor| !seen.insert(tensor.name.as_str())) {
        bail!(InvalidFile, "two tensors of the model become {:?}, wanted only one of that name", twice.name);
    }
    with_units(metadata, tensors)
}

/// The same of a folder.
pub(super) fn of_folder(metadata: &Metadata, mut tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    if let Some(arch) = arch_of(metadata)? {
        coders::rename(arch, &mut tensors);
    }
    with_units(metadata, tensors)
}

/// The same with the norms that multiply by one, and what a folder names otherwise in some models.
fn with_units(metadata: &Metadata, mut tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    let Some(arch) = arch_of(metadata)? else { return Ok(tensors) };
    name_dense(arch, metadata, &mut tensors)?;
    if arch.unit_norms.is_empty() {
        return Ok(tensors);
    }
    let number = |key: &str| metadata.optional_u32(&format!("{}.{key}", arch.name));
    let (Some(layers), Some(width)) = (number("block_count")?, number("embedding_length")?) else { return Ok(tensors) };
    // Of a file that claims more, the norms count as missing.
    if u64::from(layers.min(MAX_LAYERS)) * u64::from(width) > MAX_UNITS {
        return Ok(tensors);
    }
    let names: HashSet<String> = tensors.iter().map(|tensor| tensor.name.clone()).collect();
    for stem in arch.unit_norms {
        let layers = if stem.contains("{}") { layers.min(MAX_LAYERS) } else { 1 };
        let name = |layer: u32| format!("{}.weight", stem.replace("{}", &layer.to_string()));
        let missing = (0..layers).map(name).filter(|name| !names.contains(name));
        tensors.extend(missing.map(|name| computed(name, vec![1.0; width as usize])));
    }
    Ok(tensors)
}

fn arch_of(metadata: &Metadata) -> Result<Option<&'static Arch>> {
    Ok(metadata.optional_str("general.architecture")?.and_then(|name| Arch::find(name).ok()))
}

fn computed(name: String, values: Vec<f32>) -> TensorInfo {
    let dims = vec![values.len() as u64];
    TensorInfo { name, dims, ty: GgmlType::F32, values: TensorValues::Computed(values) }
}

/// Names the feed-forward of a model without experts, which a folder names as if it were the expert of all tokens.
fn name_dense(arch: &Arch, metadata: &Metadata, tensors: &mut [TensorInfo]) -> Result<()> {
    let has_experts = metadata.optional_u32(&format!("{}.expert_count", arch.name))?.unwrap_or(0) > 0;
    if arch.shared_is_dense && !has_experts {
        for tensor in tensors {
            tensor.name = tensor.name.replace("_shexp.", ".");
        }
    }
    Ok(())
}

/// Our name of a tensor that llama.cpp names otherwise.
fn our_name(arch: &Arch, names: &HashSet<String>, name: &str) -> Option<String> {
    let (layer, rest) = match name.strip_prefix("blk.") {
        Some(rest) => rest.split_once('.').map(|(layer, rest)| (format!("blk.{layer}."), rest))?,
        None => (String::new(), name),
    };
    let (stem, end) = rest.split_once('.')?;
    let has = |beside: &str| names.contains(&format!("{layer}{beside}.{end}"));
    let found = arch.gguf_names.iter().find(|name| name.theirs == stem && name.beside.is_none_or(has))?;
    Some(format!("{layer}{}.{end}", found.ours))
}

/// Drops layers past the last one, which predict further tokens.
fn drop_further_layers(arch: &Arch, metadata: &Metadata, tensors: &mut Vec<TensorInfo>) -> Result<()> {
    let number = |key: &str| metadata.optional_u32(&format!("{}.{key}", arch.name));
    if let (Some(all), Some(further @ 1..)) = (number("block_count")?, number("nextn_predict_layers")?) {
        let layer = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<u32>().ok();
        tensors.retain(|tensor| layer(&tensor.name).is_none_or(|layer| layer < all.saturating_sub(further)));
    }
    Ok(())
}

/// The matrices of residual streams, which llama.cpp stacks, as tensors of their own. What is no such stack stays as it is.
fn apart(tensors: Vec<TensorInfo>) -> Vec<TensorInfo> {
    let mut result = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let stem = ["altup_proj", "altup_unembd_proj"].into_iter().find(|stem| tensor.name == format!("{stem}.weight"));
        let (Some(stem), [columns, rows, count @ 1..=MAX_STREAMS], TensorValues::Stored { parts, transform: None }) =
            (stem, &tensor.dims[..], &tensor.values)
        else {
            result.push(tensor);
            continue;
        };
        let [whole] = parts[..] else {
            result.push(tensor);
            continue;
        };
        let bytes = whole.bytes / count;
        for index in 0..*count {
            let part = Part { offset: whole.offset + index * bytes, bytes, ..whole };
            result.push(TensorInfo {
                name: format!("{stem}.{index}.weight"),
                dims: vec![*columns, *rows],
                ty: tensor.ty,
                values: TensorValues::Stored { parts: vec![part], transform: None },
            });
        }
    }
    result
}

/// The numbers of xIELU: the metadata has them for all layers.
fn xielu(arch: &Arch, metadata: &Metadata) -> Result<Vec<TensorInfo>> {
    const STEMS: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];
    if metadata.get("xielu.alpha_p").is_none() {
        return Ok(vec![]);
    }
    let layers = metadata.optional_u32(&format!("{}.block_count", arch.name))?.unwrap_or(0).min(MAX_LAYERS) as usize;
    let mut tensors = Vec::new();
    for stem in STEMS {
        let key = format!("xielu.{stem}");
        let values = match metadata.get(&key) {
            Some(Value::F32(value)) => vec![*value; layers],
            _ => metadata.f32_array(&key)?.to_vec(),
        };
        if values.len() < layers {
            bail!(InvalidMetadata, "{key} has {} numbers for {layers} layers", values.len());
        }
        let of_layer = |(layer, value)| computed(format!("blk.{layer}.xielu_{stem}.weight"), vec![value]);
        tensors.extend(values.into_iter().take(layers).enumerate().map(of_layer));
    }
    Ok(tensors)
}
