//! Headers: what is read out of sound files, and how each kind of unsound file is refused.

use proptest::prelude::*;
use rillm::{
    error::Code,
    model::{
        gguf::{Array, GgmlType, Gguf, Value},
        source::{ByteSource, ChunkStream, LocalFuture, MemorySource},
    },
};

use super::{check_error, read, refused, writer::*};

fn every_value() -> Writer {
    Writer::new()
        .entry("a.u8", U8, [200])
        .entry("a.i8", I8, (-3i8).to_le_bytes())
        .entry("a.u16", U16, 60000u16.to_le_bytes())
        .entry("a.i16", I16, (-300i16).to_le_bytes())
        .u32("a.u32", 4_000_000_000)
        .entry("a.i32", I32, (-70000i32).to_le_bytes())
        .f32("a.f32", 0.5)
        .entry("a.bool", BOOL, [1])
        .str("a.string", "grüße")
        .entry("a.u64", U64, u64::MAX.to_le_bytes())
        .entry("a.i64", I64, i64::MIN.to_le_bytes())
        .entry("a.f64", F64, 0.1f64.to_le_bytes())
        .entry("b.u8", ARRAY, array(U8, &[vec![1], vec![2]]))
        .entry("b.i8", ARRAY, array(I8, &[vec![255]]))
        .entry("b.u16", ARRAY, array(U16, &[vec![1, 2]]))
        .entry("b.i16", ARRAY, array(I16, &[vec![254, 255]]))
        .entry("b.u32", ARRAY, array(U32, &[7u32.to_le_bytes().into(), 8u32.to_le_bytes().into()]))
        .entry("b.i32", ARRAY, array(I32, &[(-7i32).to_le_bytes().into()]))
        .entry("b.f32", ARRAY, array(F32, &[1.5f32.to_le_bytes().into()]))
        .entry("b.bool", ARRAY, array(BOOL, &[vec![0], vec![1]]))
        .entry("b.string", ARRAY, strings(&["", "one", "zwei"]))
        .entry("b.nested", ARRAY, array(ARRAY, &[array(U8, &[vec![9]]), strings(&["x"]), array(ARRAY, &[])]))
        .entry("b.u64", ARRAY, array(U64, &[5u64.to_le_bytes().into()]))
        .entry("b.i64", ARRAY, array(I64, &[(-5i64).to_le_bytes().into()]))
        .entry("b.f64", ARRAY, array(F64, &[2.5f64.to_le_bytes().into()]))
        .entry("b.empty", ARRAY, array(F32, &[]))
}

#[test]
fn all_types_of_values_are_read() {
    for version in [2, 3] {
        let mut writer = every_value();
        writer.version = version;
        let gguf = read(writer.bytes()).unwrap();
        assert_eq!(gguf.version(), version);
        let m = gguf.metadata();
        assert_eq!(m.len(), 26);
        assert_eq!(m.get("a.u8"), Some(&Value::U8(200)));
        assert_eq!(m.get("a.i8"), Some(&Value::I8(-3)));
        assert_eq!(m.get("a.u16"), Some(&Value::U16(60000)));
        assert_eq!(m.get("a.i16"), Some(&Value::I16(-300)));
        assert_eq!(m.get("a.u32"), Some(&Value::U32(4_000_000_000)));
        assert_eq!(m.get("a.i32"), Some(&Value::I32(-70000)));
        assert_eq!(m.get("a.f32"), Some(&Value::F32(0.5)));
        assert_eq!(m.get("a.bool"), Some(&Value::Bool(true)));
        assert_eq!(m.get("a.string"), Some(&Value::String("grüße".into())));
        assert_eq!(m.get("a.u64"), Some(&Value::U64(u64::MAX)));
        assert_eq!(m.get("a.i64"), Some(&Value::I64(i64::MIN)));
        assert_eq!(m.get("a.f64"), Some(&Value::F64(0.1)));
        assert_eq!(m.get("b.u8"), Some(&Value::Array(Array::U8(vec![1, 2]))));
        assert_eq!(m.get("b.i8"), Some(&Value::Array(Array::I8(vec![-1]))));
        assert_eq!(m.get("b.u16"), Some(&Value::Array(Array::U16(vec![513]))));
        assert_eq!(m.get("b.i16"), Some(&Value::Array(Array::I16(vec![-2]))));
        assert_eq!(m.get("b.u32"), Some(&Value::Array(Array::U32(vec![7, 8]))));
        assert_eq!(m.get("b.i32"), Some(&Value::Array(Array::I32(vec![-7]))));
        assert_eq!(m.get("b.f32"), Some(&Value::Array(Array::F32(vec![1.5]))));
        assert_eq!(m.get("b.bool"), Some(&Value::Array(Array::Bool(vec![false, true]))));
        assert_eq!(m.strings("b.string").unwrap(), ["", "one", "zwei"]);
        assert_eq!(m.get("b.u64"), Some(&Value::Array(Array::U64(vec![5]))));
        assert_eq!(m.get("b.i64"), Some(&Value::Array(Array::I64(vec![-5]))));
        assert_eq!(m.get("b.f64"), Some(&Value::Array(Array::F64(vec![2.5]))));
        assert!(m.array("b.empty").unwrap().is_empty());
        let Some(Value::Array(Array::Array(nested))) = m.get("b.nested") else { panic!("not nested") };
        assert_eq!(nested[0], Array::U8(vec![9]));
        assert!(matches!(&nested[1], Array::String(s) if s.get(0) == Some(b"x") && s.len() == 1));
        assert_eq!(nested[2], Array::Array(vec![]));
    }
}

#[test]
fn getters_convert_what_fits_and_refuse_the_rest() {
    let gguf = read(every_value().bytes()).unwrap();
    let m = gguf.metadata();
    for (key, value) in [("a.u8", 200), ("a.u16", 60000), ("a.u32", 4_000_000_000)] {
        assert_eq!(m.u32(key).unwrap(), value);
        assert_eq!(m.u64(key).unwrap(), u64::from(value));
    }
    assert_eq!(m.i64("a.i32").unwrap(), -70000);
    assert_eq!(m.f32("a.f64").unwrap(), 0.1);
    assert!(m.bool("a.bool").unwrap());
    assert_eq!(m.str("a.string").unwrap(), "grüße");
    assert_eq!(m.i32_array("b.u16").unwrap(), [513]);
    assert_eq!(m.u32_array("b.u32").unwrap(), [7, 8]);
    assert_eq!(m.f32_array("b.f32").unwrap(), [1.5]);
    assert_eq!(m.optional_u32("none").unwrap(), None);
    assert_eq!(m.optional_str("none").unwrap(), None);
    assert_eq!(m.optional_strings("none").unwrap(), None);

    let wrong = Code::InvalidMetadata;
    check_error(&m.u32("none").unwrap_err(), wrong, &["none", "32 bits"]);
    check_error(&m.strings("none").unwrap_err(), wrong, &["none", "array of strings"]);
    check_error(&m.u32("a.i8").unwrap_err(), wrong, &["a.i8", "int8", "-3"]);
    check_error(&m.u32("a.u64").unwrap_err(), wrong, &["a.u64", "18446744073709551615"]);
    check_error(&m.optional_u32("a.string").unwrap_err(), wrong, &["a.string", "string of 7 bytes"]);
    check_error(&m.f32("a.u32").unwrap_err(), wrong, &["a.u32", "uint32", "float32"]);
    check_error(&m.bool("a.u8").unwrap_err(), wrong, &["a.u8", "bool"]);
    check_error(&m.str("b.string").unwrap_err(), wrong, &["b.string", "array of string with 3 elements"]);
    check_error(&m.u32_array("b.i32").unwrap_err(), wrong, &["b.i32", "array of int32"]);
    check_error(&m.i32_array("b.f32").unwrap_err(), wrong, &["b.f32", "array of float32"]);
    check_error(&m.strings("b.u8").unwrap_err(), wrong, &["b.u8", "array of uint8"]);
}

#[test]
fn tokens_that_are_not_utf8_are_kept_as_bytes() {
    let tokens = array(STRING, &[string("ok"), string([0xff, 0x41])]);
    let gguf = read(Writer::new().entry("t", ARRAY, tokens).bytes()).unwrap();
    let bytes = gguf.metadata().byte_strings("t").unwrap();
    assert_eq!(bytes.iter().collect::<Vec<_>>(), [&b"ok"[..], &[0xff, 0x41]]);
    assert_eq!(bytes.get(2), None);
    check_error(&gguf.metadata().strings("t").unwrap_err(), Code::InvalidMetadata, &["t", "element 1", "ff, 41"]);
}

#[test]
fn the_table_of_tensors_gives_absolute_ranges() {
    let mut writer = Writer::new()
        .u32("general.alignment", 64)
        .tensor("a", &[3], 0, vec![1; 12])
        .tensor("b", &[32, 2], 8, vec![2; 68])
        .tensor("c", &[256, 2, 3, 1], 12, vec![3; 144 * 6]);
    writer.alignment = 64;
    let (header, file) = writer.parts();
    let gguf = read(file.clone()).unwrap();
    assert_eq!(gguf.alignment(), 64);
    assert_eq!(gguf.header_bytes(), header.len() as u64);
    assert_eq!(gguf.data_offset(), (header.len() as u64).next_multiple_of(64));
    assert_eq!(gguf.tensor_bytes(), 12 + 68 + 864);
    let types: Vec<_> = gguf.tensors().iter().map(|t| (t.name.as_str(), t.ty, t.bytes, t.elements())).collect();
    assert_eq!(types, [("a", GgmlType::F32, 12, 3), ("b", GgmlType::Q8_0, 68, 64), ("c", GgmlType::Q4_K, 864, 1536)]);
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        let tensor = gguf.tensor(name).unwrap();
        let data = &file[tensor.offset as usize..][..tensor.bytes as usize];
        assert!(data.iter().all(|&b| b == byte), "{name}");
        assert!(tensor.offset.is_multiple_of(64));
    }
    assert_eq!(gguf.tensor("b").unwrap().dims, [32, 2]);
    assert!(gguf.tensor("d").is_none());
}

#[test]
fn tensors_may_stand_in_another_order_than_their_data() {
    let mut writer = Writer::new().f32_tensor("a", &[8]).f32_tensor("b", &[8]);
    writer.tensor_mut("a").offset = Some(32);
    writer.tensor_mut("b").offset = Some(0);
    let gguf = read(writer.bytes()).unwrap();
    assert_eq!(gguf.tensor("a").unwrap().offset, gguf.data_offset() + 32);
    assert_eq!(gguf.tensors()[0].name, "a");
}

/// Block sizes against the arithmetic of ggml's structs: scales, minima and packed quants.
#[test]
fn the_table_of_types_is_whole() {
    assert_eq!(GgmlType::ALL.len(), 35);
    for &ty in GgmlType::ALL {
        assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
        assert_eq!(format!("{ty:?}"), ty.name());
    }
    for (id, name, elements, bytes) in [
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 2 + 16),
        (3, "Q4_1", 32, 4 + 16),
        (6, "Q5_0", 32, 2 + 4 + 16),
        (7, "Q5_1", 32, 4 + 4 + 16),
        (8, "Q8_0", 32, 2 + 32),
        (10, "Q2_K", 256, 16 + 64 + 4),
        (11, "Q3_K", 256, 32 + 64 + 12 + 2),
        (12, "Q4_K", 256, 4 + 12 + 128),
        (13, "Q5_K", 256, 4 + 12 + 32 + 128),
        (14, "Q6_K", 256, 128 + 64 + 16 + 2),
        (16, "IQ2_XXS", 256, 2 + 64),
        (17, "IQ2_XS", 256, 2 + 64 + 8),
        (18, "IQ3_XXS", 256, 2 + 64 + 32),
        (19, "IQ1_S", 256, 2 + 32 + 16),
        (20, "IQ4_NL", 32, 2 + 16),
        (21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
        (22, "IQ2_S", 256, 2 + 64 + 8 + 8),
        (29, "IQ1_M", 256, 32 + 16 + 8),
        (23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 2 + 4 + 48),
        (35, "TQ2_0", 256, 2 + 64),
        (39, "MXFP4", 32, 1 + 16),
        (40, "NVFP4", 64, 4 + 32),
        (41, "Q1_0", 128, 2 + 16),
        (42, "Q2_0", 64, 2 + 16),
    ] {
        let ty = GgmlType::from_id(id).unwrap();
        assert_eq!((ty.name(), ty.block_size(), ty.block_bytes()), (name, elements, bytes));
    }
}

#[test]
fn other_files_are_not_gguf() {
    refused(b"<!DOCTYPE html><html>".to_vec(), Code::NotGguf, &["3c, 21, 44, 4f", "web page"]);
    refused(b"version https://git-lfs.github.com/spec/v1".to_vec(), Code::NotGguf, &["git lfs pull"]);
    refused(b"PK\x03\x04 and more of it".to_vec(), Code::NotGguf, &["ZIP"]);
    refused(b"\x40\0\0\0\0\0\0\0{\"a\":{}}".to_vec(), Code::NotGguf, &["safetensors"]);
    refused(b"tjgg\x03\0\0\0".to_vec(), Code::NotGguf, &["before GGUF"]);
    refused(vec![0; 100], Code::NotGguf, &["00, 00, 00, 00", "47, 47, 55, 46"]);
    refused(b"GG?".to_vec(), Code::NotGguf, &["47, 47, 3f"]);
}

#[test]
fn other_versions_and_byte_orders_are_refused() {
    for (version, words) in [(1, ["version 1", "2 or 3"]), (4, ["version 4", "2 or 3"]), (0, ["version 0", "2 or 3"])] {
        let mut writer = every_value();
        writer.version = version;
        refused(writer.bytes(), Code::UnsupportedGgufVersion, &words);
    }
    let mut writer = every_value();
    writer.version = 3u32.swap_bytes();
    refused(writer.bytes(), Code::UnsupportedGgufVersion, &["big-endian"]);
    writer.magic = *b"FUGG";
    refused(writer.bytes(), Code::UnsupportedGgufVersion, &["big-endian"]);
}

#[test]
fn a_cut_off_file_is_truncated_wherever_it_is_cut() {
    refused(vec![], Code::Truncated, &["empty"]);
    let file = every_value().u32("general.alignment", 32).f32_tensor("a", &[8]).f32_tensor("b", &[7]).bytes();
    read(file.clone()).unwrap();
    for length in 0..file.len() {
        let size = if length == 0 { "empty".into() } else { format!("{length} bytes") };
        refused(file[..length].to_vec(), Code::Truncated, &[&size]);
    }
}

#[test]
fn a_header_that_promises_more_than_the_file_is_refused_before_it_is_read() {
    let (_, mut file) = Writer::new().f32_tensor("last.weight", &[8, 1000]).parts();
    let end = file.len();
    file.truncate(end - 1);
    let words = ["last.weight", &format!("{} bytes", end - 1), &format!("byte {end}")];
    refused(file, Code::Truncated, &words);
}

#[test]
fn counts_that_no_file_can_hold_are_refused() {
    let mut writer = every_value();
    writer.n_entries = Some(u64::MAX);
    refused(writer.bytes(), Code::InvalidFile, &["18446744073709551615 metadata entries", "byte 16"]);
    let mut writer = every_value();
    writer.n_tensors = Some(1 << 60);
    refused(writer.bytes(), Code::InvalidFile, &["1152921504606846976 tensors", "byte 8"]);
    let mut writer = every_value();
    writer.n_tensors = Some(10_000);
    refused(writer.bytes(), Code::Truncated, &["10000 tensors", "330000 bytes"]);
    for (ty, bytes) in [(STRING, 8), (U8, 1), (F64, 8), (ARRAY, 12), (BOOL, 1)] {
        let huge = [&ty.to_le_bytes()[..], &(u64::MAX / bytes).to_le_bytes()].concat();
        refused(Writer::new().entry("k", ARRAY, huge).bytes(), Code::InvalidFile, &["\"k\"", "byte 41"]);
        let large = [&ty.to_le_bytes()[..], &1000u64.to_le_bytes()].concat();
        refused(Writer::new().entry("k", ARRAY, large).bytes(), Code::Truncated, &["1000 elements of \"k\""]);
    }
}

#[test]
fn lengths_of_strings_are_checked() {
    let file = Writer::new().entry("k", STRING, u64::MAX.to_le_bytes()).bytes();
    refused(file, Code::InvalidFile, &["k at byte 45", "18446744073709551615 bytes"]);
    let file = Writer::new().entry("k", STRING, 5000u64.to_le_bytes()).bytes();
    refused(file, Code::Truncated, &["k at byte 45", "byte 5045"]);
    let file = Writer::new().entry("", U8, [1]).bytes();
    refused(file, Code::InvalidFile, &["metadata key at byte 24", "0 bytes"]);
    let file = Writer::new().entry(&"k".repeat(65536), U8, [1]).bytes();
    refused(file, Code::InvalidFile, &["metadata key at byte 24", "65536 bytes"]);
    let file = Writer::new().f32_tensor("", &[1]).bytes();
    refused(file, Code::InvalidFile, &["tensor's name at byte 24", "0 bytes"]);
}

#[test]
fn values_that_break_the_format_are_refused() {
    let mut writer = Writer::new().u32("ab", 1);
    writer.entries[0].0 = vec![b'a', 0xff];
    refused(writer.bytes(), Code::InvalidFile, &["metadata key at byte 24", "UTF-8", "0xff"]);
    let file = Writer::new().entry("text", STRING, string([b'x', b'y', 0xc3])).bytes();
    refused(file, Code::InvalidFile, &["text at byte 40", "UTF-8", "byte 2"]);
    refused(Writer::new().entry("flag", BOOL, [2]).bytes(), Code::InvalidFile, &["flag", "is 2", "byte 40"]);
    let flags = array(BOOL, &[vec![1], vec![7]]);
    refused(Writer::new().entry("flags", ARRAY, flags).bytes(), Code::InvalidFile, &["flags", "is 7", "byte 54"]);
    refused(Writer::new().entry("key", 13, [0; 8]).bytes(), Code::InvalidFile, &["key", "type 13", "0 to 12"]);
    let unknown = array(77, &[vec![0]]);
    refused(Writer::new().entry("key", ARRAY, unknown).bytes(), Code::InvalidFile, &["key", "type 77"]);
    refused(Writer::new().u32("twice", 1).u32("twice", 1).bytes(), Code::InvalidFile, &["twice", "byte 45"]);
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| (1..depth).fold(array(U8, &[vec![5]]), |inner, _| array(ARRAY, &[inner]));
    read(Writer::new().entry("deep", ARRAY, nested(8)).bytes()).unwrap();
    refused(Writer::new().entry("deep", ARRAY, nested(9)).bytes(), Code::InvalidFile, &["deep", "8 levels"]);
    refused(Writer::new().entry("deep", ARRAY, nested(100_000)).bytes(), Code::InvalidFile, &["deep", "8 levels"]);
}

#[test]
fn dimensions_are_checked() {
    let tensor = |dims: &[u64], ty| Writer::new().tensor("w", dims, ty, vec![0; 64]).bytes();
    refused(tensor(&[], 0), Code::InvalidFile, &["\"w\"", "0 dimensions", "byte 24"]);
    refused(tensor(&[1, 1, 1, 1, 1], 0), Code::InvalidFile, &["\"w\"", "5 dimensions"]);
    refused(tensor(&[4, 0], 0), Code::InvalidFile, &["\"w\"", "[4, 0]"]);
    refused(tensor(&[1 << 40, 1 << 40], 0), Code::InvalidFile, &["\"w\"", "1099511627776"]);
    refused(tensor(&[1 << 62], 28), Code::InvalidFile, &["\"w\"", "4611686018427387904"]);
    refused(tensor(&[31, 32], 8), Code::InvalidFile, &["\"w\"", "Q8_0", "31", "32"]);
    refused(tensor(&[128, 2], 12), Code::InvalidFile, &["\"w\"", "Q4_K", "128", "256"]);
}

#[test]
fn unknown_types_of_tensors_are_refused_by_name_and_id() {
    let tensor = |ty| Writer::new().tensor("blk.0.w", &[32], ty, vec![0; 64]).bytes();
    refused(tensor(99), Code::UnsupportedTensorType, &["blk.0.w", "99", "Q4_K", "MXFP4"]);
    refused(tensor(4), Code::UnsupportedTensorType, &["blk.0.w", "id 4", "Q4_2", "removed"]);
    refused(tensor(31), Code::UnsupportedTensorType, &["blk.0.w", "31", "Q4_0_4_4", "Q4_0"]);
    refused(tensor(u32::MAX), Code::UnsupportedTensorType, &["4294967295"]);
}

#[test]
fn places_of_tensors_are_checked() {
    let with_offset = |offset| {
        let mut writer = Writer::new().f32_tensor("first", &[16]).f32_tensor("second", &[16]);
        writer.tensor_mut("second").offset = Some(offset);
        writer.bytes()
    };
    read(with_offset(64)).unwrap();
    refused(with_offset(65), Code::InvalidFile, &["second", "65", "alignment 32"]);
    refused(with_offset(32), Code::InvalidFile, &["first", "second", "overlap"]);
    refused(with_offset(0), Code::InvalidFile, &["first", "second", "overlap"]);
    refused(with_offset(96), Code::Truncated, &["second"]);
    refused(with_offset(1 << 50), Code::Truncated, &["second"]);
    refused(with_offset(u64::MAX - 31), Code::InvalidFile, &["second", "overflows"]);
    let twice = Writer::new().f32_tensor("same", &[8]).f32_tensor("same", &[8]);
    refused(twice.bytes(), Code::InvalidFile, &["same", "twice"]);
}

#[test]
fn alignment_and_splits_are_checked() {
    for alignment in [0, 3, 12, 1 << 31] {
        let file = Writer::new().u32("general.alignment", alignment).bytes();
        refused(file, Code::InvalidFile, &["general.alignment", &alignment.to_string()]);
    }
    for alignment in [1, 8, 24, 4096] {
        let mut writer = Writer::new().u32("general.alignment", alignment).f32_tensor("a", &[5]).f32_tensor("b", &[5]);
        writer.alignment = alignment.into();
        assert_eq!(read(writer.bytes()).unwrap().alignment(), u64::from(alignment));
    }
    refused(
        Writer::new().str("general.alignment", "32").bytes(),
        Code::InvalidMetadata,
        &["general.alignment", "string"],
    );
    let split = Writer::new().entry("split.count", U16, 3u16.to_le_bytes()).bytes();
    let split = read(split).unwrap().split().unwrap();
    assert_eq!((split.number, split.count, split.tensors), (0, 3, None));
    let beyond = Writer::new().entry("split.count", U16, 3u16.to_le_bytes()).entry("split.no", U16, 3u16.to_le_bytes());
    refused(beyond.bytes(), Code::InvalidFile, &["number 3 of 3"]);
    refused(Writer::new().u32("split.count", 4_000_000_000).bytes(), Code::InvalidFile, &["split.count"]);
    read(Writer::new().entry("split.count", U16, 1u16.to_le_bytes()).bytes()).unwrap();
}

/// Counts what is asked of it, and gives no more than was asked.
struct Counting(MemorySource, std::cell::RefCell<Vec<(u64, usize)>>);

impl ByteSource for Counting {
    fn name(&self) -> String {
        self.0.name()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read<'a>(&'a self, offset: u64, length: usize) -> LocalFuture<'a, rillm::error::Result<Vec<u8>>> {
        self.1.borrow_mut().push((offset, length));
        self.0.read(offset, length)
    }
    fn stream<'a>(
        &'a self,
        offset: u64,
        length: u64,
    ) -> LocalFuture<'a, rillm::error::Result<Box<dyn ChunkStream + 'a>>> {
        self.0.stream(offset, length)
    }
}

#[test]
fn a_long_header_is_read_in_growing_ranges_and_the_data_is_not_read() {
    let tokens: Vec<String> = (0..150_000).map(|i| format!("token {i}")).collect();
    let scores: Vec<Vec<u8>> = (0..150_000).map(|i| (i as f32).to_le_bytes().to_vec()).collect();
    let writer = Writer::new()
        .entry("tokens", ARRAY, array(STRING, &tokens.iter().map(string).collect::<Vec<_>>()))
        .entry("scores", ARRAY, array(F32, &scores))
        .f32_tensor("w", &[1 << 20, 4]);
    let (header, file) = writer.parts();
    let source = Counting(MemorySource::new(file), Default::default());
    let gguf = pollster::block_on(Gguf::read(&source)).unwrap();
    assert_eq!(gguf.header_bytes(), header.len() as u64);
    assert_eq!(gguf.metadata().strings("tokens").unwrap(), tokens);
    assert_eq!(gguf.metadata().f32_array("scores").unwrap()[149_999], 149_999.0);
    let reads = source.1.into_inner();
    assert_eq!(reads[0], (0, 256 << 10));
    for pair in reads.windows(2) {
        assert_eq!(pair[0].0 + pair[0].1 as u64, pair[1].0, "each read goes on where the last one ended");
    }
    assert!(reads.len() <= 6, "{reads:?}");
    assert!(reads.iter().map(|read| read.1).sum::<usize>() < 3 * header.len(), "{reads:?}");
}

/// Wherever the boundary of the first read falls, the header is the same.
#[test]
fn items_may_straddle_any_boundary_of_reads() {
    const FIRST_READ: usize = 256 << 10;
    let padded = |padding: usize| {
        let mut writer = Writer::new().str("padding", &" ".repeat(padding));
        let rest = every_value().f32_tensor("a", &[8]).tensor("b", &[32, 3], 2, vec![7; 54]);
        writer.entries.extend(rest.entries);
        writer.tensors.extend(rest.tensors);
        writer
    };
    let expected = read(padded(1).bytes()).unwrap();
    let rest = padded(0).parts().0.len();
    for after_boundary in (1..rest).step_by(3) {
        let gguf = read(padded(FIRST_READ - after_boundary).bytes()).unwrap();
        assert_eq!(gguf.metadata().len(), expected.metadata().len());
        assert!(gguf.metadata().iter().zip(expected.metadata().iter()).all(|(a, b)| a.0 == "padding" || a == b));
        assert_eq!(gguf.tensor("b").unwrap().bytes, 54);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a file, the reader gives a header or a typed error, and a header it gives is sound.
    #[test]
    fn damaged_files_never_panic(
        length in 0.0f64..=1.2,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        wide in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..2),
    ) {
        let mut bytes = every_value().u32("general.alignment", 32).f32_tensor("a", &[8]).f32_tensor("b", &[7]).bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for (at, number) in wide {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let length = (bytes.len() as f64 * length) as usize;
        bytes.resize(length, 0);
        let size = bytes.len() as u64;
        match read(bytes) {
            Ok(gguf) => {
                for tensor in gguf.tensors() {
                    prop_assert!(tensor.offset + tensor.bytes <= size);
                }
            }
            Err(error) => prop_assert!(matches!(
                error.code(),
                Code::NotGguf
                    | Code::UnsupportedGgufVersion
                    | Code::Truncated
                    | Code::InvalidFile
                    | Code::InvalidMetadata
                    | Code::UnsupportedTensorType
            ), "{error}"),
        }
    }
}
