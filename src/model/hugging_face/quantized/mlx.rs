//! MLX: groups of two to eight bits, where a weight is `scale · quant + bias`; embeddings are quantised too. Quants of two and three bits are four
//! on the GPU, and those of five and six eight.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::said::Said;
use super::{Entries, Source, matrix, of_type};
use crate::error::Result;
use crate::model::checkpoint::{Groups, PackedMatrix, Places, Side, Zeros};
use crate::model::safetensors::Dtype;
use crate::tensor::quant::packed::{Kind, packing::Packing};

pub(in crate::model::hugging_face) struct Options {
    all: Form,
    /// Of matrices that differ, by the names of their modules.
    of: BTreeMap<String, Form>,
}

#[derive(Clone, Copy)]
struct Form {
    bits: u64,
    group: u64,
}

impl Options {
    pub(super) fn of(said: &Said<'_>, object: &Map<String, Json>) -> Result<Self> {
        let form = |how: &Json| {
            let number = |key: &str| how.get(key).and_then(Json::as_u64);
            let mode = how.get("mode").and_then(Json::as_str).unwrap_or("affine");
            match (number("bits"), number("group_size"), mode) {
                (Some(bits @ (2..=6 | 8)), Some(group @ 1..), "affine") => Ok(Form { bits, group }),
                (bits, group, mode) => Err(said.unsupported(&format!(
                    " (bits {bits:?}, groups of {group:?}, mode {mode:?}; supported are 2 to 6 and 8 bits, affine)"
                ))),
            }
        };
        let of = object.iter().filter(|(_, how)| how.is_object()).map(|(name, how)| Ok((name.clone(), form(how)?)));
        Ok(Self { all: form(said.how)?, of: of.collect::<Result<_>>()? })
    }
}

pub(super) fn collect(entries: &mut Entries<'_>, options: &Options) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for stem in entries.stems(".scales") {
        sources.push(source(entries, &stem, options.of.get(&stem).copied().unwrap_or(options.all))?);
    }
    Ok(sources)
}

fn source(entries: &mut Entries<'_>, stem: &str, Form { bits, group }: Form) -> Result<Source> {
    let quants = entries.wanted(&format!("{stem}.weight"))?;
    of_type(quants.1, &[Dtype::U32])?;
    let [rows, words] = matrix(quants.1)?;
    let columns = words.saturating_mul(32) / bits;
    let scales = entries.wanted(&format!("{stem}.scales"))?.1;
    let summands = entries.wanted(&format!("{stem}.biases"))?.1;
    let wanted = [rows, columns / group];
    if !columns.is_multiple_of(group) || matrix(scales)? != wanted || matrix(summands)? != wanted {
        bail!(
            ShapeMismatch,
            "{stem:?} is a matrix [{rows}, {columns}] in groups of {group}, with scales {:?} and biases {:?}, wanted {wanted:?}",
            scales.shape,
            summands.shape
        );
    }
    let types = &[Dtype::F16, Dtype::BF16];
    let dtype = of_type(scales, types)?;
    let sides = vec![
        entries.side(Side::Scales, &format!("{stem}.scales"), types)?,
        entries.side(Side::Summands, &format!("{stem}.biases"), &[dtype])?,
    ];
    let (packing, method) = match bits {
        2 => (Packing::Stream2, "MLX 2-bit"),
        3 => (Packing::Stream3, "MLX 3-bit"),
        4 => (Packing::Nibbles, "MLX 4-bit"),
        5 => (Packing::Stream5, "MLX 5-bit"),
        6 => (Packing::Stream6, "MLX 6-bit"),
        _ => (Packing::UnsignedBytes, "MLX 8-bit"),
    };
    let kind = match (packing.stored_bits(), dtype) {
        (4, Dtype::F16) => Kind::Affine4F16,
        (4, _) => Kind::Affine4Bf16,
        (_, Dtype::F16) => Kind::Affine8F16,
        _ => Kind::Affine8Bf16,
    };
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let scales = Places::Table { shared: [1, size(group)], strides: [size(columns / group), 1] };
    Ok(Source {
        name: format!("{stem}.weight"),
        rows,
        columns: Some(columns),
        method,
        kind,
        packing,
        group,
        groups: Groups { scales, are_maxima: false, zeros: Zeros::All(0) },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}
