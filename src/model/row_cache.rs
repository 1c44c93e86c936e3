//! The table of per-layer embeddings, left in the model's files. A pass reads one row of it for each token, so what the GPU needs is a cache of rows: those that
//! passes needed last. Rows that are missing are read before a pass is recorded.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::lock::{Mutex, OwnedMutexGuard};

use super::checkpoint::Checkpoint;
use super::clock::{Clock, Placed};
use super::source::ByteSource;
use super::table_on_disk::{Stored, TABLE};
use super::weight_stream::{SAMPLE_BYTES, sample_of};
use crate::error::Result;
use crate::tensor::ops::CachedEmbedding;
use crate::tensor::{Context, DType, Desc, Shape, Tensor};

/// Rows that lie this close together are read at once, with what is between them.
const MAX_GAP: u64 = 16 << 10;
const MAX_READ: u64 = 1 << 20;
/// How many reads are under way at the same time.
const READS: usize = 16;
/// If more places change, all are written: each write of its own costs more.
const FEW_PLACES: usize = 32;

/// The table's rows on the GPU.
pub struct RowCache {
    context: Context,
    stored: Stored,
    source: OnceCell<Rc<dyn ByteSource>>,
    /// [rows, columns] f32
    rows: Tensor,
    /// [vocabulary] u32: where the row of a token is.
    places: Tensor,
    held: RefCell<Clock>,
    /// Of whoever holds many rows: two of them could wait for each other's.
    turn: Arc<Mutex<()>>,
}

/// Rows that stay until it is dropped.
pub struct RowLease {
    cache: Rc<RowCache>,
    places: Vec<usize>,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for RowLease {
    fn drop(&mut self) {
        self.cache.held.borrow_mut().give_back(&self.places);
    }
}

impl RowCache {
    /// An empty cache of `rows` rows. `open` must follow.
    pub(super) fn new(context: &Context, stored: Stored, rows: usize) -> Result<Rc<Self>> {
        let Stored { vocabulary, columns, .. } = stored;
        let of_rows = Desc { shape: Shape::from([rows, columns]), dtype: DType::F32 };
        let of_places = Desc { shape: Shape::from([vocabulary]), dtype: DType::U32 };
        let cache = Self {
            context: context.clone(),
            stored,
            source: OnceCell::new(),
            rows: context.empty(of_rows, "rows of per-layer embeddings")?,
            places: context.empty(of_places, "places of per-layer embeddings")?,
            held: RefCell::new(Clock::new(rows, vocabulary)),
            turn: Arc::default(),
        };
        cache.write_places(&cache.held.borrow(), &[])?;
        Ok(Rc::new(cache))
    }

    /// Opens the file that rows are read from, for as long as the model is there. Returns what the table adds to the fingerprint.
    pub(super) async fn open(&self, checkpoint: &Checkpoint<'_>) -> Result<u64> {
        let Stored { file, offset, .. } = self.stored;
        let Some(file) = checkpoint.files.get(file) else { bail!(Internal, "there is no file {file}") };
        let bytes = self.stored.bytes();
        let Some(source) = file.lasting(offset, bytes).await? else {
            bail!(
                InvalidRequest,
                "perLayerEmbeddings is \"disk\", and {} is not kept on this device, so that rows could not be read from it later; let it be cached, pass a \
                 File, or leave the option out",
                file.name()
            )
        };
        let first = source.read(offset, SAMPLE_BYTES.min(bytes as usize)).await?;
        // The model is loaded once.
        let _ = self.source.set(source);
        Ok(sample_of(TABLE, 0, None, crc32fast::hash(&first)))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.bytes() + self.places.bytes()
    }

    /// The most different tokens of a pass: half of the rows, so that there is room for sequences that decode meanwhile. All if the cache holds the whole table.
    pub fn most_tokens(&self) -> usize {
        let rows = self.held.borrow().len();
        if rows == self.stored.vocabulary { rows } else { (rows / 2).max(1) }
    }

    /// The rows of `tokens` [n]: [n, columns]. They must be held when this is recorded.
    pub(super) fn embed(&self, tokens: &Tensor) -> Result<Tensor> {
        self.context.run1(&CachedEmbedding, &[tokens, &self.places, &self.rows])
    }

    /// Holds the rows of a pass over many tokens. Only one such pass holds rows at a time.
    pub async fn hold_pass(self: &Rc<Self>, tokens: &[u32]) -> Result<RowLease> {
        let turn = self.turn.clone().lock_owned().await;
        let mut lease = self.hold(tokens).await?;
        lease.turn = Some(turn);
        Ok(lease)
    }

    /// Reads the rows of these tokens that are missing, and holds all of them.
    pub async fn hold(self: &Rc<Self>, tokens: &[u32]) -> Result<RowLease> {
        let row_of = |token: &u32| if (*token as usize) < self.stored.vocabulary { *token } else { 0 };
        let mut wanted: Vec<u32> = tokens.iter().map(row_of).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let most = self.most_tokens();
        if wanted.len() > most {
            bail!(
                InvalidRequest,
                "a pass over {} different tokens, and perLayerEmbeddings: \"disk\" holds the embeddings of {most}; take fewer tokens, or load \
                 the model with \"device\"",
                wanted.len()
            );
        }
        let mut lease = RowLease { cache: self.clone(), places: Vec::with_capacity(wanted.len()), turn: None };
        let missing: Vec<u32> = wanted.into_iter().filter(|token| !self.lease(*token, &mut lease)).collect();
        if missing.is_empty() {
            return Ok(lease);
        }
        let values = self.read(&missing).await?;
        // Somebody else may have read them meanwhile.
        let missing: Vec<(u32, &[f32])> = missing
            .into_iter()
            .zip(values.chunks_exact(self.stored.columns))
            .filter(|(token, _)| !self.lease(*token, &mut lease))
            .collect();
        if !missing.is_empty() {
            self.put(&missing, &mut lease)?;
        }
        Ok(lease)
    }

    /// Holds a row that is there; false if it isn't.
    fn lease(&self, token: u32, lease: &mut RowLease) -> bool {
        let place = self.held.borrow_mut().lease(token);
        lease.places.extend(place);
        place.is_some()
    }

    /// Writes rows to places of their own and holds them.
    fn put(&self, rows: &[(u32, &[f32])], lease: &mut RowLease) -> Result<()> {
        let clock = &mut *self.held.borrow_mut();
        let tokens: Vec<u32> = rows.iter().map(|(token, _)| *token).collect();
        let Some(Placed { places, changed }) = clock.place(&tokens) else {
            bail!(OutOfMemory, "all {} rows of the per-layer embeddings' cache are in use", clock.len())
        };
        lease.places.extend(&places);
        let mut placed: Vec<(usize, &[f32])> = places.into_iter().zip(rows.iter().map(|(_, row)| *row)).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        for run in placed.chunk_by(|(before, _), (after, _)| before + 1 == *after) {
            let values: Vec<f32> = run.iter().flat_map(|(_, row)| *row).copied().collect();
            self.context.write(&self.rows, run[0].0 * self.stored.columns, bytemuck::cast_slice(&values))?;
        }
        self.write_places(clock, if changed.len() > FEW_PLACES { &[] } else { &changed })
    }

    /// Tells the GPU where the rows of these tokens are; of all without any.
    fn write_places(&self, clock: &Clock, tokens: &[u32]) -> Result<()> {
        let of_tokens = clock.of_rows();
        if tokens.is_empty() {
            return self.context.write(&self.places, 0, bytemuck::cast_slice(of_tokens));
        }
        for token in tokens {
            let at = *token as usize;
            self.context.write(&self.places, at, bytemuck::bytes_of(&of_tokens[at]))?;
        }
        Ok(())
    }

    /// Rows of these tokens, which are in order, one after the other.
    async fn read(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let Stored { offset, columns, format, row_bytes, .. } = self.stored;
        let Some(source) = self.source.get() else { bail!(Internal, "the file of {TABLE:?} is not open") };
        let place = |token: u32| u64::from(token) * row_bytes as u64;
        let mut runs: Vec<&[u32]> = Vec::new();
        let mut rest = tokens;
        while let Some(first) = rest.first() {
            let goes_on = |pair: &[u32]| {
                place(pair[1]) - place(pair[0]) <= row_bytes as u64 + MAX_GAP
                    && place(pair[1]) - place(*first) < MAX_READ
            };
            let count = 1 + rest.windows(2).take_while(|pair| goes_on(pair)).count();
            let (run, further) = rest.split_at(count);
            runs.push(run);
            rest = further;
        }
        let mut values = vec![0f32; tokens.len() * columns];
        let mut out = values.chunks_exact_mut(columns);
        for runs in runs.chunks(READS) {
            let reads = runs.iter().map(|run| {
                let length = place(run[run.len() - 1]) - place(run[0]) + row_bytes as u64;
                source.read(offset + place(run[0]), length as usize)
            });
            for (run, bytes) in runs.iter().zip(try_join_all(reads).await?) {
                for token in *run {
                    let at = (place(*token) - place(run[0])) as usize;
                    let (Some(row), Some(out)) = (bytes.get(at..at + row_bytes), out.next()) else {
                        bail!(Truncated, "{}: the row of token {token} was not read as a whole", source.name())
                    };
                    format.dequantize(row, out)?;
                }
            }
        }
        Ok(values)
    }
}
