//! Headers of safetensors files. A header that is read lies in its file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rillm::model::safetensors::Safetensors;
use rillm::model::source::MemorySource;

fuzz_target!(|bytes: &[u8]| {
    let source = MemorySource::new(bytes.to_vec()).with_name("model.safetensors");
    if let Ok(header) = pollster::block_on(Safetensors::read(&source)) {
        for tensor in header.tensors() {
            assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
        }
    }
});
