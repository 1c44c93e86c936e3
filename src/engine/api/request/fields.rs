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

    /// Refuses what no group has taken.
    pub fn finish(self) -> Result<()> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => {
                let known: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
                bail!(
                    InvalidRequest,
                    "{}: {name}: unknown field `{name}`, expected one of {}",
                    self.what,
                    known.join(", ")
                )
            }
        }
    }
}
