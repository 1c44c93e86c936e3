//! What the last recorded run found, in `agreed/`: a file for each set of kernels or of cases, and in it a line for each subject, most of them ops, all of
//! whose cases agreed. Its digest is of all that decides it (inputs, adapter, shaders, commands, what is wanted), so whoever changes any of that has
//! the cases run again.
//!
//!     UPDATE_AGREED=1 npm test -- --only native --file gpu    runs all that is not recorded and writes the files
//!     RILLM_SOAK=1 npm test -- --only native --file gpu       runs all, whatever is recorded

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use crate::support::parity::{Record, digest};
use crate::support::soak::is_soak;

/// The digests of one file, by subject.
pub struct AgreedRuns {
    file: PathBuf,
    recorded: BTreeMap<String, String>,
    found: RefCell<BTreeMap<String, String>>,
}

impl AgreedRuns {
    pub fn open(name: &str) -> Self {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/gpu/agreed"].iter().collect();
        let file = folder.join(name).with_extension("txt");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let line = |line: &str| line.split_once(' ').map(|(subject, digest)| (subject.to_owned(), digest.to_owned()));
        Self { file, recorded: text.lines().filter_map(line).collect(), found: RefCell::default() }
    }

    /// Which of these cases have to run. Each comes with its subject and, if that is known, a digest of all that decides whether it agrees. The first of
    /// each subject runs whatever is on record.
    pub fn needed(&self, cases: &[(&str, Option<[u64; 2]>)]) -> Vec<bool> {
        let subjects = by_subject(cases);
        let recorded: BTreeSet<&str> =
            subjects.iter().filter(|(subject, digests)| self.holds(subject, digest(digests))).map(|it| *it.0).collect();
        let mut begun = BTreeSet::new();
        cases
            .iter()
            .map(|(subject, digest)| begun.insert(*subject) || digest.is_none() || !recorded.contains(subject))
            .collect()
    }

    /// All of these cases agree.
    pub fn all_agreed(&self, cases: &[(&str, Option<[u64; 2]>)]) {
        by_subject(cases).iter().for_each(|(subject, digests)| self.agreed(subject, digest(digests)));
    }

    /// Writes what was found, if that is asked for. Subjects that are gone leave the file.
    pub fn close(self) {
        if !is_set("UPDATE_AGREED") {
            return;
        }
        let mut all = if is_set("RILLM_OPS") { self.recorded } else { BTreeMap::new() };
        all.extend(self.found.into_inner());
        let mut text = String::new();
        for (subject, digest) in &all {
            writeln!(text, "{subject} {digest}").unwrap();
        }
        std::fs::write(self.file, text).unwrap();
    }
}

impl Record for AgreedRuns {
    fn holds(&self, subject: &str, digest: [u64; 2]) -> bool {
        !is_soak() && self.recorded.get(subject) == Some(&written(digest))
    }

    fn agreed(&self, subject: &str, digest: [u64; 2]) {
        self.found.borrow_mut().insert(subject.to_owned(), written(digest));
    }
}

/// The digests that are known, in the order of the cases.
fn by_subject<'a>(cases: &[(&'a str, Option<[u64; 2]>)]) -> BTreeMap<&'a str, Vec<[u64; 2]>> {
    let mut subjects: BTreeMap<&str, Vec<[u64; 2]>> = BTreeMap::new();
    for (subject, digest) in cases {
        subjects.entry(subject).or_default().extend(digest);
    }
    subjects
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

fn written([high, low]: [u64; 2]) -> String {
    format!("{high:016x}{low:016x}")
}
