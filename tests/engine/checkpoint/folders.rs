//! Folders: which file of them is the model, several files with an index, and what is handed on as it is.

use proptest::prelude::*;
use rillm::error::{Code, Error};
use rillm::model::checkpoint::{Checkpoint, Origin, TensorValues};
use rillm::model::config::Config;
use rillm::model::folder::{Folder, MemoryFolder, OneFile, OpenFile};
use rillm::model::source::{LocalFuture, MemorySource};
use serde_json::Value;

use super::check_error;
use super::writer::{config, files, folder, safetensors, sharded, tensors};

fn open(files: Vec<(String, Vec<u8>)>, file: Option<&str>) -> Result<usize, Error> {
    let folder = folder(files);
    let checkpoint = pollster::block_on(Checkpoint::open(&folder, file))?;
    Config::of(&checkpoint)?;
    Ok(checkpoint.files.len())
}

fn gguf() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tiny_llama/tied-q8_0.gguf")).unwrap()
}

#[test]
fn the_model_of_a_folder_is_found() {
    assert_eq!(open(files(&config(), &tensors()), None).unwrap(), 1);
    assert_eq!(open(files(&config(), &tensors()), Some("model.safetensors")).unwrap(), 1);
    assert_eq!(open(sharded(), None).unwrap(), 2);
    assert_eq!(open(sharded(), Some("model.safetensors.index.json")).unwrap(), 2);
    let readme = ("README.md".to_owned(), b"text".to_vec());
    assert_eq!(open(vec![readme.clone(), ("a.gguf".to_owned(), gguf())], None).unwrap(), 1);
    assert_eq!(open(vec![("without a suffix".to_owned(), gguf())], None).unwrap(), 1);

    let two = vec![("a.gguf".to_owned(), gguf()), ("b.gguf".to_owned(), gguf())];
    check_error(&open(two.clone(), None).unwrap_err(), Code::InvalidRequest, &["a.gguf, b.gguf"]);
    assert_eq!(open(two, Some("b.gguf")).unwrap(), 1);
    check_error(
        &open(vec![readme.clone(), readme], None).unwrap_err(),
        Code::InvalidFile,
        &["model.safetensors", ".gguf"],
    );
    check_error(&open(vec![], None).unwrap_err(), Code::InvalidFile, &["no file of a model"]);
    check_error(
        &open(files(&config(), &tensors()), Some("other.gguf")).unwrap_err(),
        Code::InvalidFile,
        &["other.gguf"],
    );

    // A safetensors file alone does not say what it is.
    let bytes = safetensors(&tensors());
    let error = open(vec![("model.safetensors".to_owned(), bytes.clone())], None).unwrap_err();
    check_error(&error, Code::InvalidFile, &["config.json", "folder"]);
    let source = MemorySource::new(bytes).with_name("weights");
    let error = pollster::block_on(Checkpoint::open(&OneFile(&source), None)).err().unwrap();
    check_error(&error, Code::InvalidFile, &["config.json", "weights"]);
}

type Files = Vec<(String, Vec<u8>)>;

#[test]
fn an_index_is_held_against_its_files() {
    let broken = |change: &dyn Fn(&mut Files)| {
        let mut files = sharded();
        change(&mut files);
        open(files, None).unwrap_err()
    };
    check_error(&broken(&|files| drop(files.pop())), Code::InvalidFile, &["model-00002-of-00002.safetensors"]);
    let other_file = broken(&|files| {
        let text = String::from_utf8(files[1].1.clone()).unwrap();
        files[1].1 = text.replacen("model-00001", "model-00002", 1).into_bytes();
    });
    check_error(&other_file, Code::InvalidFile, &["should be in", "is in"]);
    let missing = broken(&|files| {
        let mut index: Value = serde_json::from_slice(&files[1].1).unwrap();
        index["weight_map"]["lm_head.weight"] = "model-00001-of-00002.safetensors".into();
        files[1].1 = index.to_string().into_bytes();
    });
    check_error(&missing, Code::MissingTensor, &["lm_head.weight"]);
    let twice = broken(&|files| files[3].1 = safetensors(&tensors()));
    assert_eq!(twice.code(), Code::InvalidFile, "{twice}");
}

#[test]
fn files_of_text_are_handed_on() {
    let mut files = files(&config(), &tensors());
    files.push(("tokenizer.json".to_owned(), b"{}".to_vec()));
    files.push(("chat_template.jinja".to_owned(), b"{{ messages }}".to_vec()));
    files.push(("1_Pooling/config.json".to_owned(), b"[]".to_vec()));
    files.push(("pytorch_model.bin".to_owned(), b"x".to_vec()));
    let folder = MemoryFolder::new(files);
    let checkpoint = pollster::block_on(Checkpoint::open(&folder, None)).unwrap();
    let names: Vec<&str> = checkpoint.text_files.keys().copied().collect();
    assert_eq!(names, ["1_Pooling/config.json", "chat_template.jinja", "config.json", "tokenizer.json"]);
    assert_eq!(checkpoint.text_files["chat_template.jinja"], b"{{ messages }}");
}

/// A folder that can't tell what it holds, as a web server can't.
struct Unlisted(MemoryFolder);

impl Folder for Unlisted {
    fn name(&self) -> String {
        "unlisted".to_owned()
    }
    fn open<'f>(&'f self, path: String) -> LocalFuture<'f, Result<Option<OpenFile<'f>>, Error>> {
        self.0.open(path)
    }
    fn list<'f>(&'f self) -> LocalFuture<'f, Result<Option<Vec<String>>, Error>> {
        Box::pin(async { Ok(None) })
    }
}

#[test]
fn a_folder_need_not_be_listed() {
    for files in [files(&config(), &tensors()), sharded()] {
        let folder = Unlisted(folder(files));
        let checkpoint = pollster::block_on(Checkpoint::open(&folder, None)).unwrap();
        Config::of(&checkpoint).unwrap();
    }
    let error = pollster::block_on(Checkpoint::open(&Unlisted(folder(vec![])), None)).err().unwrap();
    check_error(&error, Code::InvalidFile, &["unlisted", "model.safetensors"]);
}

/// Each tensor's range holds the bytes that were written for it, under its new name.
#[test]
fn tensors_are_where_the_checkpoint_says() {
    for files in [files(&config(), &tensors()), sharded()] {
        let folder = folder(files);
        let checkpoint = pollster::block_on(Checkpoint::open(&folder, None)).unwrap();
        assert_eq!(checkpoint.origin, Origin::HuggingFace);
        assert_eq!(checkpoint.tensors.len(), tensors().len());
        for (theirs, ours) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
        ] {
            let (_, _, shape, data) = tensors().into_iter().find(|(name, ..)| name == theirs).unwrap();
            let tensor = checkpoint.tensor(ours).unwrap();
            assert_eq!(tensor.dims, shape.into_iter().rev().collect::<Vec<_>>());
            let TensorValues::Stored { parts, transform: None } = &tensor.values else { panic!("{tensor:?}") };
            let [part] = parts[..] else { panic!("{parts:?}") };
            let read = pollster::block_on(checkpoint.files[part.file].read(part.offset, part.bytes as usize)).unwrap();
            assert_eq!(read, data);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is changed in any file, opening ends in a model or an error.
    #[test]
    fn damaged_folders_never_panic(which in 0usize..4, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut files = sharded();
        let bytes = &mut files[which].1;
        for (at, value) in changes {
            let at = at.index(bytes.len().min(2500));
            bytes[at] = value;
        }
        let _ = open(files, None);
    }
}
