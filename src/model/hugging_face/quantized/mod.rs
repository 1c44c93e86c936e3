//! Folders whose matrices another library quantised: which library and how, by config.json, and which tensors make a matrix. The tensors' data is
//! not read here. What can't be read exactly is refused by name.

mod bitsandbytes;
mod compressed_tensors;
mod config;
mod fp8;
mod gptq;
mod mlx;
mod said;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::names;
use crate::error::Result;
use crate::model::arch::HuggingFace;
use crate::model::checkpoint::{Groups, Packed, PackedMatrix, Part, Places, Side, SidePart, TensorInfo, TensorValues};
use crate::model::gguf::{GgmlType, Metadata};
use crate::model::safetensors::{Dtype, TensorEntry};
use crate::tensor::quant::packed::{self, GROUPS, Kind, packing::Packing};
pub(super) use config::method_of;

/// A library's way to quantise, as config.json describes it.
pub(super) enum Method {
    Gptq(gptq::Options),
    Awq(gptq::Options),
    Bitsandbytes,
    CompressedTensors(compressed_tensors::Options),
    Fp8(fp8::Options),
    Mlx(mlx::Options),
}

/// A matrix that is made of several tensors of the files.
pub(super) struct Source {
    /// What the matrix would be called if it was not quantised.
    pub name: String,
    /// Rows and columns. Without columns, they follow from the configuration, and this is the product of both.
    pub rows: u64,
    pub columns: Option<u64>,
    pub method: &'static str,
    pub kind: Kind,
    pub packing: Packing,
    /// Columns that share scale and zero point.
    pub group: u64,
    pub groups: Groups,
    pub matrix: PackedMatrix,
}

/// The tensors of all files by name.
pub(super) struct Entries<'e> {
    by_name: HashMap<&'e str, (usize, &'e TensorEntry)>,
    /// Names of those that a matrix is made of, or that nothing reads.
    used: HashSet<String>,
}

/// Ends of names of what only quantised activations and caches take: weights alone are quantised here.
const OF_ACTIVATIONS: &[&str] = &[
    ".input_scale",
    ".input_zero_point",
    ".input_scale_ub",
    ".activation_scale",
    ".output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
];

impl<'e> Entries<'e> {
    fn get(&self, name: &str) -> Option<(usize, &'e TensorEntry)> {
        self.by_name.get(name).copied()
    }

    fn wanted(&self, name: &str) -> Result<(usize, &'e TensorEntry)> {
        self.get(name)
            .ok_or_else(|| err!(MissingTensor, "there is no tensor {name:?}, which belongs to a quantised matrix"))
    }

    /// A tensor as the part of a matrix.
    fn take(&mut self, (file, entry): (usize, &TensorEntry)) -> Part {
        self.used.insert(entry.name.clone());
        Part { file, offset: entry.offset, bytes: entry.bytes }
    }

    /// A tensor beside quants, which must have one of these types.
    fn side(&mut self, side: Side, name: &str, dtypes: &[Dtype]) -> Result<SidePart> {
        let found = self.wanted(name)?;
        let dtype = of_type(found.1, dtypes)?;
        Ok(SidePart { side, part: self.take(found), dtype })
    }

    /// The same of this number of elements. Such tensors go through memory, so a header that promises more is refused here.
    fn side_of(&mut self, side: Side, name: &str, dtypes: &[Dtype], count: u64) -> Result<SidePart> {
        let (_, entry) = self.wanted(name)?;
        if entry.shape.iter().product::<u64>() != count {
            bail!(ShapeMismatch, "the tensor {name:?} has the shape {:?}, wanted {count} numbers", entry.shape);
        }
        self.side(side, name, dtypes)
    }

    /// The stems of all tensors whose names end so, in the order of their names.
    fn stems(&self, end: &str) -> Vec<String> {
        let mut stems: Vec<String> =
            self.by_name.keys().filter_map(|name| name.strip_suffix(end)).map(str::to_owned).collect();
        stems.sort();
        stems
    }
}

/// The types of scales.
const FLOATS: &[Dtype] = &[Dtype::F16, Dtype::BF16, Dtype::F32];

fn of_type(entry: &TensorEntry, wanted: &[Dtype]) -> Result<Dtype> {
    if !wanted.contains(&entry.dtype) {
        let wanted: Vec<&str> = wanted.iter().map(|dtype| dtype.name()).collect();
        bail!(
            UnsupportedTensorType,
            "the tensor {:?} is of type {}, wanted {}",
            entry.name,
            entry.dtype.name(),
            wanted.join(", ")
        );
    }
    Ok(entry.dtype)
}

/// The dimensions of a matrix.
fn matrix(entry: &TensorEntry) -> Result<[u64; 2]> {
    match entry.shape[..] {
        [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
        _ => bail!(ShapeMismatch, "the tensor {:?} has the shape {:?}, wanted a matrix", entry.name, entry.shape),
    }
}

/// Where scales of this shape stand, and how many columns share one. `group` is said by the configuration, or blocks of rows and columns.
fn places(
    entry: &TensorEntry,
    [rows, columns]: [u64; 2],
    group: Option<u64>,
    block: Option<[u64; 2]>,
) -> Result<(Places, u64)> {
    let count: u64 = entry.shape.iter().product();
    let one = usize::MAX;
    let table = |shared: [u64; 2], strides: [u64; 2]| {
        let size = |n: u64| usize::try_from(n).unwrap_or(one).max(1);
        Places::Table { shared: shared.map(size), strides: strides.map(|n| usize::try_from(n).unwrap_or(0)) }
    };
    if let Some([block_rows, block_columns]) = block.filter(|block| !block.contains(&0))
        && entry.shape[..] == [rows.div_ceil(block_rows), columns.div_ceil(block_columns)]
    {
        return Ok((table([block_rows, block_columns], [columns.div_ceil(block_columns), 1]), block_columns));
    }
    if count == 1 {
        return Ok((table([u64::MAX, u64::MAX], [0, 0]), columns));
    }
    if count == rows && matches!(entry.shape[..], [_] | [_, 1]) {
        return Ok((table([1, u64::MAX], [1, 0]), columns));
    }
    if let Some(group) = group.filter(|group| *group > 0)
        && entry.shape[..] == [rows, columns.div_ceil(group)]
    {
        return Ok((table([1, group], [columns.div_ceil(group), 1]), group));
    }
    bail!(
        ShapeMismatch,
        "the tensor {:?} has the shape {:?}, which does not fit a matrix [{rows}, {columns}] in groups of {group:?} or blocks of {block:?}",
        entry.name,
        entry.shape
    )
}

/// The matrices of a folder that are quantised, and the names of all tensors that need no other reader.
pub(super) fn collect(method: &Method, files: &[Vec<TensorEntry>]) -> Result<(Vec<Source>, HashSet<String>)> {
    let entries = files.iter().enumerate().flat_map(|(file, entries)| entries.iter().map(move |entry| (file, entry)));
    let by_name: HashMap<&str, (usize, &TensorEntry)> = entries.map(|at| (at.1.name.as_str(), at)).collect();
    let used = by_name
        .keys()
        .filter(|name| OF_ACTIVATIONS.iter().any(|end| name.ends_with(end)))
        .map(|name| (*name).to_owned());
    let mut entries = Entries { used: used.collect(), by_name };
    let sources = match method {
        Method::Gptq(options) => gptq::collect(&mut entries, options, false)?,
        Method::Awq(options) => gptq::collect(&mut entries, options, true)?,
        Method::Bitsandbytes => bitsandbytes::collect(&mut entries)?,
        Method::CompressedTensors(options) => compressed_tensors::collect(&mut entries, options)?,
        Method::Fp8(options) => fp8::collect(&mut entries, options)?,
        Method::Mlx(options) => mlx::collect(&mut entries, options)?,
    };
    if sources.is_empty() {
        bail!(MissingTensor, "config.json says that the model is quantised, and no tensor of its files is");
    }
    Ok((sources, entries.used))
}

/// A tensor of ours, made of one matrix or of one for each expert.
pub(super) fn tensor(
    hf: &HuggingFace,
    metadata: &Metadata,
    arch: &str,
    name: String,
    sources: Vec<Source>,
) -> Result<TensorInfo> {
    let stem = names::stem(&name);
    let is_transformed =
        hf.transforms.iter().any(|(of, _)| [stem, &name].iter().any(|name| names::matches(of, name).is_some()));
    if is_transformed || (hf.groups_heads && name.contains(".attn_qkv.")) {
        bail!(
            UnsupportedTensorType,
            "the matrix {name:?} of this architecture is stored in another order, which is not supported for quantised weights: \
             choose the model in F16, BF16 or F32, or a GGUF file of it"
        );
    }
    let Some(first) = sources.first() else { bail!(Internal, "{name:?} is made of nothing") };
    let count = sources.len() as u64;
    let columns = match first.columns {
        Some(columns) => columns,
        None => bitsandbytes::columns_of(&name, metadata, arch)?,
    };
    let weights = |source: &Source| source.columns.map_or(source.rows, |columns| source.rows.saturating_mul(columns));
    let rows = weights(first).checked_div(columns).unwrap_or(0);
    let (kind, packing, groups, group, method) = (first.kind, first.packing, first.groups, first.group, first.method);
    for source in &sources {
        let same = (source.kind, source.packing, source.groups, source.group) == (kind, packing, groups, group);
        if !same || weights(source) != rows.saturating_mul(columns) {
            bail!(
                ShapeMismatch,
                "{:?} and {:?} are quantised in different ways or have different shapes, wanted equal",
                first.name,
                source.name
            );
        }
    }
    // The groups on the GPU are those of the file or equal parts of them.
    let divides = |of: u64| GROUPS.iter().filter(move |size| of.is_multiple_of(**size as u64)).copied();
    let is_ordered = matches!(kind, Kind::Ordered4 | Kind::Ordered8);
    if is_ordered && count > 1 {
        bail!(
            UnsupportedTensorType,
            "{:?} is the matrix of an expert whose columns are in an order of their own (desc_act), which is not supported: choose the \
             model in F16, BF16 or F32, or a GGUF file of it",
            first.name
        );
    }
    let format = divides(columns)
        .filter(|size| group.is_multiple_of(*size as u64) && (!is_ordered || group == *size as u64))
        .find_map(|size| packed::of(kind, size));
    let Some(format) = format else {
        bail!(
            UnsupportedTensorType,
            "{:?} has rows of {columns} weights in groups of {group}; supported are multiples of 32{}: choose the model in F16, BF16 or \
             F32, or a GGUF file of it",
            first.name,
            if is_ordered { " and, with desc_act, groups of 32, 64 or 128 that divide them" } else { "" }
        );
    };
    if is_ordered && columns / group > u64::from(u16::MAX) {
        bail!(
            UnsupportedTensorType,
            "{:?} has {columns} columns in an order of their own, which are too many",
            first.name
        );
    }
    let word = (32 / packing.bits()) as u64;
    if packing.is_by_columns() && !rows.is_multiple_of(word) {
        bail!(ShapeMismatch, "{:?} has {rows} rows, wanted a multiple of {word}", first.name);
    }
    let mut dims = vec![columns, rows];
    if count > 1 {
        dims.push(count);
    }
    let matrices = sources.into_iter().map(|source| source.matrix).collect();
    let values = TensorValues::Packed(Box::new(Packed { method, format, kind, packing, groups, matrices }));
    // Never read, as the format is the packed one's.
    Ok(TensorInfo { name, dims, ty: GgmlType::I8, values })
}

/// Our tensors by the experts that they are made of.
pub(super) type Experts = BTreeMap<String, BTreeMap<u32, Source>>;
