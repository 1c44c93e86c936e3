//! What a training is going to train, before anything is allocated for it.

use super::loss::Example;
use super::memory::TrainingMemory;
use super::optimizer::AdamWOptions;
use super::targets::Targets;
use crate::error::Result;
use crate::model::{DenseDecoder, HeldRows, Matrix, Transformer};
use crate::tensor::{Context, Desc};

/// So much is asked for in one buffer when room is looked for.
const PIECE_BYTES: u64 = 64 << 20;

/// What is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// The rows of A and the columns of B.
    pub rank: usize,
    /// What is learnt counts α / rank times.
    pub alpha: f64,
    /// The matrices that learn.
    pub targets: Targets,
    /// For the numbers to begin with.
    pub seed: u64,
    /// How steps are made.
    pub optimizer: AdamWOptions,
}

impl Default for LoraOptions {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0, targets: Targets::default(), seed: 0, optimizer: AdamWOptions::default() }
    }
}

/// A model that can be trained, and settings that fit it.
pub(super) struct Design {
    pub context: Context,
    pub decoder: DenseDecoder,
    pub options: LoraOptions,
}

impl Design {
    /// An error for a model that can't be trained, and for settings that don't fit it.
    pub fn new(transformer: &Transformer, options: &LoraOptions) -> Result<Self> {
        let LoraOptions { rank, alpha, .. } = *options;
        if rank == 0 {
            bail!(OutOfRange, "rank is 0, wanted 1 or more");
        }
        if !(alpha.is_finite() && alpha != 0.0) {
            bail!(OutOfRange, "alpha is {alpha}, wanted a finite number other than 0");
        }
        if transformer.context().device().is_cpu() {
            bail!(InvalidRequest, "training needs a GPU, and the model runs on the CPU; load it with a GPU");
        }
        let decoder = transformer.dense_decoder()?;
        let design = Self { context: transformer.context().clone(), decoder, options: options.clone() };
        for (matrix, held) in design.targets()? {
            let most = matrix.columns().min(held.rows);
            if rank > most {
                bail!(
                    OutOfRange,
                    "rank is {rank}, and {} has a rank of {most} at most; name other targets, or a lower rank",
                    held.name
                );
            }
        }
        Ok(design)
    }

    /// What gets A and B, in the order of the model's layers.
    pub fn targets(&self) -> Result<Vec<(&Matrix, &HeldRows)>> {
        self.options.targets.of(&self.decoder)
    }

    /// The names of the tensors that learn.
    pub fn names(&self) -> Result<Vec<&str>> {
        Ok(self.targets()?.into_iter().map(|(_, held)| held.name.as_str()).collect())
    }

    /// The numbers in A and B.
    pub fn parameters(&self) -> Result<u64> {
        let of = |(matrix, held): (&Matrix, &HeldRows)| (self.options.rank * (matrix.columns() + held.rows)) as u64;
        Ok(self.targets()?.into_iter().map(of).sum())
    }

    /// The GPU memory that learning these examples takes, about.
    pub fn memory<'e>(&self, examples: impl Iterator<Item = &'e Example>) -> Result<TrainingMemory> {
        Ok(TrainingMemory::of_examples(&self.decoder, self.parameters()?, examples))
    }

    /// An error if the GPU has no room for that, or binds no array as large as a text of that length needs. Nothing is kept.
    pub async fn check_room(&self, memory: &TrainingMemory, tokens: usize) -> Result<()> {
        let device = self.context.device();
        let capabilities = device.capabilities();
        let most = capabilities.max_storage_binding_size.min(capabilities.max_buffer_size);
        let scores = 4 * self.decoder.config.n_heads as u64 * (tokens as u64).pow(2);
        if scores > most {
            bail!(
                AdapterLimits,
                "an example of {tokens} tokens has {scores} bytes of attention, and this adapter allows {most} in one binding; shorten it"
            );
        }
        let total = memory.total();
        let room = || {
            let mut pieces = Vec::new();
            let mut left = total;
            while left > 0 {
                let piece = left.min(PIECE_BYTES.min(most));
                pieces.push(self.context.empty(Desc::f32(&[piece.div_ceil(4) as usize]), "room for the training")?);
                left -= piece;
            }
            Ok(pieces)
        };
        let found = device.attempt("the training", room).await;
        let found = found.map_err(|error| {
            error.context(format!(
                "training takes about {total} bytes on the GPU besides the model; lower rank, maxLength or targets"
            ))
        });
        drop(found?);
        device.free_unused().await
    }
}
