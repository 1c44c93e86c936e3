//! The native byte sources: chunks of any length, and ranges beyond the end.

use rillm::{
    error::{Code, Result},
    model::source::{ByteSource, FileSource, MemorySource},
};

use super::check_error;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 % 251) as u8).collect()
}

/// The chunks of a stream, each checked to be not empty.
fn chunks(source: &dyn ByteSource, offset: u64, length: u64) -> Result<Vec<Vec<u8>>> {
    pollster::block_on(async {
        let mut stream = source.stream(offset, length).await?;
        let mut chunks = Vec::new();
        while let Some(chunk) = stream.next().await? {
            let mut bytes = vec![0; chunk.len()];
            chunk.copy_to(0, &mut bytes);
            assert!(!bytes.is_empty());
            chunks.push(bytes);
        }
        assert!(stream.next().await?.is_none(), "a stream stays at its end");
        Ok(chunks)
    })
}

fn check(source: &dyn ByteSource, expected: &[u8], chunk_bytes: usize) {
    let size = expected.len();
    assert_eq!(source.size(), size as u64);
    for (offset, length) in
        [(0, size), (0, 0), (size, 0), (1, size - 1), (3, 1), (size - 1, 1), (5, 2 * chunk_bytes + 1)]
    {
        if offset + length > size {
            continue;
        }
        let want = &expected[offset..][..length];
        assert_eq!(pollster::block_on(source.read(offset as u64, length)).unwrap(), want);
        let got = chunks(source, offset as u64, length as u64).unwrap();
        assert_eq!(got.concat(), want);
        assert_eq!(got.len(), length.div_ceil(chunk_bytes));
    }
    let size = size as u64;
    for (offset, length) in [(0, size + 1), (size, 1), (size + 1, 0), (u64::MAX, 2)] {
        let words = [source.name(), size.to_string(), offset.to_string(), length.to_string()];
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        check_error(&chunks(source, offset, length).unwrap_err(), Code::Truncated, &words);
        let error = pollster::block_on(source.read(offset, length as usize)).unwrap_err();
        check_error(&error, Code::Truncated, &words);
    }
}

#[test]
fn memory_gives_ranges_and_chunks_of_odd_lengths() {
    let expected = bytes(2500);
    for chunk_bytes in [1, 3, 1000, 4096] {
        let source = MemorySource::new(expected.clone()).with_name("memory.gguf").with_chunk_bytes(chunk_bytes);
        assert_eq!(source.name(), "memory.gguf");
        check(&source, &expected, chunk_bytes);
    }
}

#[test]
fn files_give_ranges_and_chunks_of_odd_lengths() {
    let expected = bytes(2500);
    let path = std::env::temp_dir().join(format!("rillm-source-{}.gguf", std::process::id()));
    std::fs::write(&path, &expected).unwrap();
    for chunk_bytes in [1, 3, 1000, 4096] {
        check(&FileSource::open(&path).unwrap().with_chunk_bytes(chunk_bytes), &expected, chunk_bytes);
    }
    // A file that shrinks while it is read is an error and no short stream.
    let source = FileSource::open(&path).unwrap().with_chunk_bytes(1000);
    std::fs::write(&path, &expected[..1500]).unwrap();
    check_error(&chunks(&source, 0, 2500).unwrap_err(), Code::Truncated, &["2500 bytes", "offset 2000"]);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn files_that_are_not_there_are_refused() {
    let error = FileSource::open("/no/such/model.gguf").err().unwrap();
    check_error(&error, Code::Read, &["/no/such/model.gguf"]);
    let error = FileSource::open(std::env::temp_dir()).err().unwrap();
    check_error(&error, Code::Read, &["folder"]);
}
