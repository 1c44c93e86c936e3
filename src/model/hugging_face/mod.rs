//! A Hugging Face folder as a checkpoint: `config.json` becomes the metadata of a GGUF file of the same model, and the tensors get its
//! names. The differences between architectures are data in `model/arch`.

mod config_json;
mod heads;
mod kinds;
mod labels;
mod layer_kinds;
mod mtp;
mod mxfp4;
mod names;
mod quantized;
mod rope;
mod sines;
mod ternary;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value as Json};

use super::arch::{Arch, ConstValue, DECODER_SWITCHES, HuggingFace, RopeKind, WeightTransform};
use super::checkpoint::{IGNORED_HEAD, IGNORED_PARTS, Part, TensorInfo, TensorValues, WITHOUT_OUTPUT};
use super::gguf::{GgmlType, Metadata};
use super::safetensors::{Dtype, TensorEntry};
use crate::error::Result;
use crate::json;
use kinds::find_arch;
use names::Translated;

/// More than any `config.json` has.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The tensors of a model, a tensor of a head for another task, and the prefixes of other parts.
type Tensors = (Vec<TensorInfo>, Option<String>, BTreeSet<&'static str>);

/// The metadata and the tensors of a model. `config` is the text of `config.json`, and `files` has the tensors of each file. Errors about a
/// tensor use its name in the file.
pub fn translate(config: &[u8], files: &[Vec<TensorEntry>]) -> Result<(Metadata, Vec<TensorInfo>)> {
    let config: Json =
        json::from_slice(config).map_err(|error| err!(InvalidFile, "config.json is not JSON: {error}"))?;
    let Json::Object(config) = config else { bail!(InvalidFile, "config.json holds no object") };
    let whole = &config;
    let task = kinds::other_task(&config).map(str::to_owned);
    let (arch, hf, config) = find_arch(whole)?;
    let method = match quantized::method_of(whole, hf.quant_methods)? {
        Some(method) => Some(method),
        None => quantized::method_of(config, hf.quant_methods)?,
    };
    let is_classifier = |task: &String| task.ends_with("ForSequenceClassification");
    let classifier = hf.classifier.filter(|_| task.as_ref().is_some_and(is_classifier));
    let task = task.filter(|_| classifier.is_none());
    if let Some(task) = task.as_ref().filter(|_| !arch.is_encoder) {
        bail!(
            UnsupportedArchitecture,
            "config.json names the architecture {task:?}: a decoder that scores or labels texts is not supported; choose the model \
             that writes them (…ForCausalLM)"
        );
    }
    let mut config = with_defaults(hf.defaults, config);
    let mut by_kind = layer_kinds::translate(&mut config, hf.by_kind)?;
    let config = &config;
    let (files, further_layers) = mtp::named(hf, config, files);
    let files = &*files;
    let mut metadata = Metadata::default();
    let add = |metadata: &mut Metadata, key: &str, value| {
        metadata.insert(key.to_owned(), value);
    };
    add(&mut metadata, "general.architecture", super::gguf::Value::String(arch.name.to_owned()));
    if let Some(Json::String(name)) = config.get("_name_or_path").filter(|name| name.as_str() != Some("")) {
        add(&mut metadata, "general.name", super::gguf::Value::String(name.clone()));
    }
    // Before what is the same for all layers: the first value of a key counts.
    for (name, value) in by_kind.iter_mut().flat_map(|rope| std::mem::take(&mut rope.metadata)) {
        add(&mut metadata, &format!("{}.{name}", arch.name), value);
    }
    if let (1.., Some(layers)) = (further_layers, config.get("num_hidden_layers").and_then(Json::as_u64)) {
        let all = super::gguf::Value::U64(layers.saturating_add(further_layers));
        add(&mut metadata, &format!("{}.block_count", arch.name), all);
        let further = super::gguf::Value::U64(further_layers);
        add(&mut metadata, &format!("{}.nextn_predict_layers", arch.name), further);
    }
    let switches = if arch.is_encoder { &[][..] } else { DECODER_SWITCHES };
    for key in hf.keys.iter().copied().flatten().chain(switches) {
        if let Some((name, value)) = config_json::translate(key, config)? {
            let value = match name {
                "context_length" if hf.first_position > 0 && hf.counts_first_positions => {
                    without_first_positions(hf.first_position, value)?
                }
                _ => value,
            };
            add(&mut metadata, &format!("{}.{name}", arch.name), value);
        }
    }
    // A key of the configuration may have said it already.
    let interleaved = super::gguf::Value::Bool(hf.rope == RopeKind::Interleaved);
    add(&mut metadata, &format!("{}.rope.interleaved", arch.name), interleaved);
    let rope = by_kind.map_or_else(|| rope::translate(config, hf), Ok)?;
    for (name, value) in rope.metadata {
        add(&mut metadata, &format!("{}.{name}", arch.name), value);
    }
    if let Some(form) = classifier {
        for (name, value) in labels::translate(config, form)? {
            add(&mut metadata, &format!("{}.{name}", arch.name), value);
        }
    }
    let head_names = classifier.map_or(&[][..], |form| form.names);
    let is_ternary = ternary::is_packed(config)?;
    let weights = Quantized { method: method.as_ref(), is_ternary };
    let (tensors, head, parts) = tensors(hf, head_names, files, &weights, &metadata, arch.name)?;
    let mut tensors = mxfp4::joined(tensors)?;
    if is_ternary {
        tensors = ternary::joined(tensors)?;
        let key = format!("{}.rounds_activations", arch.name);
        add(&mut metadata, &key, super::gguf::Value::Bool(true));
    }
    if hf.has_further_layers {
        let layers = metadata.optional_u32(&format!("{}.block_count", arch.name))?.unwrap_or(u32::MAX);
        tensors.retain(|tensor| !names::is_of_layer_from(&tensor.name, layers));
    }
    if hf.groups_heads {
        heads::split(&metadata, arch.name, &mut tensors)?;
    }
    // What encoders have besides is a head, and no part that somebody would miss.
    if !parts.is_empty() && !arch.is_encoder {
        let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
        add(&mut metadata, IGNORED_PARTS, super::gguf::Value::String(parts));
    }
    if let Some(name) = task.or(head) {
        add(&mut metadata, IGNORED_HEAD, super::gguf::Value::String(name));
    }
    if hf.first_position > 0 {
        skip_rows(hf.first_position, &mut tensors)?;
    }
    if let Some(form) = hf.sines {
        tensors.extend(sines::tables(&metadata, arch.name, form)?);
    }
    // A model that was saved without its head, or with a head that labels texts, gives no logits of tokens.
    let is_headless = !files.iter().flatten().any(|entry| entry.name.starts_with("model."));
    let has_output = tensors.iter().any(|tensor| tensor.name == "output.weight");
    let is_own = |(key, value): (&str, ConstValue)| config.get(key).is_some_and(|found| kinds::is(found, value));
    let ties = match config.get("tie_word_embeddings").and_then(Json::as_bool) {
        Some(true) if has_output && hf.untied_by.is_some_and(is_own) => Some(false),
        ties => ties,
    };
    let untied = ties == Some(false);
    if !arch.is_encoder && (classifier.is_some() || (untied && is_headless && !has_output)) {
        add(&mut metadata, WITHOUT_OUTPUT, super::gguf::Value::Bool(true));
    }
    // transformers ties the embeddings on loading, even if a file holds both.
    match ties {
        Some(false) if metadata.get(WITHOUT_OUTPUT).is_some() => {}
        Some(true) => {
            // What has a name of its own belongs to the logits, not to the matrix.
            let is_own =
                |tensor: &TensorInfo| hf.whole_names.iter().copied().flatten().any(|(ours, _)| *ours == tensor.name);
            tensors.retain(|tensor| !tensor.name.starts_with("output.") || is_own(tensor));
        }
        Some(false) if !tensors.iter().any(|tensor| tensor.name == "output.weight") => {
            let named = hf.names.iter().copied().flatten().find(|(ours, _)| *ours == "output");
            if let Some((_, theirs)) = named {
                bail!(
                    MissingTensor,
                    "config.json says tie_word_embeddings: false, and there is no tensor \"{theirs}.weight\""
                );
            }
        }
        _ => {}
    }
    for (name, values) in rope.computed {
        if tensors.iter().any(|tensor| tensor.name == name) {
            bail!(InvalidFile, "the model has a tensor {name:?}, which follows from config.json, wanted none");
        }
        let dims = vec![values.len() as u64];
        tensors.push(TensorInfo {
            name: name.to_owned(),
            dims,
            ty: GgmlType::F32,
            values: TensorValues::Computed(values),
        });
    }
    Ok((metadata, tensors))
}

/// What a module of transformers is among the tensors of a model.
pub(in crate::model) enum Module {
    /// The matrix with this name. Of queries and keys, which elements of a head rope turns together in transformers.
    Matrix { tensor: String, rope: RopeKind },
    /// A matrix whose rows stand elsewhere in our tensors.
    Reordered(String),
    /// An expert, whose matrix is a part of a stack.
    Expert,
    /// None that a model of this architecture has.
    Unknown,
}

/// A module by its name in transformers, such as `model.layers.0.self_attn.q_proj`.
pub(in crate::model) fn module(arch: &Arch, name: &str) -> Module {
    let weight = format!("{name}.weight");
    for form in arch.hugging_face.into_iter().flat_map(HuggingFace::all) {
        match names::translate(form, &[], &weight) {
            Translated::Name(tensor) => {
                let stem = names::stem(&tensor);
                let is_of = |end: &str| stem.strip_suffix(end).is_some_and(|before| before.ends_with('.'));
                let is_split = arch.row_splits.iter().any(|split| is_of(split.whole));
                return if is_split || (form.groups_heads && is_of("attn_qkv")) {
                    Module::Reordered(tensor)
                } else {
                    Module::Matrix { rope: form.rope, tensor }
                };
            }
            Translated::Expert(..) => return Module::Expert,
            _ => {}
        }
    }
    Module::Unknown
}

/// The module of transformers that holds a matrix of ours, such as `blk.0.attn_q.weight`; `None` if transformers has it otherwise.
pub(in crate::model) fn module_of(arch: &Arch, tensor: &str) -> Option<(String, RopeKind)> {
    let stem = tensor.strip_suffix(".weight")?;
    let forms = || arch.hugging_face.into_iter().flat_map(HuggingFace::all);
    let modules = forms().flat_map(|form| form.names.iter().copied().flatten()).filter_map(|(ours, theirs)| {
        let layer = names::matches(ours, stem)?.first().map(u32::to_string).unwrap_or_default();
        Some(theirs.replacen("{}", &layer, 1))
    });
    // The first whose way back is the same tensor: tables of several forms may name it.
    modules.into_iter().find_map(|name| match module(arch, &name) {
        Module::Matrix { tensor: found, rope } if found == tensor => Some((name, rope)),
        _ => None,
    })
}

/// A `config.json` with null for numbers that JSON has not and Python writes: infinities, and what is no number.
pub fn finite(text: &[u8]) -> Vec<u8> {
    const NUMBERS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut finite = Vec::with_capacity(text.len());
    let (mut rest, mut in_string, mut escaped) = (text, false, false);
    while let Some((byte, after)) = rest.split_first() {
        let number = NUMBERS.into_iter().find(|number| !in_string && rest.starts_with(number));
        if let Some(number) = number {
            finite.extend_from_slice(b"null");
            rest = &rest[number.len()..];
            continue;
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
        finite.push(*byte);
        rest = after;
    }
    finite
}

/// The configuration with transformers' defaults for missing keys. Null stands for what follows from another key, and else for itself.
fn with_defaults(defaults: &[(&str, ConstValue)], config: &Map<String, Json>) -> Map<String, Json> {
    let mut config = config.clone();
    for (key, default) in defaults {
        let follows = matches!(default, ConstValue::MultipleOf(..) | ConstValue::Of(_) | ConstValue::LengthOf(_));
        if config.get(*key).is_some_and(|value| !value.is_null() || !follows) {
            continue;
        }
        let value = match *default {
            ConstValue::Bool(value) => Json::from(value),
            ConstValue::Number(number) if number.fract() == 0.0 => Json::from(number as u64),
            ConstValue::Number(number) => Json::from(number),
            ConstValue::Text(text) => Json::from(text),
            ConstValue::Of(other) => match config.get(other).filter(|value| !value.is_null()) {
                Some(value) => value.clone(),
                None => continue,
            },
            ConstValue::LengthOf(other) => match config.get(other) {
                Some(Json::Array(items)) => Json::from(items.len()),
                Some(Json::String(text)) => Json::from(text.chars().count()),
                _ => continue,
            },
            ConstValue::MultipleOf(times, of) => {
                match config.get(of).and_then(Json::as_u64).and_then(|n| n.checked_mul(times)) {
                    Some(product) => Json::from(product),
                    None => continue,
                }
            }
        };
        config.insert((*key).to_owned(), value);
    }
    config
}

/// The context's length without the positions before a text's first token.
fn without_first_positions(first: u64, context: super::gguf::Value) -> Result<super::gguf::Value> {
    match context {
        super::gguf::Value::U64(context) if context > first => Ok(super::gguf::Value::U64(context - first)),
        other => bail!(
            InvalidMetadata,
            "config.json has \"max_position_embeddings\": {other:?}, wanted an integer above {first}, which is the first position"
        ),
    }
}

/// Leaves out the first rows of the tables of positions.
fn skip_rows(first: u64, tensors: &mut [TensorInfo]) -> Result<()> {
    const TABLES: [&str; 2] = ["position_embd.weight", "enc.position_embd.weight"];
    tensors
        .iter_mut()
        .filter(|tensor| TABLES.contains(&tensor.name.as_str()))
        .try_for_each(|table| skip_rows_of(first, table))
}

fn skip_rows_of(first: u64, table: &mut TensorInfo) -> Result<()> {
    match (&mut table.dims[..], &mut table.values) {
        ([_, rows], TensorValues::Stored { parts, .. }) if *rows > first && parts.len() == 1 => {
            let skipped = parts[0].bytes / *rows * first;
            parts[0].offset += skipped;
            parts[0].bytes -= skipped;
            *rows -= first;
            Ok(())
        }
        (dims, _) => bail!(
            ShapeMismatch,
            "the table of positions has the dimensions {dims:?}, wanted a matrix of more than {first} rows"
        ),
    }
}

/// How others have quantised a folder's weights.
struct Quantized<'m> {
    method: Option<&'m quantized::Method>,
    /// Packed ternary weights.
    is_ternary: bool,
}

/// The tensors of all files under our names, a tensor of a head for another task, and the prefixes of parts outside the text model. Unknown
/// tensors keep their names, and `Config` refuses them.
fn tensors(
    hf: &'static HuggingFace,
    head_names: &'static [(&str, &str)],
    files: &[Vec<TensorEntry>],
    weights: &Quantized<'_>,
    metadata: &Metadata,
    arch: &str,
) -> Result<Tensors> {
    let Quantized { method, is_ternary: ternary } = *weights;
    let (sources, used) = method.map(|method| quantized::collect(method, files)).transpose()?.unwrap_or_default();
    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut head: Option<String> = None;
    let mut other_parts = BTreeSet::new();
    let mut experts: BTreeMap<String, BTreeMap<u32, (usize, &TensorEntry)>> = BTreeMap::new();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (file, entries) in files.iter().enumerate() {
        for entry in entries {
            if seen.insert(&entry.name, file).is_some() {
                bail!(InvalidFile, "the tensor {:?} stands in two files of the model", entry.name);
            }
            if used.contains(&entry.name) {
                continue;
            }
            match names::translate(hf, head_names, &entry.name) {
                Translated::Ignored => {}
                Translated::OtherPart(prefix) => {
                    other_parts.insert(prefix);
                }
                Translated::OtherHead => head = head.or_else(|| Some(entry.name.clone())),
                Translated::Unknown => {
                    tensors.push(tensor(entry.name.clone(), hf.transforms, ternary, &[(file, entry)])?)
                }
                Translated::Name(name) => tensors.push(tensor(name, hf.transforms, ternary, &[(file, entry)])?),
                Translated::Expert(name, expert) => {
                    experts.entry(name).or_default().insert(expert, (file, entry));
                }
            }
        }
    }
    for (name, parts) in experts {
        all_from_zero(&name, parts.keys().copied())?;
        let parts: Vec<(usize, &TensorEntry)> = parts.into_values().collect();
        tensors.push(tensor(name, hf.transforms, ternary, &parts)?);
    }
    let mut packed_experts = quantized::Experts::new();
    for source in sources {
        match names::translate(hf, head_names, &source.name) {
            Translated::Ignored => {}
            Translated::OtherPart(prefix) => {
                other_parts.insert(prefix);
            }
            Translated::OtherHead => head = head.or_else(|| Some(source.name.clone())),
            Translated::Unknown => {
                let name = source.name.clone();
                tensors.push(quantized::tensor(hf, metadata, arch, name, vec![source])?);
            }
            Translated::Name(name) => tensors.push(quantized::tensor(hf, metadata, arch, name, vec![source])?),
            Translated::Expert(name, expert) => {
                packed_experts.entry(name).or_default().insert(expert, source);
            }
        }
    }
    for (name, parts) in packed_experts {
        all_from_zero(&name, parts.keys().copied())?;
        tensors.push(quantized::tensor(hf, metadata, arch, name, parts.into_values().collect())?);
    }
    let mut names = std::collections::HashSet::new();
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        bail!(InvalidFile, "two tensors of the model become {:?}, wanted only one of that name", twice.name);
    }
    Ok((tensors, head, other_parts))
}

/// Whether these are the numbers of all experts.
fn all_from_zero(name: &str, numbers: impl Iterator<Item = u32> + Clone) -> Result<()> {
    if !numbers.clone().zip(0..).all(|(found, wanted)| found == wanted) {
        let numbers: Vec<u32> = numbers.collect();
        bail!(MissingTensor, "of the experts of {name:?} the model has {numbers:?}, wanted all from 0 on");
    }
    Ok(())
}

/// One of our tensors, made of one part or of one part for each expert.
fn tensor(
    name: String,
    transforms: &[(&str, WeightTransform)],
    ternary: bool,
    parts: &[(usize, &TensorEntry)],
) -> Result<TensorInfo> {
    let (_, first) = parts[0];
    if let Some((_, other)) = parts.iter().find(|(_, part)| (part.dtype, &part.shape) != (first.dtype, &first.shape)) {
        bail!(
            ShapeMismatch,
            "{:?} is {} {:?} and {:?} is {} {:?}, wanted equal",
            first.name,
            first.dtype.name(),
            first.shape,
            other.name,
            other.dtype.name(),
            other.shape
        );
    }
    // Bytes have no type in GGUF files: those of MXFP4 and ternary ones are joined later, and others are refused as unknown.
    let is_joined = mxfp4::is_part(&name) || (ternary && name.ends_with(".weight"));
    let ty = if is_joined && first.dtype == Dtype::U8 { Some(GgmlType::I8) } else { first.dtype.ggml_type() };
    let Some(ty) = ty else {
        bail!(
            UnsupportedTensorType,
            "the tensor {:?} is of type {}; supported are F32, F16 and BF16: use a model of one of these",
            first.name,
            first.dtype.name()
        );
    };
    let mut dims: Vec<u64> = first.shape.iter().rev().copied().collect();
    // The numbers of xIELU have no dimensions.
    if dims.is_empty() && name.contains(".xielu_") {
        dims.push(1);
    }
    // Biases may be matrices of one row.
    while name.ends_with(".bias") && dims.len() > 1 && dims.last() == Some(&1) {
        dims.pop();
    }
    if dims.is_empty() || dims.contains(&0) {
        bail!(InvalidFile, "the tensor {:?} has the shape {:?}, wanted dimensions above 0", first.name, first.shape);
    }
    // Transforms apply to weights, never to their biases.
    let mut transforms = transforms.iter().filter(|_| !name.ends_with(".bias"));
    let is_of = |stem: &str| [names::stem(&name), &name].iter().any(|name| names::matches(stem, name).is_some());
    let mut transform = transforms.find(|(stem, _)| is_of(stem)).map(|transform| transform.1);
    if transform == Some(WeightTransform::Squeeze) {
        dims.retain(|dim| *dim > 1);
        transform = None;
    }
    if transform == Some(WeightTransform::Transpose) {
        if dims.len() != 2 {
            bail!(ShapeMismatch, "the tensor {:?} has the shape {:?}, wanted a matrix", first.name, first.shape);
        }
        dims.reverse();
    }
    if parts.len() > 1 {
        dims.push(parts.len() as u64);
    }
    let parts = parts.iter().map(|(file, part)| Part { file: *file, offset: part.offset, bytes: part.bytes }).collect();
    Ok(TensorInfo { name, dims, ty, values: TensorValues::Stored { parts, transform } })
}
