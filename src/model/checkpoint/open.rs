//! Finds the model in a folder and reads its headers.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::rows::divided;
use super::{Checkpoint, MARIAN_FILES, Origin, Part, TEXT_FILES, TensorInfo, TensorValues, completed, modules};
use crate::error::{Code, Result};
use crate::model::folder::{Folder, OpenFile};
use crate::model::gguf::{self, Gguf, Metadata, SplitName};
use crate::model::hugging_face::{self, MAX_CONFIG_BYTES};
use crate::model::safetensors::index::{Index, MAX_INDEX_BYTES};
use crate::model::safetensors::{MAX_TENSORS, Safetensors};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// What sentence-transformers' newer files say of scores.
const CROSS_ENCODER: &str = "config_sentence_transformers.json";
/// The largest vocabularies have about 40 MB.
const MAX_TEXT_FILE_BYTES: u64 = 128 << 20;

impl<'f> Checkpoint<'f> {
    /// Reads the headers of a model: `file` is a GGUF file, a `.safetensors` file or an index of several in the folder. Without a name it
    /// is the folder's only GGUF file, or its safetensors model.
    pub async fn open(folder: &'f dyn Folder, file: Option<&str>) -> Result<Checkpoint<'f>> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => choose(folder).await?,
        };
        if file.ends_with(".safetensors.index.json") {
            return safetensors_folder(folder, &file).await;
        }
        let source = open(folder, &file).await?;
        if file.ends_with(".safetensors") {
            return safetensors_file(folder, source).await;
        }
        match Gguf::read(&*source).await {
            Ok(gguf) => of_gguf(folder, &file, gguf, source).await,
            Err(error) if error.code() == Code::NotGguf => {
                let start = source.read(0, source.size().min(16) as usize).await?;
                if Safetensors::begins(&start) { safetensors_file(folder, source).await } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }
}

/// The model's file if the caller names none.
async fn choose(folder: &dyn Folder) -> Result<String> {
    match folder.list().await? {
        Some(mut names) => {
            if let Some(name) = [INDEX, SINGLE].into_iter().find(|wanted| names.iter().any(|name| name == wanted)) {
                return Ok(name.to_owned());
            }
            // If the folder has only one file, it is the model, whatever its name is.
            if names.len() == 1 {
                return Ok(names.remove(0));
            }
            // Only the first file of a split model.
            let first = |name: &&String| SplitName::parse(name).is_none_or(|name| name.number == 0);
            let ggufs: Vec<&String> = names.iter().filter(|name| name.ends_with(".gguf")).filter(first).collect();
            match ggufs[..] {
                [only] => Ok(only.clone()),
                [] => bail!(
                    InvalidFile,
                    "{}: no file of a model among {} files, wanted {SINGLE}, {INDEX} or a .gguf file",
                    folder.name(),
                    names.len()
                ),
                _ => bail!(
                    InvalidRequest,
                    "{}: there are {} GGUF files, name one: {}",
                    folder.name(),
                    ggufs.len(),
                    ggufs.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
                ),
            }
        }
        None => match folder.read(INDEX.to_owned(), MAX_INDEX_BYTES).await? {
            Some(_) => Ok(INDEX.to_owned()),
            None => Ok(SINGLE.to_owned()),
        },
    }
}

async fn open<'f>(folder: &'f dyn Folder, path: &str) -> Result<OpenFile<'f>> {
    match folder.open(path.to_owned()).await? {
        Some(file) => Ok(file),
        None => bail!(InvalidFile, "{}: there is no file {path:?}, which the model needs", folder.name()),
    }
}

/// A GGUF file as a checkpoint. If the model is split, with its other files.
async fn of_gguf<'f>(folder: &'f dyn Folder, path: &str, gguf: Gguf, source: OpenFile<'f>) -> Result<Checkpoint<'f>> {
    let Some(split) = gguf.split() else {
        let tensors = tensors_of_gguf(&gguf, 0);
        return checkpoint_of_gguf(gguf.into_metadata(), tensors, vec![source]);
    };
    let name = SplitName::parse(path).filter(|name| (name.number, name.count) == (split.number, split.count));
    let Some(name) = name else {
        bail!(
            InvalidFile,
            "{}: the model is split and this is file {} of {}, wanted a name that ends in -{:05}-of-{:05}.gguf, by which the others \
             are found; rename the files, or merge them with `llama-gguf-split --merge` of llama.cpp",
            source.name(),
            split.number + 1,
            split.count,
            split.number + 1,
            split.count
        );
    };
    let mut opened = Some((gguf, source));
    let (mut metadata, mut tensors, mut files) = (Metadata::default(), Vec::new(), Vec::new());
    for number in 0..split.count {
        let (gguf, source) = match (number == split.number).then(|| opened.take()).flatten() {
            Some(opened) => opened,
            None => {
                let path = name.of(number);
                let Some(source) = folder.open(path.clone()).await? else {
                    bail!(
                        InvalidFile,
                        "{}: the model is split into {} files and {path:?} is not there; load them together: by the address of the \
                         first, as a folder, or as a list of files",
                        folder.name(),
                        split.count
                    );
                };
                (Gguf::read(&*source).await?, source)
            }
        };
        if gguf.split().is_none_or(|found| (found.number, found.count) != (number, split.count)) {
            bail!(
                InvalidFile,
                "{}: the file says {:?} of the split, wanted number {number} of {}; the files are of different models",
                source.name(),
                gguf.split(),
                split.count
            );
        }
        if tensors.len() + gguf.tensors().len() > MAX_TENSORS {
            bail!(InvalidFile, "{}: the files of the model hold more than {MAX_TENSORS} tensors", source.name());
        }
        tensors.extend(tensors_of_gguf(&gguf, files.len()));
        if number == 0 {
            metadata = gguf.into_metadata();
        }
        files.push(source);
    }
    let mut names = HashSet::new();
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
        bail!(InvalidFile, "the tensor {:?} stands in two files of the model", twice.name);
    }
    if split.tensors.is_some_and(|count| count != tensors.len() as u64) {
        bail!(
            MissingTensor,
            "the {} files of the model hold {} tensors, wanted {:?} (split.tensors.count)",
            split.count,
            tensors.len(),
            split.tensors
        );
    }
    checkpoint_of_gguf(metadata, tensors, files)
}

fn checkpoint_of_gguf(
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    files: Vec<OpenFile<'_>>,
) -> Result<Checkpoint<'_>> {
    let tensors = divided(&metadata, completed::of_gguf(&metadata, tensors)?)?;
    Ok(Checkpoint { metadata, tensors, files, origin: Origin::Gguf, text_files: BTreeMap::new(), modules: None })
}

/// The tensors of a GGUF file, which has the index `file` in the checkpoint.
pub fn tensors_of_gguf(gguf: &Gguf, file: usize) -> Vec<TensorInfo> {
    let tensor = |tensor: &gguf::TensorInfo| TensorInfo {
        name: tensor.name.clone(),
        dims: tensor.dims.clone(),
        ty: tensor.ty,
        values: TensorValues::Stored {
            parts: vec![Part { file, offset: tensor.offset, bytes: tensor.bytes }],
            transform: None,
        },
    };
    gguf.tensors().iter().map(tensor).collect()
}

async fn safetensors_file<'f>(folder: &'f dyn Folder, source: OpenFile<'f>) -> Result<Checkpoint<'f>> {
    let header = Safetensors::read(&*source).await?;
    of_safetensors(folder, vec![source], vec![header]).await
}

/// A model in several files.
async fn safetensors_folder<'f>(folder: &'f dyn Folder, index_path: &str) -> Result<Checkpoint<'f>> {
    let Some(index) = folder.read(index_path.to_owned(), MAX_INDEX_BYTES).await? else {
        bail!(InvalidFile, "{}: there is no file {index_path:?}", folder.name());
    };
    let index = Index::parse(&index).map_err(|error| error.context(index_path))?;
    let parent = index_path.rsplit_once('/').map(|(parent, _)| format!("{parent}/")).unwrap_or_default();
    let (mut files, mut headers, mut file_of) = (Vec::new(), Vec::new(), HashMap::new());
    for name in index.files() {
        let file = open(folder, &format!("{parent}{name}")).await?;
        let header = Safetensors::read(&*file).await?;
        if file_of.len() + header.tensors().len() > MAX_TENSORS {
            bail!(InvalidFile, "{index_path}: its files hold more than {MAX_TENSORS} tensors");
        }
        file_of.extend(header.tensors().iter().map(|tensor| (tensor.name.clone(), name)));
        files.push(file);
        headers.push(header);
    }
    for (tensor, file) in index.tensors() {
        match file_of.get(tensor) {
            Some(found) if *found == file => {}
            Some(found) => {
                bail!(InvalidFile, "{index_path}: the tensor {tensor:?} should be in {file:?} and is in {found:?}")
            }
            None => bail!(MissingTensor, "{index_path}: the tensor {tensor:?} is not in {file:?}"),
        }
    }
    of_safetensors(folder, files, headers).await
}

async fn of_safetensors<'f>(
    folder: &'f dyn Folder,
    mut files: Vec<OpenFile<'f>>,
    headers: Vec<Safetensors>,
) -> Result<Checkpoint<'f>> {
    let Some(config) = folder.read("config.json".to_owned(), MAX_CONFIG_BYTES).await? else {
        bail!(
            InvalidFile,
            "{}: there is no config.json beside the safetensors file; load the whole folder or repository",
            folder.name()
        );
    };
    let config = hugging_face::finite(&config);
    let headers: Vec<_> = headers.into_iter().map(Safetensors::into_tensors).collect();
    let (metadata, tensors) =
        hugging_face::translate(&config, &headers).map_err(|error| error.context(folder.name()))?;
    let tensors = completed::of_folder(&metadata, tensors)?;
    let listed = folder.list().await?;
    let mut text_files = BTreeMap::new();
    for name in TEXT_FILES.iter().chain(MARIAN_FILES) {
        if MARIAN_FILES.contains(name) && text_files.contains_key("tokenizer.json") {
            continue;
        }
        if listed.as_ref().is_some_and(|names| !name.contains('/') && !names.iter().any(|listed| listed == name)) {
            continue;
        }
        if let Some(bytes) = folder.read((*name).to_owned(), MAX_TEXT_FILE_BYTES).await? {
            text_files.insert(*name, bytes);
        }
    }
    text_files.insert("config.json", config);
    let modules = modules::read(folder, &text_files).await?;
    if modules.is_some() {
        let read = folder.read(CROSS_ENCODER.to_owned(), MAX_CONFIG_BYTES).await?;
        text_files.extend(read.map(|bytes| (CROSS_ENCODER, bytes)));
    }
    let mut tensors = divided(&metadata, tensors)?;
    for (number, module) in modules.iter().flatten().filter(|module| module.kind == "Dense").enumerate() {
        let source = open(folder, &format!("{}/{SINGLE}", module.path)).await?;
        let header = Safetensors::read(&*source).await?;
        tensors.extend(modules::dense_tensors(number, files.len(), header.tensors())?);
        files.push(source);
    }
    Ok(Checkpoint { metadata, tensors, files, origin: Origin::HuggingFace, text_files, modules })
}
