//! Which kind of model a `config.json` is of: its architecture, and what forbids to read its tensors as that.

use serde_json::{Map, Value as Json};

use crate::error::Result;
use crate::model::arch::{ARCHS, Arch, ConstValue, HuggingFace};

type Config = Map<String, Json>;

/// The architecture of a `config.json`, the form of folder for its model type, and the section of the text model.
pub(super) fn find_arch(config: &Config) -> Result<(&'static Arch, &'static HuggingFace, &Config)> {
    let kind = |config: &Config| config.get("model_type").and_then(Json::as_str).map(str::to_owned);
    let all = || {
        ARCHS
            .iter()
            .flat_map(|arch| arch.hugging_face.into_iter().flat_map(move |hf| hf.all().map(move |hf| (*arch, hf))))
    };
    let by_kind = |kind: &str, config: &Config| {
        let has = |(key, value): (&str, ConstValue)| config.get(key).is_some_and(|found| is(found, value));
        let of_kind = || all().filter(|(_, hf)| hf.model_types.contains(&kind));
        let selected = of_kind().find(|(_, hf)| hf.selected_by.is_some_and(has));
        selected.or_else(|| of_kind().find(|(_, hf)| hf.selected_by.is_none()))
    };
    let Some(model_type) = kind(config) else {
        bail!(
            InvalidMetadata,
            "config.json has no text \"model_type\"; it may be of another library than transformers"
        );
    };
    if let Some((arch, hf)) = by_kind(&model_type, config) {
        return Ok((arch, hf, config));
    }
    // A multimodal model has a section for its text model.
    if let Some(Json::Object(text)) = config.get("text_config") {
        let part = kind(text);
        if let Some((arch, hf)) = part.as_deref().and_then(|part| by_kind(part, text))
            && hf.text_part_of.contains(&model_type.as_str())
        {
            return Ok((arch, hf, text));
        }
        let supported: Vec<&str> = all().flat_map(|(_, hf)| hf.text_part_of).copied().collect();
        bail!(
            UnsupportedArchitecture,
            "config.json names the model_type {model_type:?}, whose text part ({}) is not supported; of models with parts, those of {} \
             are: choose one of these, or a model of text alone",
            part.as_deref().unwrap_or("without a model_type"),
            supported.join(", ")
        );
    }
    let supported: Vec<&str> = all().flat_map(|(_, hf)| hf.model_types).copied().collect();
    bail!(
        UnsupportedArchitecture,
        "config.json names the model_type {model_type:?}, supported: {}; choose a model of one of these",
        supported.join(", ")
    )
}

/// Whether a value is this one, or a list with it.
pub(super) fn is(found: &Json, wanted: ConstValue) -> bool {
    match (found, wanted) {
        (Json::Bool(found), ConstValue::Bool(wanted)) => *found == wanted,
        (Json::String(found), ConstValue::Text(wanted)) => found == wanted,
        (Json::Array(items), ConstValue::Text(wanted)) => items.iter().any(|item| item == wanted),
        _ => false,
    }
}

/// The endings of architectures that give no texts and no embeddings.
const OTHER_TASKS: &[&str] = &[
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
    "ForRewardModel",
    "RewardModel",
];

/// The architecture that config.json names, if it is for another task than ours.
pub(super) fn other_task(config: &Config) -> Option<&str> {
    let names = config.get("architectures")?.as_array()?;
    names.iter().filter_map(Json::as_str).find(|name| OTHER_TASKS.iter().any(|task| name.ends_with(task)))
}
