//! The files of an adapter: a folder of PEFT (`adapter_config.json` and safetensors), or a GGUF file as llama.cpp's `convert_lora_to_gguf.py`
//! makes it. Headers are read here, and held against the model; numbers are read when they go to the GPU.

use std::collections::BTreeMap;

use serde::Serialize;

use super::config::{MAX_CONFIG_BYTES, PeftConfig};
use crate::error::{Code, Result};
use crate::model::arch::RopeKind;
use crate::model::config::Config;
use crate::model::folder::{Folder, OpenFile};
use crate::model::gguf::{GgmlType, Gguf};
use crate::model::hugging_face::{self, Module};
use crate::model::safetensors::Safetensors;
use crate::tensor::quant::Format;

pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
/// Python objects, which can't be read safely.
const PICKLED: &str = "adapter_model.bin";
pub(super) const CONFIG: &str = "adapter_config.json";
/// PEFT wraps the model twice.
pub(super) const WRAPPED: &str = "base_model.model.";

/// The kind of an adapter's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "lowercase")]
pub enum AdapterFormat {
    /// A folder that PEFT saved.
    Peft,
    /// A GGUF file of the type `adapter`.
    Gguf,
}

/// An adapter's files, open, and what their headers say.
pub struct AdapterFile<'f> {
    pub(super) format: AdapterFormat,
    pub(super) file: OpenFile<'f>,
    pub(super) pairs: Vec<Pair>,
}

/// A and B for one tensor of the model.
pub(super) struct Pair {
    /// What they add to, as the file calls it.
    pub theirs: String,
    /// The same under our name: `blk.0.attn_q.weight`.
    pub tensor: String,
    /// A, [rank, columns].
    pub down: Stored,
    /// B, [rows, rank].
    pub up: Stored,
    /// The factor of B·A.
    pub factor: f32,
    /// Which elements of a head of queries or keys rope turns together.
    pub rope: Option<RopeKind>,
}

/// A matrix in the file.
#[derive(Clone)]
pub(super) struct Stored {
    pub format: &'static Format,
    pub offset: u64,
    pub bytes: u64,
    pub rows: usize,
    pub columns: usize,
}

impl Stored {
    /// All numbers, row by row.
    pub async fn read(&self, file: &OpenFile<'_>) -> Result<(Vec<u8>, Vec<f32>)> {
        let bytes = file.read(self.offset, self.bytes as usize).await?;
        let mut values = vec![0.0; self.rows * self.columns];
        self.format.dequantize(&bytes, &mut values)?;
        Ok((bytes, values))
    }
}

/// The halves of a pair, by what they add to.
#[derive(Default)]
struct Halves {
    down: Option<Stored>,
    up: Option<Stored>,
}

impl<'f> AdapterFile<'f> {
    /// Reads the headers of an adapter for a model with this configuration: `file` is a GGUF or safetensors file in the folder. Without a name
    /// it is PEFT's, or the only GGUF file.
    pub async fn open(folder: &'f dyn Folder, file: Option<&str>, config: &Config) -> Result<AdapterFile<'f>> {
        let name = match file {
            Some(file) => file.to_owned(),
            None => choose(folder).await?,
        };
        let Some(source) = folder.open(name.clone()).await? else {
            bail!(InvalidFile, "{}: there is no file {name:?}, which the adapter needs", folder.name())
        };
        let opened = match Gguf::read(&*source).await {
            Ok(gguf) => of_gguf(&gguf, config).map(|pairs| (AdapterFormat::Gguf, pairs)),
            Err(error) if error.code() == Code::NotGguf => {
                let header = Safetensors::read(&*source).await?;
                let parent = name.rsplit_once('/').map(|(parent, _)| format!("{parent}/")).unwrap_or_default();
                let Some(text) = folder.read(format!("{parent}{CONFIG}"), MAX_CONFIG_BYTES).await? else {
                    bail!(
                        InvalidFile,
                        "{}: there is no {CONFIG} beside {name:?}; give the whole folder of the adapter",
                        folder.name()
                    )
                };
                of_peft(&header, &PeftConfig::parse(&text)?, config).map(|pairs| (AdapterFormat::Peft, pairs))
            }
            Err(error) => Err(error),
        };
        let (format, pairs) = opened.map_err(|error| error.context(source.name()))?;
        if pairs.is_empty() {
            bail!(InvalidFile, "{}: the adapter has no matrices", source.name());
        }
        Ok(Self { format, file: source, pairs })
    }

    /// Bytes of its matrices.
    pub fn bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.down.bytes + pair.up.bytes).sum()
    }
}

async fn choose(folder: &dyn Folder) -> Result<String> {
    let Some(mut names) = folder.list().await? else { return Ok(WEIGHTS.to_owned()) };
    if names.iter().any(|name| name == WEIGHTS) {
        return Ok(WEIGHTS.to_owned());
    }
    if names.len() == 1 {
        return Ok(names.remove(0));
    }
    let ggufs: Vec<&String> = names.iter().filter(|name| name.ends_with(".gguf")).collect();
    match ggufs[..] {
        [only] => Ok(only.clone()),
        [] if names.iter().any(|name| name == PICKLED) => bail!(
            UnsupportedAdapter,
            "{}: the adapter is in {PICKLED}, Python objects, which are not read; save it with safe_serialization=True",
            folder.name()
        ),
        [] => bail!(
            InvalidFile,
            "{}: no file of an adapter among {} files, wanted {WEIGHTS} or a .gguf file",
            folder.name(),
            names.len()
        ),
        _ => bail!(InvalidRequest, "{}: there are {} GGUF files, name one", folder.name(), ggufs.len()),
    }
}

fn of_gguf(gguf: &Gguf, config: &Config) -> Result<Vec<Pair>> {
    let metadata = gguf.metadata();
    let kinds = [("general.type", "adapter"), ("adapter.type", "lora")];
    for (key, wanted) in kinds {
        match metadata.optional_str(key)? {
            Some(found) if found == wanted => {}
            found => bail!(
                InvalidFile,
                "{key} is {:?}, wanted {wanted:?}: the file is no adapter of low rank",
                found.unwrap_or("missing")
            ),
        }
    }
    let (theirs, ours) = (metadata.str("general.architecture")?, config.arch.name);
    if theirs != ours {
        bail!(AdapterMismatch, "the adapter is for the architecture {theirs:?}, and the model is of {ours:?}");
    }
    if metadata.get("adapter.alora.invocation_tokens").is_some() {
        bail!(UnsupportedAdapter, "the adapter begins at invocation tokens (aLoRA), which is not supported");
    }
    let Some(alpha) = metadata.optional_f32("adapter.lora.alpha")? else {
        bail!(InvalidMetadata, "the adapter has no adapter.lora.alpha")
    };
    let mut halves: BTreeMap<&str, Halves> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let (name, is_up) = match (tensor.name.strip_suffix(".lora_a"), tensor.name.strip_suffix(".lora_b")) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => bail!(UnsupportedAdapter, "the tensor {:?} is neither A nor B of low rank", tensor.name),
        };
        let [columns, rows] = tensor.dims[..] else {
            bail!(UnsupportedAdapter, "{:?} has the dimensions {:?}, wanted a matrix", tensor.name, tensor.dims)
        };
        let stored = stored(&tensor.name, Some(tensor.ty), [rows, columns], (tensor.offset, tensor.bytes))?;
        let of = halves.entry(name).or_default();
        *(if is_up { &mut of.up } else { &mut of.down }) = Some(stored);
    }
    let pair = |(name, halves): (&str, Halves)| {
        let (down, up) = halves.both(name)?;
        // As llama.cpp: without an alpha the scale is 1.
        let factor = if alpha == 0.0 { 1.0 } else { alpha / down.rows as f32 };
        Ok(Pair { theirs: name.to_owned(), tensor: name.to_owned(), down, up, factor, rope: config.arch.rope })
    };
    halves.into_iter().map(pair).collect()
}

fn of_peft(header: &Safetensors, peft: &PeftConfig, config: &Config) -> Result<Vec<Pair>> {
    let mut halves: BTreeMap<&str, Halves> = BTreeMap::new();
    for entry in header.tensors() {
        let name = entry.name.strip_prefix(WRAPPED).unwrap_or(&entry.name);
        // The last part but one may be the adapter's name.
        let found = [(".lora_A.", false), (".lora_B.", true)]
            .into_iter()
            .find_map(|(infix, is_up)| Some((name.split_once(infix)?, is_up)))
            .filter(|((_, rest), _)| *rest == "weight" || rest.ends_with(".weight"));
        let Some(((module, _), is_up)) = found else {
            let what = if name.contains("lora_magnitude") {
                "a magnitude of DoRA"
            } else if name.contains("lora_embedding") {
                "a matrix for an embedding"
            } else {
                "neither A nor B of low rank"
            };
            bail!(UnsupportedAdapter, "the tensor {:?} is {what}, which is not supported", entry.name)
        };
        let [rows, columns] = entry.shape[..] else {
            bail!(UnsupportedAdapter, "{:?} has the shape {:?}, wanted a matrix", entry.name, entry.shape)
        };
        let stored = stored(&entry.name, entry.dtype.ggml_type(), [rows, columns], (entry.offset, entry.bytes))?;
        let of = halves.entry(module).or_default();
        if (if is_up { &mut of.up } else { &mut of.down }).replace(stored).is_some() {
            bail!(InvalidFile, "two tensors of the adapter are A or B for {module}");
        }
    }
    let pair = |(module, halves): (&str, Halves)| {
        let (down, up) = halves.both(module)?;
        let factor = peft.factor(module, down.rows)?;
        let (tensor, rope) = match hugging_face::module(config.arch, module) {
            Module::Matrix { tensor, rope } => (tensor, rope),
            Module::Reordered(tensor) => bail!(
                UnsupportedAdapter,
                "the adapter adds to {module}, whose rows stand in another order in {tensor}, which is not supported"
            ),
            Module::Expert => {
                bail!(UnsupportedAdapter, "the adapter adds to {module}, an expert, which is not supported")
            }
            Module::Unknown => bail!(
                AdapterMismatch,
                "the adapter adds to {module}, which a model of the architecture {:?} lacks: it is of another model",
                config.arch.name
            ),
        };
        Ok(Pair { theirs: module.to_owned(), tensor, down, up, factor, rope: Some(rope) })
    };
    halves.into_iter().map(pair).collect()
}

impl Halves {
    /// A and B, which have the same rank.
    fn both(self, name: &str) -> Result<(Stored, Stored)> {
        let (Some(down), Some(up)) = (self.down, self.up) else {
            bail!(InvalidFile, "of the two matrices for {name} the adapter has only one")
        };
        if down.rows != up.columns || down.rows == 0 {
            bail!(
                InvalidFile,
                "the matrices for {name} are A [{}, {}] and B [{}, {}], wanted one rank above 0",
                down.rows,
                down.columns,
                up.rows,
                up.columns
            );
        }
        Ok((down, up))
    }
}

fn stored(name: &str, ty: Option<GgmlType>, dims: [u64; 2], (offset, bytes): (u64, u64)) -> Result<Stored> {
    let Some(format) = ty.and_then(|ty| Format::by_gguf_type(ty.id())) else {
        bail!(
            UnsupportedTensorType,
            "{name:?} is of the type {:?}; supported are F32, F16 and BF16",
            ty.map(GgmlType::name)
        )
    };
    match dims.map(usize::try_from) {
        [Ok(rows), Ok(columns)] if rows > 0 && columns > 0 => Ok(Stored { format, offset, bytes, rows, columns }),
        _ => bail!(InvalidFile, "{name:?} is a matrix of {dims:?}, wanted dimensions above 0"),
    }
}
