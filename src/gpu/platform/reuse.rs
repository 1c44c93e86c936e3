//! Native devices that nobody uses any more, kept with their compiled kernels for the next request. A process of tests loads a
//! hundred engines, most of them with the same kernels, and a software driver takes far longer to compile a kernel than to run it.
//! Each driver's device belongs to one `Device` at a time, so errors and loss reach the one that they are of.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;

use crate::gpu::adapter::Adapter;
use crate::gpu::compile::{Signature, Source};
use crate::gpu::options::PowerPreference;

/// A driver's device, and what it was asked for with.
#[derive(Clone)]
pub struct Driver {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub adapter: Adapter,
    pub wish: Wish,
}

/// What the choice of an adapter depends on.
pub type Wish = (PowerPreference, bool);

static IDLE: Mutex<Vec<Driver>> = Mutex::new(Vec::new());

type Compiled = HashMap<(String, Signature), wgpu::ComputePipeline>;
static COMPILED: Mutex<Option<HashMap<wgpu::Device, Compiled>>> = Mutex::new(None);

/// A test that panics leaves both as they were before or after a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that was asked for with the same wish and is used by nobody.
pub fn take(wish: Wish) -> Option<Driver> {
    let mut idle = locked(&IDLE);
    let at = idle.iter().rposition(|driver| driver.wish == wish)?;
    Some(idle.remove(at))
}

/// Keeps a device on which nothing has gone wrong.
pub fn keep(driver: Driver) {
    locked(&IDLE).push(driver);
}

/// Forgets the kernels of a device that ends.
pub fn forget(device: &wgpu::Device) {
    if let Some(compiled) = locked(&COMPILED).as_mut() {
        compiled.remove(device);
    }
}

/// The pipeline of a source, which is compiled once for each device of the driver.
pub fn compile(device: &wgpu::Device, source: &Source) -> wgpu::ComputePipeline {
    let key = (source.text.clone(), source.signature.clone());
    let known = |compiled: &Option<HashMap<wgpu::Device, Compiled>>| compiled.as_ref()?.get(device)?.get(&key).cloned();
    if let Some(pipeline) = known(&locked(&COMPILED)) {
        return pipeline;
    }
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let pipeline = source.compile(device);
    // Natively the outcome is there at once. What fails is compiled once more, so that whoever watches hears of it each time.
    if !matches!(scope.pop().now_or_never(), Some(None)) {
        return source.compile(device);
    }
    let mut compiled = locked(&COMPILED);
    compiled.get_or_insert_default().entry(device.clone()).or_default().insert(key, pipeline.clone());
    pipeline
}
