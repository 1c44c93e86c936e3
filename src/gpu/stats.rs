//! Counters of what the runtime did. They are cheap enough to be always on, and they are what tests assert on
//! (timings belong to benchmarks).

use std::cell::Cell;

use serde::Serialize;

/// One cache since the last reset, and what lives in it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CacheStats {
    /// Look-ups that found an entry.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Entries dropped to make room for others.
    pub evictions: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes of GPU memory that the entries hold, as far as that is known.
    pub bytes: u64,
}

/// A size class of the pool since the device began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolClassStats {
    /// Buffers that were reused.
    pub hits: u64,
    /// Buffers that had to be made.
    pub misses: u64,
    /// Bytes of the buffers that were made.
    pub allocated_bytes: u64,
    /// Bytes of the buffers that were given back to the browser.
    pub released_bytes: u64,
}

/// The pool of storage buffers, by the sizes of buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolStats {
    /// Below 4 KiB.
    pub small: PoolClassStats,
    /// From there to below 1 MiB.
    pub medium: PoolClassStats,
    /// All others.
    pub large: PoolClassStats,
}

/// The GPU memory of a device, of buffers of any kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStats {
    /// Bytes of all buffers that were ever made.
    pub allocated_bytes: u64,
    /// Buffers that are in use or wait for reuse.
    pub live_buffers: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The highest that `live_bytes` has been since the last reset.
    pub peak_bytes: u64,
    /// Of the live buffers, those in use.
    pub active_buffers: u64,
    /// Their bytes.
    pub active_bytes: u64,
    /// Of the live buffers, those that wait for reuse.
    pub pooled_buffers: u64,
    /// Their bytes.
    pub pooled_bytes: u64,
    /// The pool of storage buffers.
    pub pool: PoolStats,
}

/// What a device holds on the GPU, for whoever adds up what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// All buffers.
    pub live_bytes: u64,
    /// The most of them at one time since the last reset.
    pub peak_bytes: u64,
    /// Of the live bytes, the arenas of plans.
    pub arena_bytes: u64,
    /// Of the live bytes, buffers that wait for reuse.
    pub waiting_bytes: u64,
    /// Bytes that were written and that the GPU is not known to have read: browsers keep a copy until then.
    pub unfinished_write_bytes: u64,
    /// The most of them at one time.
    pub peak_unfinished_write_bytes: u64,
}

impl PoolStats {
    pub(super) fn class(&mut self, bytes: u64) -> &mut PoolClassStats {
        match bytes {
            0..4096 => &mut self.small,
            4096..0x10_0000 => &mut self.medium,
            _ => &mut self.large,
        }
    }
}

macro_rules! counters {
    (
        flushes { $($(#[$flush_doc:meta])* $flush:ident: $Flush:ident,)* }
        counts { $($(#[$doc:meta])* $name:ident,)* }
    ) => {
        /// Why recorded commands were submitted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FlushReason { $($(#[$flush_doc])* $Flush,)* }

        impl FlushReason {
            /// Of the encoder, for the browser's tools and messages.
            pub(super) fn label(self) -> &'static str {
                match self { $(FlushReason::$Flush => concat!("rillm ", stringify!($flush)),)* }
            }
        }

        /// Submits by their reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[cfg_attr(test, derive(ts_rs::TS))]
        pub struct Flushes { $($(#[$flush_doc])* pub $flush: u64,)* }

        /// Counters since the start or the last reset, and what is alive now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[cfg_attr(test, derive(ts_rs::TS))]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// The same submits, by their reason.
            pub flushes: Flushes,
            /// Bytes in GPU buffers that are alive or kept for reuse.
            pub live_bytes: u64,
            /// The highest that `live_bytes` has been.
            pub peak_bytes: u64,
            /// GPU buffers that are alive or kept for reuse.
            pub live_buffers: u64,
            /// Of the live bytes, those that wait for reuse.
            pub pooled_bytes: u64,
            /// Of the live bytes, those of the arenas of plans.
            pub arena_bytes: u64,
            /// What the tensors of those plans would take if none shared its bytes.
            pub arena_bytes_without_reuse: u64,
            /// Uniform buffers, by content.
            pub uniforms: CacheStats,
            /// Bind groups, by layout and what they bind.
            pub bind_groups: CacheStats,
            /// Compiled pipelines, by the text of their shaders.
            pub pipelines: CacheStats,
        }

        #[derive(Default)]
        pub(super) struct Counters {
            $(pub $name: Cell<u64>,)*
            pub flushes: Cell<Flushes>,
            pub live_bytes: Cell<u64>,
            pub peak_bytes: Cell<u64>,
            pub live_buffers: Cell<u64>,
            /// Since the device began; a reset leaves it.
            pub allocated_bytes: Cell<u64>,
            pub arena_bytes: Cell<u64>,
            pub arena_bytes_without_reuse: Cell<u64>,
        }

        impl Counters {
            /// The counters; what the caches and the pool know is filled in by the device.
            pub fn snapshot(&self) -> Stats {
                Stats {
                    $($name: self.$name.get(),)*
                    flushes: self.flushes.get(),
                    live_bytes: self.live_bytes.get(),
                    peak_bytes: self.peak_bytes.get(),
                    live_buffers: self.live_buffers.get(),
                    arena_bytes: self.arena_bytes.get(),
                    arena_bytes_without_reuse: self.arena_bytes_without_reuse.get(),
                    ..Stats::default()
                }
            }

            /// Sets the counts to zero; what is alive stays counted, and the peak starts again from it.
            pub fn reset(&self) {
                $(self.$name.set(0);)*
                self.flushes.set(Flushes::default());
                self.peak_bytes.set(self.live_bytes.get());
            }

            pub fn flushed(&self, reason: FlushReason) {
                let mut flushes = self.flushes.get();
                match reason { $(FlushReason::$Flush => flushes.$flush += 1,)* }
                self.flushes.set(flushes);
            }
        }
    };
}

counters! {
    flushes {
        /// `sync()` was called.
        sync: Sync,
        /// A read-back was started.
        readback: Readback,
        /// `flush()` was called, or a batch executed.
        explicit: Explicit,
        /// A large write had to come after recorded commands.
        write: Write,
        /// The ring of staged writes was full.
        pending_writes: PendingWrites,
        /// `maxBatchSize` dispatches were recorded.
        batch_limit: BatchLimit,
        /// Lazy mode was off.
        eager: Eager,
        /// Debug mode submits each dispatch by itself.
        debug: Debug,
        /// The device was destroyed.
        end: End,
    }
    counts {
        /// Kernels that were submitted.
        dispatches,
        /// Compute passes that were encoded.
        passes,
        /// Command encoders, one for each submit.
        encoders,
        /// Submits to the queue.
        submits,
        /// Calls of `sync()`.
        syncs,
        /// Of these, those that waited for nothing or only for a read-back.
        syncs_without_wait,
        /// Mappings of staging buffers for reading.
        maps,
        /// Uniform buffers written, which happens only if a content is not in the cache.
        uniform_writes,
        /// Small writes encoded as copies, which force no submit.
        staged_writes,
        /// Writes that were handed to the queue: large ones, and those before which nothing was recorded.
        queue_writes,
        /// GPU buffers that were made, of any kind.
        buffers_created,
        /// Storage buffers that came from those that wait for reuse.
        buffers_reused,
        /// Bind groups that were made.
        bind_groups_created,
        /// Pipelines that were compiled.
        pipelines_created,
        /// Copies from buffer to buffer, within the GPU's memory.
        copies,
        /// Bytes of these copies.
        bytes_copied,
        /// Bytes written from the CPU to storage buffers, by writes of both kinds.
        bytes_uploaded,
        /// Bytes read back to the CPU.
        bytes_read_back,
        /// Buffers that were freed while submitted work could still use them.
        deferred_frees,
    }
}

pub(super) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

impl Counters {
    pub fn buffer_created(&self, bytes: u64) {
        add(&self.buffers_created, 1);
        add(&self.live_buffers, 1);
        add(&self.live_bytes, bytes);
        add(&self.allocated_bytes, bytes);
        self.peak_bytes.set(self.peak_bytes.get().max(self.live_bytes.get()));
    }

    /// A buffer that takes no memory: it is counted until it is destroyed, but is no part of the peak.
    pub fn buffer_refused(&self, bytes: u64) {
        let peak = self.peak_bytes.get();
        self.buffer_created(bytes);
        self.peak_bytes.set(peak);
    }

    pub fn buffer_destroyed(&self, bytes: u64) {
        self.live_buffers.set(self.live_buffers.get() - 1);
        self.live_bytes.set(self.live_bytes.get() - bytes);
    }
}
