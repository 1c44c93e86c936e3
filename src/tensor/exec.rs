//! Runs ops on the GPU: makes outputs, binds tensors and records the dispatch.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::cpu::team::is_for_team;
use super::quant::quantize::kernel;
use super::quant::{Format, SoaLayout, Table};
use super::{Case, DType, Desc, HostTensor, Kernel, Op, Shape, TuningKey, Tunings, WeightUpload, kv_blocks};
use crate::error::Result;
use crate::gpu::{
    BINDING_ALIGNMENT, Binding, Buffer, BufferSlice, Capabilities, Define, Device, Recording, Shader, Template,
};

/// Modules that every kernel may import.
const MODULES: &[(&str, &str)] = &[
    ("block", crate::shader!("wgsl/block.wgsl")),
    ("activations", crate::shader!("wgsl/activations.wgsl")),
    ("int8_block", crate::shader!("wgsl/int8_block.wgsl")),
    ("int8_weight", crate::shader!("wgsl/int8_weight.wgsl")),
    ("e2m1", crate::shader!("wgsl/e2m1.wgsl")),
    ("grids", crate::shader!("wgsl/grids.wgsl")),
    ("iq4_values", crate::shader!("wgsl/iq4_values.wgsl")),
    ("k_scales", crate::shader!("wgsl/k_scales.wgsl")),
    ("fifth_bits", crate::shader!("wgsl/fifth_bits.wgsl")),
    ("repack_k", crate::shader!("wgsl/repack_k.wgsl")),
    ("epilogue", crate::shader!("wgsl/epilogue.wgsl")),
    ("residual", crate::shader!("wgsl/residual.wgsl")),
    ("quantize_block", crate::shader!("wgsl/quantize_block.wgsl")),
    ("repack", crate::shader!("wgsl/repack.wgsl")),
    ("quantize_rows", crate::shader!("wgsl/quantize_rows.wgsl")),
    ("file_weights", crate::shader!("wgsl/file_weights.wgsl")),
    ("exact_float", crate::shader!("wgsl/exact_float.wgsl")),
    ("activate", crate::shader!("wgsl/activate.wgsl")),
    ("tanh", crate::shader!("wgsl/tanh.wgsl")),
    ("softcap", crate::shader!("wgsl/softcap.wgsl")),
    ("subgroup_sum", crate::shader!("wgsl/subgroup_sum.wgsl")),
    ("cos_sin", crate::shader!("wgsl/cos_sin.wgsl")),
    ("soa", crate::shader!("wgsl/soa.wgsl")),
    ("softplus", crate::shader!("wgsl/softplus.wgsl")),
    ("delta_rates", crate::shader!("wgsl/delta_rates.wgsl")),
    ("numbers", crate::shader!("wgsl/numbers.wgsl")),
    ("dot_rows", crate::shader!("wgsl/dot_rows.wgsl")),
    ("normed_rows", crate::shader!("wgsl/normed_rows.wgsl")),
    ("kv_cache", crate::shader!("wgsl/kv_cache.wgsl")),
    ("kv_store", crate::shader!("wgsl/kv_store.wgsl")),
    ("kv_vectors", crate::shader!("wgsl/kv_vectors.wgsl")),
    ("attend", crate::shader!("wgsl/attend.wgsl")),
    ("splits", crate::shader!("wgsl/splits.wgsl")),
    ("merged", crate::shader!("wgsl/merged.wgsl")),
    ("low_rank", crate::shader!("wgsl/low_rank.wgsl")),
    ("window", crate::shader!("wgsl/window.wgsl")),
    ("placement", crate::shader!("wgsl/placement.wgsl")),
];

pub(super) const FIRST_WEIGHT_ARRAY: u32 = 10;
pub(super) const PARAMS: u32 = 20;

/// A tensor on the GPU. Cloning clones the handle.
#[derive(Clone)]
pub struct Tensor {
    desc: Desc,
    buffer: Buffer,
    /// Bytes of the buffer before the first element.
    offset: u64,
    weight_layout: Option<SoaLayout>,
}

impl Tensor {
    /// Shape and dtype.
    pub fn desc(&self) -> Desc {
        self.desc
    }

    /// The shape; of a weight [rows, columns].
    pub fn shape(&self) -> Shape {
        self.desc.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.desc.dtype
    }

    /// Bytes of the elements on the GPU.
    pub fn bytes(&self) -> u64 {
        match &self.weight_layout {
            Some(layout) => layout.bytes,
            None => self.desc.dtype.bytes(self.desc.shape.elements() as u64),
        }
    }

    /// Whether it has memory. A tensor made in a traced step has none.
    pub(super) fn has_memory(&self) -> bool {
        self.buffer.has_memory()
    }

    /// The bytes of its elements.
    pub fn slice(&self) -> BufferSlice {
        BufferSlice { buffer: self.buffer.clone(), offset: self.offset, size: (self.bytes()).max(4) }
    }

    /// The same elements with another shape.
    pub fn reshaped(&self, shape: Shape) -> Result<Tensor> {
        if matches!(self.desc.dtype, DType::Weight(_)) || shape.elements() != self.desc.shape.elements() {
            bail!(ShapeMismatch, "{:?} can't be read as {shape}", self.desc);
        }
        Ok(Tensor { desc: Desc { shape, ..self.desc }, ..self.clone() })
    }

    /// A view of the elements from `first` on, with this shape. Kernels can bind it if it begins at a multiple of 256 bytes.
    pub fn part(&self, first: usize, shape: Shape) -> Result<Tensor> {
        if matches!(self.desc.dtype, DType::Weight(_)) || first + shape.elements() > self.desc.shape.elements() {
            bail!(ShapeMismatch, "{:?} has no {shape} from element {first} on", self.desc);
        }
        if self.desc.dtype == DType::Q8_0 && !(first as u64).is_multiple_of(kv_blocks::PAIR) {
            bail!(ShapeMismatch, "a part of {:?} from element {first} on begins within a pair of blocks", self.desc);
        }
        let offset = self.offset + self.desc.dtype.bytes(first as u64);
        Ok(Tensor { desc: Desc { shape, ..self.desc }, offset, ..self.clone() })
    }

    pub(super) fn array_slices(&self) -> Vec<BufferSlice> {
        let arrays = self.weight_layout.iter().flat_map(|layout| &layout.arrays);
        arrays.map(|(offset, size)| BufferSlice { buffer: self.buffer.clone(), offset: *offset, size: *size }).collect()
    }
}

/// A step recorded once for its shapes; a replay creates nothing and writes nothing.
pub struct Plan(Recording);

impl Plan {
    /// The dispatches of one replay.
    pub fn dispatches(&self) -> usize {
        self.0.dispatches()
    }

    /// Bytes of the arena of the step's tensors, and the bytes that they would take without sharing.
    pub fn arena_bytes(&self) -> (u64, u64) {
        (self.0.arena_bytes(), self.0.arena_bytes_without_reuse())
    }
}

fn quantizer(from: &Format, to: &Format) -> Result<(&'static str, &'static str)> {
    kernel(from, to).ok_or_else(|| err!(DtypeMismatch, "weights of {} can't be quantised to {}", from.name, to.name))
}

/// A device with what ops need on it: makes tensors and runs ops.
#[derive(Clone)]
pub struct Context {
    device: Device,
    tunings: Rc<Tunings>,
}

impl Context {
    /// A context whose kernels are all the defaults.
    pub fn new(device: Device) -> Self {
        Self { device, tunings: Rc::default() }
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Which variants of kernels run.
    pub fn tunings(&self) -> &Tunings {
        &self.tunings
    }

    /// A tensor with unspecified contents.
    pub fn empty(&self, desc: Desc, label: &str) -> Result<Tensor> {
        self.allocate(desc, label, matches!(desc.dtype, DType::Weight(_)))
    }

    /// The same for a tensor that lives as long as a model, such as a weight or a cache: exact in size, not pooled.
    pub fn lasting(&self, desc: Desc, label: &str) -> Result<Tensor> {
        self.allocate(desc, label, true)
    }

    fn allocate(&self, desc: Desc, label: &str, lasts: bool) -> Result<Tensor> {
        let weight_layout = match desc.dtype {
            DType::Weight(format) => {
                let (rows, columns) = desc.shape.matrix()?;
                Some(format.layout_on(rows, columns, Some(self.device.capabilities()))?)
            }
            _ => None,
        };
        let bytes =
            weight_layout.as_ref().map_or(desc.dtype.bytes(desc.shape.elements() as u64), |layout| layout.bytes);
        let limit = self.device.capabilities().max_storage_binding_size;
        let largest = match &weight_layout {
            Some(layout) => layout.largest(),
            None => bytes,
        };
        if largest > limit {
            bail!(
                AdapterLimits,
                "{label} {} needs {largest} bytes in one binding and this adapter allows {limit}",
                desc.shape
            );
        }
        let buffer = if is_for_team(desc.dtype) {
            self.device.weight_buffer(bytes.max(4), label)?
        } else if lasts {
            self.device.lasting_buffer(bytes.max(4), label)?
        } else {
            self.device.buffer(bytes.max(4), label)?
        };
        let tensor = Tensor { desc, buffer, offset: 0, weight_layout };
        if let DType::Weight(format) = desc.dtype
            && let Some(last) = tensor.array_slices().last()
        {
            let (_, columns) = desc.shape.matrix()?;
            if self.device.is_cpu() {
                if matches!(format.table, Table::Columns) {
                    let groups: Vec<u16> = (0..columns).map(|column| (column / format.block_size) as u16).collect();
                    self.write_columns_on_cpu(&tensor, &groups)?;
                }
                return Ok(tensor);
            }
            let table = format.table.values(columns, format.block_size);
            if !table.is_empty() {
                self.device.write(&tensor.buffer, last.offset, bytemuck::cast_slice(&table))?;
            }
        }
        Ok(tensor)
    }

    /// A tensor in a buffer that exists, such as one of the application, from a byte on where bindings may begin.
    pub fn tensor_from_buffer(&self, desc: Desc, buffer: Buffer, offset: u64) -> Result<Tensor> {
        let bytes = desc.dtype.bytes(desc.shape.elements() as u64);
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= buffer.size());
        if matches!(desc.dtype, DType::Weight(_)) || !fits || bytes == 0 {
            bail!(ShapeMismatch, "{desc:?} from byte {offset} does not fit a buffer of {} bytes", buffer.size());
        }
        if !offset.is_multiple_of(BINDING_ALIGNMENT) {
            bail!(OutOfRange, "a tensor begins at a multiple of {BINDING_ALIGNMENT} bytes, not at {offset}");
        }
        Ok(Tensor { desc, buffer, offset, weight_layout: None })
    }

    /// A tensor of these elements.
    pub fn tensor(&self, host: &HostTensor) -> Result<Tensor> {
        if let DType::Weight(format) = host.dtype {
            let (rows, columns) = host.shape.matrix()?;
            let mut upload = WeightUpload::new(self, format, rows, columns, "weight")?;
            upload.write(&host.bytes)?;
            return upload.finish();
        }
        let tensor = self.empty(host.desc(), "tensor")?;
        self.write(&tensor, 0, &host.bytes)?;
        Ok(tensor)
    }

    /// A tensor of zeros.
    pub fn zeros(&self, desc: Desc) -> Result<Tensor> {
        self.tensor(&HostTensor::zeros(&desc))
    }

    /// Overwrites elements from `first` on with little-endian 4-byte elements.
    pub fn write(&self, tensor: &Tensor, first: usize, bytes: &[u8]) -> Result<()> {
        let fits = (first * 4 + bytes.len()) as u64 <= tensor.bytes();
        if !fits || matches!(tensor.desc.dtype, DType::Weight(_)) {
            bail!(ShapeMismatch, "{} bytes from element {first} don't fit {:?}", bytes.len(), tensor.desc);
        }
        self.device.write(&tensor.buffer, tensor.offset + first as u64 * 4, bytes)
    }

    /// Records a copy of 4-byte elements to another tensor, from its element `first` on.
    pub fn copy(&self, from: &Tensor, range: std::ops::Range<usize>, to: &Tensor, first: usize) -> Result<()> {
        let count = range.len();
        let fits = range.end <= from.desc.shape.elements() && first + count <= to.desc.shape.elements();
        let in_words = !matches!(from.desc.dtype, DType::Weight(_) | DType::F16 | DType::Q8_0);
        if !fits || !in_words || from.desc.dtype != to.desc.dtype {
            bail!(ShapeMismatch, "a copy of {range:?} of {:?} to element {first} of {:?}", from.desc, to.desc);
        }
        let slice = |tensor: &Tensor, first: usize| BufferSlice {
            buffer: tensor.buffer.clone(),
            offset: tensor.offset + first as u64 * 4,
            size: count as u64 * 4,
        };
        self.device.copy(&slice(from, range.start), &slice(to, first))
    }

    /// Records a copy of all bytes of a tensor to 4-byte elements of another, from its element `first` on.
    pub fn pack(&self, from: &Tensor, to: &Tensor, first: usize) -> Result<()> {
        self.copy_bytes(from, 0, to, 4 * first as u64, from.bytes())
    }

    /// The way back: overwrites all bytes of `to`.
    pub fn unpack(&self, from: &Tensor, first: usize, to: &Tensor) -> Result<()> {
        self.copy_bytes(from, 4 * first as u64, to, 0, to.bytes())
    }

    fn copy_bytes(&self, from: &Tensor, first: u64, to: &Tensor, to_first: u64, bytes: u64) -> Result<()> {
        let is_plain = |tensor: &Tensor| !matches!(tensor.desc.dtype, DType::Weight(_));
        let fits = first + bytes <= from.bytes() && to_first + bytes <= to.bytes();
        if !fits || !is_plain(from) || !is_plain(to) {
            bail!(
                ShapeMismatch,
                "a copy of {bytes} bytes of {:?} from {first} to {:?} at {to_first}",
                from.desc,
                to.desc
            );
        }
        let slice = |tensor: &Tensor, at: u64| BufferSlice {
            buffer: tensor.buffer.clone(),
            offset: tensor.offset + at,
            size: bytes,
        };
        self.device.copy(&slice(from, first), &slice(to, to_first))
    }

    /// Records an op and returns its outputs.
    pub fn run(&self, op: &dyn Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let descs: Vec<Desc> = inputs.iter().map(|tensor| tensor.desc).collect();
        let output_descs = op.infer(&descs)?;
        let outputs = output_descs.iter().map(|desc| self.empty(*desc, op.name())).collect::<Result<Vec<Tensor>>>()?;
        if self.device.is_cpu() {
            self.run_on_cpu(op, inputs, &outputs)?;
            return Ok(outputs);
        }
        let kernel = self.kernel(op, inputs, &descs, &output_descs)?;
        self.dispatch(op.name(), op.mutates(), &kernel, inputs, &outputs)?;
        Ok(outputs)
    }

    /// The kernel that runs: the default, or the variant chosen by tuning.
    fn kernel(&self, op: &dyn Op, tensors: &[&Tensor], inputs: &[Desc], outputs: &[Desc]) -> Result<Kernel> {
        let capabilities = self.device.capabilities();
        if self.tunings.is_idle() {
            return op.kernel(inputs, outputs, capabilities);
        }
        let key = TuningKey::of(op, inputs);
        if let Some(survey) = &mut *self.tunings.survey.borrow_mut() {
            survey.note(key, op, tensors, outputs, capabilities)?;
        }
        match self.tunings.variant(&key) {
            Some(variant) => op.kernel_as(&variant, inputs, outputs, capabilities),
            None => op.kernel(inputs, outputs, capabilities),
        }
    }

    /// Records a kernel under the op's name.
    pub(super) fn dispatch(
        &self,
        name: &str,
        mutates: &[usize],
        kernel: &Kernel,
        inputs: &[&Tensor],
        outputs: &[Tensor],
    ) -> Result<()> {
        let mut modules = MODULES.to_vec();
        modules.extend_from_slice(kernel.modules);
        let mut defines = kernel.defines.clone();
        if self.device.capabilities().software {
            defines.push(("ROLLED", Define::Flag));
        }
        let mut bindings = Vec::with_capacity(inputs.len() + outputs.len() + 2);
        let mut arrays = Vec::new();
        let mut number = 0;
        for (index, tensor) in inputs.iter().enumerate() {
            if let DType::Weight(format) = tensor.desc.dtype {
                modules.push(("weight", format.wgsl));
                defines.extend(format.int8.iter().flat_map(|view| view.defines()));
                defines.extend_from_slice(format.defines);
                arrays = tensor.array_slices();
                continue;
            }
            bindings.push(if mutates.contains(&index) {
                Binding::ReadWrite(number, tensor.slice())
            } else {
                Binding::Read(number, tensor.slice())
            });
            number += 1;
        }
        for tensor in outputs {
            bindings.push(Binding::ReadWrite(number, tensor.slice()));
            number += 1;
        }
        for (array, slice) in arrays.into_iter().enumerate() {
            bindings.push(Binding::Read(FIRST_WEIGHT_ARRAY + array as u32, slice));
        }
        if !kernel.params.is_empty() {
            bindings.push(Binding::Uniform(PARAMS, bytemuck::cast_slice(&kernel.params)));
        }
        let template = Template::Static(kernel.template);
        let shader = Shader { label: name, template, modules: &modules, defines: &defines };
        self.device.dispatch(&shader, &bindings, kernel.grid)
    }

    /// Records an op with one output.
    pub fn run1(&self, op: &dyn Op, inputs: &[&Tensor]) -> Result<Tensor> {
        match <[Tensor; 1]>::try_from(self.run(op, inputs)?) {
            Ok([output]) => Ok(output),
            Err(outputs) => bail!(Internal, "{} has {} outputs, not one", op.name(), outputs.len()),
        }
    }

    /// Records the kernel that turns a run of a file's rows in `file` into the arrays of `weight`.
    pub(super) fn repack(
        &self,
        weight: &Tensor,
        from: &'static Format,
        file: BufferSlice,
        params: [u32; 4],
    ) -> Result<()> {
        if self.device.is_cpu() {
            return self.take_rows_on_cpu(weight, from, file, params.map(|param| param as usize));
        }
        let DType::Weight(format) = weight.desc.dtype else {
            bail!(DtypeMismatch, "only weights are repacked, not {:?}", weight.desc)
        };
        let mut bindings = vec![Binding::Read(0, file)];
        for (array, slice) in weight.array_slices().into_iter().enumerate() {
            bindings.push(Binding::ReadWrite(FIRST_WEIGHT_ARRAY + array as u32, slice));
        }
        bindings.push(Binding::Uniform(PARAMS, bytemuck::cast_slice(&params)));
        let (label, kernel, value) = if from.name == format.name {
            (format!("repack_{}", format.name), format.repack, None)
        } else {
            let (kernel, value) = quantizer(from, format)?;
            (format!("quantize_{}_{}", from.name, format.name), kernel, Some(("file_value", value)))
        };
        let mut modules = MODULES.to_vec();
        modules.extend(value);
        let shader =
            Shader { label: &label, template: Template::Static(kernel), modules: &modules, defines: format.defines };
        // One block per invocation, or two; with two, the second half of the invocations returns at once.
        let limit = self.device.capabilities().max_workgroups_per_dimension;
        self.device.dispatch(&shader, &bindings, grid_2d((params[1] as usize).div_ceil(64), limit))
    }

    /// Reads tensors back: one submit, one map for all of them.
    pub async fn readback(&self, tensors: &[&Tensor]) -> Result<Vec<HostTensor>> {
        let mut slices = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            if matches!(tensor.desc.dtype, DType::Weight(_)) {
                bail!(DtypeMismatch, "weights are not read back");
            }
            slices.push(BufferSlice { size: tensor.bytes(), ..tensor.slice() });
        }
        let bytes = self.device.read(&slices)?.bytes().await?;
        let host = tensors.iter().zip(bytes);
        Ok(host.map(|(tensor, bytes)| HostTensor { shape: tensor.shape(), dtype: tensor.dtype(), bytes }).collect())
    }

    /// Reads one tensor back.
    pub async fn readback_one(&self, tensor: &Tensor) -> Result<HostTensor> {
        match self.readback(&[tensor]).await?.pop() {
            Some(host) => Ok(host),
            None => bail!(Internal, "a read-back of one tensor gave none"),
        }
    }

    /// Starts reading ranges of 4-byte elements of tensors: one submit, one map for all of them.
    pub fn start_readback(&self, ranges: &[(&Tensor, std::ops::Range<usize>)]) -> Result<crate::gpu::Readback> {
        let slices: Vec<BufferSlice> = ranges
            .iter()
            .map(|(tensor, range)| BufferSlice {
                buffer: tensor.buffer.clone(),
                offset: tensor.offset + range.start as u64 * 4,
                size: range.len() as u64 * 4,
            })
            .collect();
        self.device.read(&slices)
    }

    /// Compiles what a step will need, without running it and without blocking the page.
    pub fn prepare<T>(&self, step: impl FnOnce() -> Result<T>) -> LocalBoxFuture<'static, Result<()>> {
        self.device.prepare(step)
    }

    /// Records a step and keeps it for replays; its own tensors lie in an arena. The step must do the same each time it is
    /// called, and neither write nor read back.
    pub async fn plan<T>(&self, step: impl Fn() -> Result<T>) -> Result<(T, Plan)> {
        let (result, recording) = self.device.capture(step).await?;
        Ok((result, Plan(recording)))
    }

    /// Records all commands of a plan again.
    pub fn replay(&self, plan: &Plan) -> Result<()> {
        self.device.replay(&plan.0)
    }

    /// Runs a case's op on the GPU. Returns the outputs, then the inputs that it changed.
    pub async fn run_case(&self, case: &Case) -> Result<Vec<HostTensor>> {
        let inputs = case.inputs.iter().map(|host| self.tensor(host)).collect::<Result<Vec<Tensor>>>()?;
        let outputs = self.run(&*case.op, &inputs.iter().collect::<Vec<_>>())?;
        let changed = case.op.mutates().iter().map(|index| &inputs[*index]);
        self.readback(&outputs.iter().chain(changed).collect::<Vec<_>>()).await
    }
}

/// `n` workgroups as a grid of at most `limit` in x; kernels number them `y · groups.x + x` and stop past the end.
pub fn grid_2d(n: usize, limit: u32) -> [u32; 3] {
    let n = n.max(1) as u32;
    let rows = n.div_ceil(limit);
    [n.div_ceil(rows), rows, 1]
}

/// The define for kernels that sum over a subgroup, if there is one, and the number of lanes that may share a sum.
pub(super) fn subgroup_lanes(capabilities: &Capabilities, most: u32) -> Option<u32> {
    let (smallest, _) = capabilities.subgroups?;
    // A power of two, which the butterfly sum needs.
    (smallest >= 2).then(|| most.min(1 << smallest.ilog2()))
}

/// Flags to pass with `subgroup_lanes`.
pub(super) fn lanes_defines(workgroup: u32, lanes: Option<u32>) -> Vec<(&'static str, Define)> {
    let mut defines = vec![("WORKGROUP", Define::U32(workgroup)), ("LANES", Define::U32(lanes.unwrap_or(workgroup)))];
    if lanes.is_some() {
        defines.push(("SUBGROUPS", Define::Flag));
    }
    defines
}
