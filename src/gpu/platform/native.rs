//! The device on a native driver, for tests.

use std::sync::LazyLock;

use crate::error::Result;
use crate::gpu::adapter::{Adapter, AdapterInfo, STORAGE_BUFFERS, SubgroupMatrix};
use crate::gpu::compile::Source;
use crate::gpu::options::{DeviceOptions, PowerPreference};
use crate::gpu::raw::RawDevice;

use super::reuse::{self, Driver};

pub async fn request(options: &DeviceOptions) -> Result<(wgpu::Device, wgpu::Queue, Adapter)> {
    let Driver { device, queue, adapter, .. } = match reuse::take(wish(options)) {
        Some(driver) => driver,
        None => open(options).await?,
    };
    Ok((device, queue, adapter))
}

/// Whether the CPU is wanted if nobody says what.
pub fn prefers_cpu() -> bool {
    std::env::var_os("RILLM_DEVICE").is_some_and(|device| device == "cpu")
}

/// A line for whoever debugs.
pub fn log(text: &str) {
    eprintln!("{text}");
}

fn wish(options: &DeviceOptions) -> reuse::Wish {
    (options.power_preference, options.force_fallback_adapter)
}

/// What becomes of a device that is dropped without being destroyed: the next request takes it, unless something went wrong on it.
pub fn finish(raw: &RawDevice, is_clean: bool) {
    if raw.capabilities.cpu {
        return raw.wgpu.destroy();
    }
    let (device, queue, wish) = (raw.wgpu.clone(), raw.queue.clone(), wish(&raw.options));
    if is_clean {
        reuse::keep(Driver { device, queue, adapter: raw.adapter.clone(), wish });
    } else {
        reuse::forget(&device);
        device.destroy();
    }
}

/// One for the process, so that a device is told from all others by its id.
static INSTANCE: LazyLock<wgpu::Instance> =
    LazyLock::new(|| wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle()));

async fn open(options: &DeviceOptions) -> Result<Driver> {
    let adapter = INSTANCE
        .request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: match options.power_preference {
                PowerPreference::LowPower => wgpu::PowerPreference::LowPower,
                PowerPreference::HighPerformance => wgpu::PowerPreference::HighPerformance,
            },
            force_fallback_adapter: options.force_fallback_adapter,
            ..Default::default()
        })
        .await
        .map_err(|error| err!(AdapterUnavailable, "no GPU adapter: {error}"))?;
    let wanted = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
    let info = adapter.get_info();
    let features = adapter.features() & wanted;
    let (device, queue) = adapter
        .request_device(&wgpu::DeviceDescriptor {
            label: Some("rillm"),
            required_features: features,
            required_limits: adapter.limits(),
            ..Default::default()
        })
        .await
        .map_err(|error| err!(AdapterLimits, "the adapter gave no device: {error}"))?;
    let limit = device.limits().max_storage_buffers_per_shader_stage;
    if limit < STORAGE_BUFFERS {
        bail!(AdapterLimits, "kernels bind {STORAGE_BUFFERS} storage buffers and this adapter allows {limit}");
    }
    let adapter = Adapter {
        cpu: false,
        info: AdapterInfo {
            vendor: format!("{:#06x}", info.vendor),
            architecture: info.driver.clone(),
            device: format!("{:#06x}", info.device),
            description: info.name.clone(),
            is_fallback: info.device_type == wgpu::DeviceType::Cpu,
            features: Vec::new(),
            subgroup_matrices: subgroup_matrices(&adapter),
        },
        subgroup_sizes: (info.subgroup_min_size, info.subgroup_max_size),
        subgroups: features.contains(wgpu::Features::SUBGROUP),
        // naga writes out what a driver lacks.
        packed_dot: true,
        max_memory: None,
    };
    Ok(Driver { device, queue, adapter, wish: wish(options) })
}

/// What Vulkan and Metal call cooperative matrices.
fn subgroup_matrices(adapter: &wgpu::Adapter) -> Vec<SubgroupMatrix> {
    if !adapter.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        return Vec::new();
    }
    let properties = adapter.cooperative_matrix_properties();
    properties
        .iter()
        .map(|matrix| SubgroupMatrix {
            component: format!("{:?}", matrix.ab_type).to_lowercase(),
            result: format!("{:?}", matrix.cr_type).to_lowercase(),
            m: matrix.m_size,
            n: matrix.n_size,
            k: matrix.k_size,
        })
        .collect()
}

/// Compiles pipelines; natively one after the other.
pub async fn compile_all(raw: &RawDevice, sources: &[&Source], _is_paced: bool) -> Result<Vec<wgpu::ComputePipeline>> {
    let compile =
        |source: &&Source| raw.faults.watch_compilation(&raw.wgpu, &source.label, || reuse::compile(&raw.wgpu, source));
    let compiled = sources.iter().map(compile).collect();
    raw.take_fault().await?;
    Ok(compiled)
}
