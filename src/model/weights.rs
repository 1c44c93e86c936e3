//! Loads the tensors of a checkpoint to the GPU, in the order of its files.
//!
//! Bytes of matrices go from the source's chunks directly to the GPU and are repacked there. Vectors (norms, factors) are small: they go
//! through memory and are kept as f32.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::checkpoint::{Checkpoint, TensorInfo, TensorValues};
use super::config::Config;
use super::matrix::Matrix;
use super::row_cache::RowCache;
use super::table_on_disk;
use super::tensor_form::{format_of, is_vector, matrix_of};
use super::weight_layout::{Group, Layout};
use super::weight_loader::{Loaded, Loader, Piece, Place, Places};
pub use super::weight_stream::Progress;
use super::weight_stream::WeightStream;
use crate::error::Result;
use crate::tensor::{Context, DType, Desc, HostTensor, Shape, Tensor, WeightUpload};

/// After this number of bytes the upload waits for the GPU, which limits the browser's copies in flight. Of a smaller model it is a sixteenth, but
/// no less than the last.
const BYTES_IN_FLIGHT: u64 = 64 << 20;
const LEAST_IN_FLIGHT: u64 = 4 << 20;

/// A vector with more elements is not a norm or a factor.
const MAX_VECTOR: u64 = 1 << 24;

/// The tensors of a model by their names in the file.
#[derive(Clone)]
pub struct Weights {
    matrices: HashMap<String, Matrix>,
    vectors: HashMap<String, (Tensor, Vec<f32>)>,
    /// The joined matrices of `JOINED`, by names such as `blk.0.attn_qkv`; empty if they were not joined.
    joined: HashMap<String, Vec<Run>>,
    /// In place of the table of per-layer embeddings, if that stays in the files.
    row_cache: Option<Rc<RowCache>>,
    quantization: &'static str,
    bytes: u64,
    /// What the table of per-layer embeddings would take more than the rows of it that are there.
    bytes_on_disk: i64,
    parameters: u64,
    fingerprint: u64,
}

/// Neighbours in an entry of `JOINED` that were joined into one matrix, because they have one type. Mostly these are all of them.
#[derive(Clone)]
pub struct Run {
    /// The index of the first one in the entry.
    pub first: usize,
    /// The number of joined matrices.
    pub count: usize,
    /// The joined matrix.
    pub matrix: Matrix,
}

/// A model's matrices, allocated on the GPU but not yet read from their files.
pub struct Unloaded<'a> {
    weights: Weights,
    checkpoint: &'a Checkpoint<'a>,
    wanted: Vec<&'a TensorInfo>,
    places: Places,
}

impl<'a> Unloaded<'a> {
    /// Allocates every tensor that the configuration uses. All types are checked first.
    pub fn new(context: &Context, checkpoint: &'a Checkpoint<'a>, config: &Config, layout: &Layout) -> Result<Self> {
        let wanted: Vec<&TensorInfo> = checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)).collect();
        for tensor in &wanted {
            format_of(tensor)?;
            if is_vector(tensor) && tensor.elements() > MAX_VECTOR {
                bail!(InvalidFile, "the vector {:?} has {} elements", tensor.name, tensor.elements());
            }
        }
        let on_disk = checkpoint.tensor(table_on_disk::TABLE).filter(|_| config.per_layer_cache_rows.is_some());
        let all: Vec<&TensorInfo> = wanted.iter().copied().chain(on_disk).collect();
        let mut weights = Weights {
            matrices: HashMap::new(),
            vectors: HashMap::new(),
            joined: HashMap::new(),
            row_cache: None,
            quantization: layout.most_common_format(&all, config)?.name,
            bytes: 0,
            bytes_on_disk: 0,
            parameters: all.iter().map(|tensor| tensor.elements()).sum(),
            fingerprint: 0,
        };
        let groups = layout.joinable(&wanted, config, Some(context.device().capabilities()))?;
        let mut places = weights.join(context, groups)?;
        weights.place(context, &wanted, config, layout, &mut places)?;
        if let Some(rows) = config.per_layer_cache_rows {
            let stored = table_on_disk::stored(checkpoint)?;
            let cache = RowCache::new(context, stored, rows)?;
            weights.bytes += cache.bytes();
            let table = layout.per_layer_bytes(checkpoint, config, Some(context.device().capabilities()))?;
            weights.bytes_on_disk = table as i64 - cache.bytes() as i64;
            weights.row_cache = Some(cache);
        }
        Ok(Self { weights, checkpoint, wanted, places })
    }

    /// Bytes of the matrices.
    pub fn bytes(&self) -> u64 {
        self.weights.bytes
    }

    /// The weights before they are read, for planning: matrices have undefined contents, and vectors are ones.
    pub fn preview(&self, context: &Context) -> Result<Weights> {
        let mut weights = self.weights.clone();
        for tensor in self.wanted.iter().filter(|tensor| is_vector(tensor)) {
            let values = match &tensor.values {
                TensorValues::Computed(values) => values.clone(),
                TensorValues::Stored { .. }
                | TensorValues::Mxfp4 { .. }
                | TensorValues::Ternary { .. }
                | TensorValues::Packed(_) => {
                    vec![1.0; tensor.elements() as usize]
                }
            };
            weights.insert_vector(context, &tensor.name, values)?;
        }
        Ok(weights)
    }

    /// Reads the tensors.
    pub async fn load(self, context: &Context, progress: &mut Progress<'_>) -> Result<Weights> {
        let Self { mut weights, checkpoint, wanted, places } = self;
        let mut parts: Vec<Piece<'_>> = Vec::new();
        for tensor in wanted {
            match &tensor.values {
                TensorValues::Computed(values) => match places.get(&tensor.name) {
                    None => weights.insert_vector(context, &tensor.name, values.clone())?,
                    Some(place) => upload_computed(context, tensor, &place.matrix, values)?,
                },
                TensorValues::Stored { parts: stored, transform } => {
                    let mut before = 0;
                    for (number, part) in stored.iter().enumerate() {
                        let count = stored.len();
                        parts.push(Piece {
                            tensor,
                            part: *part,
                            number,
                            count,
                            before,
                            transform: *transform,
                            side: None,
                        });
                        before += part.bytes;
                    }
                }
                TensorValues::Mxfp4 { blocks: part, .. } | TensorValues::Ternary { packed: part, .. } => {
                    parts.push(Piece {
                        tensor,
                        part: *part,
                        number: 0,
                        count: 1,
                        before: 0,
                        transform: None,
                        side: None,
                    });
                }
                TensorValues::Packed(packed) => {
                    for (number, matrix) in packed.matrices.iter().enumerate() {
                        let count = packed.matrices.len();
                        let piece =
                            |part, side| Piece { tensor, part, number, count, before: 0, transform: None, side };
                        parts.push(piece(matrix.quants, None));
                        parts.extend(matrix.sides.iter().map(|side| piece(side.part, Some((side.side, side.dtype)))));
                    }
                }
            }
        }
        parts.sort_by_key(|piece| (piece.part.file, piece.part.offset));
        let stream = WeightStream::new(checkpoint, parts.iter().map(|piece| piece.part));
        let mut vectors_in_parts: HashMap<String, BTreeMap<usize, Vec<f32>>> = HashMap::new();
        let most_in_flight = (weights.bytes / 16).clamp(LEAST_IN_FLIGHT, BYTES_IN_FLIGHT);
        let mut loader = Loader::new(context, stream, most_in_flight);
        for piece in parts {
            let name = &piece.tensor.name;
            let loaded = loader.load(&piece, places.get(name), progress).await;
            let loaded = loaded.map_err(|error| error.context(format_args!("loading {name:?}")))?;
            // A sum, since other files may hold the same tensors in another order.
            weights.fingerprint = weights.fingerprint.wrapping_add(loader.sample(&piece));
            match loaded {
                Loaded::Matrix => {}
                Loaded::Vector(values) if piece.count == 1 => weights.insert_vector(context, name, values)?,
                Loaded::Vector(values) => {
                    let parts = vectors_in_parts.entry(name.clone()).or_default();
                    parts.insert(piece.number, values);
                    if parts.len() == piece.count {
                        let whole = std::mem::take(parts).into_values().flatten().collect();
                        weights.insert_vector(context, name, whole)?;
                    }
                }
            }
        }
        if let Some(cache) = &weights.row_cache {
            weights.fingerprint = weights.fingerprint.wrapping_add(cache.open(checkpoint).await?);
        }
        context.device().sync().await?;
        // Frees staging buffers and other memory that is not needed any more.
        context.device().trim();
        Ok(weights)
    }
}

impl Weights {
    /// Loads every tensor that the configuration uses. All types are checked before the first byte is read.
    pub async fn load(
        context: &Context,
        checkpoint: &Checkpoint<'_>,
        config: &Config,
        layout: &Layout,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let allocate = || Unloaded::new(context, checkpoint, config, layout);
        context.device().attempt("the weights", allocate).await?.load(context, progress).await
    }

    fn insert_vector(&mut self, context: &Context, name: &str, values: Vec<f32>) -> Result<()> {
        let vector = context.tensor(&HostTensor::f32(&[values.len()], &values))?;
        self.bytes += vector.bytes();
        self.vectors.insert(name.to_owned(), (vector, values));
        Ok(())
    }

    /// Allocates every matrix that has no place yet: as one tensor, or as several of consecutive rows.
    fn place(
        &mut self,
        context: &Context,
        tensors: &[&TensorInfo],
        config: &Config,
        layout: &Layout,
        places: &mut Places,
    ) -> Result<()> {
        for tensor in tensors.iter().filter(|tensor| !is_vector(tensor)) {
            if places.contains_key(&tensor.name) {
                continue;
            }
            let (rows, columns) = matrix_of(tensor)?;
            let format = layout.format(tensor, config)?;
            format.row_bytes(columns)?;
            let mut parts = Vec::new();
            for rows in layout.rows_of_parts(tensor, config, Some(context.device().capabilities()))? {
                let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
                parts.push(context.empty(desc, &tensor.name)?);
            }
            let matrix = Matrix::new(parts, [(tensor.name.clone(), rows)])?;
            self.bytes += matrix.bytes();
            places.insert(tensor.name.clone(), Place { matrix: matrix.clone(), first_row: 0 });
            self.matrices.insert(tensor.name.clone(), matrix);
        }
        Ok(())
    }

    /// Allocates the joined matrices. Returns the place of each of the file's tensors: matrix and row.
    fn join(&mut self, context: &Context, groups: Vec<Group<'_>>) -> Result<Places> {
        let mut places = HashMap::new();
        for group in groups {
            let (_, columns) = matrix_of(group.parts[0])?;
            group.format.row_bytes(columns)?;
            let mut parts = Vec::new();
            for rows in group.rows_of_parts(Some(context.device().capabilities()))? {
                let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(group.format) };
                parts.push(context.empty(desc, &group.name)?);
            }
            let names = group.parts.iter().map(|part| part.name.clone());
            let matrix = Matrix::new(parts, names.zip(group.rows()?))?;
            self.bytes += matrix.bytes();
            let mut first_row = 0;
            for (part, rows) in group.parts.iter().zip(group.rows()?) {
                places.insert(part.name.clone(), Place { matrix: matrix.clone(), first_row });
                first_row += rows;
            }
            let run = Run { first: group.first, count: group.count, matrix };
            self.joined.entry(group.name).or_default().push(run);
        }
        Ok(places)
    }

    /// Those whose names begin with `prefix`, without it, and those of `shared` that are not among them.
    pub fn part(&self, prefix: &str, shared: &[&str]) -> Self {
        let (mut matrices, mut vectors) = (HashMap::new(), HashMap::new());
        for name in shared {
            matrices.extend(self.matrices.get(*name).map(|matrix| ((*name).to_owned(), matrix.clone())));
        }
        let own = |name: &String| name.strip_prefix(prefix).map(str::to_owned);
        matrices.extend(self.matrices.iter().filter_map(|(name, matrix)| Some((own(name)?, matrix.clone()))));
        vectors.extend(self.vectors.iter().filter_map(|(name, vector)| Some((own(name)?, vector.clone()))));
        Self { matrices, vectors, joined: HashMap::new(), row_cache: None, ..*self }
    }

    /// A matrix that `Config` checked to exist.
    pub fn matrix(&self, name: &str) -> Result<Matrix> {
        self.optional_matrix(name).ok_or_else(|| err!(MissingTensor, "the model has no tensor {name:?}"))
    }

    /// A matrix that some models lack.
    pub fn optional_matrix(&self, name: &str) -> Option<Matrix> {
        self.matrices.get(name).cloned()
    }

    /// What holds rows of the table of per-layer embeddings, if that stays in the files.
    pub(super) fn row_cache(&self) -> Option<&Rc<RowCache>> {
        self.row_cache.as_ref()
    }

    /// Whether any matrices of `JOINED` were joined.
    pub fn is_joined(&self) -> bool {
        !self.joined.is_empty()
    }

    /// The runs of an entry of `JOINED`, by a name such as `blk.0.attn_qkv`, in order; `None` if nothing was joined.
    pub fn joined(&self, name: &str) -> Option<&[Run]> {
        self.joined.get(name).map(Vec::as_slice)
    }

    /// The type with the most bytes, of all matrices.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// A vector on the GPU, if the model has it.
    pub fn optional(&self, name: &str) -> Option<&Tensor> {
        self.vectors.get(name).map(|(tensor, _)| tensor)
    }

    /// The values of a vector.
    pub fn vector(&self, name: &str) -> Result<&[f32]> {
        match self.vectors.get(name) {
            Some((_, values)) => Ok(values),
            None => bail!(MissingTensor, "the model has no vector {name:?}"),
        }
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes on the GPU as if nothing stayed in the files.
    pub(super) fn bytes_of_all(&self) -> u64 {
        self.bytes.saturating_add_signed(self.bytes_on_disk)
    }

    /// Of names and of bytes from all tensors, as they are in the files: other weights have another one. It does not depend on the device.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The number of weights in the model's files.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }
}

/// Writes the numbers of a matrix that no file holds.
fn upload_computed(context: &Context, tensor: &TensorInfo, matrix: &Matrix, values: &[f32]) -> Result<()> {
    let (_, columns) = matrix_of(tensor)?;
    for (first_row, target) in matrix.parts() {
        let rows = target.shape().dims()[0];
        let mut upload = WeightUpload::quantizing(context, format_of(tensor)?, target.clone(), 0, rows)?;
        let bytes = bytemuck::cast_slice(&values[first_row * columns..(first_row + rows) * columns]).to_vec();
        upload.write_range(&bytes, 0, bytes.len())?;
        upload.finish()?;
    }
    Ok(())
}
