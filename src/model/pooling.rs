//! How the vectors of a text's tokens become one vector, as the model's files say.
//!
//! Sources: llama.cpp's `pooling_type`, and the files of sentence-transformers (`modules.json`, `1_Pooling/config.json`,
//! `sentence_bert_config.json`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::checkpoint::{Checkpoint, Origin};
use crate::error::Result;
use crate::json;

/// How the vectors of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens' vectors.
    Mean,
    /// The vector of the first token, `[CLS]`.
    First,
    /// The vector of the last token.
    Last,
}

/// The settings of the files for embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Embeds {
    /// `None` if the files don't say it.
    pub pooling: Option<Pooling>,
    /// The most tokens of a text; `None` for the whole context.
    pub max_tokens: Option<usize>,
    /// Texts are made lower case before they are encoded.
    pub lowercase: bool,
}

/// Newer files name one mode, or several whose vectors are concatenated. Older files have a flag for each mode.
#[derive(Deserialize)]
struct PoolingConfig {
    pooling_mode: Option<Modes>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Modes {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
    /// The folder of its configuration.
    #[serde(default)]
    path: String,
}

#[derive(Default, Deserialize)]
struct SentenceConfig {
    max_seq_length: Option<usize>,
    do_lower_case: Option<bool>,
}

#[derive(Deserialize)]
struct TokenizerConfig {
    /// A huge float means no limit.
    model_max_length: Option<serde_json::Value>,
}

/// The file of sentence-transformers with the pooling.
const POOLING_FILE: &str = "1_Pooling/config.json";

impl Pooling {
    /// The rows to average, for consecutive texts of these lengths: pairs of begin and end.
    pub fn spans(self, lengths: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut begin = 0;
        lengths
            .flat_map(|length| {
                let (first, end) = (begin, begin + length as u32);
                begin = end;
                match self {
                    Self::Mean => [first, end],
                    Self::First => [first, first + 1],
                    Self::Last => [end - 1, end],
                }
            })
            .collect()
    }
}

impl Embeds {
    /// Reads a model's files. An encoder whose files don't say it uses the mean, like sentence-transformers.
    pub fn of(checkpoint: &Checkpoint<'_>, is_encoder: bool) -> Result<Self> {
        let mut embeds = match checkpoint.origin {
            Origin::Gguf => Self::of_gguf(checkpoint)?,
            Origin::HuggingFace => Self::of_folder(&checkpoint.text_files)?,
        };
        if is_encoder && embeds.pooling.is_none() {
            embeds.pooling = Some(Pooling::Mean);
        }
        Ok(embeds)
    }

    fn of_gguf(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        let architecture = checkpoint.metadata.optional_str("general.architecture")?.unwrap_or_default();
        let name = format!("{architecture}.pooling_type");
        let pooling = match checkpoint.metadata.optional_u32(&name)? {
            None | Some(0) => None,
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(other) => bail!(
                UnsupportedArchitecture,
                "{name} is {other}, supported are 0 (none), 1 (mean), 2 (cls) and 3 (last){}",
                if other == 4 { "; 4 is of a model that ranks texts: use a model for embeddings" } else { "" }
            ),
        };
        Ok(Self { pooling, ..Self::default() })
    }

    fn of_folder(files: &BTreeMap<&'static str, Vec<u8>>) -> Result<Self> {
        let modules = read::<Vec<Module>>(files, "modules.json")?;
        for module in modules.iter().flatten() {
            match module.kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" | "Normalize" => {}
                "Pooling" if format!("{}/config.json", module.path) == POOLING_FILE => {}
                "Pooling" => bail!(
                    UnsupportedArchitecture,
                    "modules.json has its pooling in {:?}, wanted the one in \"1_Pooling\"",
                    module.path
                ),
                _ => bail!(
                    UnsupportedArchitecture,
                    "modules.json has a {:?} after the model, supported are Transformer, Pooling and Normalize",
                    module.kind
                ),
            }
        }
        let has_pooling = modules.iter().flatten().any(|module| module.kind.ends_with("Pooling"));
        let pooling = match read::<PoolingConfig>(files, POOLING_FILE)? {
            None if has_pooling => {
                bail!(InvalidFile, "modules.json names a pooling, and there is no file {POOLING_FILE:?}")
            }
            None => None,
            Some(config) => Some(config.pooling()?),
        };
        let sentence = read::<SentenceConfig>(files, "sentence_bert_config.json")?.unwrap_or_default();
        let length = match sentence.max_seq_length {
            // Newer files leave it to the tokenizer's configuration.
            None if modules.is_some() => read::<TokenizerConfig>(files, "tokenizer_config.json")?
                .and_then(|config| config.model_max_length?.as_u64())
                .map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            length => length,
        };
        Ok(Self {
            pooling,
            max_tokens: length.filter(|&max| max > 0),
            lowercase: sentence.do_lower_case.unwrap_or(false),
        })
    }
}

impl PoolingConfig {
    fn pooling(self) -> Result<Pooling> {
        let flag = |(name, value): (&String, &serde_json::Value)| {
            let mode = name.strip_prefix("pooling_mode_").filter(|_| value.as_bool() == Some(true))?;
            Some(mode.strip_suffix("_tokens").or(mode.strip_suffix("_token")).unwrap_or(mode).to_owned())
        };
        let modes = match self.pooling_mode {
            Some(Modes::One(mode)) => vec![mode],
            Some(Modes::Several(modes)) => modes,
            None => self.others.iter().filter_map(flag).collect(),
        };
        if self.others.get("include_prompt").and_then(serde_json::Value::as_bool) == Some(false) {
            bail!(
                UnsupportedArchitecture,
                "{POOLING_FILE} has include_prompt: false; a pooling that leaves out the prompt's tokens is not supported"
            );
        }
        match &modes.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["cls"] => Ok(Pooling::First),
            ["mean"] => Ok(Pooling::Mean),
            ["lasttoken"] => Ok(Pooling::Last),
            _ => bail!(
                UnsupportedArchitecture,
                "{POOLING_FILE} sets the pooling {modes:?}, wanted one of: cls, mean, lasttoken"
            ),
        }
    }
}

fn read<T: DeserializeOwned>(files: &BTreeMap<&'static str, Vec<u8>>, name: &str) -> Result<Option<T>> {
    let read = |bytes: &Vec<u8>| json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "{name}: {cause}"));
    files.get(name).map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    fn of(files: &[(&'static str, &str)]) -> Result<Embeds> {
        Embeds::of_folder(&files.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect())
    }

    #[test]
    fn the_files_of_a_folder_say_how_to_pool() {
        assert_eq!(of(&[]).unwrap(), Embeds::default());
        let mean =
            r#"{"word_embedding_dimension": 384, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#;
        let sentence = ("sentence_bert_config.json", r#"{"max_seq_length": 256, "do_lower_case": false}"#);
        let modules = r#"[{"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}, {"type": "sentence_transformers.models.Normalize"}]"#;
        let all = of(&[("1_Pooling/config.json", mean), sentence, ("modules.json", modules)]).unwrap();
        assert_eq!(all, Embeds { pooling: Some(Pooling::Mean), max_tokens: Some(256), lowercase: false });
        for (mode, pooling) in [("cls_token", Pooling::First), ("lasttoken", Pooling::Last)] {
            let config = format!(r#"{{"pooling_mode_{mode}": true}}"#);
            assert_eq!(of(&[("1_Pooling/config.json", &config)]).unwrap().pooling, Some(pooling));
        }
        // The form that sentence-transformers writes since version 6.
        for (mode, pooling) in [("cls", Pooling::First), ("lasttoken", Pooling::Last), ("mean", Pooling::Mean)] {
            let config = format!(r#"{{"embedding_dimension": 8, "pooling_mode": "{mode}", "include_prompt": true}}"#);
            let newer = ("sentence_bert_config.json", r#"{"transformer_task": "feature-extraction"}"#);
            for (length, max_tokens) in [("256", Some(256)), ("1000000000000000019884624838656", None)] {
                let tokenizer = format!(r#"{{"model_max_length": {length}}}"#);
                let files = [("1_Pooling/config.json", &*config), newer, ("tokenizer_config.json", &tokenizer)];
                assert_eq!(of(&files).unwrap(), Embeds { pooling: Some(pooling), ..Embeds::default() });
                let files = [&files[..], &[("modules.json", modules)]].concat();
                assert_eq!(of(&files).unwrap(), Embeds { pooling: Some(pooling), max_tokens, lowercase: false });
            }
        }
        for config in [
            r#"{"pooling_mode_max_tokens": true}"#,
            r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#,
            r#"{"pooling_mode_mean_tokens": true, "pooling_mode_weightedmean_tokens": true}"#,
            r#"{"pooling_mode": "max"}"#,
            r#"{"pooling_mode": ["cls", "mean"]}"#,
            r#"{"pooling_mode": "mean", "include_prompt": false}"#,
            "{}",
        ] {
            let error = of(&[("1_Pooling/config.json", config)]).unwrap_err();
            assert_eq!(error.code(), Code::UnsupportedArchitecture, "{config}");
        }
        assert!(of(&[("sentence_bert_config.json", r#"{"do_lower_case": true}"#)]).unwrap().lowercase);
        assert_eq!(of(&[("1_Pooling/config.json", "[")]).unwrap_err().code(), Code::InvalidFile);
        let dense = r#"[{"type": "sentence_transformers.models.Dense"}]"#;
        assert!(of(&[("modules.json", dense)]).unwrap_err().message().contains("Dense"));
        assert_eq!(of(&[("modules.json", modules)]).unwrap_err().code(), Code::InvalidFile);
        let elsewhere = modules.replace("1_Pooling", "2_Pooling");
        assert!(of(&[("modules.json", &elsewhere)]).unwrap_err().message().contains("2_Pooling"));
    }

    #[test]
    fn spans_are_of_texts_one_after_the_other() {
        let spans = |pooling: Pooling| pooling.spans([2, 1, 3].into_iter());
        assert_eq!(spans(Pooling::Mean), [0, 2, 2, 3, 3, 6]);
        assert_eq!(spans(Pooling::First), [0, 1, 2, 3, 3, 4]);
        assert_eq!(spans(Pooling::Last), [1, 2, 2, 3, 5, 6]);
    }
}
