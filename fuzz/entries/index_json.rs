//! Indices of models in several safetensors files. A file that an index names lies in the model's folder.

use rillm::model::safetensors::index::Index;

pub fn run(bytes: &[u8]) {
    if let Ok(index) = Index::parse(bytes) {
        for file in index.files() {
            assert!(!file.starts_with('/') && !file.split('/').any(|part| part == ".."));
        }
    }
}
