//! Adapters (LoRA) for a small model: a GGUF file, or PEFT's configuration followed by the safetensors file. An adapter that loads takes part in a
//! pass, and is unloaded.

use rillm::Code;
use rillm::engine::folder::{Folder, MemoryFolder, OneFile};
use rillm::engine::source::MemorySource;
use rillm::engine::{AdapterOptions, Engine, LoadOptions};
use rillm::gpu::DeviceKind;

const MODEL: &[u8] = include_bytes!("../../tests/golden/architectures/llama3/model.gguf");
const NAME: &str = "fuzzed";

thread_local! {
    static ENGINE: Engine = {
        let options = LoadOptions { device_kind: DeviceKind::Cpu, context_length: Some(64), ..LoadOptions::default() };
        pollster::block_on(Engine::load(&MemorySource::new(MODEL.to_vec()), &options, &mut |_| Ok(()))).unwrap()
    };
}

/// A file that begins with `GGUF`; else two bytes, the length of `adapter_config.json`, that file, and the safetensors file.
pub fn run(bytes: &[u8]) {
    if bytes.starts_with(b"GGUF") {
        return try_out(&OneFile(&MemorySource::new(bytes.to_vec()).with_name("adapter.gguf")));
    }
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let Some((config, tensors)) = rest.split_at_checked(u16::from_le_bytes(*length) as usize) else { return };
    try_out(&MemoryFolder::new([
        ("adapter_config.json".to_owned(), config.to_vec()),
        ("adapter_model.safetensors".to_owned(), tensors.to_vec()),
    ]));
}

fn try_out(folder: &dyn Folder) {
    ENGINE.with(|engine| {
        let options = AdapterOptions { name: Some(NAME.to_owned()), scale: Some(1.0) };
        match pollster::block_on(engine.load_adapter(folder, None, &options, &mut |_, _| Ok(()))) {
            Ok(_) => {
                pollster::block_on(async { engine.forward(&[1, 2, 3]).await?.readback().await }).unwrap();
                engine.unload_adapter(NAME).unwrap();
            }
            Err(error) => assert_ne!(error.code(), Code::Internal, "{error}"),
        }
        assert!(engine.adapters().is_empty());
    });
}
