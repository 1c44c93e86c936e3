//! FP8: matrices of E4M3 with one scale, one for each row, or one for each block of rows and columns (`weight_scale_inv` or `weight_scale`;
//! both are multiplied). Scales of activations are not read: activations stay floats.

use serde_json::Value as Json;

use super::said::Said;
use super::{Entries, Source, matrix, of_type, places};
use crate::error::Result;
use crate::model::checkpoint::{Groups, PackedMatrix, Side, Zeros};
use crate::model::safetensors::Dtype;
use crate::tensor::quant::packed::{Kind, packing::Packing};

const SCALES: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F8_E8M0];

pub(in crate::model::hugging_face) struct Options {
    /// Rows and columns that share a scale.
    block: Option<[u64; 2]>,
}

impl Options {
    pub(super) fn of(said: &Said<'_>) -> Result<Self> {
        let is_other = |form: &String| !["e4m3", "e4m3fn", "float8_e4m3fn"].contains(&form.as_str());
        if let Some(form) = said.text("fmt")?.filter(is_other) {
            return Err(said.unsupported(&format!(" of the form {form:?}")));
        }
        let block = match said.how.get("weight_block_size").filter(|block| !block.is_null()) {
            None => None,
            Some(block) => {
                match block.as_array().map(|sides| sides.iter().map(Json::as_u64).collect::<Vec<_>>()).as_deref() {
                    Some([Some(rows), Some(columns)]) if *rows > 0 && *columns > 0 => Some([*rows, *columns]),
                    _ => return Err(said.unsupported(&format!(" with blocks of {block}"))),
                }
            }
        };
        Ok(Self { block })
    }
}

pub(super) fn collect(entries: &mut Entries<'_>, options: &Options) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for stem in entries.stems(".weight") {
        if entries.wanted(&format!("{stem}.weight"))?.1.dtype == Dtype::F8_E4M3 {
            sources.push(source(entries, &stem, options.block, None)?);
        }
    }
    Ok(sources)
}

/// The matrix of a stem, whose scales have one of two names.
pub(super) fn source(
    entries: &mut Entries<'_>,
    stem: &str,
    block: Option<[u64; 2]>,
    group: Option<u64>,
) -> Result<Source> {
    let quants = entries.wanted(&format!("{stem}.weight"))?;
    of_type(quants.1, &[Dtype::F8_E4M3])?;
    let shape @ [rows, columns] = matrix(quants.1)?;
    let inverse = format!("{stem}.weight_scale_inv");
    let name = if entries.get(&inverse).is_some() { inverse } else { format!("{stem}.weight_scale") };
    let (scales, group) = places(entries.wanted(&name)?.1, shape, group, block)?;
    let sides = vec![entries.side(Side::Scales, &name, SCALES)?];
    Ok(Source {
        name: format!("{stem}.weight"),
        rows,
        columns: Some(columns),
        method: "FP8",
        kind: Kind::Fp8,
        packing: Packing::Bytes,
        group,
        groups: Groups { scales, are_maxima: false, zeros: Zeros::All(0) },
        matrix: PackedMatrix { quants: entries.take(quants), sides },
    })
}
