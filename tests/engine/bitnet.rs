//! BitNet's folders: what of packed ternary weights is read, and what is refused. Logits and answers are in `architectures.rs`.

use std::path::Path;

use rillm::Code;
use rillm::engine::{Engine, LoadOptions};
use rillm::model::folder::MemoryFolder;
use serde_json::{Map, Value as Json, json};

use crate::latents::configured;
use crate::support::errors::check_error;

/// BitNet's weights are read as transformers packs them, and in no other form.
#[test]
fn other_packings_of_ternary_weights_are_refused() {
    let how = |key: &str, value: Json| {
        let mut how =
            json!({"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"});
        how.as_object_mut().unwrap().insert(key.to_owned(), value);
        json!({"quantization_config": how})
    };
    assert!(configured("bitnet_packed", how("modules_to_not_convert", Json::Null)).unwrap().rounds_activations);
    assert!(!configured("bitnet", json!({})).unwrap().rounds_activations);
    for (key, value) in [
        ("linear_class", json!("bitlinear")),
        ("quantization_mode", json!("online")),
        ("use_rms_norm", json!(true)),
        ("modules_to_not_convert", json!(["model.layers.0.mlp.up_proj"])),
    ] {
        let error = configured("bitnet_packed", how(key, value)).unwrap_err();
        check_error(&error, Code::UnsupportedTensorType, &[key]);
    }
    // Packed weights that nothing says to be so.
    let error = configured("bitnet_packed", json!({"quantization_config": null})).unwrap_err();
    check_error(&error, Code::UnsupportedTensorType, &["U8"]);
    let error = configured("bitnet", json!({"hidden_act": "silu"})).unwrap_err();
    check_error(&error, Code::UnsupportedArchitecture, &["hidden_activation", "silu"]);
}

/// What loading the packed model gives with this header and these data.
fn damaged(change: impl FnOnce(&mut Map<String, Json>, &mut [u8])) -> rillm::Error {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/architectures/bitnet_packed");
    let read = |file: &str| std::fs::read(folder.join(file)).unwrap();
    let file = read("model.safetensors");
    let (length, rest) = file.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let (mut header, mut data) = (serde_json::from_slice::<Map<String, Json>>(header).unwrap(), data.to_vec());
    change(&mut header, &mut data);
    let header = Json::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    let files = ["config.json", "tokenizer.json"].map(|name| (name.to_owned(), read(name)));
    let folder = MemoryFolder::new(files.into_iter().chain([("model.safetensors".to_owned(), file)]));
    pollster::block_on(Engine::load_from(&folder, None, &LoadOptions::default(), &mut |_| Ok(()))).err().unwrap()
}

#[test]
fn damaged_ternary_weights_are_refused_by_name() {
    const WEIGHT: &str = "model.layers.0.mlp.up_proj.weight";
    const FACTOR: &str = "model.layers.0.mlp.up_proj.weight_scale";
    // Without a factor, and without ternary weights.
    let error = damaged(|header, _| {
        let factor = header.remove(FACTOR).unwrap();
        header.insert("model.layers.0.mlp.up_proj.scale".to_owned(), factor);
    });
    check_error(&error, Code::MissingTensor, &["ffn_up", "weight_scale"]);
    let error = damaged(|header, _| {
        header[WEIGHT]["dtype"] = json!("BF16");
        header[WEIGHT]["shape"] = json!([8, 32]);
    });
    check_error(&error, Code::InvalidFile, &["ffn_up.weight_scale"]);
    for (dtype, shape) in [("U8", json!([2])), ("I16", json!([1]))] {
        let error = damaged(|header, _| {
            header[FACTOR]["dtype"] = json!(dtype);
            header[FACTOR]["shape"] = shape;
        });
        check_error(&error, Code::UnsupportedTensorType, &[dtype]);
    }
    let error = damaged(|header, _| header[WEIGHT]["shape"] = json!([8, 64]));
    check_error(&error, Code::ShapeMismatch, &["ffn_up"]);
    let error = damaged(|header, _| header[WEIGHT]["shape"] = json!([512]));
    check_error(&error, Code::ShapeMismatch, &["ffn_up"]);
    // Not a number, infinite, and too large for f16, in BF16.
    for factor in [0x7fc0u16, 0x7f80, 0x7149] {
        let error = damaged(|header, data| {
            let at = header[FACTOR]["data_offsets"][0].as_u64().unwrap() as usize;
            data[at..at + 2].copy_from_slice(&factor.to_le_bytes());
        });
        check_error(&error, Code::UnsupportedTensorType, &["no number in f16"]);
    }
}
