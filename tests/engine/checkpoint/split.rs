//! GGUF models in several files: a golden model is cut up here as llama-gguf-split does it, and gives the same logits.

use crate::gguf::writer::{self as gguf_writer, Tensor, U16, Writer};
use rillm::engine::{Engine, LoadOptions, Precision};
use rillm::error::{Code, Error};
use rillm::model::checkpoint::Checkpoint;
use rillm::model::folder::{Folder, MemoryFolder, OneFile};
use rillm::model::gguf::{Array, Gguf, Value};
use rillm::model::source::{ByteSource, MemorySource};

use super::check_error;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tiny_llama/untied-q8_0.gguf");

pub fn name(number: usize, count: usize) -> String {
    format!("tiny-{number:05}-of-{count:05}.gguf")
}

fn with_value(writer: Writer, key: &str, value: &Value) -> Writer {
    match value {
        Value::U32(value) => writer.u32(key, *value),
        Value::F32(value) => writer.f32(key, *value),
        Value::String(value) => writer.str(key, value),
        Value::Bool(value) => writer.entry(key, gguf_writer::BOOL, [u8::from(*value)]),
        Value::Array(Array::String(values)) => {
            let values: Vec<Vec<u8>> = values.iter().map(gguf_writer::string).collect();
            writer.entry(key, gguf_writer::ARRAY, gguf_writer::array(gguf_writer::STRING, &values))
        }
        Value::Array(Array::I32(values)) => {
            let values: Vec<Vec<u8>> = values.iter().map(|value| value.to_le_bytes().to_vec()).collect();
            writer.entry(key, gguf_writer::ARRAY, gguf_writer::array(gguf_writer::I32, &values))
        }
        other => panic!("{key} is {other:?}"),
    }
}

/// The golden model in `count` files, each of another alignment; the first holds `in_first` tensors, the others the rest.
pub fn split(count: usize, in_first: usize) -> Vec<(String, Vec<u8>)> {
    let source = MemorySource::new(std::fs::read(MODEL).unwrap());
    let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
    let per_file = (gguf.tensors().len() - in_first).div_ceil(count - 1);
    (0..count)
        .map(|number| {
            let alignment = [32u32, 8, 64, 4096][number % 4];
            let mut writer = Writer::new()
                .entry("split.no", U16, (number as u16).to_le_bytes())
                .entry("split.count", U16, (count as u16).to_le_bytes())
                .entry("split.tensors.count", gguf_writer::I32, (gguf.tensors().len() as i32).to_le_bytes())
                .u32("general.alignment", alignment);
            writer.alignment = alignment.into();
            if number == 0 {
                for (key, value) in gguf.metadata().iter().filter(|(key, _)| *key != "general.alignment") {
                    writer = with_value(writer, key, value);
                }
            }
            let range = match number {
                0 => 0..in_first,
                _ => in_first + (number - 1) * per_file..(in_first + number * per_file).min(gguf.tensors().len()),
            };
            for tensor in &gguf.tensors()[range] {
                let data = pollster::block_on(source.read(tensor.offset, tensor.bytes as usize)).unwrap();
                writer.tensors.push(Tensor {
                    name: tensor.name.clone().into_bytes(),
                    dims: tensor.dims.clone(),
                    ty: tensor.ty.id(),
                    data,
                    offset: None,
                });
            }
            (name(number + 1, count), writer.bytes())
        })
        .collect()
}

fn logits(folder: &dyn Folder, file: Option<&str>) -> Result<Vec<f32>, Error> {
    pollster::block_on(async {
        let options = LoadOptions { precision: Some(Precision::Exact), ..Default::default() };
        let mut last = (0, 0);
        let engine = Engine::load_from(folder, file, &options, &mut |progress| {
            assert!(progress.loaded >= last.0);
            last = (progress.loaded, progress.total);
            Ok(())
        })
        .await?;
        assert!(last.0 == last.1 && last.1 > 0);
        engine.forward(&[1, 5, 9, 200, 3]).await?.readback().await
    })
}

#[test]
fn a_split_model_is_the_whole_model() {
    let whole = MemorySource::new(std::fs::read(MODEL).unwrap());
    let wanted = logits(&OneFile(&whole), None).unwrap();
    for (count, in_first) in [(2, 7), (3, 0), (5, 1)] {
        let folder = MemoryFolder::new(split(count, in_first));
        assert_eq!(logits(&folder, None).unwrap(), wanted, "{count} files");
        // Any of the files stands for all.
        assert_eq!(logits(&folder, Some(&name(count, count))).unwrap(), wanted, "{count} files, by the last one");
    }
}

#[test]
fn splits_that_do_not_belong_together_are_refused() {
    let open = |files: Vec<(String, Vec<u8>)>, file: &str| {
        let folder = MemoryFolder::new(files);
        pollster::block_on(Checkpoint::open(&folder, Some(file))).err().expect("this model must be refused")
    };
    let first = name(1, 3);
    let mut missing = split(3, 2);
    missing.pop();
    check_error(&open(missing, &first), Code::InvalidFile, &["tiny-00003-of-00003.gguf", "3 files", "folder"]);
    let mut renamed = split(3, 2);
    renamed[0].0 = "model.gguf".to_owned();
    check_error(&open(renamed, "model.gguf"), Code::InvalidFile, &["file 1 of 3", "-00001-of-00003.gguf"]);
    let mut twice = split(3, 2);
    twice[2].1 = twice[1].1.clone();
    check_error(&open(twice, &first), Code::InvalidFile, &["different models"]);
    let mut other = split(3, 2);
    other[2].1 = std::fs::read(MODEL).unwrap();
    check_error(&open(other, &first), Code::InvalidFile, &["different models"]);
    // The same tensors in two files, or too few of them.
    let mut shifted = split(3, 2);
    shifted[0].1 = split(3, 5)[0].1.clone();
    check_error(&open(shifted, &first), Code::InvalidFile, &["two files"]);
    let mut fewer = split(3, 5);
    fewer[0].1 = split(3, 2)[0].1.clone();
    check_error(&open(fewer, &first), Code::MissingTensor, &["split.tensors.count"]);
    let mut damaged = split(3, 2);
    damaged[1].1.truncate(300);
    check_error(&open(damaged, &first), Code::Truncated, &["tiny-00002-of-00003.gguf"]);
    // One file alone.
    let alone = MemorySource::new(split(3, 2)[0].1.clone()).with_name(first);
    let error = pollster::block_on(Checkpoint::open(&OneFile(&alone), None)).err().unwrap();
    check_error(&error, Code::InvalidFile, &["tiny-00002-of-00003.gguf", "not there"]);
}
