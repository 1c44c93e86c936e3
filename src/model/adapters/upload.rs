//! From an adapter's files to the GPU: which matrix of the model each pair adds to, and the form in which kernels read it.
//!
//! A and B become f16, each divided by a power of two such that its largest number is near 2⁸, so that nothing is too large and little
//! too small for f16. The powers are a part of the factor.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::file::{AdapterFile, Pair};
use super::order::{Reordered, reordered};
use super::{Adapter, LowRank, MAX_ADAPTERS};
use crate::error::Result;
use crate::model::Transformer;
use crate::model::arch::expected_tensors;
use crate::model::config::Config;
use crate::model::matrix::{HeldRows, Matrix};
use crate::tensor::ops::LowRankSegment;
use crate::tensor::quant::Format;
use crate::tensor::{Capabilities, Context, DType, Desc, Shape, Tensor, WeightUpload};

/// The exponent of the power of two above the largest numbers.
const LARGEST_EXPONENT: i32 = 8;

/// The pairs of one matrix of the model.
struct Target<'a> {
    matrix: &'a Matrix,
    pairs: Vec<(&'a HeldRows, &'a Pair, Option<Reordered>)>,
}

impl Target<'_> {
    /// An error if its ranks are more than `low_rank_down` takes, or its result for a pass of so many tokens more than a kernel binds.
    fn check(&self, capabilities: &Capabilities, tokens: usize) -> Result<()> {
        let ranks: usize = self.pairs.iter().map(|(_, pair, _)| even(pair.down.rows)).sum();
        let bound = capabilities.max_storage_binding_size / (4 * tokens as u64);
        let most = bound.min(capabilities.max_workgroups_per_dimension.into());
        if ranks as u64 > most {
            let names: Vec<&str> = self.pairs.iter().map(|(_, pair, _)| pair.theirs.as_str()).collect();
            bail!(
                AdapterLimits,
                "the rank of what the adapter adds to {} is {ranks} in all, and this device takes {most} at most",
                names.join(", ")
            );
        }
        Ok(())
    }
}

/// Kernels read two ranks at once.
fn even(rank: usize) -> usize {
    rank.next_multiple_of(2)
}

/// What goes to the GPU for one matrix.
#[derive(Default)]
struct Words {
    /// f16, little-endian.
    down: Vec<u8>,
    ranks: usize,
    /// Of each rank its adapter's place and the bits of its factor.
    factors: Vec<u32>,
    up: Vec<u32>,
    segments: Vec<LowRankSegment>,
}

impl Adapter {
    /// Checks every pair against the model before the first is read, then reads them to the GPU. `place` is which of a sequence's scales is
    /// its, below `MAX_ADAPTERS`, and `tokens` the most that a pass over a prompt has. `progress` gets the bytes read and those to read, and may end it with an error.
    pub async fn load(
        transformer: &Transformer,
        file: &AdapterFile<'_>,
        (place, tokens): (usize, usize),
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Self> {
        if place >= MAX_ADAPTERS {
            bail!(Internal, "an adapter at the place {place} of {MAX_ADAPTERS}");
        }
        let targets = targets(transformer, file).map_err(|error| error.context(file.file.name()))?;
        let capabilities = transformer.context().device().capabilities();
        let checked = targets.values().try_for_each(|target| target.check(capabilities, tokens));
        checked.map_err(|error| error.context(file.file.name()))?;
        let (context, total) = (transformer.context(), file.bytes());
        let (mut loaded, mut bytes, mut by_matrix) = (0, 0, HashMap::new());
        let (mut of_names, mut of_numbers) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
        progress(0, total)?;
        for (key, target) in targets {
            let mut words = Words::default();
            for (held, pair, reordered) in target.pairs {
                of_names.update(format!("{} {:?} {reordered:?}\n", held.name, pair.factor.to_bits()).as_bytes());
                let (down_bytes, down) = pair.down.read(&file.file).await?;
                let (up_bytes, up) = pair.up.read(&file.file).await?;
                of_numbers.update(&down_bytes);
                of_numbers.update(&up_bytes);
                words.add(place, held, pair, reordered, (&down, &up))?;
                loaded += pair.down.bytes + pair.up.bytes;
                progress(loaded, total)?;
            }
            let low_rank = || words.upload(context, target.matrix.columns());
            let low_rank = context.device().attempt("the adapter", low_rank).await?;
            bytes += [&low_rank.down, &low_rank.factors, &low_rank.words].into_iter().map(Tensor::bytes).sum::<u64>();
            by_matrix.insert(key, low_rank);
        }
        context.device().sync().await?;
        let stem = |pair: &Pair| pair.tensor.split('.').nth(2).unwrap_or(&pair.tensor).to_owned();
        Ok(Self {
            place,
            by_matrix,
            rank: file.pairs.iter().map(|pair| pair.down.rows).max().unwrap_or(0),
            bytes,
            fingerprint: u64::from(of_names.finalize()) << 32 | u64::from(of_numbers.finalize()),
            format: file.format,
            targets: file.pairs.iter().map(stem).collect::<BTreeSet<String>>().into_iter().collect(),
            is_unloaded: Cell::new(false),
        })
    }
}

/// Which pairs each matrix of the model gets, by its key.
fn targets<'a>(transformer: &'a Transformer, file: &'a AdapterFile<'_>) -> Result<BTreeMap<String, Target<'a>>> {
    let config = transformer.config();
    if config.encoder.is_some() {
        bail!(
            UnsupportedAdapter,
            "the model ({}) has an encoder, and adapters for those are not supported",
            config.arch.name
        );
    }
    if config.rounds_activations {
        bail!(
            UnsupportedAdapter,
            "the model ({}) rounds what its products read, and adapters for those are not supported",
            config.arch.name
        );
    }
    let mut targets: BTreeMap<String, Target<'_>> = BTreeMap::new();
    for pair in &file.pairs {
        let held = transformer.adaptable().find_map(|matrix| {
            let held = matrix.holds().iter().find(|held| held.name == pair.tensor);
            held.map(|held| (matrix, held))
        });
        let Some((matrix, held)) = held else { return Err(refused(config, pair)) };
        let (wanted, found) = ((held.rows, matrix.columns()), (pair.up.rows, pair.down.columns));
        if wanted != found {
            bail!(
                AdapterMismatch,
                "the adapter adds [{}, {}] to {}, which is [{}, {}] in this model ({}): it is of another model",
                found.0,
                found.1,
                pair.theirs,
                wanted.0,
                wanted.1,
                config.arch.name
            );
        }
        let reordered = reordered(config, (&pair.tensor, &pair.theirs), pair.rope)?;
        let target = targets.entry(matrix.key().to_owned()).or_insert_with(|| Target { matrix, pairs: Vec::new() });
        if target.pairs.iter().any(|(other, ..)| other.name == held.name) {
            bail!(InvalidFile, "two pairs of the adapter add to {}", held.name);
        }
        target.pairs.push((held, pair, reordered));
    }
    Ok(targets)
}

/// Why nothing can be added to a tensor.
fn refused(config: &Config, pair: &Pair) -> crate::Error {
    let arch = config.arch.name;
    // A head that is the embedding again has no tensor of its own.
    let is_known = |name: &str| name == "output.weight" || expected_tensors(config).iter().any(|it| it.name == name);
    if is_known(&pair.tensor) {
        err!(
            UnsupportedAdapter,
            "the adapter adds to {} ({}); supported are the matrices of attention over keys and values and of dense feed-forwards",
            pair.theirs,
            pair.tensor
        )
    } else {
        err!(
            AdapterMismatch,
            "the adapter adds to {}, which this model ({arch}) lacks: it is of another model",
            pair.theirs
        )
    }
}

impl Words {
    fn add(
        &mut self,
        place: usize,
        held: &HeldRows,
        pair: &Pair,
        reordered: Option<Reordered>,
        (down, up): (&[f32], &[f32]),
    ) -> Result<()> {
        let (rank, rows) = (pair.down.rows, pair.up.rows);
        let (down_exponent, up_exponent) = (exponent(down, &pair.theirs)?, exponent(up, &pair.theirs)?);
        let half = |value: f32, exponent: i32| half::f16::from_f64(f64::from(value) * (-f64::from(exponent)).exp2());
        self.down.extend(down.iter().flat_map(|value| half(*value, down_exponent).to_le_bytes()));
        let ranks = even(rank);
        self.down.resize(self.down.len() + (ranks - rank) * pair.down.columns * 2, 0);
        let factor = f64::from(pair.factor) * f64::from(down_exponent + up_exponent).exp2();
        let segment = LowRankSegment {
            first_row: held.first_row as u32,
            rows: rows as u32,
            first_rank: self.ranks as u32,
            rank_pairs: ranks as u32 / 2,
            first_word: self.up.len() as u32,
        };
        let factor = factor as f32;
        if !factor.is_finite() {
            bail!(NumericalError, "the adapter's scale for {} is {}", pair.theirs, pair.factor);
        }
        self.segments.push(segment);
        self.factors.extend([place as u32, factor.to_bits()].repeat(ranks));
        self.ranks += ranks;
        let value = |row: usize, rank_index: usize| {
            let row = reordered.map_or(row, |reordered| reordered.source(row));
            let value = if rank_index < rank { up[row * rank + rank_index] } else { 0.0 };
            u32::from(half(value, up_exponent).to_bits())
        };
        for first in (0..rank).step_by(2) {
            self.up.extend((0..rows).map(|row| value(row, first) | value(row, first + 1) << 16));
        }
        Ok(())
    }

    fn upload(&self, context: &Context, columns: usize) -> Result<LowRank> {
        let Some(format) = Format::by_name("f16") else { bail!(Internal, "there is no format f16") };
        let desc = Desc { shape: Shape::from([self.ranks, columns]), dtype: DType::Weight(format) };
        let down = context.lasting(desc, "adapter")?;
        let mut upload = WeightUpload::into_rows(context, down.clone(), 0, self.ranks)?;
        upload.write(&self.down)?;
        upload.finish()?;
        let lasting = |dims: &[usize], words: &[u32]| {
            let tensor = context.lasting(Desc::u32(dims), "adapter")?;
            context.write(&tensor, 0, bytemuck::cast_slice(words))?;
            Ok::<Tensor, crate::Error>(tensor)
        };
        let words = LowRankSegment::words(&self.segments, &self.up);
        let factors = lasting(&[self.ranks, 2], &self.factors)?;
        Ok(LowRank { down, factors, words: lasting(&[words.len()], &words)? })
    }
}

/// The exponent of the power of two by which numbers are divided.
fn exponent(values: &[f32], name: &str) -> Result<i32> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        bail!(NumericalError, "the adapter holds {value} for {name}, wanted finite numbers: its file is broken");
    }
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 { Ok(0) } else { Ok(largest.log2().floor() as i32 + 1 - LARGEST_EXPONENT) }
}
