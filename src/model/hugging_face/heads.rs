//! Queries, keys and values in one matrix, group by group: the queries of a group of heads, then their key, then their value (GPT-NeoX,
//! Bloom, Falcon). They become three tensors, each of many ranges of the file.

use crate::error::Result;
use crate::model::checkpoint::{Part, TensorInfo, TensorValues};
use crate::model::gguf::Metadata;

/// More than any model has.
const MAX_HEADS: u64 = 4096;

/// Splits every `attn_qkv` of the tensors.
pub(super) fn split(metadata: &Metadata, arch: &str, tensors: &mut Vec<TensorInfo>) -> Result<()> {
    let heads = |key: &str| metadata.optional_u32(&format!("{arch}.attention.{key}"));
    let Some(heads_in_all) = heads("head_count")?.map(u64::from) else { return Ok(()) };
    let groups = heads("head_count_kv")?.map_or(heads_in_all, u64::from);
    if groups == 0 || heads_in_all > MAX_HEADS || !heads_in_all.is_multiple_of(groups) {
        return Ok(()); // refused by `Config`
    }
    let queries = heads_in_all / groups;
    let mut split = Vec::new();
    for tensor in std::mem::take(tensors) {
        if !tensor.name.contains(".attn_qkv.") {
            split.push(tensor);
            continue;
        }
        let rows = *tensor.dims.last().unwrap_or(&0);
        if matches!(tensor.values, TensorValues::Packed(_)) {
            bail!(
                UnsupportedTensorType,
                "{:?} has queries, keys and values in one matrix, which is not supported for quantised weights: choose the model in F16, \
                 BF16 or F32, or a GGUF file of it",
                tensor.name
            );
        }
        let TensorValues::Stored { parts, transform: None } = &tensor.values else {
            bail!(Internal, "the rows of {:?} are not stored as they are", tensor.name)
        };
        let ([whole], true) = (&parts[..], rows > 0 && rows.is_multiple_of(groups * (queries + 2))) else {
            bail!(
                ShapeMismatch,
                "{:?} has the dimensions {:?}, wanted rows for {heads_in_all} queries, {groups} keys and {groups} values",
                tensor.name,
                tensor.dims
            );
        };
        let head = rows / (groups * (queries + 2));
        let row_bytes = whole.bytes / rows;
        // The first head of a group, and the number of heads.
        for (stem, first, count) in [("attn_q", 0, queries), ("attn_k", queries, 1), ("attn_v", queries + 1, 1)] {
            let part = |group: u64| Part {
                file: whole.file,
                offset: whole.offset + (group * (queries + 2) + first) * head * row_bytes,
                bytes: count * head * row_bytes,
            };
            let mut dims = tensor.dims.clone();
            if let Some(rows) = dims.last_mut() {
                *rows = groups * count * head;
            }
            let values = TensorValues::Stored { parts: (0..groups).map(part).collect(), transform: None };
            split.push(TensorInfo { name: tensor.name.replace("attn_qkv", stem), dims, ty: tensor.ty, values });
        }
    }
    *tensors = split;
    Ok(())
}
