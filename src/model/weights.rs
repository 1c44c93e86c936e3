//! Loads the tensors of a checkpoint to the GPU, in the order in which they lie in its files.
//!
//! Bytes of matrices go from the source's chunks straight to the GPU and are repacked there. Vectors (norms, factors) are
//! small; they come through memory and are kept as f32.

use std::collections::{BTreeMap, HashMap};

use super::arch::{Change, JOINED, JoinedMatrices};
use super::checkpoint::{Checkpoint, Part, TensorInfo, TensorValues};
use super::config::Config;
use super::joined::Joined;
pub use super::weight_stream::Progress;
use super::weight_stream::WeightStream;
use crate::error::Result;
use crate::tensor::quant::{self, BLOCK, FORMATS, Format};
use crate::tensor::{Context, DType, Desc, HostTensor, Shape, Tensor, WeightUpload};

/// After this many bytes the upload waits for the GPU, so that the browser's copies in flight stay bounded.
const BYTES_IN_FLIGHT: u64 = 64 << 20;

/// Vectors above this many elements are no norms or factors.
const MAX_VECTOR: u64 = 1 << 24;

/// The tensors of a model by their names in the file.
pub struct Weights {
    tensors: HashMap<String, Tensor>,
    vectors: HashMap<String, Vec<f32>>,
    /// What became of the matrices of `JOINED`, by names such as `blk.0.attn_qkv`; empty if they were not joined.
    joined: HashMap<String, Vec<Run>>,
    quantization: &'static str,
    bytes: u64,
    parameters: u64,
}

/// Neighbours among the matrices of an entry of `JOINED` that are one matrix, because they are of one type: mostly all of them.
#[derive(Clone)]
pub struct Run {
    /// The number of the first one, and how many there are.
    pub first: usize,
    pub count: usize,
    pub matrix: Tensor,
}

impl Weights {
    /// Loads every tensor that the configuration uses. All types are checked before the first byte is read. With `join`, and where
    /// the model's shapes allow it, matrices that kernels read as one become one, as far as they are of one type.
    pub async fn load(
        context: &Context,
        checkpoint: &Checkpoint<'_>,
        config: &Config,
        join: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let wanted: Vec<&TensorInfo> = checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)).collect();
        for tensor in &wanted {
            format_of(tensor)?;
            if is_vector(tensor) && tensor.elements() > MAX_VECTOR {
                bail!(InvalidFile, "the vector {:?} has {} elements", tensor.name, tensor.elements());
            }
        }
        let mut weights = Self {
            tensors: HashMap::new(),
            vectors: HashMap::new(),
            joined: HashMap::new(),
            quantization: most_common_format(&wanted)?.name,
            bytes: 0,
            parameters: 0,
        };
        let limit = context.device().capabilities().max_storage_binding_size;
        let groups = if join { joinable(&wanted, config, limit)? } else { vec![] };
        let mut places = weights.join(context, groups)?;
        weights.stack(context, &wanted, &mut places)?;

        let mut parts: Vec<Piece<'_>> = Vec::new();
        for tensor in wanted {
            weights.parameters += tensor.elements();
            match &tensor.values {
                TensorValues::Computed(values) => weights.insert_vector(context, &tensor.name, values.clone())?,
                TensorValues::Stored { parts: stored, change } => {
                    let piece = |(number, part): (usize, &Part)| Piece {
                        tensor,
                        part: *part,
                        number,
                        count: stored.len(),
                        change: *change,
                    };
                    parts.extend(stored.iter().enumerate().map(piece));
                }
            }
        }
        parts.sort_by_key(|piece| (piece.part.file, piece.part.offset));
        let stream = WeightStream::new(checkpoint, parts.iter().map(|piece| piece.part));
        let mut vectors_in_parts: HashMap<String, BTreeMap<usize, Vec<f32>>> = HashMap::new();
        let mut loader = Loader { context, stream, in_flight: 0 };
        for piece in parts {
            let name = &piece.tensor.name;
            let place = places.get(name).cloned();
            let is_placed = place.is_some();
            let loaded = loader.load(&piece, place, progress).await;
            match loaded.map_err(|error| error.context(format_args!("loading {name:?}")))? {
                Loaded::Matrix(_) if is_placed => weights.bytes += piece.part.bytes,
                Loaded::Matrix(matrix) => {
                    weights.bytes += matrix.bytes();
                    weights.tensors.insert(name.clone(), matrix);
                }
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
        context.device().sync().await?;
        // The staging buffers and whatever else is not needed any more.
        context.device().trim();
        Ok(weights)
    }

    /// What the tensors that the configuration uses take on the GPU. All types are checked.
    pub fn needs(checkpoint: &Checkpoint<'_>, config: &Config) -> Result<Needs> {
        let mut needs = Needs { bytes: 0, largest: String::new(), largest_binding: 0, largest_buffer: 0 };
        for tensor in checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)) {
            let format = format_of(tensor)?;
            let (bytes, binding) = match is_vector(tensor) {
                true => (tensor.elements().saturating_mul(4), tensor.elements().saturating_mul(4)),
                false => {
                    let (rows, columns) = matrix_of(tensor)?;
                    format.row_bytes(columns)?;
                    let planes = format.planes(rows, columns);
                    (planes.bytes, planes.largest())
                }
            };
            needs.bytes = needs.bytes.saturating_add(bytes);
            if binding > needs.largest_binding {
                (needs.largest, needs.largest_binding) = (format!("the tensor {:?}", tensor.name), binding);
            }
            needs.largest_buffer = needs.largest_buffer.max(bytes);
        }
        Ok(needs)
    }

    fn insert_vector(&mut self, context: &Context, name: &str, values: Vec<f32>) -> Result<()> {
        let vector = context.tensor(&HostTensor::f32(&[values.len()], &values))?;
        self.bytes += vector.bytes();
        self.tensors.insert(name.to_owned(), vector);
        self.vectors.insert(name.to_owned(), values);
        Ok(())
    }

    /// Makes room for matrices that lie in the files in several parts.
    fn stack(
        &mut self,
        context: &Context,
        tensors: &[&TensorInfo],
        places: &mut HashMap<String, (Tensor, usize)>,
    ) -> Result<()> {
        for tensor in tensors {
            let TensorValues::Stored { parts, .. } = &tensor.values else { continue };
            if parts.len() < 2 || is_vector(tensor) || places.contains_key(&tensor.name) {
                continue;
            }
            let (rows, columns) = matrix_of(tensor)?;
            let format = format_of(tensor)?;
            format.row_bytes(columns)?;
            let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
            let whole = context.empty(desc, &tensor.name)?;
            places.insert(tensor.name.clone(), (whole.clone(), 0));
            self.tensors.insert(tensor.name.clone(), whole);
        }
        Ok(())
    }

    /// Makes room for matrices that kernels read as one, and tells where in them the tensors of the file go: matrix and row.
    fn join(&mut self, context: &Context, groups: Vec<Group<'_>>) -> Result<HashMap<String, (Tensor, usize)>> {
        let mut places = HashMap::new();
        for Group { name, first, count, parts } in groups {
            let format = format_of(parts[0])?;
            let columns = parts[0].dims[0] as usize;
            format.row_bytes(columns)?;
            let rows: usize = parts.iter().map(|part| part.dims[1] as usize).sum();
            let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
            let whole = context.empty(desc, &name)?;
            let run = Run { first, count, matrix: whole.clone() };
            self.joined.entry(name).or_default().push(run);
            let mut first_row = 0;
            for part in parts {
                places.insert(part.name.clone(), (whole.clone(), first_row));
                first_row += part.dims[1] as usize;
            }
        }
        Ok(places)
    }

    /// A tensor that the configuration promised.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| err!(MissingTensor, "the model has no tensor {name:?}"))
    }

    /// Whether the matrices of `JOINED` were joined.
    pub fn is_joined(&self) -> bool {
        !self.joined.is_empty()
    }

    /// The runs of a name such as `blk.0.attn_qkv`, in order.
    pub fn joined(&self, name: &str) -> Result<&[Run]> {
        match self.joined.get(name) {
            Some(runs) => Ok(runs),
            None => bail!(MissingTensor, "the model has no matrices that were joined to {name:?}"),
        }
    }

    /// The type of most bytes of the matrices.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// A tensor that not every model has.
    pub fn optional(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The values of a vector.
    pub fn vector(&self, name: &str) -> Result<&[f32]> {
        match self.vectors.get(name) {
            Some(values) => Ok(values),
            None => bail!(MissingTensor, "the model has no vector {name:?}"),
        }
    }

    /// Bytes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn parameters(&self) -> u64 {
        self.parameters
    }
}

/// What weights take on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    pub bytes: u64,
    /// What needs the largest binding.
    pub largest: String,
    pub largest_binding: u64,
    pub largest_buffer: u64,
}

/// Matrices of a file that become one: neighbours in an entry of `JOINED`, from the one of number `first` on. There is at least one.
struct Group<'a> {
    name: String,
    /// The number of the first one, and how many there are. A file may have them as one part.
    first: usize,
    count: usize,
    parts: Vec<&'a TensorInfo>,
}

/// What is to be joined, if the ops that take joined matrices take the shapes of this model, which are whole blocks.
fn joinable<'a>(tensors: &[&'a TensorInfo], config: &Config, binding_limit: u64) -> Result<Vec<Group<'a>>> {
    let widths = [config.n_embd, config.n_ff, config.n_heads * config.head_dim];
    if !widths.iter().all(|width| width.is_multiple_of(BLOCK)) || !config.head_dim.is_multiple_of(4) {
        return Ok(vec![]);
    }
    let by_name: HashMap<&str, &TensorInfo> = tensors.iter().map(|tensor| (tensor.name.as_str(), *tensor)).collect();
    if !Joined::takes(config, &|tensor| by_name.contains_key(tensor)) {
        return Ok(vec![]);
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for layer in 0..config.n_layers {
        for JoinedMatrices { name, parts, whole } in JOINED {
            let of_layer = |stem: &str| by_name.get(format!("blk.{layer}.{stem}.weight").as_str()).copied();
            let name = format!("blk.{layer}.{name}");
            let parts: Vec<Option<&TensorInfo>> = parts.iter().map(|part| of_layer(part)).collect();
            // The file may have them as one already.
            if let (None, Some(whole)) = (parts[0], of_layer(whole)) {
                groups.push(Group { name, first: 0, count: parts.len(), parts: vec![whole] });
                continue;
            }
            // A mixture of experts has no gate and up of its own.
            if parts.iter().all(Option::is_none) && config.experts.is_some() {
                continue;
            }
            for (number, part) in parts.into_iter().enumerate() {
                let Some(part) = part else { return Ok(vec![]) };
                match groups.last_mut().filter(|group| group.name == name) {
                    Some(group) if takes(group, part, binding_limit)? => {
                        group.parts.push(part);
                        group.count += 1;
                    }
                    _ => groups.push(Group { name: name.clone(), first: number, count: 1, parts: vec![part] }),
                }
            }
        }
    }
    Ok(groups)
}

/// Whether a matrix can become the last part of a group.
fn takes(group: &Group<'_>, part: &TensorInfo, binding_limit: u64) -> Result<bool> {
    let (before, columns) = (group.parts.iter().map(|part| part.dims[1] as usize).sum(), part.dims[0] as usize);
    let bytes: u64 = group.parts.iter().map(|part| part.bytes()).sum();
    Ok(group.parts[0].ty.id() == part.ty.id()
        && format_of(part)?.splits_at(before, columns)
        && bytes.checked_add(part.bytes()).is_some_and(|bytes| bytes <= binding_limit))
}

/// The format of most bytes among the matrices.
fn most_common_format(tensors: &[&TensorInfo]) -> Result<&'static Format> {
    let bytes = |format: &Format| -> u64 {
        let matrices = tensors.iter().filter(|tensor| tensor.dims.len() > 1 && tensor.ty.id() == format.gguf_type);
        matrices.map(|tensor| tensor.bytes()).fold(0, u64::saturating_add)
    };
    let format = FORMATS.iter().copied().max_by_key(|format| bytes(format));
    format.ok_or_else(|| err!(Internal, "there are no formats"))
}

fn format_of(tensor: &TensorInfo) -> Result<&'static Format> {
    Format::by_gguf_type(tensor.ty.id()).ok_or_else(|| {
        err!(
            UnsupportedTensorType,
            "the tensor {:?} is of type {}; supported are {}: use a file of one of these",
            tensor.name,
            tensor.ty.name(),
            quant::supported()
        )
    })
}

/// Rows and columns of a matrix, or of a stack of them.
fn matrix_of(tensor: &TensorInfo) -> Result<(usize, usize)> {
    let [columns, rows @ ..] = &tensor.dims[..] else {
        bail!(ShapeMismatch, "the tensor {:?} has no dimensions", tensor.name)
    };
    let rows: u64 = rows.iter().product(); // no more than the elements, whose number does not overflow
    match (usize::try_from(rows), usize::try_from(*columns)) {
        (Ok(rows), Ok(columns)) => Ok((rows, columns)),
        _ => {
            bail!(ShapeMismatch, "the tensor {:?} has the dimensions {:?}, more than is read", tensor.name, tensor.dims)
        }
    }
}

/// Whether a tensor is small and wanted as numbers: those of one dimension, and the norms of each head.
fn is_vector(tensor: &TensorInfo) -> bool {
    tensor.dims.len() == 1 || [".attn_q_norm.", ".attn_k_norm."].iter().any(|part| tensor.name.contains(part))
}

/// A part of a tensor on its way.
struct Piece<'a> {
    tensor: &'a TensorInfo,
    part: Part,
    /// Which of the tensor's parts.
    number: usize,
    count: usize,
    change: Option<Change>,
}

enum Loaded {
    Matrix(Tensor),
    Vector(Vec<f32>),
}

/// Takes parts off the stream.
struct Loader<'a> {
    context: &'a Context,
    stream: WeightStream<'a>,
    /// Bytes written since the upload last waited for the GPU.
    in_flight: u64,
}

impl Loader<'_> {
    /// Reads a part; of a matrix, to its place, a row of another, if it has one already.
    async fn load(
        &mut self,
        piece: &Piece<'_>,
        place: Option<(Tensor, usize)>,
        progress: &mut Progress<'_>,
    ) -> Result<Loaded> {
        let Piece { tensor, part, number, count, change } = *piece;
        let format = format_of(tensor)?;
        self.stream.seek(part, progress).await?;
        if is_vector(tensor) {
            let mut values = vec![0f32; tensor.elements() as usize / count];
            format.dequantize(&self.bytes(part.bytes, progress).await?, &mut values)?;
            match change {
                None => {}
                Some(Change::AddOne) => values.iter_mut().for_each(|value| *value += 1.0),
                Some(other) => bail!(Internal, "the change {other:?} of a vector"),
            }
            return Ok(Loaded::Vector(values));
        }
        let (all_rows, columns) = matrix_of(tensor)?;
        let rows = all_rows / count;
        let mut upload = match place {
            Some((whole, first_row)) => WeightUpload::into_rows(self.context, whole, first_row + number * rows, rows)?,
            None => WeightUpload::new(self.context, format, rows, columns, &tensor.name)?,
        };
        match change {
            None => {}
            Some(Change::Transpose) => {
                let stored = self.bytes(part.bytes, progress).await?;
                upload.write(&transposed(&stored, rows, columns, format)?)?;
                return Ok(Loaded::Matrix(upload.finish()?));
            }
            Some(other) => bail!(Internal, "the change {other:?} of a matrix"),
        }
        let mut left = part.bytes;
        while left > 0 {
            let some = left.min(BYTES_IN_FLIGHT - self.in_flight);
            self.stream.take(some, progress, &mut |chunk, start, end| upload.write_range(&**chunk, start, end)).await?;
            left -= some;
            self.in_flight += some;
            if self.in_flight == BYTES_IN_FLIGHT {
                self.in_flight = 0;
                self.context.device().sync().await?;
            }
        }
        Ok(Loaded::Matrix(upload.finish()?))
    }

    /// The next bytes, in memory.
    async fn bytes(&mut self, length: u64, progress: &mut Progress<'_>) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        self.stream
            .take(length, progress, &mut |chunk, start, end| {
                let at = bytes.len();
                bytes.resize(at + end - start, 0);
                chunk.copy_to(start, &mut bytes[at..]);
                Ok(())
            })
            .await?;
        Ok(bytes)
    }
}

/// The elements of a matrix [columns, rows] as one of [rows, columns].
fn transposed(bytes: &[u8], rows: usize, columns: usize, format: &Format) -> Result<Vec<u8>> {
    let width = format.block_bytes;
    if format.block_size != 1 || bytes.len() != rows * columns * width {
        bail!(UnsupportedTensorType, "a matrix of type {} can't be transposed", format.name);
    }
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        for column in 0..columns {
            out.extend_from_slice(&bytes[(column * rows + row) * width..][..width]);
        }
    }
    Ok(out)
}
