//! compressed-tensors: integers of four or eight bits, packed into words (`pack-quantized`) or as bytes (`int-quantized`), and FP8
//! (`float-quantized`, `naive-quantized`). A weight is `(quant − zero) · scale`. Weights alone: where activations are quantised as well, the
//! model is refused, unless they are FP8 with scales that are found while it runs (`FP8-dynamic`). Those stay floats, which is more exact.

use serde_json::Value as Json;

use super::said::Said;
use super::{Entries, FLOATS, Source, fp8, matrix, of_type, places};
use crate::error::Result;
use crate::model::checkpoint::{Groups, Order, PackedMatrix, Places, Side, Zeros};
use crate::model::safetensors::Dtype;
use crate::tensor::quant::packed::{Kind, packing::Packing};

#[derive(PartialEq)]
pub(in crate::model::hugging_face) struct Options {
    bits: u64,
    is_float: bool,
    group: Option<u64>,
    block: Option<[u64; 2]>,
}

/// How tensors are stored. Others pack them otherwise under names that may be the same.
const FORMS: &[&str] = &["pack-quantized", "int-quantized", "float-quantized", "naive-quantized"];

impl Options {
    pub(super) fn of(said: &Said<'_>) -> Result<Self> {
        let is_other = |form: &str| !FORMS.contains(&form);
        if let Some(form) = said.text("format")?.filter(|form| is_other(form)) {
            return Err(said.unsupported(&format!(" of the format {form:?}")));
        }
        for key in ["sparsity_config", "transform_config"] {
            let is_empty = |value: &Json| value.is_null() || value.as_object().is_some_and(|object| object.is_empty());
            let is_dense = |value: &Json| value.get("format").and_then(Json::as_str) == Some("dense");
            if said.how.get(key).is_some_and(|value| !is_empty(value) && !is_dense(value)) {
                return Err(said.unsupported(&format!(" with {key}")));
            }
        }
        let groups = said.how.get("config_groups").and_then(Json::as_object);
        let mut all: Option<Self> = None;
        for group in groups.into_iter().flat_map(|groups| groups.values()) {
            let Some(weights) = group.get("weights").filter(|weights| !weights.is_null()) else { continue };
            if let Some(form) = group.get("format").and_then(Json::as_str).filter(|form| is_other(form)) {
                return Err(said.unsupported(&format!(" of the format {form:?}")));
            }
            let is_float_weight = weights.get("type").and_then(Json::as_str) == Some("float");
            for key in ["input_activations", "output_activations"] {
                if let Some(how) = group.get(key).filter(|how| !how.is_null()) {
                    let bits = how.get("num_bits").and_then(Json::as_u64).unwrap_or(8);
                    let kind = how.get("type").and_then(Json::as_str).unwrap_or("int");
                    let is_dynamic = how.get("dynamic") == Some(&Json::Bool(true));
                    if is_float_weight && is_dynamic && (bits, kind, key) == (8, "float", "input_activations") {
                        continue;
                    }
                    return Err(said.unsupported(&format!(" with {key} of {bits} bits ({kind})")));
                }
            }
            let number = |key: &str| weights.get(key).and_then(Json::as_u64);
            let text = |key: &str| weights.get(key).and_then(Json::as_str).unwrap_or_default();
            let (bits, kind) = (number("num_bits").unwrap_or(8), text("type"));
            if !matches!((bits, kind), (4 | 8, "int") | (8, "float")) {
                return Err(said.unsupported(&format!(" with {kind:?} of {bits} bits")));
            }
            let found =
                Self { bits, is_float: kind == "float", group: number("group_size"), block: block_of(said, weights)? };
            match &all {
                Some(first) if *first != found => {
                    return Err(said.unsupported(" with several kinds of weights"));
                }
                _ => all = Some(found),
            }
        }
        all.ok_or_else(|| said.unsupported(" without weights in its config_groups"))
    }
}

/// Rows and columns that share a scale: `[128, 128]` or `"128x128"`.
fn block_of(said: &Said<'_>, weights: &Json) -> Result<Option<[u64; 2]>> {
    let sides: Vec<Option<u64>> = match weights.get("block_structure") {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Array(sides)) => sides.iter().map(Json::as_u64).collect(),
        Some(Json::String(sides)) => sides.split('x').map(|side| side.parse().ok()).collect(),
        Some(_) => Vec::new(),
    };
    match sides[..] {
        [Some(rows @ 1..), Some(columns @ 1..)] => Ok(Some([rows, columns])),
        _ => Err(said.unsupported(&format!(" with the block_structure {}", weights["block_structure"]))),
    }
}

pub(super) fn collect(entries: &mut Entries<'_>, options: &Options) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for stem in entries.stems(".weight_scale") {
        if options.is_float {
            sources.push(fp8::source(entries, &stem, options.block, options.group)?);
        } else {
            sources.push(integers(entries, &stem, options)?);
        }
    }
    Ok(sources)
}

fn integers(entries: &mut Entries<'_>, stem: &str, options: &Options) -> Result<Source> {
    let name = |end: &str| format!("{stem}.weight{end}");
    let of_word = 32 / options.bits;
    let packed = entries.get(&name("_packed"));
    let quants = match packed {
        Some(packed) => packed,
        None => entries.wanted(&name(""))?,
    };
    of_type(quants.1, if packed.is_some() { &[Dtype::I32] } else { &[Dtype::I8] })?;
    let [rows, stored] = matrix(quants.1)?;
    let columns = if packed.is_some() { stored.saturating_mul(of_word) } else { stored };
    let scales = entries.wanted(&name("_scale"))?.1;
    let (scale_places, group) = places(scales, [rows, columns], options.group, options.block)?;
    let mut sides = vec![entries.side(Side::Scales, &name("_scale"), FLOATS)?];
    // The shape is that of the tensors here.
    if let Some(shape) = entries.get(&name("_shape")) {
        entries.take(shape);
    }
    let zeros = entries.get(&name("_zero_point"));
    let is_symmetric = zeros.is_none();
    let count = columns.div_ceil(group.max(1));
    let zeros = match zeros {
        None => Zeros::All(if options.bits == 4 { 8 } else { 128 }),
        Some((_, entry)) if entry.dtype == Dtype::I8 => {
            if entry.shape != scales.shape {
                bail!(
                    ShapeMismatch,
                    "{:?} has the shape {:?}, and its scales {:?}, wanted equal",
                    entry.name,
                    entry.shape,
                    scales.shape
                );
            }
            sides.push(entries.side(Side::Zeros, &name("_zero_point"), &[Dtype::I8])?);
            // Beside words of four bits, which are not negative, half of their range is added; else quants are bytes.
            Zeros::Bytes { plus: if packed.is_some() && options.bits == 4 { 8 } else { 128 } }
        }
        Some((_, entry)) => {
            of_type(entry, &[Dtype::I32])?;
            let Places::Table { shared: [1, _], .. } = scale_places else {
                bail!(
                    UnsupportedTensorType,
                    "{:?} has zero points for blocks of rows, wanted some for each row",
                    entry.name
                );
            };
            if matrix(entry)? != [rows.div_ceil(of_word), count] {
                bail!(
                    ShapeMismatch,
                    "{:?} has the shape {:?}, wanted [{}, {count}]",
                    entry.name,
                    entry.shape,
                    rows.div_ceil(of_word)
                );
            }
            sides.push(entries.side(Side::Zeros, &name("_zero_point"), &[Dtype::I32])?);
            let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            Zeros::Words { order: Order::Plain, strides: [1, size(count)], plus: 0 }
        }
    };
    let is_ordered = entries.get(&name("_g_idx")).is_some();
    if is_ordered {
        sides.push(entries.side_of(Side::ColumnGroups, &name("_g_idx"), &[Dtype::I32], columns)?);
    }
    let packing = match (packed.is_some(), options.bits) {
        (true, 4) => Packing::Nibbles,
        (true, _) => Packing::UnsignedBytes,
        (false, _) => Packing::Bytes,
    };
    let is_four = packing == Packing::Nibbles;
    let kind = match (is_four, is_ordered) {
        (true, true) => Kind::Ordered4,
        (false, true) => Kind::Ordered8,
        (true, false) => Kind::Int4,
        (false, false) if is_symmetric => Kind::Int8,
        (false, false) => Kind::Uint8,
    };
    // Four bits as bytes are around zero as well.
    let zeros = if !is_four && is_symmetric { Zeros::All(128) } else { zeros };
    Ok(Source {
        name: name(""),
        rows,
        columns: Some(columns),
        method: if options.bits == 4 { "INT4" } else { "INT8" },
        kind,
        packing,
        group,
        groups: Groups { scales: scale_places, are_maxima: false, zeros },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}
