//! Which variant of a kernel runs: the choices for this adapter, and the text that stores them beyond the page.
//!
//! Invariant: a choice from a text is used only if it names one of the variants that the op offers for these shapes on this adapter.
//! So a text may hold anything without making a wrong kernel; unusable entries are ignored.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::autotune::Survey;
use super::{Context, DType, Desc, Op};
use crate::json;

/// Raise it when variants or kernels change so much that old measurements don't apply.
const CANDIDATES_VERSION: u32 = 1;

/// The most bytes of a stored text; longer ones are not ours.
const MAX_TEXT: usize = 1 << 20;

/// The adapters in a text, and the kernels of each.
const MAX_ADAPTERS: usize = 8;
const MAX_KERNELS: usize = 512;

/// How a kernel divides its work, if that only affects speed: named numbers ("knobs"), which only the op reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variant(Vec<(&'static str, u32)>);

impl Variant {
    /// A variant of these knobs and their values.
    pub fn new(knobs: &[(&'static str, u32)]) -> Self {
        Self(knobs.to_vec())
    }

    /// The same with one more knob.
    pub fn with(mut self, name: &'static str, value: u32) -> Self {
        self.0.push((name, value));
        self
    }

    /// A knob's value; 0 if the variant does not have it.
    pub fn get(&self, name: &str) -> u32 {
        self.0.iter().find(|(knob, _)| *knob == name).map_or(0, |(_, value)| *value)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What a choice applies to: an op, its sizes, and the format of its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TuningKey {
    /// The op's name.
    pub op: &'static str,
    /// `Op::tuning_sizes`.
    pub sizes: [usize; 3],
    /// The format of the weight, or of a q8_0 cache; `None` for other ops.
    pub format: Option<&'static str>,
}

impl TuningKey {
    /// The key of an op with these inputs.
    pub fn of(op: &dyn Op, inputs: &[Desc]) -> Self {
        let format = inputs.iter().find_map(|input| match input.dtype {
            DType::Weight(format) => Some(format.name),
            DType::Q8_0 => Some(input.dtype.name()),
            _ => None,
        });
        Self { op: op.name(), sizes: op.tuning_sizes(inputs), format }
    }
}

impl fmt::Display for TuningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.sizes;
        write!(f, "{} {a} {b} {c} {}", self.op, self.format.unwrap_or("-"))
    }
}

/// The stored result of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Choice {
    /// The variant that runs; null for the default.
    pub variant: Option<String>,
    /// Microseconds of one dispatch of the default; 0 if nothing could be measured.
    pub default_us: f64,
    /// Microseconds of one dispatch of the variant that runs; 0 if nothing could be measured.
    pub us: f64,
    /// Variants that the default was compared with.
    pub candidates: usize,
    /// Of these, those that were discarded because they gave another result or did not compile.
    pub rejected: usize,
}

/// The stored text.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Text {
    rillm: String,
    candidates: u32,
    /// The last used one first.
    adapters: Vec<AdapterTunings>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AdapterTunings {
    adapter: String,
    kernels: BTreeMap<String, Choice>,
}

impl Text {
    fn parse(text: &str) -> Self {
        let fresh =
            Self { rillm: env!("CARGO_PKG_VERSION").to_owned(), candidates: CANDIDATES_VERSION, adapters: Vec::new() };
        match json::from_slice::<Self>(text.as_bytes()) {
            Ok(parsed)
                if text.len() <= MAX_TEXT && parsed.rillm == fresh.rillm && parsed.candidates == fresh.candidates =>
            {
                parsed
            }
            _ => fresh,
        }
    }
}

/// The choices of one context. Empty until kernels are tuned or a text is loaded.
#[derive(Default)]
pub struct Tunings {
    chosen: RefCell<HashMap<TuningKey, Variant>>,
    pub(super) survey: RefCell<Option<Survey>>,
}

impl Tunings {
    /// The variant that runs, if it is not the default.
    pub fn variant(&self, key: &TuningKey) -> Option<Variant> {
        self.chosen.borrow().get(key).cloned()
    }

    /// Whether all kernels are the defaults and there is no survey.
    pub(super) fn is_idle(&self) -> bool {
        self.chosen.borrow().is_empty() && self.survey.borrow().is_none()
    }

    /// Sets the variant that runs from now on. Existing plans keep theirs.
    pub fn choose(&self, key: TuningKey, variant: Option<Variant>) {
        match variant {
            Some(variant) => self.chosen.borrow_mut().insert(key, variant),
            None => self.chosen.borrow_mut().remove(&key),
        };
    }
}

/// The choices of an adapter in a text, and the rest of the text.
pub struct StoredTunings {
    text: Text,
    adapter: String,
    kernels: BTreeMap<String, Choice>,
    is_changed: bool,
}

impl StoredTunings {
    /// Reads `text` for the adapter of `context`. A text that can't be read counts as empty.
    pub fn new(text: Option<&str>, context: &Context) -> Self {
        let adapter = adapter_key(context);
        let mut text = Text::parse(text.unwrap_or_default());
        let at = text.adapters.iter().position(|entry| entry.adapter == adapter);
        let mut kernels = at.map(|at| text.adapters.remove(at).kernels).unwrap_or_default();
        if kernels.len() > MAX_KERNELS {
            kernels.clear();
        }
        Self { text, adapter, kernels, is_changed: false }
    }

    /// The stored choice for a kernel.
    pub fn get(&self, key: &TuningKey) -> Option<&Choice> {
        self.kernels.get(&key.to_string())
    }

    /// Stores a choice. If `MAX_KERNELS` are stored, they are dropped first.
    pub fn insert(&mut self, key: &TuningKey, choice: Choice) {
        self.is_changed = true;
        if self.kernels.len() >= MAX_KERNELS {
            self.kernels.clear();
        }
        self.kernels.insert(key.to_string(), choice);
    }

    /// The text to store, if it has changed.
    pub fn into_text(mut self) -> Option<String> {
        if !self.is_changed {
            return None;
        }
        self.text.adapters.insert(0, AdapterTunings { adapter: self.adapter, kernels: self.kernels });
        self.text.adapters.truncate(MAX_ADAPTERS);
        serde_json::to_string(&self.text).ok()
    }
}

/// What a measurement depends on besides kernel and shapes: the adapter's names in WebGPU, and the capabilities that select kernels.
fn adapter_key(context: &Context) -> String {
    let info = context.device().adapter();
    let capabilities = context.device().capabilities();
    format!(
        "{} | {} | {} | {} | subgroups {:?}, software {}, packed dot {}, workgroup {} of {} bytes",
        info.vendor,
        info.architecture,
        info.device,
        info.description,
        capabilities.subgroups,
        capabilities.software,
        capabilities.packed_dot,
        capabilities.max_invocations_per_workgroup,
        capabilities.max_workgroup_storage_size,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn variants_are_named_by_their_knobs() {
        let variant = Variant::new(&[("team", 32), ("workgroup", 64)]).with("rows", 2);
        assert_eq!(variant.to_string(), "team 32, workgroup 64, rows 2");
        assert_eq!((variant.get("rows"), variant.get("tile")), (2, 0));
    }

    #[test]
    fn a_text_of_another_version_counts_as_empty() {
        let adapters = vec![AdapterTunings { adapter: "a".to_owned(), kernels: BTreeMap::new() }];
        let ours = Text { adapters, ..Text::parse("") };
        let read = |text: &Text| Text::parse(&serde_json::to_string(text).unwrap());
        assert_eq!(read(&ours), ours);
        assert_eq!(read(&Text { rillm: "0.0.0".to_owned(), ..read(&ours) }), Text::parse(""));
        assert_eq!(read(&Text { candidates: CANDIDATES_VERSION + 1, ..read(&ours) }), Text::parse(""));
        let padded = format!("{}{}", serde_json::to_string(&ours).unwrap(), " ".repeat(MAX_TEXT));
        assert_eq!(Text::parse(&padded), Text::parse(""));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC*", cut in 0usize..200) {
            Text::parse(&text);
            let whole = serde_json::to_string(&Text::parse("")).unwrap();
            Text::parse(&whole[..cut.min(whole.len())]);
        }
    }
}
