//! Loads the tensors of a GGUF file to the GPU in one pass over the file.
//!
//! Bytes of matrices go from the source's chunks straight to the GPU and are repacked there. Vectors (norms, factors) are
//! small; they come through memory and are kept as f32.

use std::collections::HashMap;

use super::arch::JOINED;
use super::config::Config;
use super::gguf::{Gguf, TensorInfo};
use super::source::{ByteSource, Chunk, ChunkStream};
use crate::error::Result;
use crate::tensor::quant::{BLOCK, FORMATS, Format};
use crate::tensor::{Context, DType, Desc, HostTensor, Shape, Tensor, WeightUpload};

/// After this many bytes the upload waits for the GPU, so that the browser's copies in flight stay bounded.
const BYTES_IN_FLIGHT: u64 = 64 << 20;

/// Vectors above this many elements are no norms or factors.
const MAX_VECTOR: u64 = 1 << 24;

/// Told about bytes read of a total; an error of it ends the load.
pub type Progress<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

/// The tensors of a model by their names in the file.
pub struct Weights {
    tensors: HashMap<String, Tensor>,
    vectors: HashMap<String, Vec<f32>>,
    is_joined: bool,
    bytes: u64,
    parameters: u64,
}

impl Weights {
    /// Loads every tensor that the configuration uses. All types are checked before the first byte is read. With `join`, and where
    /// types and shapes allow it, matrices that kernels read as one become one.
    pub async fn load(
        context: &Context,
        source: &dyn ByteSource,
        gguf: &Gguf,
        config: &Config,
        join: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let mut wanted: Vec<&TensorInfo> = gguf.tensors().iter().filter(|tensor| config.uses(&tensor.name)).collect();
        wanted.sort_by_key(|tensor| tensor.offset);
        for tensor in &wanted {
            format_of(tensor)?;
            if tensor.dims.len() == 1 && tensor.elements() > MAX_VECTOR {
                bail!(InvalidFile, "the vector {:?} has {} elements", tensor.name, tensor.elements());
            }
        }
        let mut weights =
            Self { tensors: HashMap::new(), vectors: HashMap::new(), is_joined: false, bytes: 0, parameters: 0 };
        let limit = context.device().capabilities().max_storage_binding_size;
        let groups = if join { joinable(&wanted, config, limit) } else { None };
        weights.is_joined = groups.is_some();
        let mut places = weights.join(context, groups.unwrap_or_default())?;
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(weights) };
        let (start, end) = (first.offset, last.offset + last.bytes);
        let mut reader = Reader {
            stream: source.stream(start, end - start).await?,
            chunk: None,
            position: start,
            reported: start,
            start,
            end,
            in_flight: 0,
        };
        for tensor in wanted {
            let place = places.remove(&tensor.name);
            let is_part = place.is_some();
            let loaded = reader.load(context, tensor, place, progress).await;
            match loaded.map_err(|error| error.context(format_args!("loading {:?}", tensor.name)))? {
                Loaded::Matrix(_) if is_part => weights.bytes += tensor.bytes,
                Loaded::Matrix(matrix) => {
                    weights.bytes += matrix.bytes();
                    weights.tensors.insert(tensor.name.clone(), matrix);
                }
                Loaded::Vector(values) => {
                    let vector = context.tensor(&HostTensor::f32(&[values.len()], &values))?;
                    weights.bytes += vector.bytes();
                    weights.tensors.insert(tensor.name.clone(), vector);
                    weights.vectors.insert(tensor.name.clone(), values);
                }
            }
            weights.parameters += tensor.elements();
        }
        context.device().sync().await?;
        // The staging buffers and whatever else is not needed any more.
        context.device().trim();
        Ok(weights)
    }

    /// Makes room for matrices that kernels read as one, and tells where in them the tensors of the file go: matrix and row.
    fn join(&mut self, context: &Context, groups: Vec<Group<'_>>) -> Result<HashMap<String, (Tensor, usize)>> {
        let mut places = HashMap::new();
        for Group { name, parts } in groups {
            let format = format_of(parts[0])?;
            let columns = parts[0].dims[0] as usize;
            format.row_bytes(columns)?;
            let rows: usize = parts.iter().map(|part| part.dims[1] as usize).sum();
            let desc = Desc { shape: Shape::from([rows, columns]), dtype: DType::Weight(format) };
            let whole = context.empty(desc, &name)?;
            let mut first_row = 0;
            for part in parts {
                places.insert(part.name.clone(), (whole.clone(), first_row));
                first_row += part.dims[1] as usize;
            }
            self.tensors.insert(name, whole);
        }
        Ok(places)
    }

    /// A tensor that the configuration promised.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| err!(MissingTensor, "the model has no tensor {name:?}"))
    }

    /// Whether the matrices of `JOINED` are one each.
    pub fn is_joined(&self) -> bool {
        self.is_joined
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

/// Matrices of a file that become one, of the name that it has then. There is at least one.
struct Group<'a> {
    name: String,
    parts: Vec<&'a TensorInfo>,
}

/// What is to be joined, if the ops that take joined matrices take those of this model: all parts of one type, and widths of whole
/// blocks.
fn joinable<'a>(tensors: &[&'a TensorInfo], config: &Config, binding_limit: u64) -> Option<Vec<Group<'a>>> {
    let widths = [config.n_embd, config.n_ff, config.n_heads * config.head_dim];
    if !widths.iter().all(|width| width.is_multiple_of(BLOCK)) || !config.head_dim.is_multiple_of(4) {
        return None;
    }
    let by_name: HashMap<&str, &TensorInfo> = tensors.iter().map(|tensor| (tensor.name.as_str(), *tensor)).collect();
    let group = |layer: usize, joined: &str, stems: &[&str]| {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let parts: Vec<&TensorInfo> =
            stems.iter().map(|stem| by_name.get(name(stem).as_str()).copied()).collect::<Option<_>>()?;
        let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        let joins = bytes <= binding_limit && parts.iter().all(|part| part.ty.id() == parts[0].ty.id());
        joins.then(|| Group { name: name(joined), parts })
    };
    let groups =
        (0..config.n_layers).flat_map(|layer| JOINED.iter().map(move |(joined, stems)| (layer, joined, stems)));
    groups.map(|(layer, joined, stems)| group(layer, joined, stems)).collect()
}

fn format_of(tensor: &TensorInfo) -> Result<&'static Format> {
    Format::by_gguf_type(tensor.ty.id()).ok_or_else(|| {
        let supported: Vec<String> = FORMATS.iter().map(|format| format.name.to_uppercase()).collect();
        err!(
            UnsupportedTensorType,
            "the tensor {:?} is of type {}; supported are {}: use a file of one of these",
            tensor.name,
            tensor.ty.name(),
            supported.join(", ")
        )
    })
}

enum Loaded {
    Matrix(Tensor),
    Vector(Vec<f32>),
}

/// Hands the chunks of one stream to one tensor after the other.
struct Reader<'s> {
    stream: Box<dyn ChunkStream + 's>,
    /// The open chunk and how much of it is used.
    chunk: Option<(Chunk, usize)>,
    position: u64,
    reported: u64,
    start: u64,
    end: u64,
    /// Bytes written since the upload last waited for the GPU.
    in_flight: u64,
}

impl Reader<'_> {
    /// Reads the next tensor, a matrix to its place, a row of another, if it has one already.
    async fn load(
        &mut self,
        context: &Context,
        tensor: &TensorInfo,
        place: Option<(Tensor, usize)>,
        progress: &mut Progress<'_>,
    ) -> Result<Loaded> {
        let format = format_of(tensor)?;
        // Alignment leaves gaps.
        self.take(tensor.offset - self.position, progress, &mut |_, _, _| Ok(())).await?;
        match tensor.dims[..] {
            [elements] => {
                let mut bytes = Vec::with_capacity(tensor.bytes as usize);
                self.take(tensor.bytes, progress, &mut |chunk, start, end| {
                    let at = bytes.len();
                    bytes.resize(at + end - start, 0);
                    chunk.copy_to(start, &mut bytes[at..]);
                    Ok(())
                })
                .await?;
                let mut values = vec![0f32; elements as usize];
                format.dequantize(&bytes, &mut values)?;
                Ok(Loaded::Vector(values))
            }
            [columns, rows] => {
                let mut upload = match place {
                    Some((whole, first_row)) => WeightUpload::into_rows(context, whole, first_row, rows as usize)?,
                    None => WeightUpload::new(context, format, rows as usize, columns as usize, &tensor.name)?,
                };
                let mut left = tensor.bytes;
                while left > 0 {
                    let part = left.min(BYTES_IN_FLIGHT - self.in_flight);
                    self.take(part, progress, &mut |chunk, start, end| upload.write_range(&**chunk, start, end))
                        .await?;
                    left -= part;
                    self.in_flight += part;
                    if self.in_flight == BYTES_IN_FLIGHT {
                        self.in_flight = 0;
                        context.device().sync().await?;
                    }
                }
                Ok(Loaded::Matrix(upload.finish()?))
            }
            _ => bail!(UnsupportedTensorType, "{} dimensions; matrices and vectors are supported", tensor.dims.len()),
        }
    }

    /// Passes the next `length` bytes to `sink`, chunk by chunk: the chunk, and where in it they start and end.
    async fn take(
        &mut self,
        length: u64,
        progress: &mut Progress<'_>,
        sink: &mut dyn FnMut(&Chunk, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let end = self.position + length;
        while self.position < end {
            let (chunk, used) = match self.chunk.take() {
                Some(open) => open,
                None => match self.stream.next().await? {
                    Some(chunk) => (chunk, 0),
                    None => bail!(Truncated, "the stream ended {} bytes early", self.end - self.position),
                },
            };
            let n = (chunk.len() - used).min((end - self.position) as usize);
            sink(&chunk, used, used + n)?;
            self.position += n as u64;
            if used + n < chunk.len() {
                self.chunk = Some((chunk, used + n));
            }
            // Often enough for a smooth bar and for an abort to be felt, rarely enough to cost nothing.
            if self.position - self.reported >= 256 << 10 || self.position == self.end {
                self.reported = self.position;
                progress(self.position - self.start, self.end - self.start)?;
            }
        }
        Ok(())
    }
}
