//! What a dispatch costs on this device, for `rill bench dispatch`.

use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;

use super::convert::{from_js, js_error, to_js};
use crate::tensor::{AdapterInfo, DeviceOptions, dispatch_cost};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Options {
    count: usize,
    repetitions: usize,
    force_fallback_adapter: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { count: 300, repetitions: 100, force_fallback_adapter: false }
    }
}

#[derive(Serialize)]
struct Report {
    adapter: AdapterInfo,
    results: Vec<dispatch_cost::Cost>,
}

/// Microseconds for each of `count` dependent small dispatches, by how they are encoded.
#[wasm_bindgen(js_name = benchDispatch)]
pub async fn bench_dispatch(options: JsValue) -> Result<JsValue, JsValue> {
    let measure = async {
        let options: Options = if options.is_undefined() || options.is_null() {
            Options::default()
        } else {
            from_js("the options of benchDispatch", options)?
        };
        let device =
            DeviceOptions { force_fallback_adapter: options.force_fallback_adapter, ..DeviceOptions::default() };
        let (adapter, results) = dispatch_cost::measure(&device, options.count, options.repetitions).await?;
        Ok(Report { adapter, results })
    };
    to_js(&measure.await.map_err(js_error)?)
}
