//! `adapter_config.json` of PEFT: what the files of an adapter mean, and what of it is refused by name.
//!
//! Source: `peft.LoraConfig` and `peft.tuners.lora.LoraLayer` (PEFT 0.21).

use serde_json::{Map, Value};

use crate::error::Result;
use crate::json;

/// More than any adapter's configuration has.
pub(super) const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Ways to initialise A and B that take something away from the base model, which then is another one.
const CHANGE_THE_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

/// What an adapter's configuration says of its matrices.
#[derive(Debug, PartialEq)]
pub(super) struct PeftConfig {
    rank: usize,
    alpha: f64,
    /// The scale is alpha / √rank (rank-stabilised LoRA, Kalajdzievski 2023) in place of alpha / rank.
    by_root: bool,
    ranks: Vec<(String, usize)>,
    alphas: Vec<(String, f64)>,
}

impl PeftConfig {
    pub fn parse(text: &[u8]) -> Result<Self> {
        let config: Map<String, Value> =
            json::from_slice(text).map_err(|error| err!(InvalidFile, "adapter_config.json: {error}"))?;
        let get = |key: &str| config.get(key).filter(|value| !value.is_null());
        let refused = |what: &str| err!(UnsupportedAdapter, "adapter_config.json has {what}, which is not supported");
        match get("peft_type").map(Value::as_str) {
            Some(Some("LORA")) => {}
            Some(kind) => {
                let kind = kind.unwrap_or("no text");
                bail!(UnsupportedAdapter, "adapter_config.json has peft_type {kind:?}; supported is \"LORA\"")
            }
            None => bail!(InvalidFile, "adapter_config.json has no peft_type: it is not PEFT's"),
        }
        // Each of these computes something else.
        for key in ["use_dora", "lora_bias", "use_qalora", "use_bdlora"] {
            if get(key).is_some_and(|value| *value != Value::Bool(false)) {
                return Err(refused(&format!("{key}: {}", config[key])));
            }
        }
        if let Some(bias) = get("bias").filter(|bias| *bias != "none") {
            return Err(refused(&format!("bias: {bias} (biases that were trained too)")));
        }
        for key in [
            "modules_to_save",
            "layer_replication",
            "trainable_token_indices",
            "target_parameters",
            "alora_invocation_tokens",
            "arrow_config",
            "kasa_config",
            "monteclora_config",
            "velora_config",
        ] {
            let is_empty = |value: &Value| match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(items) => items.is_empty(),
                _ => false,
            };
            if let Some(value) = get(key).filter(|value| !is_empty(value)) {
                return Err(refused(&format!("{key}: {value}")));
            }
        }
        if let Some(Value::String(how)) = get("init_lora_weights")
            && CHANGE_THE_BASE.iter().any(|name| how.to_lowercase().starts_with(name))
        {
            bail!(
                UnsupportedAdapter,
                "adapter_config.json has init_lora_weights: {how:?}, which changes the model's own weights; save the adapter with \
                 path_initial_model_for_weight_conversion"
            );
        }
        let rank_of = |key: &str, value: &Value| match value.as_u64().and_then(|rank| usize::try_from(rank).ok()) {
            Some(rank) if rank > 0 => Ok(rank),
            _ => bail!(InvalidFile, "adapter_config.json has {key}: {value}, wanted an integer above 0"),
        };
        let alpha_of = |key: &str, value: &Value| match value.as_f64() {
            Some(alpha) if alpha.is_finite() => Ok(alpha),
            _ => bail!(InvalidFile, "adapter_config.json has {key}: {value}, wanted a number"),
        };
        let needed = |key: &str| match get(key) {
            Some(value) => Ok(value),
            None => bail!(InvalidFile, "adapter_config.json has no {key}"),
        };
        let patterns = |key: &str| -> Result<Vec<(String, &Value)>> {
            match get(key) {
                None => Ok(Vec::new()),
                Some(Value::Object(of)) => {
                    of.iter().map(|(pattern, value)| Ok((plain(key, pattern)?, value))).collect()
                }
                Some(other) => bail!(InvalidFile, "adapter_config.json has {key}: {other}, wanted an object"),
            }
        };
        let ranks = patterns("rank_pattern")?.into_iter();
        let alphas = patterns("alpha_pattern")?.into_iter();
        Ok(Self {
            rank: rank_of("r", needed("r")?)?,
            alpha: alpha_of("lora_alpha", needed("lora_alpha")?)?,
            by_root: get("use_rslora").is_some_and(|value| *value == Value::Bool(true)),
            ranks: ranks.map(|(name, rank)| Ok((name, rank_of("rank_pattern", rank)?))).collect::<Result<_>>()?,
            alphas: alphas.map(|(name, alpha)| Ok((name, alpha_of("alpha_pattern", alpha)?))).collect::<Result<_>>()?,
        })
    }

    /// The factor of B·A for a module, by its name in transformers, whose matrices have this rank.
    pub fn factor(&self, module: &str, rank: usize) -> Result<f32> {
        let wanted = of_module(&self.ranks, module).copied().unwrap_or(self.rank);
        if rank != wanted {
            bail!(
                InvalidFile,
                "the adapter's matrices for {module} have rank {rank}, and adapter_config.json says {wanted} (r, rank_pattern)"
            );
        }
        let alpha = of_module(&self.alphas, module).copied().unwrap_or(self.alpha);
        let rank = rank as f64;
        Ok((alpha / if self.by_root { rank.sqrt() } else { rank }) as f32)
    }
}

/// The name that a pattern stands for. Patterns are regular expressions for a name or its end; those that PEFT and people write are names.
fn plain(key: &str, pattern: &str) -> Result<String> {
    let whole = pattern.strip_prefix('^').unwrap_or(pattern);
    let name = whole.strip_suffix('$').unwrap_or(whole).replace("\\.", ".");
    // `.*\.` before a name matches what the name alone does.
    let name = name.strip_prefix(".*.").unwrap_or(&name);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c)) {
        bail!(
            UnsupportedAdapter,
            "adapter_config.json has {pattern:?} in {key}, which is more than the name of a module; name the modules one by one"
        );
    }
    Ok(if whole.len() < pattern.len() { format!("^{name}") } else { name.to_owned() })
}

/// The first of these whose name is that of the module, or its end after a dot.
fn of_module<'v, T>(patterns: &'v [(String, T)], module: &str) -> Option<&'v T> {
    let is_of = |pattern: &str| match pattern.strip_prefix('^') {
        Some(whole) => whole == module,
        None => module.strip_suffix(pattern).is_some_and(|before| before.is_empty() || before.ends_with('.')),
    };
    patterns.iter().find(|(pattern, _)| is_of(pattern)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Code;

    fn parse(more: Value) -> Result<PeftConfig> {
        let mut config =
            json!({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "bias": "none", "modules_to_save": null});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        PeftConfig::parse(config.to_string().as_bytes())
    }

    #[test]
    fn the_scale_is_alpha_by_rank_or_its_root() {
        const MODULE: &str = "model.layers.1.self_attn.q_proj";
        assert_eq!(parse(json!({})).unwrap().factor(MODULE, 8).unwrap(), 2.0);
        assert_eq!(parse(json!({"use_rslora": true})).unwrap().factor(MODULE, 8).unwrap(), 16.0 / 8f32.sqrt());
        for pattern in ["q_proj", "self_attn.q_proj", ".*\\.q_proj", "^model.layers.1.self_attn.q_proj$", MODULE] {
            let config = parse(json!({"rank_pattern": {pattern: 4}, "alpha_pattern": {"oj": 1, pattern: 2}})).unwrap();
            assert_eq!(config.factor(MODULE, 4).unwrap(), 0.5, "{pattern}");
            assert_eq!(config.factor("model.layers.1.self_attn.qq_proj", 8).unwrap(), 2.0, "{pattern}");
            assert_eq!(config.factor(MODULE, 8).unwrap_err().code(), Code::InvalidFile);
        }
        let whole = parse(json!({"alpha_pattern": {"^q_proj": 4}})).unwrap();
        assert_eq!(whole.factor(MODULE, 8).unwrap(), 2.0);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (more, name) in [
            (json!({"use_dora": true}), "use_dora"),
            (json!({"bias": "all"}), "bias"),
            (json!({"lora_bias": true}), "lora_bias"),
            (json!({"modules_to_save": ["lm_head"]}), "modules_to_save"),
            (json!({"peft_type": "IA3"}), "IA3"),
            (json!({"layer_replication": [[0, 1]]}), "layer_replication"),
            (json!({"target_parameters": ["mlp.experts.gate_up_proj"]}), "target_parameters"),
            (json!({"init_lora_weights": "pissa_niter_16"}), "pissa_niter_16"),
            (json!({"alpha_pattern": {"layers\\.[0-3].*": 4}}), "alpha_pattern"),
        ] {
            let error = parse(more).unwrap_err();
            assert_eq!(error.code(), Code::UnsupportedAdapter, "{error}");
            assert!(error.message().contains(name), "{error}");
        }
        let defaults =
            json!({"use_dora": false, "modules_to_save": [], "init_lora_weights": "gaussian", "arrow_config": null});
        assert!(parse(defaults).is_ok());
        for broken in [json!({"r": 0}), json!({"r": "8"}), json!({"lora_alpha": "x"}), json!({"rank_pattern": []})] {
            assert_eq!(parse(broken).unwrap_err().code(), Code::InvalidFile);
        }
        for text in ["", "[]", "{}", "{\"peft_type\": \"LORA\"}"] {
            assert_eq!(PeftConfig::parse(text.as_bytes()).unwrap_err().code(), Code::InvalidFile);
        }
    }
}
