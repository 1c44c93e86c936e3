//! Kernels of the caller's own, and dispatches of them.

use std::cell::OnceCell;
use std::rc::Rc;

use js_sys::Uint8Array;
use wasm_bindgen::JsCast;

use crate::array::Array;
use crate::error::Result;
use crate::gpu::{Binding, Buffer, Device, Grid, Pipeline, Shader, Template};
use crate::tensor::Tensor;

/// The description of a binding from JavaScript.
#[derive(Clone, Copy)]
enum Kind {
    Read,
    ReadWrite,
    Uniform,
}

/// A kernel of the caller's.
pub struct Kernel {
    label: String,
    wgsl: String,
    bindings: Vec<Kind>,
    /// Once it is compiled.
    pipeline: OnceCell<Rc<Pipeline>>,
}

/// A dispatch of a kernel of the caller's.
pub struct Dispatch {
    kernel: Rc<Kernel>,
    /// The numbers of its tensors, in the order of the bindings.
    pub tensors: Vec<u32>,
    uniforms: Vec<Vec<u8>>,
    grid: Grid,
}

impl Kernel {
    pub fn new(label: String, wgsl: String, bindings: &[String], workgroup: &[u32]) -> Result<Self> {
        let &[x, y, z] = workgroup else { bail!(InvalidRequest, "a workgroup has three numbers, not {workgroup:?}") };
        let bindings = bindings
            .iter()
            .map(|kind| match kind.as_str() {
                "read" => Ok(Kind::Read),
                "read_write" => Ok(Kind::ReadWrite),
                "uniform" => Ok(Kind::Uniform),
                _ => bail!(InvalidRequest, "{label}: a binding is read, read_write or uniform, not {kind}"),
            })
            .collect::<Result<Vec<Kind>>>()?;
        // At the end, so that line numbers of the caller's text stay the same.
        let wgsl = format!(
            "{wgsl}\nconst WORKGROUP_X: u32 = {x}u;\nconst WORKGROUP_Y: u32 = {y}u;\nconst WORKGROUP_Z: u32 = {z}u;\n"
        );
        Ok(Self { label, wgsl, bindings, pipeline: OnceCell::new() })
    }

    /// Compiles the kernel without running it: the dispatch is only traced.
    pub async fn compile(&self, device: &Device) -> Result<()> {
        let traced = || {
            let some = device.buffer(256, "kernel")?;
            device.dispatch(&self.shader(), &self.bindings_of(&some), [1, 1, 1])
        };
        device.prepare(traced).await?;
        let some = device.buffer(256, "kernel")?;
        let pipeline = device.pipeline(&self.shader(), &self.bindings_of(&some))?;
        self.pipeline.get_or_init(|| pipeline);
        Ok(())
    }

    /// Bindings of its kinds, to compile it.
    fn bindings_of(&self, some: &Buffer) -> Vec<Binding<'_>> {
        let binding = |(kind, number): (&Kind, u32)| match kind {
            Kind::Read => Binding::Read(number, some.slice()),
            Kind::ReadWrite => Binding::ReadWrite(number, some.slice()),
            Kind::Uniform => Binding::Uniform(number, &[]),
        };
        self.bindings.iter().zip(0..).map(binding).collect()
    }

    fn shader(&self) -> Shader<'_> {
        Shader { label: &self.label, template: Template::Text(&self.wgsl), modules: &[], defines: &[] }
    }
}

impl Dispatch {
    /// What JavaScript says of a dispatch: tensors as numbers, uniforms as bytes.
    pub fn new(kernel: Rc<Kernel>, values: &js_sys::Array, grid: &[u32]) -> Result<Self> {
        let &[x, y, z] = grid else { bail!(InvalidRequest, "a grid has three numbers, not {grid:?}") };
        if values.length() as usize != kernel.bindings.len() {
            bail!(InvalidRequest, "{}: {} bindings, not {}", kernel.label, kernel.bindings.len(), values.length());
        }
        let (mut tensors, mut uniforms) = (Vec::with_capacity(kernel.bindings.len()), Vec::new());
        for (kind, value) in kernel.bindings.iter().zip(values.iter()) {
            match (kind, value.dyn_ref::<Uint8Array>(), value.as_f64()) {
                (Kind::Uniform, Some(bytes), _) => uniforms.push(bytes.to_vec()),
                (Kind::Read | Kind::ReadWrite, _, Some(id)) => tensors.push(id as u32),
                _ => bail!(InvalidRequest, "{}: a tensor for a uniform, or bytes for a tensor", kernel.label),
            }
        }
        Ok(Self { kernel, tensors, uniforms, grid: [x, y, z] })
    }

    /// The memory of its tensors, as the kernel's bindings use it.
    pub fn bound(&self, tensors: &[Array]) -> Result<Vec<Tensor>> {
        let label = &self.kernel.label;
        let kinds: Vec<Kind> =
            self.kernel.bindings.iter().filter(|kind| !matches!(kind, Kind::Uniform)).copied().collect();
        for (at, (kind, tensor)) in kinds.iter().zip(tensors).enumerate() {
            if !matches!(kind, Kind::ReadWrite) {
                continue;
            }
            for (other, shared) in tensors.iter().enumerate() {
                if other != at && shared.elements() > 0 && shared.shares_memory(tensor)? {
                    bail!(
                        InvalidRequest,
                        "{label}: tensor {at} is written and shares memory with tensor {other}: WebGPU allows a buffer that a \
                         dispatch writes in one binding only"
                    );
                }
            }
        }
        let bound = |(kind, tensor): (&Kind, &Array)| match kind {
            Kind::ReadWrite => tensor.writable_tensor(label),
            _ => tensor.readable_tensor(),
        };
        kinds.iter().zip(tensors).map(bound).collect()
    }

    /// Records it with these tensors.
    pub fn record(&self, device: &Device, tensors: &[Tensor]) -> Result<()> {
        let Self { kernel, uniforms, grid, .. } = self;
        let (mut slices, mut uniforms) = (tensors.iter().map(Tensor::slice), uniforms.iter());
        let bindings: Vec<Binding<'_>> = kernel
            .bindings
            .iter()
            .zip(0..)
            .filter_map(|(kind, number)| {
                Some(match kind {
                    Kind::Read => Binding::Read(number, slices.next()?),
                    Kind::ReadWrite => Binding::ReadWrite(number, slices.next()?),
                    Kind::Uniform => Binding::Uniform(number, uniforms.next()?),
                })
            })
            .collect();
        let shader = kernel.shader();
        match kernel.pipeline.get() {
            Some(pipeline) => device.dispatch_compiled(&shader, pipeline, &bindings, *grid),
            None => device.dispatch(&shader, &bindings, *grid),
        }
    }
}
