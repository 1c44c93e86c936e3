//! What is known of an adapter, and what kernels may use of it.

use serde::Serialize;

/// Kernels bind up to this many storage buffers.
pub(super) const STORAGE_BUFFERS: u32 = 8;

/// Which adapter runs, in the words of WebGPU's GPUAdapterInfo.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AdapterInfo {
    /// The maker, such as `nvidia`; natively the PCI id of the maker.
    pub vendor: String,
    /// The family of GPUs, such as `ampere`; natively the driver.
    pub architecture: String,
    /// The maker's id of the device; empty in most browsers.
    pub device: String,
    /// The adapter's name for people; empty in most browsers.
    pub description: String,
    /// True if the adapter runs in software.
    pub is_fallback: bool,
    /// The optional features that are switched on.
    pub features: Vec<String>,
    /// Matrix products that one subgroup can compute, if the browser lists them. No kernel uses them yet.
    pub subgroup_matrices: Vec<SubgroupMatrix>,
}

/// A product [m, k] × [k, n], as in GPUAdapterInfo's experimental `subgroupMatrixConfigs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SubgroupMatrix {
    /// Type of the factors' elements, such as `f16`.
    pub component: String,
    /// Type of the product's elements.
    pub result: String,
    /// Rows of the left factor and of the product.
    pub m: u32,
    /// Columns of the right factor and of the product.
    pub n: u32,
    /// Columns of the left factor, rows of the right one.
    pub k: u32,
}

/// What kernels may use and how large things may be.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    /// It is the CPU's device, which runs functions in place of kernels.
    pub cpu: bool,
    /// The CPU's device keeps weights packed for products with activations of 8 bits.
    #[serde(skip)]
    pub packs_weights: bool,
    /// WGSL's `f16` is available.
    pub shader_f16: bool,
    /// The smallest and the largest number of lanes of a subgroup; `None` without subgroups.
    pub subgroups: Option<(u32, u32)>,
    /// Shaders run on the CPU: a workgroup barrier is expensive there, and workgroup memory is no faster than other memory.
    pub software: bool,
    /// WGSL's language feature `packed_4x8_integer_dot_product` is available.
    pub packed_dot: bool,
    /// GPU time can be measured.
    pub timestamp_query: bool,
    /// The adapter offers products of matrices in subgroups (`AdapterInfo::subgroup_matrices`), an experiment of Chromium's that
    /// is not switched on.
    pub subgroup_matrix: bool,
    /// The largest buffer, in bytes.
    pub max_buffer_size: u64,
    /// The most bytes of one storage binding.
    pub max_storage_binding_size: u64,
    /// The most bytes of all buffers, where that is known: on the CPU what can be addressed.
    #[serde(skip)]
    pub max_memory: Option<u64>,
    /// The most workgroups of a dispatch in x, in y and in z.
    pub max_workgroups_per_dimension: u32,
    /// The most invocations of one workgroup.
    pub max_invocations_per_workgroup: u32,
    /// The most bytes of memory that a workgroup's invocations share.
    pub max_workgroup_storage_size: u32,
    /// The most storage buffers that a kernel binds.
    #[serde(skip)]
    pub max_storage_buffers: u32,
}

/// What is known of the adapter before a device exists.
#[derive(Clone)]
pub(super) struct Adapter {
    /// It is the CPU.
    pub cpu: bool,
    pub info: AdapterInfo,
    pub subgroup_sizes: (u32, u32),
    pub subgroups: bool,
    pub packed_dot: bool,
    pub max_memory: Option<u64>,
}

impl Adapter {
    /// What a device of this adapter offers.
    pub fn capabilities(&self, device: &wgpu::Device) -> Capabilities {
        let limits = device.limits();
        let features = device.features();
        Capabilities {
            cpu: self.cpu,
            packs_weights: false,
            shader_f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: self.subgroups.then_some(self.subgroup_sizes),
            software: self.info.is_fallback,
            packed_dot: self.packed_dot,
            timestamp_query: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            subgroup_matrix: !self.info.subgroup_matrices.is_empty(),
            max_buffer_size: limits.max_buffer_size,
            max_storage_binding_size: limits.max_storage_buffer_binding_size,
            max_memory: self.max_memory,
            max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
            // Functions of the CPU take as many as there are.
            max_storage_buffers: if self.cpu { u32::MAX } else { limits.max_storage_buffers_per_shader_stage },
            max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
        }
    }
}
