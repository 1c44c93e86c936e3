//! `config.json` beside the tensors of a small Llama: its translation and the configuration that comes of it.

use std::sync::OnceLock;

use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;

/// A file of zeros in the shapes of `corpus/config_json/llama`.
fn weights() -> &'static [u8] {
    static WEIGHTS: OnceLock<Vec<u8>> = OnceLock::new();
    WEIGHTS.get_or_init(|| {
        let mut tensors = vec![("model.embed_tokens".to_owned(), vec![5, 8]), ("model.norm".to_owned(), vec![8])];
        for (name, shape) in [
            ("input_layernorm", &[8][..]),
            ("self_attn.q_proj", &[8, 8]),
            ("self_attn.k_proj", &[4, 8]),
            ("self_attn.v_proj", &[4, 8]),
            ("self_attn.o_proj", &[8, 8]),
            ("post_attention_layernorm", &[8]),
            ("mlp.gate_proj", &[12, 8]),
            ("mlp.up_proj", &[12, 8]),
            ("mlp.down_proj", &[8, 12]),
        ] {
            tensors.push((format!("model.layers.0.{name}"), shape.to_vec()));
        }
        let (mut header, mut end) = (Vec::new(), 0);
        for (name, shape) in tensors {
            let start = end;
            end += shape.iter().product::<usize>() * 4;
            header.push(format!("\"{name}.weight\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"));
        }
        let header = format!("{{{}}}", header.join(","));
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; end]].concat()
    })
}

pub fn run(bytes: &[u8]) {
    let folder = MemoryFolder::new([
        ("config.json".to_owned(), bytes.to_vec()),
        ("model.safetensors".to_owned(), weights().to_vec()),
    ]);
    if let Ok(checkpoint) = pollster::block_on(Checkpoint::open(&folder, None)) {
        let _ = Config::of(&checkpoint);
    }
}
