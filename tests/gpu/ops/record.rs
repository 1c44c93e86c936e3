//! What the last recorded run found, in `agreed.txt`: a line for each op and set of kernels all of whose cases agreed. Its digest is of all that
//! decides it (inputs, adapter, shaders, commands, what the references give), so whoever changes any of that has the op's cases run again.
//!
//!     UPDATE_AGREED=1 cargo test --test gpu ops::    runs all that is not recorded and writes the file
//!     RILLM_SOAK=1 cargo test --test gpu ops::   runs all, whatever is recorded

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::support::parity::Record;
use crate::support::soak::is_soak;

/// One test writes at a time.
static WRITING: Mutex<()> = Mutex::new(());

/// The lines of one set of kernels.
pub struct AgreedRuns {
    kernels: &'static str,
    recorded: BTreeMap<String, String>,
    found: RefCell<BTreeMap<String, String>>,
}

impl AgreedRuns {
    pub fn open(kernels: &'static str) -> Self {
        let recorded = lines().remove(kernels).unwrap_or_default();
        Self { kernels, recorded, found: RefCell::default() }
    }

    /// Writes what was found, if that is asked for. Ops that are gone leave the file.
    pub fn close(self) {
        if !is_set("UPDATE_AGREED") || self.found.borrow().is_empty() {
            return;
        }
        let _writing = WRITING.lock().unwrap();
        let mut all = lines();
        let found = self.found.into_inner();
        if is_set("RILLM_OPS") {
            all.entry(self.kernels.to_owned()).or_default().extend(found);
        } else {
            all.insert(self.kernels.to_owned(), found);
        }
        let mut text = String::new();
        for (kernels, ops) in &all {
            for (op, digest) in ops {
                writeln!(text, "{kernels} {op} {digest}").unwrap();
            }
        }
        std::fs::write(path(), text).unwrap();
    }
}

impl Record for AgreedRuns {
    fn holds(&self, op: &str, digest: [u64; 2]) -> bool {
        !is_soak() && self.recorded.get(op) == Some(&written(digest))
    }

    fn agreed(&self, op: &str, digest: [u64; 2]) {
        self.found.borrow_mut().insert(op.to_owned(), written(digest));
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/gpu/ops/agreed.txt"].iter().collect()
}

fn written([high, low]: [u64; 2]) -> String {
    format!("{high:016x}{low:016x}")
}

/// The digests by set of kernels and op.
fn lines() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let mut all = BTreeMap::<_, BTreeMap<_, _>>::new();
    for line in text.lines() {
        if let [kernels, op, digest] = *line.split(' ').collect::<Vec<_>>() {
            all.entry(kernels.to_owned()).or_default().insert(op.to_owned(), digest.to_owned());
        }
    }
    all
}
