//! Which adapters a request runs with.

use std::collections::BTreeMap;

use super::fields::group;

group! {
    /// Adapters of a request.
    #[derive(Clone, Debug, Default)]
    pub struct AdapterFields {
        /// The scale of each adapter (LoRA), by its name; those that are not named are off, so `{}` is the model alone. Default: the scales
        /// that were set when the adapters were loaded or since. An extension.
        #[cfg_attr(test, ts(type = "Record<string, number> | null"))]
        pub adapters: Option<BTreeMap<String, f32>>,
    }
}
