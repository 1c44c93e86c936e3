//! Which matrices of a model get A and B, by the names that PEFT, GGUF files or both use.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::model::{DenseDecoder, DenseLayer, HeldRows, Matrix};

/// What a matrix is called in transformers and in GGUF files.
const NAMES: [(&str, &str); 9] = [
    ("q_proj", "attn_q"),
    ("k_proj", "attn_k"),
    ("v_proj", "attn_v"),
    ("qkv_proj", "attn_qkv"),
    ("o_proj", "attn_output"),
    ("gate_proj", "ffn_gate"),
    ("up_proj", "ffn_up"),
    ("gate_up_proj", "ffn_up"),
    ("down_proj", "ffn_down"),
];

/// All matrices of attention and feed-forward.
const ALL: &str = "all-linear";

/// The kinds of matrices that learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets(Vec<String>);

impl Default for Targets {
    fn default() -> Self {
        Self(vec![ALL.to_owned()])
    }
}

/// The name in GGUF files without layer and suffix: `attn_q`.
fn stem(name: &str) -> &str {
    name.split('.').nth(2).unwrap_or(name)
}

fn matrices(layer: &DenseLayer) -> impl Iterator<Item = &Matrix> {
    let products = layer.queries_keys_values.iter().chain([&layer.attention_output]);
    products.chain(&layer.gate_up).chain([&layer.down]).map(|product| &product.matrix)
}

impl Targets {
    /// By names such as `q_proj`, as PEFT has it, `attn_q`, as GGUF files have it, or `all-linear` for all.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// The tensors of a model that learn, in the order of its layers, each with the matrix that holds it. An error if one of the names is of
    /// no matrix of it, or if there are no names.
    pub(super) fn of<'m>(&self, decoder: &'m DenseDecoder) -> Result<Vec<(&'m Matrix, &'m HeldRows)>> {
        let all = || {
            let held = |matrix: &'m Matrix| matrix.holds().iter().map(move |held| (matrix, held));
            decoder.layers.iter().flat_map(matrices).flat_map(held)
        };
        let there: BTreeSet<&str> = all().map(|(_, held)| stem(&held.name)).collect();
        let known = || there.iter().copied().collect::<Vec<_>>().join(", ");
        if self.0.is_empty() {
            bail!(InvalidRequest, "targets is empty; wanted some of {}, or {ALL:?}", known());
        }
        let mut wanted: BTreeSet<&str> = BTreeSet::new();
        for name in &self.0 {
            let stems = NAMES.iter().filter(|(theirs, ours)| name == theirs || name == ours).map(|(_, ours)| *ours);
            let found: Vec<&str> = match name.as_str() {
                ALL => there.iter().copied().collect(),
                _ => stems.filter(|stem| there.contains(stem)).collect(),
            };
            if found.is_empty() {
                bail!(
                    InvalidRequest,
                    "targets names {name:?}, and the model ({}) has no such matrices; wanted some of {}, or {ALL:?}",
                    decoder.config.arch.name,
                    known()
                );
            }
            wanted.extend(found);
        }
        Ok(all().filter(|(_, held)| wanted.contains(stem(&held.name))).collect())
    }
}
