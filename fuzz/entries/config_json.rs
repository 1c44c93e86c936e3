//! `config.json` beside the tensors of a small Llama: its translation and the configuration that comes of it. Where it says that the weights are
//! quantised, the matrices are as that library packs them.

use rillm::model::checkpoint::Checkpoint;
use rillm::model::config::Config;
use rillm::model::folder::MemoryFolder;

/// A tensor beside or of a quantised matrix: the end of its name, its type, and its shape for a matrix [64, 64].
type Part = (&'static str, &'static str, &'static [usize]);

const PLAIN: &[Part] = &[(".weight", "F32", &[64, 64])];
/// Tensors by a word of the configuration; the last is MLX'.
const PACKED: &[(&str, &[Part])] = &[
    ("\"gptq\"", &[(".qweight", "I32", &[8, 64]), (".qzeros", "I32", &[2, 8]), (".scales", "F16", &[2, 64]), (".g_idx", "I32", &[64])]),
    ("\"awq\"", &[(".qweight", "I32", &[64, 8]), (".qzeros", "I32", &[2, 8]), (".scales", "F16", &[2, 64])]),
    (
        "\"bitsandbytes\"",
        &[
            (".weight", "U8", &[2048, 1]),
            (".weight.absmax", "U8", &[64]),
            (".weight.quant_map", "F32", &[16]),
            (".weight.nested_absmax", "F32", &[1]),
            (".weight.nested_quant_map", "F32", &[256]),
            (".weight.quant_state.bitsandbytes__nf4", "U8", &[40]),
        ],
    ),
    (
        "\"compressed-tensors\"",
        &[(".weight_packed", "I32", &[64, 8]), (".weight_scale", "BF16", &[64, 2]), (".weight_zero_point", "I32", &[8, 2])],
    ),
    ("\"fp8\"", &[(".weight", "F8_E4M3", &[64, 64]), (".weight_scale_inv", "F32", &[1, 1])]),
    ("\"quantization\"", &[(".weight", "U32", &[64, 8]), (".scales", "F16", &[64, 1]), (".biases", "F16", &[64, 1])]),
];

fn bytes_of(dtype: &str) -> usize {
    match dtype {
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" => 2,
        _ => 1,
    }
}

/// A file of zeros in the shapes of `corpus/config_json/llama`, or in larger ones for quantised matrices.
fn weights(config: &[u8]) -> Vec<u8> {
    let config = String::from_utf8_lossy(config);
    let packed = PACKED.iter().find(|(word, _)| config.contains(word)).map(|(_, parts)| *parts);
    let mut tensors: Vec<(String, &str, Vec<usize>)> = Vec::new();
    let width = if packed.is_some() { 64 } else { 8 };
    let mut plain = |name: &str, shape: &[usize]| tensors.push((format!("{name}.weight"), "F32", shape.to_vec()));
    plain("model.embed_tokens", &[5, width]);
    plain("model.norm", &[width]);
    plain("model.layers.0.input_layernorm", &[width]);
    plain("model.layers.0.post_attention_layernorm", &[width]);
    for (name, shape) in [
        ("self_attn.q_proj", [8, 8]),
        ("self_attn.k_proj", [4, 8]),
        ("self_attn.v_proj", [4, 8]),
        ("self_attn.o_proj", [8, 8]),
        ("mlp.gate_proj", [12, 8]),
        ("mlp.up_proj", [12, 8]),
        ("mlp.down_proj", [8, 12]),
    ] {
        for (end, dtype, of_packed) in packed.unwrap_or(PLAIN) {
            let shape = if packed.is_some() { of_packed.to_vec() } else { shape.to_vec() };
            tensors.push((format!("model.layers.0.{name}{end}"), *dtype, shape));
        }
    }
    let (mut header, mut end) = (Vec::new(), 0);
    for (name, dtype, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * bytes_of(dtype);
        header.push(format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"));
    }
    let header = format!("{{{}}}", header.join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; end]].concat()
}

pub fn run(bytes: &[u8]) {
    let folder = MemoryFolder::new([
        ("config.json".to_owned(), bytes.to_vec()),
        ("model.safetensors".to_owned(), weights(bytes)),
    ]);
    if let Ok(checkpoint) = pollster::block_on(Checkpoint::open(&folder, None)) {
        let _ = Config::of(&checkpoint);
    }
}
