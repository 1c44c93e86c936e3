//! The head that predicts further tokens, as Qwen's folders name it: beside the layers, under `mtp.`. It gets the names of a layer after the
//! last one, as DeepSeek's folders and llama.cpp's files have it.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::model::arch::HuggingFace;
use crate::model::safetensors::TensorEntry;

/// Theirs without the beginning, and what a layer has in its place.
const NAMES: [(&str, &str); 4] = [
    ("fc", "eh_proj"),
    ("pre_fc_norm_embedding", "enorm"),
    ("pre_fc_norm_hidden", "hnorm"),
    ("norm", "shared_head.norm"),
];

/// The tensors of all files, with these names, and the number of layers that the head has.
pub(super) fn named<'f>(
    hf: &HuggingFace,
    config: &Map<String, Json>,
    files: &'f [Vec<TensorEntry>],
) -> (Cow<'f, [Vec<TensorEntry>]>, u64) {
    let own = |name: &str| hf.predicts_under.iter().find_map(|prefix| name.strip_prefix(prefix).map(str::to_owned));
    let has_head = files.iter().flatten().any(|entry| own(&entry.name).is_some());
    let layers = config.get("num_hidden_layers").and_then(Json::as_u64).filter(|_| has_head);
    let Some(layers) = layers else { return (Cow::Borrowed(files), 0) };
    let mut count = 1;
    let mut files = files.to_vec();
    for entry in files.iter_mut().flatten() {
        let Some(name) = own(&entry.name) else { continue };
        let of_layer = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        let of_layer = of_layer.and_then(|(number, rest)| Some((number.parse::<u32>().ok()?, rest)));
        if let Some((number, rest)) = of_layer {
            count = count.max(u64::from(number) + 1);
            entry.name = format!("model.layers.{}.{rest}", layers.saturating_add(number.into()));
            continue;
        }
        let (stem, suffix) = name.rsplit_once('.').unwrap_or((&name, ""));
        if let Some((_, ours)) = NAMES.iter().find(|(theirs, _)| *theirs == stem) {
            entry.name = format!("model.layers.{layers}.{ours}.{suffix}");
        }
    }
    (Cow::Owned(files), count)
}
