//! What JavaScript threw, or rejected a promise with.

use wasm_bindgen::prelude::*;

use crate::error::{Code, Error};

/// An `EngineError` of the package, or of this module, as an error again; `None` for any other value.
pub fn coded_error(value: &JsValue) -> Option<Error> {
    let field = |name: &str| js_sys::Reflect::get(value, &JsValue::from_str(name)).ok()?.as_string();
    let name = field("code")?;
    let code = Code::ALL.iter().find(|code| code.as_str() == name)?;
    Some(Error::new(*code, field("message").unwrap_or_default()))
}

/// The message of a promise's rejection.
pub fn js_message(value: &JsValue) -> String {
    match value.dyn_ref::<js_sys::Error>() {
        Some(error) => format!("{}: {}", String::from(error.name()), String::from(error.message())),
        None => format!("{value:?}"),
    }
}
