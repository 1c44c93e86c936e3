//! The head of a model that scores or labels texts: from the vector of a text to a number for each label, and what the numbers mean.
//!
//! Sources: transformers' `…ForSequenceClassification` and its text-classification pipeline, sentence-transformers' `CrossEncoder`, and
//! llama.cpp's pooling by rank (`cls` tensors).

use super::Weights;
use super::checkpoint::Checkpoint;
use super::config::Config;
use super::linear::Linear;
use super::norm::Norm;
use super::pooling::Pooling;
use crate::error::Result;
use crate::tensor::ops::{Epilogue, MatMul, Unary, UnaryKind};
use crate::tensor::{Context, Tensor};

/// What logits become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreFunction {
    /// Nothing else: regression.
    None,
    /// Each for itself a share between 0 and 1.
    Sigmoid,
    /// Shares that add up to 1.
    Softmax,
}

impl ScoreFunction {
    /// The scores of one text's logits.
    pub fn of(self, logits: &[f32]) -> Vec<f32> {
        let logits = logits.iter().map(|logit| f64::from(*logit));
        match self {
            Self::None => logits.map(|logit| logit as f32).collect(),
            Self::Sigmoid => logits.map(|logit| (1.0 / (1.0 + (-logit).exp())) as f32).collect(),
            Self::Softmax => {
                let largest = logits.clone().fold(f64::NEG_INFINITY, f64::max);
                let powers: Vec<f64> = logits.map(|logit| (logit - largest).exp()).collect();
                let total: f64 = powers.iter().sum();
                powers.into_iter().map(|power| (power / total) as f32).collect()
            }
        }
    }

    /// By a name of sentence-transformers' files, such as `torch.nn.modules.activation.Sigmoid`.
    pub fn of_torch(name: &str) -> Result<Self> {
        match name.rsplit('.').next().unwrap_or_default() {
            "Sigmoid" => Ok(Self::Sigmoid),
            "Identity" => Ok(Self::None),
            _ => bail!(
                UnsupportedArchitecture,
                "the model's files let scores go through {name:?} (activation_fn), supported are Sigmoid and Identity"
            ),
        }
    }
}

/// How relevant a document is, from the logits of its pair with the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relevance {
    /// The number of the logit.
    pub logit: usize,
    /// The number of the logit that is subtracted from it.
    pub minus: Option<usize>,
    /// What the difference becomes.
    pub function: ScoreFunction,
}

impl Relevance {
    /// Before `function`.
    pub fn logit_of(&self, logits: &[f32]) -> f32 {
        logits[self.logit] - self.minus.map_or(0.0, |minus| logits[minus])
    }
}

/// What the files say of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierConfig {
    /// At least one.
    pub labels: Vec<String>,
    /// Which vector of a text's tokens it takes.
    pub pooling: Pooling,
    /// What the logits of labels become.
    pub function: ScoreFunction,
    /// `None` for a model that doesn't rank.
    pub relevance: Option<Relevance>,
    /// A padding token is never the last one of a text.
    pub pad: Option<u32>,
    /// After the dense layer.
    activation: Option<UnaryKind>,
}

const DENSE: &str = "cls.weight";
const OUTPUT: &str = "cls.output.weight";

impl ClassifierConfig {
    /// Of a model's files; `None` if the model has no head.
    pub fn of(checkpoint: &Checkpoint<'_>, config: &Config) -> Result<Option<Self>> {
        let arch = config.arch;
        let key = |key: &str| format!("{}.{key}", arch.name);
        let metadata = &checkpoint.metadata;
        let has = |name: &str| checkpoint.tensor(name).is_some();
        if config.labels == 0 {
            let is_named = metadata.get(&key("classifier.pooling")).is_some();
            if is_named || has(DENSE) || metadata.optional_u32(&key("pooling_type"))? == Some(RANK) {
                bail!(
                    MissingTensor,
                    "the model ranks or labels texts by a head, and the file has no tensor {OUTPUT:?}; convert it again, or use its \
                     Hugging Face folder"
                );
            }
            return Ok(None);
        }
        let Some(form) = arch.classifier else {
            bail!(UnsupportedArchitecture, "{} with a head that labels texts is not supported", arch.name)
        };
        // BERT's pooler belongs to the head, and converters may have dropped it.
        if form.has_dense && !has(DENSE) {
            bail!(
                MissingTensor,
                "the file has the tensor {OUTPUT:?} and not {DENSE:?}, the dense layer before it (the pooler, or classifier.dense); use \
                 the model's Hugging Face folder"
            );
        }
        let text = |name: &str, default: &'static str| {
            Ok::<_, crate::Error>(metadata.optional_str(&key(name))?.unwrap_or(default).to_owned())
        };
        let labels: Vec<String> = match metadata.optional_strings(&key("classifier.output_labels"))? {
            Some(labels) if labels.len() != config.labels => bail!(
                ShapeMismatch,
                "the model has {} names of labels and a head for {}, wanted equal",
                labels.len(),
                config.labels
            ),
            Some(labels) => labels.into_iter().map(str::to_owned).collect(),
            None => (0..config.labels).map(|label| format!("LABEL_{label}")).collect(),
        };
        let problem = metadata.optional_str(&key("classifier.problem_type"))?;
        Ok(Some(Self {
            pooling: pooling_of(&text("classifier.pooling", form.pooling)?)?,
            activation: if has(DENSE) {
                activation_of(&text("classifier.activation", form.activation)?)?
            } else {
                None
            },
            function: function_of(problem, config.labels)?,
            relevance: relevance(&labels, metadata.optional_str(&key("classifier.relevance"))?)?,
            pad: metadata.optional_u32(&key("classifier.pad_token_id"))?,
            labels,
        }))
    }

    /// The rows of a text's vectors that count.
    pub fn span(&self, ids: &[u32]) -> [u32; 2] {
        let [begin, end] = self.pooling.span(ids.len());
        match (self.pooling, self.pad) {
            (Pooling::Last, Some(pad)) => {
                let last = ids.iter().rposition(|id| *id != pad).unwrap_or(0) as u32;
                [last, last + 1]
            }
            _ => [begin, end],
        }
    }
}

/// llama.cpp's pooling by a head.
const RANK: u32 = 4;

fn pooling_of(name: &str) -> Result<Pooling> {
    Ok(match name {
        "cls" => Pooling::First,
        "mean" => Pooling::Mean,
        "last" => Pooling::Last,
        _ => bail!(UnsupportedArchitecture, "the head takes the pooling {name:?}, supported are cls, mean and last"),
    })
}

fn activation_of(name: &str) -> Result<Option<UnaryKind>> {
    Ok(Some(match name {
        "tanh" => UnaryKind::Tanh,
        "gelu" => UnaryKind::GeluErf,
        "gelu_new" | "gelu_pytorch_tanh" => UnaryKind::Gelu,
        "relu" => UnaryKind::Relu,
        "silu" | "swish" => UnaryKind::Swish,
        "" | "linear" => return Ok(None),
        _ => bail!(
            UnsupportedArchitecture,
            "the head has the activation {name:?}, supported are tanh, gelu, gelu_new, gelu_pytorch_tanh, relu and silu"
        ),
    }))
}

/// As transformers' pipeline chooses.
fn function_of(problem: Option<&str>, labels: usize) -> Result<ScoreFunction> {
    Ok(match problem {
        Some("regression") => ScoreFunction::None,
        Some("multi_label_classification") => ScoreFunction::Sigmoid,
        None | Some("single_label_classification") if labels == 1 => ScoreFunction::Sigmoid,
        None | Some("single_label_classification") => ScoreFunction::Softmax,
        Some(other) => bail!(
            UnsupportedArchitecture,
            "config.json has \"problem_type\": {other:?}, supported are regression, single_label_classification and \
             multi_label_classification"
        ),
    })
}

/// As `CrossEncoder` ranks by one label, and llama.cpp by yes and no.
fn relevance(labels: &[String], function: Option<&str>) -> Result<Option<Relevance>> {
    let at = |label: &str| labels.iter().position(|name| name == label);
    match (labels.len(), at("yes"), at("no")) {
        (1, ..) => {
            let function = function.map_or(Ok(ScoreFunction::Sigmoid), ScoreFunction::of_torch)?;
            Ok(Some(Relevance { logit: 0, minus: None, function }))
        }
        (2, Some(logit), minus @ Some(_)) => Ok(Some(Relevance { logit, minus, function: ScoreFunction::Sigmoid })),
        _ => Ok(None),
    }
}

/// A head that is ready to run.
pub struct Classifier {
    context: Context,
    /// [n_embd, n_embd]
    dense: Option<Linear>,
    activation: Option<UnaryKind>,
    norm: Norm,
    /// [labels, n_embd]
    output: Linear,
}

impl Classifier {
    /// The head of a model with these weights.
    pub fn new(context: &Context, config: &Config, weights: &Weights, head: &ClassifierConfig) -> Result<Self> {
        let has_dense = weights.optional_matrix(DENSE).is_some();
        Ok(Self {
            context: context.clone(),
            dense: has_dense.then(|| Linear::of(weights, "cls")).transpose()?,
            activation: head.activation,
            norm: Norm::of(config, weights, "cls.norm"),
            output: Linear::of(weights, "cls.output")?,
        })
    }

    /// The vectors of texts [n, n_embd] → their logits [n, labels].
    pub fn run(&self, vectors: &Tensor) -> Result<Tensor> {
        // One kernel for any number of texts.
        let product = &MatMul { epilogue: Epilogue::NONE };
        let mut x = vectors.clone();
        if let Some(dense) = &self.dense {
            x = dense.run(&self.context, product, &[&x])?;
        }
        if let Some(kind) = self.activation {
            x = self.context.run1(&Unary { kind }, &[&x])?;
        }
        x = self.norm.run(&self.context, &x)?;
        self.output.run(&self.context, product, &[&x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_become_scores() {
        assert_eq!(ScoreFunction::None.of(&[3.5, -1.0]), [3.5, -1.0]);
        assert_eq!(ScoreFunction::Sigmoid.of(&[0.0, 1e9, -1e9]), [0.5, 1.0, 0.0]);
        let shares = ScoreFunction::Softmax.of(&[1e4, 1e4, -1e4]);
        assert_eq!(shares, [0.5, 0.5, 0.0]);
    }

    #[test]
    fn a_model_of_one_label_ranks_and_so_does_one_of_yes_and_no() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let one = relevance(&names(&["x"]), None).unwrap().unwrap();
        assert_eq!(one, Relevance { logit: 0, minus: None, function: ScoreFunction::Sigmoid });
        let plain = relevance(&names(&["x"]), Some("torch.nn.modules.linear.Identity")).unwrap().unwrap();
        assert_eq!(plain.function, ScoreFunction::None);
        assert!(relevance(&names(&["x"]), Some("torch.nn.modules.activation.Tanh")).is_err());
        let two = relevance(&names(&["no", "yes"]), None).unwrap().unwrap();
        assert_eq!(two.logit_of(&[1.0, 3.0]), 2.0);
        assert_eq!(relevance(&names(&["a", "b"]), None).unwrap(), None);
    }

    #[test]
    fn problems_are_those_of_transformers() {
        assert_eq!(function_of(None, 1).unwrap(), ScoreFunction::Sigmoid);
        assert_eq!(function_of(None, 2).unwrap(), ScoreFunction::Softmax);
        assert_eq!(function_of(Some("regression"), 1).unwrap(), ScoreFunction::None);
        assert_eq!(function_of(Some("multi_label_classification"), 3).unwrap(), ScoreFunction::Sigmoid);
        assert!(function_of(Some("other"), 3).is_err());
    }
}
