//! Models that are larger than what an adapter binds at once, and files of more than 4 GiB. Limits are made small, and files sparse.

use std::io::{Seek, SeekFrom, Write};

use rillm::engine::request::CompletionRequest;
use rillm::engine::{DeviceOptions, Engine, LoadOptions, Precision, inspect};
use rillm::error::{Code, Result};
use rillm::model::checkpoint::{Checkpoint, TensorValues};
use rillm::model::folder::{DirectoryFolder, OneFile};
use rillm::model::source::FileSource;
use serde_json::json;

use crate::support::engines::exact_on_cpu;

fn golden(model: &str) -> FileSource {
    FileSource::open(format!("{}/tests/golden/{model}.gguf", env!("CARGO_MANIFEST_DIR")))
        .unwrap()
        .with_chunk_bytes(5003)
}

fn options(binding: Option<u64>, unfused_ops: bool) -> LoadOptions {
    LoadOptions {
        device: DeviceOptions { storage_binding: binding, ..Default::default() },
        context_length: Some(64),
        precision: Some(Precision::Exact),
        unfused_ops,
        ..Default::default()
    }
}

fn load(model: &str, options: &LoadOptions) -> Result<Engine> {
    pollster::block_on(Engine::load(&golden(model), &exact_on_cpu(options), &mut |_| Ok(())))
}

fn logits(engine: &Engine, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async { engine.forward(ids).await.unwrap().readback().await.unwrap() })
}

fn answer(engine: &Engine) -> Vec<u32> {
    let request = json!({"prompt": [7, 280, 13, 99], "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let mut generation = engine.complete(CompletionRequest::parse(request).unwrap()).unwrap();
    let mut tokens = Vec::new();
    while let Some(chunk) = pollster::block_on(generation.next()).unwrap() {
        tokens.extend(chunk.token_ids);
    }
    tokens
}

/// The embedding, the output matrix or both in two parts or more: the same logits and the same tokens.
#[test]
fn matrices_of_the_vocabulary_lie_in_parts() {
    for (model, binding) in
        [("tiny_llama/tied-f32", 48 << 10), ("tiny_llama/tied-f16", 30 << 10), ("tiny_llama/untied-q8_0", 22 << 10)]
    {
        for unfused in [false, true] {
            let whole = load(model, &options(None, unfused)).unwrap();
            let parts = load(model, &options(Some(binding), unfused)).unwrap();
            assert_eq!(parts.info().parameters, whole.info().parameters);
            // Of every part of the vocabulary: the first, the last and what lies between.
            for ids in [&[0, 287 % 263, 150, 160, 261, 32, 96][..], &[200], &[5, 128, 127]] {
                let (got, wanted) = (logits(&parts, ids), logits(&whole, ids));
                let worst = got.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-5, "{model}, unfused {unfused}, {ids:?}: {worst}");
            }
            if model.contains("/tied") {
                assert_eq!(answer(&parts), answer(&whole), "{model}, unfused {unfused}");
            }
        }
    }
}

#[test]
fn what_no_binding_holds_is_refused_and_said_beforehand() {
    // Matrices are divided by rows, and a row is not.
    let small = options(Some(64), false);
    assert_eq!(load("tiny_llama/tied-f32", &small).err().unwrap().code(), Code::AdapterLimits);
    let source = golden("tiny_llama/tied-f32");
    let said = pollster::block_on(inspect(&OneFile(&source), None, &small)).unwrap();
    let problem = said.problem.unwrap();
    assert_eq!(problem.code, "adapter_limits");
    assert!(problem.message.contains("64"), "{}", problem.message);
    // Nor is an expert.
    let of_experts = DirectoryFolder::new(format!("{}/tests/golden/architectures/mixtral", env!("CARGO_MANIFEST_DIR")));
    let small = options(Some(5000), false);
    let said = pollster::block_on(inspect(&of_experts, Some("model.gguf"), &small)).unwrap();
    let problem = said.problem.unwrap();
    assert!(problem.code == "adapter_limits" && problem.message.contains("exps"), "{}", problem.message);
    // What can be divided is no problem.
    let said = pollster::block_on(inspect(&OneFile(&source), None, &options(Some(48 << 10), false))).unwrap();
    assert!(said.problem.is_none(), "{:?}", said.problem);
}

/// A GGUF file of more than 5 GiB whose tensors are holes, but for the last bytes.
#[test]
fn offsets_beyond_four_gigabytes_are_whole() {
    let path = std::env::temp_dir().join(format!("rillm-large-{}.gguf", std::process::id()));
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let rows: u64 = 1 << 18;
    let columns: u64 = 1 << 12;
    let bytes = rows * columns * 2;
    let mut header = b"GGUF".to_vec();
    header.extend(3u32.to_le_bytes());
    header.extend(3u64.to_le_bytes());
    header.extend(1u64.to_le_bytes());
    header.extend([string("general.architecture"), 8u32.to_le_bytes().to_vec(), string("llama")].concat());
    for (index, name) in ["first", "second", "third"].iter().enumerate() {
        header.extend(string(name));
        header.extend(2u32.to_le_bytes());
        header.extend([columns.to_le_bytes(), rows.to_le_bytes()].concat());
        header.extend(1u32.to_le_bytes());
        header.extend((index as u64 * bytes).to_le_bytes());
    }
    let start = (header.len() as u64).next_multiple_of(32);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(start + 3 * bytes).unwrap();
    file.seek(SeekFrom::Start(start + 3 * bytes - 8)).unwrap();
    file.write_all(b"the end.").unwrap();
    drop(file);

    let checked = std::panic::catch_unwind(|| {
        pollster::block_on(async {
            let source = FileSource::open(&path).unwrap();
            let folder = OneFile(&source);
            let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
            assert_eq!(checkpoint.file_bytes(), start + 3 * bytes);
            assert!(checkpoint.file_bytes() > 6 << 30);
            let third = checkpoint.tensor("third").unwrap();
            assert_eq!((third.elements(), third.bytes()), (rows * columns, bytes));
            let TensorValues::Stored { parts, .. } = &third.values else { panic!("stored") };
            assert_eq!(parts[0].offset, start + 2 * bytes);
            let end = checkpoint.files[0].read(parts[0].offset + parts[0].bytes - 8, 8).await.unwrap();
            assert_eq!(end, b"the end.");
            let mut stream = checkpoint.files[0].stream(parts[0].offset + parts[0].bytes - 12, 12).await.unwrap();
            assert_eq!(stream.next().await.unwrap().unwrap().len(), 12);
        })
    });
    std::fs::remove_file(&path).unwrap();
    checked.unwrap();
}

/// A safetensors model in two files, of which each is beyond 2 GiB.
#[test]
fn several_large_files_are_one_model() {
    let folder = std::env::temp_dir().join(format!("rillm-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let bytes: u64 = 5 << 29; // 2.5 GiB
    let file = |name: &str, tensor: &str| {
        let header = json!({tensor: {"dtype": "BF16", "shape": [bytes / 2 / 4096, 4096], "data_offsets": [0, bytes]}})
            .to_string();
        let mut file = std::fs::File::create(folder.join(name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(8 + header.len() as u64 + bytes).unwrap();
    };
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    file(names[0], "model.embed_tokens.weight");
    file(names[1], "lm_head.weight");
    let index = json!({"weight_map": {"model.embed_tokens.weight": names[0], "lm_head.weight": names[1]}});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let config = json!({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096, "intermediate_size": 8192,
        "num_attention_heads": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "vocab_size": bytes / 2 / 4096});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let checked = std::panic::catch_unwind(|| {
        pollster::block_on(async {
            let opened = DirectoryFolder::new(&folder);
            let checkpoint = Checkpoint::open(&opened, None).await.unwrap();
            assert!(checkpoint.file_bytes() > 2 * bytes);
            let output = checkpoint.tensor("output.weight").unwrap();
            assert_eq!((output.dims[1], output.bytes()), (bytes / 2 / 4096, bytes));
            // Headers are all that was read, so the rest of the model may be missing.
            let said = inspect(&opened, None, &LoadOptions::default()).await.unwrap();
            assert_eq!(said.problem.unwrap().code, "missing_tensor");
            assert_eq!((said.files, said.parameters), (2, bytes));
        })
    });
    std::fs::remove_dir_all(&folder).unwrap();
    checked.unwrap();
}
