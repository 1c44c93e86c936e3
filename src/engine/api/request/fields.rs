//! A request as groups of fields: each group takes the fields that it knows, and what is left over is refused.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Result;

/// Fields of a request that belong together.
pub trait Group: DeserializeOwned {
    /// As they are in JSON.
    const NAMES: &'static [&'static str];
}

/// Defines a struct whose fields are fields of a request. A field that may be left out is an `Option` or has `#[serde(default)]`.
/// TypeScript's types are made from it (`typescript.rs`), so its comments are written for callers.
macro_rules! group {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$of_field:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        #[cfg_attr(test, derive(ts_rs::TS))]
        pub struct $name { $($(#[$of_field])* pub $field: $kind,)* }

        impl $crate::engine::api::request::Group for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];
        }
    };
}
pub(crate) use group;

/// The fields of a request that no group has taken yet.
pub struct Fields {
    /// What errors call the request.
    what: &'static str,
    left: Map<String, Value>,
    names: Vec<&'static str>,
}

impl Fields {
    /// A field that is null counts as left out, as in OpenAI's API.
    pub fn of(what: &'static str, request: Value) -> Result<Self> {
        match request {
            Value::Object(mut left) => {
                left.retain(|_, value| !value.is_null());
                Ok(Self { what, left, names: Vec::new() })
            }
            other => bail!(InvalidRequest, "{what} is {other}, wanted an object"),
        }
    }

    /// Takes the fields of a group. An error names the field.
    pub fn group<T: Group>(&mut self) -> Result<T> {
        self.names.extend(T::NAMES);
        let taken = T::NAMES.iter().filter_map(|name| self.left.remove_entry(*name));
        let what = self.what;
        serde_path_to_error::deserialize(Value::Object(taken.collect())).map_err(|error| {
            match error.path().iter().next() {
                Some(_) => err!(InvalidRequest, "{what}: {}: {}", error.path(), error.inner()),
                None => err!(InvalidRequest, "{what}: {}", error.inner()),
            }
        })
    }

    /// The fields of all groups that were asked for.
    pub fn names(self) -> Vec<&'static str> {
        self.names
    }

    /// Refuses what no group has taken.
    pub fn finish(self) -> Result<()> {
        let Some(name) = self.left.keys().next() else { return Ok(()) };
        match nearest(name, &self.names) {
            Some(known) => {
                bail!(InvalidRequest, "{}: {name}: unknown field `{name}`, did you mean `{known}`?", self.what)
            }
            None => bail!(InvalidRequest, "{}: {name}: unknown field `{name}`", self.what),
        }
    }
}

/// The least share of a name that has to agree with another for that to be what was meant.
const ALIKE: f64 = 0.5;

/// The name that is the fewest edits away: a name in capitals or with hyphens is the name itself.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // A name of any length may come from anywhere, and the comparison takes time in proportion to it.
    let name: String = name.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect();
    // `maxTokens` is `max_tokens`: what separates words is no difference.
    let bare = |text: &str| text.replace('_', "");
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&bare(&name), &bare(known));
    let (likeness, known) =
        known.iter().map(|known| (likeness(known), *known)).max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (likeness >= ALIKE).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_what_was_meant() {
        let known = ["temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "stop", "seed"];
        for (written, meant) in [
            ("temprature", Some("temperature")),
            ("Temperature", Some("temperature")),
            ("maxTokens", Some("max_tokens")),
            ("max-completion-tokens", Some("max_completion_tokens")),
            ("topk", Some("top_k")),
            ("stops", Some("stop")),
            ("colour", None),
            ("", None),
            ("温度", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
        assert_eq!(nearest("seed", &[]), None);
    }
}
