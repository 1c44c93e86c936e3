//! Headers of safetensors files: what is read out of sound ones, and how each kind of unsound one is refused.

use proptest::prelude::*;
use rillm::error::{Code, Error};
use rillm::model::safetensors::index::Index;
use rillm::model::safetensors::{Dtype, Safetensors};
use rillm::model::source::MemorySource;

use super::check_error;
use super::writer::{f32, safetensors, tensors, with_header};

fn read(bytes: Vec<u8>) -> Result<Safetensors, Error> {
    pollster::block_on(Safetensors::read(&MemorySource::new(bytes).with_name("test.safetensors")))
}

#[track_caller]
fn refused(bytes: Vec<u8>, code: Code, words: &[&str]) {
    let error = read(bytes).expect_err("this file must be refused");
    check_error(&error, code, words);
    check_error(&error, code, &["test.safetensors"]);
}

/// A file of one entry, whose JSON is given, over 64 bytes of data.
fn entry(json: &str) -> Vec<u8> {
    with_header(&format!("{{\"w\":{json}}}"), &[0; 64])
}

#[test]
fn names_types_shapes_and_ranges_are_read() {
    let mut some = vec![f32("a", &[3, 2]), f32("b.weight", &[2])];
    some.push(("c".to_owned(), "BF16", vec![1, 2, 3], vec![0; 12]));
    some.push(("scalar".to_owned(), "I64", vec![], vec![0; 8]));
    some.push(("empty".to_owned(), "F16", vec![0, 4], vec![]));
    let bytes = safetensors(&some);
    let size = bytes.len() as u64;
    let header = read(bytes).unwrap();
    assert_eq!(header.tensors().len(), 5);
    for (name, dtype, shape, data) in &some {
        let tensor = header.tensors().iter().find(|tensor| tensor.name == *name).unwrap();
        assert_eq!((tensor.dtype.name(), &tensor.shape, tensor.bytes), (*dtype, shape, data.len() as u64));
    }
    assert_eq!(header.tensors()[0].offset, header.data_offset());
    assert_eq!(header.tensors().iter().map(|tensor| tensor.offset + tensor.bytes).max(), Some(size));
    // Padding with spaces keeps the data aligned.
    let padded = with_header("{\"w\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,64]}}      ", &[0; 64]);
    assert_eq!(read(padded).unwrap().tensors()[0].bytes, 64);
    assert!(read(with_header("{}", &[])).unwrap().tensors().is_empty());
    for dtype in Dtype::ALL {
        assert_eq!(Dtype::by_name(dtype.name()), Some(*dtype));
    }
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let bytes = safetensors(&tensors());
    for length in 0..bytes.len() {
        refused(bytes[..length].to_vec(), Code::Truncated, &[]);
    }
    let mut longer = bytes;
    longer.push(0);
    refused(longer, Code::InvalidFile, &["wanted equal"]);
}

#[test]
fn other_files_are_told_apart() {
    refused(b"GGUF\x03\0\0\0\0\0\0\0".to_vec(), Code::InvalidFile, &["GGUF file"]);
    refused(b"<!DOCTYPE html><html></html>".to_vec(), Code::InvalidFile, &["web page"]);
    refused(b"version https://git-lfs.github.com/spec/v1\noid".to_vec(), Code::InvalidFile, &["git lfs pull"]);
    refused(b"PK\x03\x04 and so on and on".to_vec(), Code::InvalidFile, &["PyTorch"]);
    refused(vec![255; 40], Code::InvalidFile, &["ff", "100000000"]);
    for length in [0u64, 1, 100_000_001, u64::MAX - 7, u64::MAX] {
        let bytes = [&length.to_le_bytes()[..], b"{\"a\":1}"].concat();
        refused(bytes, Code::InvalidFile, &[]);
    }
}

#[test]
fn headers_that_are_wrong_are_refused() {
    let float = |shape: &str, offsets: &str| {
        entry(&format!("{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}"))
    };
    assert!(read(float("[16]", "[0,64]")).is_ok());
    refused(float("[16]", "[0,60]"), Code::InvalidFile, &["\"w\"", "[16]", "60"]);
    refused(float("[15]", "[0,64]"), Code::InvalidFile, &["[15]"]);
    refused(float("[16]", "[64,0]"), Code::InvalidFile, &["64 to 0"]);
    refused(float("[16]", "[4,68]"), Code::Truncated, &["68"]);
    refused(float("[8]", "[0,32]"), Code::InvalidFile, &["wanted equal"]);
    refused(float("[8]", "[32,64]"), Code::InvalidFile, &["no gaps"]);
    refused(float("[16]", "[18446744073709551552,18446744073709551615]"), Code::InvalidFile, &["\"w\""]);
    refused(float("[4294967296,4294967296]", "[0,64]"), Code::InvalidFile, &["4294967296"]);
    refused(float("[9223372036854775808,2]", "[0,0]"), Code::InvalidFile, &["\"w\""]);
    refused(float("[-1]", "[0,64]"), Code::InvalidFile, &["-1"]);
    refused(float("[1.5]", "[0,64]"), Code::InvalidFile, &["1.5"]);
    refused(float("[1,1,1,1,1,1,1,1,16]", "[0,64]"), Code::InvalidFile, &["9 dimensions"]);
    refused(float("[16]", "[0,64,128]"), Code::InvalidFile, &[]);
    refused(
        entry("{\"dtype\":\"Q8\",\"shape\":[1],\"data_offsets\":[0,64]}"),
        Code::UnsupportedTensorType,
        &["Q8", "BF16"],
    );
    refused(entry("{\"shape\":[1],\"data_offsets\":[0,64]}"), Code::InvalidFile, &["dtype"]);
    refused(entry("7"), Code::InvalidFile, &[]);
    refused(with_header("[1,2]", &[]), Code::InvalidFile, &[]);
    refused(with_header("{\"w\":", &[]), Code::InvalidFile, &[]);
    refused(with_header(&format!("{{\"w\":{}", "[".repeat(100_000)), &[]), Code::InvalidFile, &[]);
    let one = "{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]}";
    let other = "{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,64]}";
    refused(with_header(&format!("{{\"w\":{one},\"w\":{other}}}"), &[0; 64]), Code::InvalidFile, &["\"w\"", "twice"]);
    refused(with_header(&format!("{{\"v\":{one},\"w\":{one}}}"), &[0; 64]), Code::InvalidFile, &["overlap"]);
    refused(with_header(&format!("{{\"\":{one},\"w\":{other}}}"), &[0; 64]), Code::InvalidFile, &["0 bytes"]);
}

#[test]
fn an_index_names_files_of_its_folder() {
    let parse = |text: &str| Index::parse(text.as_bytes());
    let sound = parse("{\"metadata\":{},\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}").unwrap();
    assert_eq!(sound.files().into_iter().collect::<Vec<_>>(), ["x.safetensors", "y.safetensors"]);
    for path in [
        "../x.safetensors",
        "/x.safetensors",
        "a/../../x.safetensors",
        "C:\\\\x.safetensors",
        "http://x/y.safetensors",
        "",
        ".",
    ] {
        let index = format!("{{\"weight_map\":{{\"a\":\"{path}\"}}}}");
        check_error(&parse(&index).unwrap_err(), Code::InvalidFile, &["relative path"]);
    }
    check_error(&parse("{\"weight_map\":{\"a\":\"x.bin\"}}").unwrap_err(), Code::InvalidFile, &["x.bin"]);
    check_error(&parse("{\"weight_map\":{}}").unwrap_err(), Code::InvalidFile, &["0 files"]);
    for text in ["", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{\"a\":1}}", "<html>"] {
        check_error(&parse(text).unwrap_err(), Code::InvalidFile, &["index"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is changed, reading ends in a header or an error, and a header lies in its file.
    #[test]
    fn damaged_files_never_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>(), cuts in any::<bool>()) {
        let mut bytes = safetensors(&tensors());
        for (at, value) in changes {
            let at = at.index(bytes.len().min(3000));
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        let size = bytes.len() as u64;
        if let Ok(header) = read(bytes) {
            for tensor in header.tensors() {
                prop_assert!(tensor.offset + tensor.bytes <= size);
            }
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), header in ".{0,200}") {
        let _ = read(bytes);
        let _ = read(with_header(&header, &[0; 8]));
        let _ = Index::parse(header.as_bytes());
    }
}
