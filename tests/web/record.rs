//! What the last recorded run in a browser found, in `agreed.txt`: first the browser's version, which its compiler of kernels and its software GPU come with; then
//! a line for each set of kernels and op all of whose cases with new lines agreed, with a digest of all that decides it (as natively,
//! `tests/gpu/record.rs`). In another version of the browser, or of the op, they run.
//!
//!     UPDATE_AGREED=1 npm test -- --only web    runs all and writes the file
//!     RILLM_SOAK=1 npm test -- --only web       runs all

use std::collections::BTreeMap;

use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::console_log;

use crate::parity::Record;

const AGREED: &str = include_str!("agreed.txt");

/// The digests of one set of kernels, by op, if they are of this browser.
pub struct AgreedRuns {
    kernels: &'static str,
    recorded: BTreeMap<&'static str, &'static str>,
}

impl AgreedRuns {
    pub async fn open(kernels: &'static str) -> Self {
        let browser = browser().await;
        let runs_all = option_env!("UPDATE_AGREED").or(option_env!("RILLM_SOAK")).is_some();
        if option_env!("UPDATE_AGREED").is_some() {
            console_log!("agreed: {browser}");
        }
        let mut lines = AGREED.lines();
        let is_this = lines.next() == Some(&browser) && !runs_all;
        let of_line = |line: &'static str| line.strip_prefix(kernels)?.strip_prefix(' ')?.split_once(' ');
        Self { kernels, recorded: if is_this { lines.filter_map(of_line).collect() } else { BTreeMap::new() } }
    }
}

impl Record for AgreedRuns {
    fn holds(&self, op: &str, digest: [u64; 2]) -> bool {
        self.recorded.get(op) == Some(&&*written(digest))
    }

    /// The program that runs these tests writes the file, which a page can't.
    fn agreed(&self, op: &str, digest: [u64; 2]) {
        if option_env!("UPDATE_AGREED").is_some() {
            console_log!("agreed: {} {op} {}", self.kernels, written(digest));
        }
    }
}

/// The browser with its whole version, where it tells that; otherwise a name that no record has.
async fn browser() -> String {
    let ask = js_sys::Function::new_no_args(
        "return navigator.userAgentData?.getHighEntropyValues(['fullVersionList'])
            .then(({ fullVersionList }) => fullVersionList.find(({ brand }) => brand === 'Chromium'))
            .then((chromium) => chromium && `Chromium ${chromium.version}`)",
    );
    let promise: js_sys::Promise = js_sys::Promise::resolve(&ask.call0(&JsValue::NULL).unwrap()).unchecked_into();
    JsFuture::from(promise).await.unwrap().as_string().unwrap_or_else(|| "another browser".to_owned())
}

fn written([high, low]: [u64; 2]) -> String {
    format!("{high:016x}{low:016x}")
}
