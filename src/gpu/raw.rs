//! wgpu's device and queue, with what every part of the runtime needs: capabilities, options, counters, the timeline of
//! submissions, and errors. It does not know the parts.

use std::cell::Cell;

use futures_channel::oneshot;

use super::adapter::{Adapter, AdapterInfo, Capabilities};
use super::faults::Faults;
use super::options::DeviceOptions;
use super::platform::finish;
use super::platform::probe::lanes_follow_indices;
use super::stats::Counters;
use super::timeline::Timeline;
use crate::error::{Code, Error, Result};

/// Buffers from this size on have error scopes of their own outside of an attempt.
const LARGE: u64 = 4096;

pub(super) struct RawDevice {
    pub wgpu: wgpu::Device,
    pub queue: wgpu::Queue,
    pub adapter: Adapter,
    pub capabilities: Capabilities,
    pub options: DeviceOptions,
    pub counters: Counters,
    pub timeline: Timeline,
    pub faults: Faults,
    /// The application's device: it is shared, so never destroyed here.
    is_foreign: bool,
    disposed: Cell<bool>,
    /// Allocations beyond this many bytes fail, as they do in a browser whose GPU has no more.
    pub memory_limit: Cell<Option<u64>>,
    /// What the last step needed that found no room.
    pub refused_bytes: Cell<u64>,
    /// How often it was told that memory ran out.
    pub shortages: Cell<u64>,
    /// Dispatches after which what was recorded is submitted; 0 for no limit.
    pub max_batch: Cell<usize>,
    /// Nothing is submitted before somebody asks, or the limit is reached.
    pub is_lazy: Cell<bool>,
}

impl RawDevice {
    pub async fn new(
        (device, queue, adapter): (wgpu::Device, wgpu::Queue, Adapter),
        options: &DeviceOptions,
        is_foreign: bool,
    ) -> Result<Self> {
        let mut capabilities = adapter.capabilities(&device);
        if let Some((smallest, _)) = capabilities.subgroups
            && (options.without_subgroups || !lanes_follow_indices(&device, &queue, smallest).await?)
        {
            capabilities.subgroups = None;
        }
        capabilities.packs_weights = capabilities.cpu && options.packs_weights;
        capabilities.max_memory = capabilities.max_memory.map(|most| options.memory_limit.unwrap_or(most).min(most));
        capabilities.software = options.software_kernels.unwrap_or(capabilities.software);
        capabilities.packed_dot &= !options.without_packed_dot;
        let storage = capabilities.max_workgroup_storage_size;
        let binding = capabilities.max_storage_binding_size;
        capabilities.max_storage_binding_size = options.storage_binding.map_or(binding, |most| most.min(binding));
        capabilities.max_workgroup_storage_size = options.workgroup_storage.map_or(storage, |most| most.min(storage));
        let mut features = Vec::new();
        for (name, on) in [
            ("shader-f16", capabilities.shader_f16),
            ("subgroups", capabilities.subgroups.is_some()),
            ("timestamp-query", capabilities.timestamp_query),
        ] {
            if on {
                features.push(name.to_owned());
            }
        }
        Ok(Self {
            faults: Faults::watch(&device, is_foreign, adapter.cpu),
            wgpu: device,
            queue,
            adapter: Adapter { info: AdapterInfo { features, ..adapter.info }, ..adapter },
            capabilities,
            options: options.clone(),
            counters: Counters::default(),
            timeline: Timeline::default(),
            is_foreign,
            disposed: Cell::new(false),
            memory_limit: Cell::new(options.memory_limit),
            refused_bytes: Cell::new(0),
            shortages: Cell::new(0),
            max_batch: Cell::new(options.max_batch),
            is_lazy: Cell::new(true),
        })
    }

    /// Whether it is the application's device, on which its own work goes on.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    pub fn is_disposed(&self) -> bool {
        self.disposed.get()
    }

    /// From now on calls end in `disposed`.
    pub fn dispose(&self) {
        self.disposed.set(true);
    }

    /// Destroys wgpu's device, but leaves an application's own alive.
    pub fn destroy(&self) {
        if !self.is_foreign {
            self.wgpu.destroy();
        }
    }

    /// An error if the device was disposed of or lost.
    pub fn check_usable(&self) -> Result<()> {
        if self.disposed.get() {
            bail!(Disposed, "the GPU device was disposed of; request a new one, or load the model again");
        }
        self.faults.check_lost()
    }

    /// A new buffer, counted. One that is large and made outside of an attempt has error scopes of its own, whose outcome the next wait
    /// reports: there is no room where a browser says nothing else.
    pub fn create_buffer(&self, buffer: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        let Self { wgpu, counters, faults, .. } = self;
        if self.memory_limit.get().is_some_and(|limit| counters.live_bytes.get() + buffer.size > limit) {
            counters.buffer_refused(buffer.size);
            return faults.refuse(wgpu, buffer);
        }
        counters.buffer_created(buffer.size);
        if buffer.size < LARGE || faults.has_open_scopes() {
            return wgpu.create_buffer(buffer);
        }
        let scopes = faults.open_scopes(wgpu);
        let created = wgpu.create_buffer(buffer);
        faults.watch_outcome(faults.close_scopes(scopes), buffer.label.unwrap_or("a buffer"));
        created
    }

    /// Whether each submit is watched by itself.
    pub fn watches_submits(&self) -> bool {
        self.options.debug || self.is_foreign
    }

    /// Waits until all submitted work is done. False if the device was lost meanwhile.
    pub async fn work_done(&self) -> bool {
        let (sender, done) = oneshot::channel();
        let report = self.timeline.report();
        self.queue.on_submitted_work_done(move || {
            report.done(true);
            let _ = sender.send(());
        });
        self.drive();
        done.await.is_ok()
    }

    /// Asks for a report to the timeline when the submitted work is done, without waiting.
    pub fn report_when_done(&self) {
        let report = self.timeline.report();
        self.queue.on_submitted_work_done(move || report.done(true));
        // Runs the callbacks that are due. If the poll fails, the device is lost, and the callbacks report that.
        let _ = self.wgpu.poll(wgpu::PollType::Poll);
    }

    /// Runs callbacks and waits for them. Natively nothing else polls the device; a browser does, and there this does nothing.
    pub fn drive(&self) {
        // A failed poll is a lost device, which the callbacks report.
        let _ = self.wgpu.poll(wgpu::PollType::wait_indefinitely());
    }

    /// The first thing that went wrong since the last wait, if any.
    pub async fn take_fault(&self) -> Result<()> {
        let failed = self.faults.take_failed().await;
        let fault = self.faults.take_first();
        if failed.is_some() || fault.is_some() {
            // One error causes others, such as that of the submit that used a broken pipeline. They arrive before a wait that
            // starts now ends, and must not be taken for errors of later calls.
            self.work_done().await;
            self.faults.take_first();
        }
        self.check_usable()?;
        if failed.iter().chain(&fault).any(|error| error.code() == Code::OutOfMemory) {
            self.shortages.set(self.shortages.get() + 1);
        }
        match (failed, fault) {
            (Some(error), _) => Err(error),
            (None, Some(error)) => {
                let kernels = self.faults.last_kernel_names();
                Err(Error::new(error.code(), format!("{} ({kernels})", error.message())))
            }
            (None, None) => Ok(()),
        }
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        if !self.disposed.get() {
            finish(self, self.faults.is_clean());
        }
    }
}
