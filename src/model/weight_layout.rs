//! What becomes of the tensors of a model's files on the GPU: vectors of f32, or matrices of which format, in how many parts, and which
//! of them as one. Decides; `weights.rs` does it.

use std::collections::HashMap;

use super::arch::JOINED;
use super::checkpoint::{Checkpoint, TensorInfo};
use super::config::Config;
use super::joined::Joined;
use crate::error::Result;
use crate::tensor::Capabilities;
use crate::tensor::quant::{BLOCK, FORMATS, Format};

/// Tensors that may lie in several parts (`vocabulary_matrix.rs`).
const SPLITTABLE: &[&str] = &["token_embd.weight", "output.weight"];
/// Matrices that stay as they are when a model is quantised: small ones that much depends on.
const NOT_QUANTIZED: &[&str] = &["ffn_gate_inp", "position_embd", "token_types"];

/// What is asked of the weights.
#[derive(Clone, Copy, Default)]
pub struct Layout {
    /// Where types and shapes allow it, matrices that kernels read as one become one.
    pub join: bool,
    /// Quantise matrices of plain numbers to this format.
    pub quantize: Option<&'static Format>,
}

/// What weights take on the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub bytes: u64,
    /// What needs the largest binding.
    pub largest: String,
    pub largest_binding: u64,
    pub largest_buffer: u64,
}

impl Layout {
    /// The format of a matrix on the GPU.
    pub(super) fn format(&self, tensor: &TensorInfo, config: &Config) -> Result<&'static Format> {
        let format = format_of(tensor)?;
        let Some(mut wanted) = self.quantize.filter(|wanted| format.quantizes_to(wanted)) else { return Ok(format) };
        let stem = tensor.name.rsplit('.').nth(1).unwrap_or(&tensor.name);
        let (_, columns) = matrix_of(tensor)?;
        if NOT_QUANTIZED.contains(&stem) || !columns.is_multiple_of(BLOCK) {
            return Ok(format);
        }
        // What gives the logits is worth more than four bits, as others hold too (llama.cpp gives it six).
        let gives_logits = stem == "output" || (stem == "token_embd" && config.tie_embeddings);
        if wanted.name == "q4_0" && gives_logits {
            wanted = Format::by_name("q8_0").unwrap_or(wanted);
        }
        Ok(wanted)
    }

    /// The rows of each part of a matrix: all in one, unless an adapter that has these limits can't bind that.
    pub(super) fn rows_of_parts(
        &self,
        tensor: &TensorInfo,
        config: &Config,
        capabilities: &Capabilities,
    ) -> Result<Vec<usize>> {
        let format = self.format(tensor, config)?;
        let (rows, columns) = matrix_of(tensor)?;
        let fits = |rows: usize| {
            let planes = format.planes(rows, columns);
            planes.largest() <= capabilities.max_storage_binding_size && planes.bytes <= capabilities.max_buffer_size
        };
        if fits(rows) || !SPLITTABLE.contains(&tensor.name.as_str()) {
            return Ok(vec![rows]);
        }
        // Halves until one fits; whole blocks of rows, so that a part begins where kernels and the format want it.
        let mut part = rows;
        while part > BLOCK && !fits(part) {
            part = (part / 2).next_multiple_of(BLOCK);
        }
        Ok((0..rows).step_by(part).map(|first| part.min(rows - first)).collect())
    }

    /// What the tensors that the configuration uses take on the GPU. All types are checked. Without limits, nothing is in parts.
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
        for tensor in checkpoint.tensors.iter().filter(|tensor| config.uses(&tensor.name)) {
            format_of(tensor)?;
            if is_vector(tensor) {
                let bytes = tensor.elements().saturating_mul(4);
                count(&tensor.name, bytes, bytes);
                continue;
            }
            let (rows, columns) = matrix_of(tensor)?;
            let format = self.format(tensor, config)?;
            format.row_bytes(columns)?;
            let parts = match capabilities {
                Some(capabilities) => self.rows_of_parts(tensor, config, capabilities)?,
                None => vec![rows],
            };
            for rows in parts {
                let planes = format.planes(rows, columns);
                count(&tensor.name, planes.bytes, planes.largest());
            }
        }
        Ok(needs)
    }

    /// What is to be joined, if the ops that take joined matrices take those of this model: all parts of one type, and widths of
    /// whole blocks.
    pub(super) fn joinable<'a>(
        &self,
        tensors: &[&'a TensorInfo],
        config: &Config,
        binding_limit: u64,
    ) -> Option<Vec<Group<'a>>> {
        let widths = [config.n_embd, config.n_ff, config.n_heads * config.head_dim];
        if !self.join || !widths.iter().all(|width| width.is_multiple_of(BLOCK)) || !config.head_dim.is_multiple_of(4) {
            return None;
        }
        let by_name: HashMap<&str, &TensorInfo> =
            tensors.iter().map(|tensor| (tensor.name.as_str(), *tensor)).collect();
        if !Joined::takes(config, &|tensor| by_name.contains_key(tensor)) {
            return None;
        }
        let group = |layer: usize, joined: &str, stems: &[&str]| {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let parts: Vec<&TensorInfo> =
                stems.iter().map(|stem| by_name.get(name(stem).as_str()).copied()).collect::<Option<_>>()?;
            let formats: Vec<&'static Format> =
                parts.iter().map(|part| self.format(part, config)).collect::<Result<_>>().ok()?;
            let rows: u64 = parts.iter().map(|part| part.dims[1..].iter().product::<u64>()).sum();
            let (_, columns) = matrix_of(parts[0]).ok()?;
            let joins = formats.iter().all(|format| format.name == formats[0].name)
                && formats[0].planes(usize::try_from(rows).ok()?, columns).largest() <= binding_limit;
            joins.then(|| Group { name: name(joined), format: formats[0], parts })
        };
        let groups =
            (0..config.n_layers).flat_map(|layer| JOINED.iter().map(move |(joined, stems)| (layer, joined, stems)));
        groups.map(|(layer, joined, stems)| group(layer, joined, stems)).collect()
    }
}

/// Matrices of a file that become one, of the name that it has then. There is at least one.
pub(super) struct Group<'a> {
    pub name: String,
    pub format: &'static Format,
    pub parts: Vec<&'a TensorInfo>,
}

/// The format of a tensor in its file.
pub(super) fn format_of(tensor: &TensorInfo) -> Result<&'static Format> {
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

/// Rows and columns of a matrix, or of a stack of them.
pub(super) fn matrix_of(tensor: &TensorInfo) -> Result<(usize, usize)> {
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
pub(super) fn is_vector(tensor: &TensorInfo) -> bool {
    tensor.dims.len() == 1 || [".attn_q_norm.", ".attn_k_norm."].iter().any(|part| tensor.name.contains(part))
}
