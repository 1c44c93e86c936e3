//! A logits processor that is a function of JavaScript: `(logits: Float32Array, tokens: Uint32Array, step) => Float32Array | null`, or a
//! promise of it. Null cancels the generation.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use js_sys::{Float32Array, Function, Promise, Uint32Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::thrown::js_message;
use crate::engine::LogitsProcessor;
use crate::error::Result;

pub struct JsLogitsProcessor(pub Function);

impl LogitsProcessor for JsLogitsProcessor {
    fn process(&self, logits: Vec<f32>, tokens: Vec<u32>, step: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        async move {
            let failed = |thrown: JsValue| err!(LogitsProcessor, "the logits processor threw: {}", js_message(&thrown));
            let (logits, tokens) = (Float32Array::from(&logits[..]), Uint32Array::from(&tokens[..]));
            let called = self.0.call3(&JsValue::UNDEFINED, &logits, &tokens, &(step as f64).into()).map_err(failed)?;
            let processed = JsFuture::from(Promise::resolve(&called)).await.map_err(failed)?;
            if processed.is_null() {
                return Ok(None);
            }
            match processed.dyn_into::<Float32Array>() {
                Ok(processed) => Ok(Some(processed.to_vec())),
                Err(other) => bail!(
                    LogitsProcessor,
                    "the logits processor gave {}, wanted a Float32Array, or nothing if it changed the one it got",
                    other.js_typeof().as_string().unwrap_or_default()
                ),
            }
        }
        .boxed_local()
    }
}
