//! What becomes of work whose caller aborts.

use std::pin::pin;

use futures_util::future::{Either, select};
use js_sys::Promise;
use wasm_bindgen_futures::JsFuture;
use web_sys::AbortSignal;

use crate::error::{Error, Result};

/// The error of aborted work.
pub fn aborted(name: &str) -> Error {
    err!(Aborted, "{name}: the caller aborted")
}

/// `Code::Aborted` if the caller has aborted.
pub fn check_abort(signal: Option<&AbortSignal>, name: &str) -> Result<()> {
    if signal.is_some_and(AbortSignal::aborted) { Err(aborted(name)) } else { Ok(()) }
}

/// What `work` comes to, unless a promise resolves before: then it is dropped, and the error is `Code::Aborted`.
pub async fn unless<T>(stopped: Promise, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match select(pin!(work), JsFuture::from(stopped)).await {
        Either::Left((result, _)) => result,
        Either::Right(_) => Err(aborted(name)),
    }
}
