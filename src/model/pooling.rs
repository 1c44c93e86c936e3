//! How the vectors of a text's tokens become one vector, as the model's files say.
//!
//! Sources: llama.cpp's `pooling_type`, and the files of sentence-transformers (`modules.json`, `1_Pooling/config.json`,
//! `sentence_bert_config.json`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::checkpoint::{Checkpoint, Module, Origin};
use crate::error::Result;
use crate::json;
use crate::tensor::ops::{MaxRows, MeanRows, UnaryKind};
use crate::tensor::{Context, HostTensor, Tensor};

/// How the vectors of a text's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens' vectors.
    Mean,
    /// The largest of each element.
    Max,
    /// The vector of the first token, `[CLS]`.
    First,
    /// The vector of the last token.
    Last,
}

/// The settings of the files for embeddings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Embeds {
    /// `None` if the files don't say it.
    pub pooling: Option<Pooling>,
    /// The functions after the layers that follow the pooling (`dense_2`, `dense_3` …).
    pub dense: Vec<Option<UnaryKind>>,
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
struct DenseConfig {
    activation_function: Option<String>,
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

/// The file with the pooling of folders without `modules.json`.
const POOLING_FILE: &str = "1_Pooling/config.json";

impl Pooling {
    /// The rows that count of a text of this length: begin and end.
    pub fn span(self, length: usize) -> [u32; 2] {
        let end = length as u32;
        match self {
            Self::Mean | Self::Max => [0, end],
            Self::First => [0, 1],
            Self::Last => [end - 1, end],
        }
    }

    /// The vectors of spans of rows: x [rows, n_embd] → [spans, n_embd].
    pub fn run(self, context: &Context, x: &Tensor, spans: &[u32]) -> Result<Tensor> {
        let spans = context.tensor(&HostTensor::u32(&[spans.len() / 2, 2], spans))?;
        match self {
            Self::Max => context.run1(&MaxRows, &[x, &spans]),
            _ => context.run1(&MeanRows, &[x, &spans]),
        }
    }
}

impl Embeds {
    /// Reads a model's files. An encoder whose files don't say it uses the mean, like sentence-transformers; not so one that `scores` texts.
    pub fn of(checkpoint: &Checkpoint<'_>, is_encoder: bool, scores: bool) -> Result<Self> {
        let mut embeds = match checkpoint.origin {
            Origin::Gguf => Self::of_gguf(checkpoint)?,
            Origin::HuggingFace => Self::of_folder(&checkpoint.text_files, checkpoint.modules.as_deref(), scores)?,
        };
        if is_encoder && !scores && embeds.pooling.is_none() {
            embeds.pooling = Some(Pooling::Mean);
        }
        Ok(embeds)
    }

    fn of_gguf(checkpoint: &Checkpoint<'_>) -> Result<Self> {
        let architecture = checkpoint.metadata.optional_str("general.architecture")?.unwrap_or_default();
        let name = format!("{architecture}.pooling_type");
        let pooling = match checkpoint.metadata.optional_u32(&name)? {
            None | Some(0 | 4) => None,
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::First),
            Some(3) => Some(Pooling::Last),
            Some(other) => bail!(
                UnsupportedArchitecture,
                "{name} is {other}, supported are 0 (none), 1 (mean), 2 (cls), 3 (last) and 4 (rank)"
            ),
        };
        let dense = (2..).take_while(|n| checkpoint.tensor(&format!("dense_{n}.weight")).is_some());
        Ok(Self { pooling, dense: dense.map(|_| None).collect(), ..Self::default() })
    }

    fn of_folder(files: &BTreeMap<&'static str, Vec<u8>>, modules: Option<&[Module]>, scores: bool) -> Result<Self> {
        let mut pooling = match (modules, files.get(POOLING_FILE)) {
            (None, Some(bytes)) => Some(parse::<PoolingConfig>(POOLING_FILE, bytes)?.pooling(POOLING_FILE)?),
            _ => None,
        };
        let mut dense = Vec::new();
        let mut is_normalized = false;
        for Module { kind, path, config } in modules.unwrap_or_default() {
            let name = format!("{path}/config.json");
            let config = || {
                config.as_ref().ok_or_else(|| {
                    err!(InvalidFile, "modules.json names a {kind} in {path:?}, and there is no file {name:?}")
                })
            };
            match kind.as_str() {
                "Transformer" | "LogitScore" => {}
                "Normalize" => is_normalized = true,
                "Pooling" if pooling.is_none() => {
                    pooling = Some(parse::<PoolingConfig>(&name, config()?)?.pooling(&name)?);
                }
                "Dense" if pooling.is_some() && !is_normalized => {
                    dense.push(parse::<DenseConfig>(&name, config()?)?.activation(&name)?);
                }
                _ => bail!(
                    UnsupportedArchitecture,
                    "modules.json has a {kind:?} after the model, supported are Transformer, then one Pooling, then any Dense, then Normalize"
                ),
            }
        }
        let sentence = files.get("sentence_bert_config.json");
        let sentence =
            sentence.map_or(Ok(SentenceConfig::default()), |bytes| parse("sentence_bert_config.json", bytes))?;
        let length = match sentence.max_seq_length {
            // Newer files leave it to the tokenizer's configuration, and cross-encoders always do.
            None if modules.is_some() || scores => {
                let tokenizer = files.get("tokenizer_config.json");
                let tokenizer = tokenizer.map(|bytes| parse::<TokenizerConfig>("tokenizer_config.json", bytes));
                tokenizer
                    .transpose()?
                    .and_then(|config| config.model_max_length?.as_u64())
                    .map(|max| usize::try_from(max).unwrap_or(usize::MAX))
            }
            length => length,
        };
        Ok(Self {
            pooling,
            dense,
            max_tokens: length.filter(|&max| max > 0),
            lowercase: sentence.do_lower_case.unwrap_or(false),
        })
    }
}

impl PoolingConfig {
    fn pooling(self, file: &str) -> Result<Pooling> {
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
                "{file} has include_prompt: false; a pooling that leaves out the prompt's tokens is not supported"
            );
        }
        match &modes.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["cls"] => Ok(Pooling::First),
            ["mean"] => Ok(Pooling::Mean),
            ["max"] => Ok(Pooling::Max),
            ["lasttoken"] => Ok(Pooling::Last),
            _ => bail!(
                UnsupportedArchitecture,
                "{file} sets the pooling {modes:?}, wanted one of: cls, mean, max, lasttoken"
            ),
        }
    }
}

impl DenseConfig {
    fn activation(self, file: &str) -> Result<Option<UnaryKind>> {
        // Files without it are of the time when it was always this one.
        let name = self.activation_function.unwrap_or_else(|| "torch.nn.modules.activation.Tanh".to_owned());
        match name.rsplit('.').next().unwrap_or_default() {
            "Identity" => Ok(None),
            "Tanh" => Ok(Some(UnaryKind::Tanh)),
            "ReLU" => Ok(Some(UnaryKind::Relu)),
            "GELU" => Ok(Some(UnaryKind::GeluErf)),
            "SiLU" => Ok(Some(UnaryKind::Swish)),
            "Sigmoid" => Ok(Some(UnaryKind::Sigmoid)),
            _ => bail!(
                UnsupportedArchitecture,
                "{file} has the activation_function {name:?}, supported are Identity, Tanh, ReLU, GELU, SiLU and Sigmoid"
            ),
        }
    }
}

fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    json::from_slice(bytes).map_err(|cause| err!(InvalidFile, "{name}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::model::checkpoint::parse_modules;

    fn of(files: &[(&'static str, &str)]) -> Result<Embeds> {
        let files: BTreeMap<&'static str, Vec<u8>> =
            files.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect();
        let mut modules = files.get("modules.json").map(|bytes| parse_modules(bytes)).transpose()?;
        for module in modules.iter_mut().flatten() {
            module.config = files.get(format!("{}/config.json", module.path).as_str()).cloned();
        }
        Embeds::of_folder(&files, modules.as_deref(), false)
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
        assert_eq!(all, Embeds { pooling: Some(Pooling::Mean), max_tokens: Some(256), ..Embeds::default() });
        for (mode, pooling) in
            [("cls_token", Pooling::First), ("lasttoken", Pooling::Last), ("max_tokens", Pooling::Max)]
        {
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
                assert_eq!(of(&files).unwrap(), Embeds { pooling: Some(pooling), max_tokens, ..Embeds::default() });
            }
        }
        for config in [
            r#"{"pooling_mode_mean_sqrt_len_tokens": true}"#,
            r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#,
            r#"{"pooling_mode_mean_tokens": true, "pooling_mode_weightedmean_tokens": true}"#,
            r#"{"pooling_mode": "weightedmean"}"#,
            r#"{"pooling_mode": ["cls", "mean"]}"#,
            r#"{"pooling_mode": "mean", "include_prompt": false}"#,
            "{}",
        ] {
            let error = of(&[("1_Pooling/config.json", config)]).unwrap_err();
            assert_eq!(error.code(), Code::UnsupportedArchitecture, "{config}");
        }
        assert!(of(&[("sentence_bert_config.json", r#"{"do_lower_case": true}"#)]).unwrap().lowercase);
        assert_eq!(of(&[("1_Pooling/config.json", "[")]).unwrap_err().code(), Code::InvalidFile);
        let layer_norm = r#"[{"type": "sentence_transformers.models.LayerNorm"}]"#;
        assert!(of(&[("modules.json", layer_norm)]).unwrap_err().message().contains("LayerNorm"));
        assert_eq!(of(&[("modules.json", modules)]).unwrap_err().code(), Code::InvalidFile);
        let elsewhere = modules.replace("1_Pooling", "2_Pooling");
        let elsewhere = [("modules.json", &*elsewhere), ("2_Pooling/config.json", mean)];
        assert_eq!(of(&elsewhere).unwrap().pooling, Some(Pooling::Mean));
    }

    #[test]
    fn layers_after_the_pooling_have_their_functions() {
        let modules = |last: [&str; 2]| {
            let [third, fourth] = last.map(|kind| format!(r#"{{"type": "a.{kind}", "path": "2_{kind}"}}"#));
            format!(r#"[{{"type": "a.Transformer"}}, {{"type": "a.Pooling", "path": "1_Pooling"}}, {third}, {fourth}]"#)
        };
        let dense = |config: &str, last: [&str; 2]| {
            let modules = modules(last);
            let pooling = ("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
            of(&[("modules.json", &*modules), pooling, ("2_Dense/config.json", config)])
        };
        let named = |name: &str| format!(r#"{{"in_features": 8, "activation_function": "torch.nn.{name}"}}"#);
        let in_order = ["Dense", "Normalize"];
        for (name, wanted) in [("modules.linear.Identity", None), ("Tanh", Some(UnaryKind::Tanh))] {
            assert_eq!(dense(&named(name), in_order).unwrap().dense, [wanted]);
        }
        assert_eq!(dense("{}", in_order).unwrap().dense, [Some(UnaryKind::Tanh)]);
        assert_eq!(dense(&named("Mish"), in_order).unwrap_err().code(), Code::UnsupportedArchitecture);
        assert_eq!(dense(&named("Tanh"), ["Normalize", "Dense"]).unwrap_err().code(), Code::UnsupportedArchitecture);
    }

    #[test]
    fn a_text_has_a_span_to_average() {
        let all = [Pooling::Mean, Pooling::Max, Pooling::First, Pooling::Last];
        assert_eq!(all.map(|pooling| pooling.span(3)), [[0, 3], [0, 3], [0, 1], [2, 3]]);
    }
}
