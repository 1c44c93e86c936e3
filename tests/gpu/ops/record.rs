//! What the last recorded run found, in `agreed/`: a file for each set of kernels, and in it a line for each op all of whose cases agreed. Its
//! digest is of all that decides it (inputs, adapter, shaders, commands, what the references give), so whoever changes any of that has the op's
//! cases run again.
//!
//!     UPDATE_AGREED=1 npm test -- --only native --file gpu/ops    runs all that is not recorded and writes the files
//!     RILLM_SOAK=1 npm test -- --only native --file gpu/ops       runs all, whatever is recorded

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use crate::support::parity::Record;
use crate::support::soak::is_soak;

/// The digests of one set of kernels, by op.
pub struct AgreedRuns {
    file: PathBuf,
    recorded: BTreeMap<String, String>,
    found: RefCell<BTreeMap<String, String>>,
}

impl AgreedRuns {
    pub fn open(kernels: &str) -> Self {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/gpu/ops/agreed"].iter().collect();
        let file = folder.join(kernels).with_extension("txt");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let line = |line: &str| line.split_once(' ').map(|(op, digest)| (op.to_owned(), digest.to_owned()));
        Self { file, recorded: text.lines().filter_map(line).collect(), found: RefCell::default() }
    }

    /// Writes what was found, if that is asked for. Ops that are gone leave the file.
    pub fn close(self) {
        if !is_set("UPDATE_AGREED") {
            return;
        }
        let mut all = if is_set("RILLM_OPS") { self.recorded } else { BTreeMap::new() };
        all.extend(self.found.into_inner());
        let mut text = String::new();
        for (op, digest) in &all {
            writeln!(text, "{op} {digest}").unwrap();
        }
        std::fs::write(self.file, text).unwrap();
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

fn written([high, low]: [u64; 2]) -> String {
    format!("{high:016x}{low:016x}")
}
