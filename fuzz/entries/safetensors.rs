//! Headers of safetensors files. A header that is read lies in its file.

use rillm::model::safetensors::Safetensors;
use rillm::model::source::MemorySource;

pub fn run(bytes: &[u8]) {
    let source = MemorySource::new(bytes.to_vec()).with_name("model.safetensors");
    if let Ok(header) = pollster::block_on(Safetensors::read(&source)) {
        for tensor in header.tensors() {
            assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
        }
    }
}
