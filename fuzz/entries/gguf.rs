//! GGUF headers, and the configuration that is read off them. A header that is read lies in its file.

use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::OneFile;
use rillm::model::gguf::Gguf;
use rillm::model::source::MemorySource;

pub fn run(bytes: &[u8]) {
    let source = MemorySource::new(bytes.to_vec()).with_name("model.gguf");
    if let Ok(gguf) = pollster::block_on(Gguf::read(&source)) {
        for tensor in gguf.tensors() {
            assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
            assert!(tensor.elements() > 0);
        }
    }
    if let Ok(checkpoint) = pollster::block_on(Checkpoint::open(&OneFile(&source), None)) {
        let _ = Config::of(&checkpoint);
    }
}
