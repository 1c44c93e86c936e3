//! What `config.json` says of the head of a model that scores or labels texts, as metadata: the labels, and what their logits become.
//!
//! Sources: transformers' `PreTrainedConfig` and its text-classification pipeline; sentence-transformers' `CrossEncoder`.

use serde_json::{Map, Value as Json};

use super::config_json::{self, mismatch, shortened};
use crate::error::Result;
use crate::model::arch::ClassifierForm;
use crate::model::gguf::{Array, Strings, Value};

/// More than any classifier has.
const MAX_LABELS: usize = 1 << 16;

/// The metadata of a head, whose keys stand without the architecture.
pub(super) fn translate(config: &Map<String, Json>, form: &ClassifierForm) -> Result<Vec<(&'static str, Value)>> {
    let text = |text: &str| Value::String(text.to_owned());
    let mut metadata = Vec::new();
    for key in form.keys {
        metadata.extend(config_json::translate(key, config)?);
    }
    // The first of equal keys counts.
    metadata.extend([("classifier.pooling", text(form.pooling)), ("classifier.activation", text(form.activation))]);
    if let Some(labels) = labels(config)? {
        metadata.push(("classifier.output_labels", Value::Array(Array::String(Strings::of(labels)))));
    }
    match config.get("problem_type") {
        None | Some(Json::Null) => {}
        Some(Json::String(problem)) => metadata.push(("classifier.problem_type", text(problem))),
        Some(other) => return Err(mismatch("problem_type", other, "a text")),
    }
    if let Some(id) = config.get("pad_token_id").and_then(Json::as_u64) {
        metadata.push(("classifier.pad_token_id", Value::U64(id)));
    }
    // The first is written since version 4 of sentence-transformers.
    let newer = config.get("sentence_transformers").and_then(|section| section.get("activation_fn"));
    match newer.or(config.get("sbert_ce_default_activation_function")) {
        None | Some(Json::Null) => {}
        Some(Json::String(name)) => metadata.push(("classifier.relevance", text(name))),
        Some(other) => return Err(mismatch("activation_fn", other, "a text")),
    }
    Ok(metadata)
}

/// The names of `id2label`, by their ids.
fn labels(config: &Map<String, Json>) -> Result<Option<Vec<String>>> {
    let names = match config.get("id2label") {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Object(names)) if names.len() <= MAX_LABELS => names,
        Some(other) => return Err(mismatch("id2label", other, "an object with a name for each label")),
    };
    let label = |id: usize| match names.get(&id.to_string()) {
        Some(Json::String(name)) => Ok(name.clone()),
        // Some trainers write numbers.
        Some(Json::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(mismatch("id2label", other, "texts")),
        None => bail!(
            InvalidMetadata,
            "config.json has {} labels in \"id2label\" and none with the id {id}: {}",
            names.len(),
            shortened(&Json::Object(names.clone()))
        ),
    };
    (0..names.len()).map(label).collect::<Result<Vec<_>>>().map(Some)
}
