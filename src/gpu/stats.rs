//! Counters of what the runtime did. They are cheap enough to be always on, and they are what tests assert on
//! (timings belong to benchmarks).

use std::cell::Cell;

use serde::Serialize;

/// Hits, misses and evictions of one cache since the last reset, and how many entries live in it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub entries: u64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the counters; all count from the device's start or the last reset.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes in GPU buffers that are alive or kept for reuse.
            pub live_bytes: u64,
            /// The highest that `live_bytes` has been.
            pub peak_bytes: u64,
            /// GPU buffers that are alive or kept for reuse.
            pub live_buffers: u64,
            pub uniforms: CacheStats,
            pub bind_groups: CacheStats,
            pub pipelines: CacheStats,
        }

        #[derive(Default)]
        pub(super) struct Counters {
            $(pub $name: Cell<u64>,)*
            pub live_bytes: Cell<u64>,
            pub peak_bytes: Cell<u64>,
            pub live_buffers: Cell<u64>,
        }

        impl Counters {
            pub fn snapshot(&self, uniforms: CacheStats, bind_groups: CacheStats, pipelines: CacheStats) -> Stats {
                Stats {
                    $($name: self.$name.get(),)*
                    live_bytes: self.live_bytes.get(),
                    peak_bytes: self.peak_bytes.get(),
                    live_buffers: self.live_buffers.get(),
                    uniforms,
                    bind_groups,
                    pipelines,
                }
            }

            /// Sets the counts to zero; what is alive stays counted, and the peak starts again from it.
            pub fn reset(&self) {
                $(self.$name.set(0);)*
                self.peak_bytes.set(self.live_bytes.get());
            }
        }
    };
}

counters! {
    dispatches,
    passes,
    encoders,
    submits,
    /// Waits for the GPU that were asked for by `sync`.
    syncs,
    /// Mappings of staging buffers for reading.
    maps,
    /// Uniform buffers written, which happens only when a content is not in the cache.
    uniform_writes,
    buffers_created,
    buffers_reused,
    bind_groups_created,
    pipelines_created,
    /// Copies from buffer to buffer.
    copies,
    bytes_uploaded,
    bytes_read_back,
}

pub(super) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

impl Counters {
    pub fn buffer_created(&self, bytes: u64) {
        add(&self.buffers_created, 1);
        add(&self.live_buffers, 1);
        add(&self.live_bytes, bytes);
        self.peak_bytes.set(self.peak_bytes.get().max(self.live_bytes.get()));
    }

    pub fn buffer_destroyed(&self, bytes: u64) {
        self.live_buffers.set(self.live_buffers.get() - 1);
        self.live_bytes.set(self.live_bytes.get() - bytes);
    }
}
