//! The numbers of an adapter, with rows in the order of the model that it is for.

use super::file::AdapterFile;
use super::order::reordered;
use crate::error::Result;
use crate::model::config::Config;

/// A and B of one tensor of the model as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct PairValues {
    /// What they add to, as GGUF files name it: `blk.0.attn_q.weight`.
    pub tensor: String,
    /// The length of A's rows.
    pub columns: usize,
    /// The number of B's rows, which are in the order of the model's.
    pub rows: usize,
    /// A, [rank, columns].
    pub down: Vec<f32>,
    /// B, [rows, rank].
    pub up: Vec<f32>,
}

/// An adapter all of whose pairs have one rank and one factor.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterValues {
    /// The rows of A and the columns of B.
    pub rank: usize,
    /// B·A counts alpha / rank times.
    pub alpha: f64,
    /// By tensor.
    pub pairs: Vec<PairValues>,
}

impl AdapterFile<'_> {
    /// All of its numbers, for a model with this configuration. An error if its pairs differ in rank or factor.
    pub async fn values(&self, config: &Config) -> Result<AdapterValues> {
        let Some(first) = self.pairs.first() else { bail!(InvalidFile, "the adapter has no matrices") };
        let (rank, factor) = (first.down.rows, first.factor);
        let mut pairs = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            if (pair.down.rows, pair.factor) != (rank, factor) {
                bail!(
                    UnsupportedAdapter,
                    "the adapter's matrices for {} have the rank {} and the factor {}, and others have {rank} and {factor}: to be trained on, they \
                     have to be the same for all",
                    pair.theirs,
                    pair.down.rows,
                    pair.factor
                );
            }
            let ((_, down), (_, up)) = (pair.down.read(&self.file).await?, pair.up.read(&self.file).await?);
            let up = match reordered(config, (&pair.tensor, &pair.theirs), pair.rope)? {
                Some(reordered) => reordered.rows(&up, rank),
                None => up,
            };
            let (columns, rows) = (pair.down.columns, pair.up.rows);
            pairs.push(PairValues { tensor: pair.tensor.clone(), columns, rows, down, up });
        }
        Ok(AdapterValues { rank, alpha: f64::from(factor) * rank as f64, pairs })
    }
}
