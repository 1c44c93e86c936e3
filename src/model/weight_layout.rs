//! Decides how a model's tensors lie on the GPU: vectors of f32, or matrices with their formats and parts, and which are joined.
//! `weights.rs` loads them accordingly.

use std::collections::{HashMap, HashSet};

use super::arch::{JOINED, JoinedMatrices};
use super::checkpoint::{Checkpoint, TensorInfo};
use super::config::Config;
use super::fused::Fused;
use super::table_on_disk;
use super::tensor_form::{format_of, is_vector, matrix_of};
use crate::error::Result;
use crate::tensor::Capabilities;
use crate::tensor::quant::{BLOCK, FORMATS, Format, Table, packed};

/// Matrices that are not quantised: they are small and sensitive.
const NOT_QUANTIZED: &[&str] = &[
    "altup_router",
    "cls",
    "ffn_gate_inp",
    "ffn_gate_inp_shexp",
    "position_embd",
    "rel_embd",
    "ssm_alpha",
    "ssm_beta",
    "ssm_dt",
    "ssm_x",
    "token_types",
];

/// What the caller asks for.
#[derive(Clone, Copy, Default)]
pub struct Layout {
    /// Join the matrices that kernels can read as one, if types and shapes allow it.
    pub join: bool,
    /// Quantise unquantised matrices (F32, F16, BF16) to this format.
    pub quantize: Option<&'static Format>,
}

/// The GPU memory of the weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of all weights.
    pub bytes: u64,
    /// The name of the tensor with the largest binding.
    pub largest: String,
    /// The bytes of the largest binding.
    pub largest_binding: u64,
    /// The bytes of the largest buffer.
    pub largest_buffer: u64,
}

impl Layout {
    /// What applies to a model: encoders use unfused ops.
    pub fn of(self, config: &Config) -> Self {
        Self { join: self.join && !config.arch.is_encoder, ..self }
    }

    /// The format of a matrix on the GPU.
    pub(super) fn format(&self, tensor: &TensorInfo, config: &Config) -> Result<&'static Format> {
        let format = format_of(tensor)?;
        let Some(mut wanted) = self.quantize.filter(|wanted| format.quantizes_to(wanted)) else { return Ok(format) };
        let stem = tensor.name.rsplit('.').nth(1).unwrap_or(&tensor.name);
        let (_, columns) = matrix_of(tensor)?;
        // The experts' biases are matrices too.
        if NOT_QUANTIZED.contains(&stem)
            || tensor.name.starts_with("cls.")
            || tensor.name.ends_with(".bias")
            || !columns.is_multiple_of(BLOCK)
        {
            return Ok(format);
        }
        let gives_logits = stem == "output" || (stem == "token_embd" && config.tie_embeddings);
        if let Some(other) = instead_of(wanted.name, gives_logits, columns).and_then(Format::by_name) {
            wanted = other;
        }
        Ok(wanted)
    }

    /// The rows of each part of a matrix: one part, unless an adapter with these limits can't bind it. If no division fits, the parts are
    /// too large, and their allocation fails.
    pub(super) fn rows_of_parts(
        &self,
        tensor: &TensorInfo,
        config: &Config,
        capabilities: Option<&Capabilities>,
    ) -> Result<Vec<usize>> {
        let (rows, columns) = matrix_of(tensor)?;
        // An expert's matrix is never divided: each part holds whole experts.
        let unit = match tensor.dims[..] {
            [_, rows_of_expert, _] => usize::try_from(rows_of_expert).unwrap_or(rows),
            _ => 1,
        };
        Ok(rows_of_parts(self.format(tensor, config)?, rows, columns, unit, capabilities))
    }

    /// The bytes of the table of per-layer embeddings on a device; 0 without one.
    pub fn per_layer_bytes(
        &self,
        checkpoint: &Checkpoint<'_>,
        config: &Config,
        capabilities: Option<&Capabilities>,
    ) -> Result<u64> {
        let table = checkpoint.tensor(table_on_disk::TABLE).filter(|_| config.n_embd_per_layer > 0);
        let Some(table) = table else { return Ok(0) };
        let (_, columns) = matrix_of(table)?;
        let format = self.format(table, config)?;
        let parts = self.rows_of_parts(table, config, capabilities)?.into_iter();
        parts.map(|rows| Ok(format.layout_on(rows, columns, capabilities)?.bytes)).sum()
    }

    /// The bytes of a tensor on a device, where no matrix is divided.
    pub fn bytes(&self, tensor: &TensorInfo, config: &Config, capabilities: &Capabilities) -> Result<u64> {
        if is_vector(tensor) {
            return Ok(tensor.elements().saturating_mul(4));
        }
        let (rows, columns) = matrix_of(tensor)?;
        Ok(self.format(tensor, config)?.layout_on(rows, columns, Some(capabilities))?.bytes)
    }

    /// The GPU memory of the tensors that the configuration uses. Checks all types. Without limits, no matrix is divided.
    pub fn needs(
        &self,
        checkpoint: &Checkpoint<'_>,
        config: &Config,
        capabilities: Option<&Capabilities>,
    ) -> Result<Needs> {
        let mut needs = Needs::default();
        let mut count = |name: &str, bytes: u64, binding: u64| {
            needs.bytes = needs.bytes.saturating_add(bytes);
            if binding > needs.largest_binding {
                (needs.largest, needs.largest_binding) = (format!("the tensor {name:?}"), binding);
            }
            needs.largest_buffer = needs.largest_buffer.max(bytes);
        };
        let tensors: Vec<&TensorInfo> = checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)).collect();
        for tensor in &tensors {
            format_of(tensor)?;
        }
        if let Some(rows) = config.per_layer_cache_rows {
            let stored = table_on_disk::stored(checkpoint)?;
            let bytes = 4 * (rows * stored.columns) as u64;
            count(table_on_disk::TABLE, bytes, bytes);
            let places = 4 * stored.vocabulary as u64;
            count(table_on_disk::TABLE, places, places);
        }
        let mut joined = HashSet::new();
        for group in self.of(config).joinable(&tensors, config, capabilities)? {
            joined.extend(group.parts.iter().map(|part| part.name.as_str()));
            let (_, columns) = matrix_of(group.parts[0])?;
            group.format.row_bytes(columns)?;
            for rows in group.rows_of_parts(capabilities)? {
                let layout = group.format.layout_on(rows, columns, capabilities)?;
                count(&group.parts[0].name, layout.bytes, layout.largest());
            }
        }
        for tensor in tensors {
            if is_vector(tensor) {
                let bytes = tensor.elements().saturating_mul(4);
                count(&tensor.name, bytes, bytes);
                continue;
            }
            if joined.contains(tensor.name.as_str()) {
                continue;
            }
            let (_, columns) = matrix_of(tensor)?;
            let format = self.format(tensor, config)?;
            format.row_bytes(columns)?;
            for rows in self.rows_of_parts(tensor, config, capabilities)? {
                let layout = format.layout_on(rows, columns, capabilities)?;
                count(&tensor.name, layout.bytes, layout.largest());
            }
        }
        Ok(needs)
    }

    /// What to join: neighbours in an entry of `JOINED` that have one type. Nothing is joined unless the caller asks for it, the shapes are
    /// whole blocks, and fused ops, which read joined matrices, support the model.
    pub(super) fn joinable<'a>(
        &self,
        tensors: &[&'a TensorInfo],
        config: &Config,
        capabilities: Option<&Capabilities>,
    ) -> Result<Vec<Group<'a>>> {
        let recurrent = config.recurrence.map_or(0, |recurrence| recurrence.width());
        let of_layers = config.layers.iter().flat_map(|layer| [layer.n_ff, config.n_heads * layer.head_dim]);
        let of_model = [config.n_embd, config.n_embd_per_layer, recurrent];
        let are_blocks = of_layers.chain(of_model).all(|width| width.is_multiple_of(BLOCK));
        if !self.join || !are_blocks || !config.layers.iter().all(|layer| layer.head_dim.is_multiple_of(4)) {
            return Ok(vec![]);
        }
        let by_name: HashMap<&str, &TensorInfo> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), *tensor)).collect();
        if !Fused::takes(config, &|tensor| by_name.contains_key(tensor)) {
            return Ok(vec![]);
        }
        let mut groups: Vec<Group<'a>> = Vec::new();
        for layer in 0..config.n_layers {
            for JoinedMatrices { name, parts: stems, whole } in JOINED {
                // A feed-forward without a gate has one projection, which stays alone.
                if *name == "ffn_gate_up" && config.experts.is_none() && config.arch.has_ungated_feed_forward() {
                    continue;
                }
                let of_layer = |stem: &str| by_name.get(format!("blk.{layer}.{stem}.weight").as_str()).copied();
                let name = format!("blk.{layer}.{name}");
                let parts: Vec<Option<&TensorInfo>> = stems.iter().map(|part| of_layer(part)).collect();
                // The file may already hold them as one matrix.
                if let (None, Some(whole)) = (parts[0], whole.and_then(of_layer)) {
                    let format = self.format(whole, config)?;
                    groups.push(Group { name, first: 0, count: parts.len(), format, parts: vec![whole] });
                    continue;
                }
                // The layer is of another kind, or only its experts have a gate and an up matrix.
                if parts.iter().all(Option::is_none) {
                    continue;
                }
                for (number, part) in parts.into_iter().enumerate() {
                    let Some(part) = part else {
                        if config.layers[layer].lacks(stems[number]) {
                            continue;
                        }
                        return Ok(vec![]);
                    };
                    let format = self.format(part, config)?;
                    match groups.last_mut().filter(|group| group.name == name) {
                        Some(group) if group.takes(part, format, capabilities)? => {
                            group.parts.push(part);
                            group.count += 1;
                        }
                        _ => groups.push(Group {
                            name: name.clone(),
                            first: number,
                            count: 1,
                            format,
                            parts: vec![part],
                        }),
                    }
                }
            }
        }
        Ok(groups)
    }

    /// The format with the most bytes on the GPU, over all matrices.
    pub(super) fn most_common_format(&self, tensors: &[&TensorInfo], config: &Config) -> Result<&'static Format> {
        let mut bytes: HashMap<&str, u64> = HashMap::new();
        for tensor in tensors.iter().filter(|tensor| tensor.dims.len() > 1) {
            let format = self.format(tensor, config)?;
            let (rows, columns) = matrix_of(tensor)?;
            *bytes.entry(format.name).or_default() += format.soa_layout(rows, columns).bytes;
        }
        let format = FORMATS
            .iter()
            .copied()
            .chain(packed::formats())
            .max_by_key(|format| bytes.get(format.name).copied().unwrap_or(0));
        format.ok_or_else(|| err!(Internal, "there are no formats"))
    }
}

/// The format in place of the one that is wanted. The matrix that gives the logits gets more than four bits (llama.cpp gives it six), and rows that
/// are no superblocks of 256 become blocks of 32 of about as many bits.
fn instead_of(wanted: &str, gives_logits: bool, columns: usize) -> Option<&'static str> {
    let has_superblocks = columns.is_multiple_of(256);
    match wanted {
        "q4_0" if gives_logits => Some("q8_0"),
        "q4_k" | "iq4_nl" if gives_logits => Some(if has_superblocks { "q6_k" } else { "q8_0" }),
        "q4_k" if !has_superblocks => Some("iq4_nl"),
        "q6_k" if !has_superblocks => Some("q8_0"),
        _ => None,
    }
}

/// Matrices of a file that become one: neighbours in an entry of `JOINED`, from index `first` on. There is at least one.
pub(super) struct Group<'a> {
    pub name: String,
    /// The index of the first one, and how many there are. A file may have them as one tensor.
    pub first: usize,
    pub count: usize,
    pub format: &'static Format,
    pub parts: Vec<&'a TensorInfo>,
}

impl Group<'_> {
    /// Whether a matrix with this format can become the last part.
    fn takes(&self, part: &TensorInfo, format: &Format, capabilities: Option<&Capabilities>) -> Result<bool> {
        let (more, columns) = matrix_of(part)?;
        let rows: usize = self.rows()?.iter().sum();
        // A table of columns is of one matrix.
        Ok(format.name == self.format.name
            && !matches!(format.table, Table::Columns)
            && format.splits_at(rows, columns)
            && fits(format, rows + more, columns, capabilities))
    }

    /// The rows of each of its matrices.
    pub fn rows(&self) -> Result<Vec<usize>> {
        self.parts.iter().map(|part| Ok(matrix_of(part)?.0)).collect()
    }

    /// The rows of each of its parts: one part, unless it is a single matrix that is too large.
    pub fn rows_of_parts(&self, capabilities: Option<&Capabilities>) -> Result<Vec<usize>> {
        let (_, columns) = matrix_of(self.parts[0])?;
        Ok(rows_of_parts(self.format, self.rows()?.iter().sum(), columns, 1, capabilities))
    }
}

/// Whether an adapter with these limits can bind this number of rows at once.
fn fits(format: &Format, rows: usize, columns: usize, capabilities: Option<&Capabilities>) -> bool {
    // Rows that are no whole blocks are refused where they are counted.
    let Ok(layout) = format.layout_on(rows, columns, capabilities) else { return true };
    capabilities.is_none_or(|capabilities| {
        layout.largest() <= capabilities.max_storage_binding_size && layout.bytes <= capabilities.max_buffer_size
    })
}

/// The rows of each part of a matrix: a multiple of `unit`, so that every part begins with a whole unit of the format. Halves the number
/// until a part fits.
fn rows_of_parts(
    format: &Format,
    rows: usize,
    columns: usize,
    unit: usize,
    capabilities: Option<&Capabilities>,
) -> Vec<usize> {
    let mut multiples = (1..=format.unit).map(|count| count * unit.max(1));
    let largest = format.unit * unit.max(1);
    let unit = multiples.find(|unit| format.splits_at(*unit, columns)).unwrap_or(largest);
    let mut part = rows;
    while part > unit && !fits(format, part, columns, capabilities) {
        part = (part / 2).next_multiple_of(unit);
    }
    (0..rows).step_by(part.max(1)).map(|first| part.min(rows - first)).collect()
}
