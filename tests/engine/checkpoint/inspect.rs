//! What is said about a model before it is loaded is what loading it takes.

use rillm::engine::{Engine, Inspection, LoadOptions, inspect};
use rillm::error::Error;
use rillm::model::folder::{DirectoryFolder, Folder, MemoryFolder, OneFile};
use rillm::model::source::{ByteSource, ChunkStream, FileSource, LocalFuture};
use serde_json::json;

use super::writer::{config, files, tensors};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

fn inspection(folder: &dyn Folder, options: &LoadOptions) -> Result<Inspection, Error> {
    pollster::block_on(inspect(folder, None, options))
}

/// A file whose tensors nobody may touch.
struct HeaderOnly(FileSource);

impl ByteSource for HeaderOnly {
    fn name(&self) -> String {
        self.0.name()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, Result<Vec<u8>, Error>> {
        self.0.read(offset, length)
    }
    fn stream<'a>(&'a self, _: u64, _: u64) -> LocalFuture<'a, Result<Box<dyn ChunkStream + 'a>, Error>> {
        panic!("the data of a tensor was asked for")
    }
}

#[test]
fn what_is_said_is_what_loading_takes() {
    for model in ["tiny_llama/tied-q4_0", "tiny_llama/untied-q8_0", "tiny_qwen2/tied-q8_0", "tiny_llama/tied-f32"] {
        let source = FileSource::open(format!("{GOLDEN}/{model}.gguf")).unwrap();
        let options = LoadOptions { context_length: Some(96), ..Default::default() };
        let engine = pollster::block_on(Engine::load(&source, &options, &mut |_| Ok(()))).unwrap();
        let source = HeaderOnly(source);
        let said = inspection(&OneFile(&source), &options).unwrap();
        let info = engine.info();
        assert!(said.problem.is_none(), "{:?}", said.problem);
        assert_eq!(said.name, info.name);
        assert_eq!((said.format, said.architecture.as_str(), said.files), ("gguf", info.architecture.as_str(), 1));
        assert_eq!((said.parameters, &said.quantization), (info.parameters, &info.quantization));
        assert_eq!((said.layers, said.vocab_size), (Some(info.layers), Some(info.vocab_size)));
        assert_eq!((said.embedding_length, said.context_length), (Some(info.embedding_length), Some(96)));
        assert_eq!(said.trained_context_length, Some(256));
        assert_eq!(said.file_bytes, source.size());
        assert_eq!(said.kv_cache_bytes, Some(info.kv_cache_bytes));
        // Joined matrices are padded together, alone each for itself.
        let bytes = said.weight_bytes.unwrap() as f64;
        assert!((bytes / info.weight_bytes as f64 - 1.0).abs() < 0.05, "{model}: {bytes} and {}", info.weight_bytes);
        let adapter = said.adapter.unwrap();
        assert_eq!(adapter.info.description, info.adapter.description);
        assert!(adapter.max_binding_bytes >= 128 << 20);
    }
}

#[test]
fn a_folder_is_inspected() {
    let folder = DirectoryFolder::new(format!("{GOLDEN}/folders/qwen2_bf16"));
    let said = inspection(&folder, &LoadOptions::default()).unwrap();
    assert!(said.problem.is_none(), "{:?}", said.problem);
    assert_eq!((said.format, said.architecture.as_str(), said.quantization.as_str()), ("safetensors", "qwen2", "BF16"));
    assert_eq!(said.tensor_types.keys().copied().collect::<Vec<_>>(), ["BF16"]);
    let sharded = DirectoryFolder::new(format!("{GOLDEN}/folders/llama_sharded_f16"));
    let said = inspection(&sharded, &LoadOptions::default()).unwrap();
    assert_eq!((said.files, said.quantization.as_str(), said.context_length), (5, "F16", Some(256)));
}

#[test]
fn what_is_sound_and_not_supported_is_said() {
    let mut other = config();
    other.insert("hidden_act".to_owned(), json!("relu"));
    let error = inspection(&MemoryFolder::new(files(&other, &tensors())), &LoadOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "unsupported_architecture", "what config.json says can't be translated");

    let asked = LoadOptions { context_length: Some(1000), ..Default::default() };
    let said = inspection(&MemoryFolder::new(files(&config(), &tensors())), &asked).unwrap();
    let problem = said.problem.unwrap();
    assert_eq!(problem.code, "invalid_request");
    assert!(problem.message.contains("1000"), "{}", problem.message);
    assert_eq!(said.layers, Some(2));

    // An architecture that is not there, in a sound file.
    let bytes = std::fs::read(format!("{GOLDEN}/tiny_llama/tied-q8_0.gguf")).unwrap();
    let at = bytes.windows(5).position(|window| window == b"llama").unwrap();
    let mut bytes = bytes;
    bytes[at..at + 5].copy_from_slice(b"rwkv7");
    let folder = MemoryFolder::new([("rwkv7.gguf".to_owned(), bytes)]);
    let said = inspection(&folder, &LoadOptions::default()).unwrap();
    assert_eq!((said.architecture.as_str(), said.layers, said.weight_bytes), ("rwkv7", None, None));
    assert!(said.parameters > 0 && said.file_bytes > 0);
    assert_eq!(said.problem.unwrap().code, "unsupported_architecture");
}
