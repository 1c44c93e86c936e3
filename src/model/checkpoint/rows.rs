//! Tensors whose rows belong to several of ours become these (`Arch::row_splits`). Rows lie side by side in a file, so a piece is a range of
//! it.
//!
//! What does not fit stays as it is, and `Config` refuses it.

use std::collections::HashSet;

use super::{Part, TensorInfo, TensorValues};
use crate::error::Result;
use crate::model::arch::{Arch, PieceRows, RowSplit};
use crate::model::gguf::Metadata;
use crate::model::mtp_part;

/// The tensors of a model as the model reads them.
pub(super) fn divided(metadata: &Metadata, tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    // An unknown architecture is refused later.
    let Ok(Ok(arch)) = metadata.str("general.architecture").map(Arch::find) else { return Ok(tensors) };
    mtp_part::named(arch, metadata, divided_rows(arch, metadata, tensors)?)
}

fn divided_rows(arch: &Arch, metadata: &Metadata, tensors: Vec<TensorInfo>) -> Result<Vec<TensorInfo>> {
    if arch.row_splits.is_empty() {
        return Ok(tensors);
    }
    let mut divided = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let is_whole = |split: &RowSplit| parts_of(&tensor.name).is_some_and(|(_, stem, _)| stem == split.whole);
        if matches!(tensor.values, TensorValues::Packed(_)) && arch.row_splits.iter().any(is_whole) {
            bail!(
                UnsupportedTensorType,
                "the rows of {:?} belong to several matrices, which is not supported for quantised weights: choose the model in F16, BF16 \
                 or F32, or a GGUF file of it",
                tensor.name
            );
        }
        let split = arch.row_splits.iter().find_map(|split| pieces(arch, metadata, split, &tensor));
        match split {
            Some(pieces) => divided.extend(pieces),
            None => divided.push(tensor),
        }
    }
    let mut names = HashSet::new();
    if let Some(twice) = divided.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        bail!(InvalidFile, "two tensors of the model become {:?}, wanted only one of that name", twice.name);
    }
    Ok(divided)
}

/// The layer, the stem and the suffix of a name such as `blk.0.attn_q.weight`.
fn parts_of(name: &str) -> Option<(&str, &str, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let (stem, suffix) = rest.split_once('.')?;
    Some((layer, stem, suffix))
}

/// The tensors that a tensor is made of, if it is one of `split` and its rows can be divided.
fn pieces(arch: &Arch, metadata: &Metadata, split: &RowSplit, tensor: &TensorInfo) -> Option<Vec<TensorInfo>> {
    let (layer, stem, suffix) = parts_of(&tensor.name)?;
    if stem != split.whole || suffix != "weight" {
        return None;
    }
    let TensorValues::Stored { parts, transform: None } = &tensor.values else { return None };
    let [whole] = parts[..] else { return None };
    let number = |key: &str| metadata.optional_u32(&format!("{}.{key}", arch.name)).ok().flatten().map(u64::from);
    let [columns, rows] = tensor.dims[..] else { return None };
    let groups = split.groups.map_or(Some(1), number)?;
    let divided = |all: u64, by: u64| (by > 0 && all.is_multiple_of(by)).then(|| all / by);
    let (of_group, row_bytes) = (divided(rows, groups)?, divided(whole.bytes, rows)?);
    // None for a share.
    let known = |rows: &PieceRows| match rows {
        PieceRows::Key(key) => Some(number(key)),
        PieceRows::Difference(key, less) => {
            Some(number(key).zip(number(less)).and_then(|(all, less)| all.checked_sub(less)))
        }
        PieceRows::Share => None,
    };
    let mut fixed = 0u64;
    for rows in split.pieces.iter().filter_map(|(_, rows)| known(rows)) {
        fixed = fixed.checked_add(rows.filter(|rows| *rows > 0)?)?;
    }
    let shares = split.pieces.iter().filter(|(_, rows)| *rows == PieceRows::Share).count() as u64;
    let share = divided(of_group.checked_sub(fixed)?, shares).filter(|share| *share > 0)?;
    let mut made: Vec<TensorInfo> = Vec::new();
    let mut first = 0;
    for (stem, rows) in split.pieces {
        let rows = known(rows).unwrap_or(Some(share))?;
        let begin = whole.offset + first * row_bytes;
        first += rows;
        let pieces = (0..groups).map(|group| Part {
            file: whole.file,
            offset: begin + group * of_group * row_bytes,
            bytes: rows * row_bytes,
        });
        let name = format!("blk.{layer}.{stem}.{suffix}");
        match made.iter_mut().find(|tensor| tensor.name == name) {
            Some(TensorInfo { dims, values: TensorValues::Stored { parts, .. }, .. }) => {
                dims[1] += rows * groups;
                parts.extend(pieces);
            }
            _ => {
                let dims = if split.stacks { vec![columns, rows, groups] } else { vec![columns, rows * groups] };
                let values = TensorValues::Stored { parts: pieces.collect(), transform: None };
                made.push(TensorInfo { name, dims, ty: tensor.ty, values });
            }
        }
    }
    Some(made)
}
