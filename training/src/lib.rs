//! The bindings of an engine's trainings. With them `rillm`'s own bindings are exported, so this wasm does all that the engine's does.
//!
//! They are a crate of their own so that the engine's wasm and this one are linked from one compilation of `rillm`.
#![cfg(target_arch = "wasm32")]

use js_sys::{Array, Function, Object, Promise, Reflect, Uint8Array};
use rillm::engine::source::ByteSource;
use rillm::train::{
    LoraTraining, TrainedLora, TrainingEvent, free_after_training, plan_lora as plan, train_lora as train,
};
use rillm::web::{BlobSource, WasmEngine, js_error, js_message, json_from_js, to_js, unless};
use rillm::{Result, err};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::Blob;

/// What a training would do, and the memory that it takes.
#[wasm_bindgen(js_name = planLora)]
pub fn plan_lora(engine: &WasmEngine, training: JsValue) -> Result<JsValue, JsValue> {
    let engine = engine.engine()?;
    let plan = || plan(&engine, &LoraTraining::parse(json_from_js("the training", &training)?)?);
    to_js(&plan().map_err(js_error)?)
}

/// Trains an adapter and loads it. `on_event` gets each event, and the bytes of a checkpoint beside its. It goes on from `checkpoint` if there is
/// one. When `stopped` resolves, it ends with `aborted`.
#[wasm_bindgen(js_name = trainLora)]
pub async fn train_lora(
    engine: &WasmEngine,
    training: JsValue,
    checkpoint: Option<Blob>,
    on_event: Function,
    stopped: Promise,
) -> Result<JsValue, JsValue> {
    let engine = engine.engine()?;
    let trained = async {
        let training = LoraTraining::parse(json_from_js("the training", &training)?)?;
        let source = checkpoint.map(|blob| BlobSource::new(blob, None));
        let mut tell = |event: &TrainingEvent| told(&on_event, event);
        train(&engine, &training, source.as_ref().map(|source| source as &dyn ByteSource), &mut tell).await
    };
    match unless(stopped, "the training", trained).await {
        Ok(trained) => result(trained),
        Err(error) => {
            // What it was dropped with may still be in use by the GPU.
            spawn_local(async move { free_after_training(&engine).await });
            Err(js_error(error))
        }
    }
}

fn told(on_event: &Function, event: &TrainingEvent) -> Result<()> {
    let bytes = match event {
        TrainingEvent::Checkpoint(checkpoint) => Uint8Array::from(&checkpoint.bytes[..]).into(),
        _ => JsValue::UNDEFINED,
    };
    let value = to_js(event).unwrap_or(JsValue::UNDEFINED);
    match on_event.call2(&JsValue::UNDEFINED, &value, &bytes) {
        Ok(_) => Ok(()),
        Err(thrown) => Err(err!(Internal, "the progress could not be told: {}", js_message(&thrown))),
    }
}

/// `{adapter, losses, heldOut, gguf, peft}`; in place of `adapter` and of `peft` may stand an error.
fn result(mut trained: TrainedLora) -> Result<JsValue, JsValue> {
    let object = Object::new();
    let set = |key: &str, value: &JsValue| Reflect::set(&object, &key.into(), value);
    match &trained.loaded {
        Ok(adapter) => set("adapter", &to_js(adapter)?)?,
        Err(error) => set("unloaded", &js_error(error.clone()))?,
    };
    set("losses", &to_js(&trained.losses)?)?;
    set("heldOut", &to_js(&trained.held_out)?)?;
    // Each file is let go of before the next one is made.
    set("gguf", &Uint8Array::from(&std::mem::take(&mut trained.gguf)[..]))?;
    match trained.peft_folder() {
        Ok(files) => {
            let list: Array = Array::new();
            for (name, bytes) in files {
                let pair: [JsValue; 2] = [name.into(), Uint8Array::from(&bytes[..]).into()];
                list.push(&Array::of(&pair));
            }
            set("peft", &list)?;
        }
        Err(error) => {
            set("unsaved", &js_error(error))?;
        }
    }
    Ok(object.into())
}
