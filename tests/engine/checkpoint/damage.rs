//! Models of several files of which one ends early, and models that hold what is not supported: what is said, and that it is said by a
//! typed error. Files that stand alone are in `tests/engine/gguf/header.rs`, `safetensors.rs` and `tests/text/tokenizers/broken.rs`.

use rillm::engine::{Engine, LoadOptions, inspect};
use rillm::error::{Code, Error};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;
use rillm::model::gguf::GgmlType;
use rillm::tensor::quant::FORMATS;

use super::check_error;
use super::split::{name, split};
use super::writer::{config, files, sharded, tensors};
use crate::gguf::writer::{Writer, llama};

fn open(files: &[(String, Vec<u8>)], file: Option<&str>) -> Result<(), Error> {
    let folder = MemoryFolder::new(files.to_vec());
    let checkpoint = pollster::block_on(Checkpoint::open(&folder, file))?;
    Config::of(&checkpoint).map(drop)
}

/// Cuts a file of the model after each number of bytes that is given.
#[track_caller]
fn cut(files: &[(String, Vec<u8>)], which: usize, file: Option<&str>, ends: impl Iterator<Item = usize>, code: Code) {
    open(files, file).unwrap();
    let whole = files[which].1.clone();
    let mut files = files.to_vec();
    for end in ends {
        files[which].1 = whole[..end].to_vec();
        let error = open(&files, file).expect_err("a file that ends early");
        assert_eq!(error.code(), code, "{} cut after {end}: {error}", files[which].0);
        assert!(error.message().contains(&files[which].0), "{end}: {error} does not name {}", files[which].0);
    }
}

#[test]
fn each_file_of_a_split_model_may_end_early_anywhere() {
    let files = split(3, 7);
    for (which, (_, bytes)) in files.iter().enumerate() {
        // Headers are up to some thousand bytes long; every byte of their beginning, and then in steps.
        let ends = (0..bytes.len().min(400)).chain((400..bytes.len()).step_by(613)).chain([bytes.len() - 1]);
        cut(&files, which, Some(&name(1, 3)), ends, Code::Truncated);
    }
}

#[test]
fn each_file_of_a_folder_may_end_early_anywhere() {
    let files = sharded();
    for which in [0, 1] {
        let end = files[which].1.len();
        cut(&files, which, None, 0..end, Code::InvalidFile);
    }
    for which in [2, 3] {
        let end = files[which].1.len();
        cut(&files, which, None, (0..end).step_by(3).chain([end - 1]), Code::Truncated);
    }
}

/// A sound Llama but for one matrix, whose type no kernel reads.
fn of_type(ty: GgmlType) -> Writer {
    let mut writer = llama();
    let tensor = writer.tensor_mut("blk.0.ffn_down.weight");
    let elements: u64 = tensor.dims.iter().product();
    tensor.ty = ty.id();
    tensor.data = vec![0; (elements / ty.block_size() * ty.block_bytes()) as usize];
    writer
}

/// A fork of llama.cpp has blocks of 128 weights under the number of Q2_0, whose blocks have 64. Its tensors are shorter than ours would be.
#[test]
fn blocks_of_another_size_under_the_number_of_a_type_are_refused() {
    let mut writer = llama();
    let tensor = writer.tensor_mut("blk.0.ffn_down.weight");
    (tensor.dims, tensor.ty) = (vec![256, 64], 42);
    tensor.data = vec![0; 256 * 64 / 128 * 34];
    let error = open(&[("model.gguf".to_owned(), writer.bytes())], None).unwrap_err();
    check_error(&error, Code::InvalidFile, &["blk.0.ffn_down.weight", "overlap"]);
}

#[test]
fn types_without_a_kernel_are_refused_with_the_list_of_those_with_one() {
    let plain = GgmlType::ALL.iter().filter(|ty| ty.block_size() == 1);
    let mut refused = 0;
    for &ty in plain.filter(|ty| FORMATS.iter().all(|format| format.gguf_type != Some(ty.id()))) {
        let folder = MemoryFolder::new([("model.gguf".to_owned(), of_type(ty).bytes())]);
        let said = pollster::block_on(inspect(&folder, None, &LoadOptions::default())).unwrap();
        let problem = said.problem.expect("a type that is not supported");
        assert_eq!(problem.code, Code::UnsupportedTensorType.as_str());
        for word in ["blk.0.ffn_down.weight", ty.name(), "F32", "Q4_K", "IQ4_XS", "MXFP4"] {
            assert!(problem.message.contains(word), "{}: {} does not say {word}", ty.name(), problem.message);
        }
        refused += 1;
    }
    assert!(refused >= 5, "{refused} types");
}

/// Ids that the model has no rows for must not come out of its tokenizer.
#[test]
fn a_tokenizer_of_more_tokens_than_the_model_has_is_refused() {
    let with_tokenizer = |tokens: usize| {
        let vocab: serde_json::Map<_, _> = (0..tokens).map(|id| (format!("t{id}"), id.into())).collect();
        let tokenizer = serde_json::json!({"model": {"type": "WordLevel", "unk_token": "t0", "vocab": vocab}});
        let mut files = files(&config(), &tensors());
        files.push(("tokenizer.json".to_owned(), tokenizer.to_string().into_bytes()));
        let folder = MemoryFolder::new(files);
        pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(())))
    };
    let error = with_tokenizer(6).err().expect("a model of five tokens");
    check_error(&error, Code::InvalidFile, &["6 tokens", "5"]);
    assert!(with_tokenizer(5).is_ok());
}
