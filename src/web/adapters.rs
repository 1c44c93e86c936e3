//! The bindings of an engine's adapters (LoRA).

use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;

use super::abort::unless;
use super::convert::{from_js, js_error, js_number, to_js};
use super::engine::WasmEngine;
use super::source;
use super::thrown::js_message;
use crate::engine::AdapterOptions;

#[wasm_bindgen]
impl WasmEngine {
    /// Loads an adapter (LoRA): `{name, scale}` are the options, and `on_progress` gets the bytes loaded and those to load. When `stopped`
    /// resolves, it ends with `aborted`.
    #[wasm_bindgen(js_name = loadAdapter)]
    pub async fn load_adapter(
        &self,
        source: JsValue,
        options: JsValue,
        files: JsValue,
        on_progress: Function,
        stopped: Promise,
    ) -> Result<JsValue, JsValue> {
        let engine = self.engine()?;
        let load = async {
            let options: AdapterOptions = from_js("the options of the adapter", options)?;
            let (folder, file) = source::open_adapter(&source, files.unchecked_into()).await?;
            let mut progress = |loaded: u64, total: u64| match on_progress.call2(
                &JsValue::UNDEFINED,
                &js_number(loaded).into(),
                &js_number(total).into(),
            ) {
                Ok(_) => Ok(()),
                Err(thrown) => bail!(Internal, "the progress could not be told: {}", js_message(&thrown)),
            };
            engine.load_adapter(&*folder, file.as_deref(), &options, &mut progress).await
        };
        to_js(&unless(stopped, "loading the adapter", load).await.map_err(js_error)?)
    }

    #[wasm_bindgen(js_name = setAdapterScale)]
    pub fn set_adapter_scale(&self, name: &str, scale: f32) -> Result<(), JsValue> {
        self.engine()?.set_adapter_scale(name, scale).map_err(js_error)
    }

    #[wasm_bindgen(js_name = unloadAdapter)]
    pub fn unload_adapter(&self, name: &str) -> Result<(), JsValue> {
        self.engine()?.unload_adapter(name).map_err(js_error)
    }

    pub fn adapters(&self) -> Result<JsValue, JsValue> {
        to_js(&self.engine()?.adapters())
    }
}
