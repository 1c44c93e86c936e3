//! The options of a device, as JavaScript names them.

use serde::Deserialize;

use crate::gpu::{CacheSizes, DeviceOptions};
use crate::tensor::ShapeCache;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Options {
    /// The GPUDevice belongs to the application.
    pub shared: bool,
    debug: bool,
    caches: Caches,
    max_batch_size: usize,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Caches {
    uniforms: Option<usize>,
    bind_groups: Option<usize>,
    shapes: Option<usize>,
    staging: Option<usize>,
}

impl Options {
    pub fn device_options(&self) -> DeviceOptions {
        let sizes = CacheSizes::default();
        DeviceOptions {
            debug: self.debug,
            max_batch: self.max_batch_size,
            caches: CacheSizes {
                uniforms: self.caches.uniforms.unwrap_or(sizes.uniforms),
                bind_groups: self.caches.bind_groups.unwrap_or(sizes.bind_groups),
                staging: self.caches.staging.unwrap_or(sizes.staging),
            },
            ..DeviceOptions::default()
        }
    }

    pub fn shape_cache(&self) -> ShapeCache {
        ShapeCache::new(self.caches.shapes.unwrap_or(ShapeCache::DEFAULT_LIMIT))
    }
}
