//! What an operation is: shape inference and a kernel; and, for tests, a simple CPU reference to compare the kernel with.

use super::on_cpu::{CpuOp, CpuTensors, by_reference};
use super::{DType, HostTensor, Shape, Variant};
use crate::error::Result;
use crate::gpu::{Capabilities, Define, Grid};

/// A tensor's shape and dtype, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desc {
    /// The shape, in elements; in words for `DType::I8x4`.
    pub shape: Shape,
    /// The type of the elements.
    pub dtype: DType,
}

impl Desc {
    /// f32 of this shape.
    pub fn f32(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::F32 }
    }

    /// u32 of this shape.
    pub fn u32(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::U32 }
    }

    /// A shape counted in words of four int8.
    pub fn i8x4(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::I8x4 }
    }
}

/// How an op runs on the GPU for given inputs.
///
/// Bindings follow from the op's tensors: inputs in order and then outputs at 0, 1, 2 …, leaving out weights; the arrays of
/// the weight input (an op takes at most one) at 10, 11 …; the parameters at 20.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The WGSL template; the format of a weight input is importable as `"weight"`.
    pub template: &'static str,
    /// Further modules that the template imports, by name.
    pub modules: &'static [(&'static str, &'static str)],
    /// Names for `#ifdef`, and constants of the kernel.
    pub defines: Vec<(&'static str, Define)>,
    /// The uniform block, as 32-bit words.
    pub params: Vec<u32>,
    /// Workgroups in x, y and z.
    pub grid: Grid,
}

/// An operation with its parameters.
pub trait Op {
    /// The one name of the op: of its file, its kernel, its pipeline and its tests.
    fn name(&self) -> &'static str;

    /// What callers know it by, in messages.
    fn title(&self) -> &'static str {
        self.name()
    }

    /// The indices of the inputs that the kernel writes. They are bound read-write, so no other input of a call may be the same.
    fn mutates(&self) -> &'static [usize] {
        &[]
    }

    /// The descriptions of the outputs, or an error if the inputs don't fit.
    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>>;

    /// The default kernel for inputs and outputs that `infer` accepted. An error if the adapter's limits don't allow it.
    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel>;

    /// Other ways to run the kernel, with the same results, that may be faster on some GPUs. Autotuning compares them with
    /// `kernel`, which may be among them.
    fn variants(&self, _inputs: &[Desc], _capabilities: &Capabilities) -> Vec<Variant> {
        Vec::new()
    }

    /// The kernel of one of the `variants` for these inputs.
    fn kernel_as(
        &self,
        _variant: &Variant,
        inputs: &[Desc],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        self.kernel(inputs, outputs, capabilities)
    }

    /// The op as a function of the CPU, which `on_cpu!` gives.
    fn on_cpu(&self) -> Option<CpuOp> {
        None
    }

    /// The sizes that decide which variant is fastest. Calls with equal sizes share a choice.
    fn tuning_sizes(&self, inputs: &[Desc]) -> [usize; 3] {
        let weight = inputs.iter().find(|input| matches!(input.dtype, DType::Weight(_)));
        match weight.map(|weight| weight.shape.dims()) {
            Some([rows, columns]) => [*rows, *columns, 0],
            _ => [0; 3],
        }
    }
}

/// The reference that tests compare an op's kernel with, and what runs where the device is the CPU. Besides `on_cpu!`, which the wasm of
/// the GPU leaves out, only test cases name it, so nothing of it is linked into that wasm.
pub trait Reference: Op {
    /// The same on the CPU, in simple loops: returns the outputs and changes the mutated inputs in place.
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>>;

    /// Runs it where the device is the CPU: by the reference, or by something faster that is held to the same cases.
    fn run_on_cpu(&self, tensors: CpuTensors<'_>) -> Result<()> {
        by_reference(self, tensors)
    }
}

/// The op as a function of the CPU, in an op's `impl Op`.
macro_rules! on_cpu {
    () => {
        #[cfg(feature = "cpu")]
        fn on_cpu(&self) -> Option<$crate::tensor::CpuOp> {
            Some(std::sync::Arc::new(self.clone()))
        }
    };
}
pub(crate) use on_cpu;

/// An op with inputs that tests run on the GPU and on the CPU.
pub struct Case {
    /// The op under test.
    pub op: Box<dyn Reference>,
    /// All inputs, those that it changes included.
    pub inputs: Vec<HostTensor>,
    /// The largest allowed ‖gpu − reference‖ / ‖reference‖.
    pub tolerance: f64,
}

impl Case {
    /// A case whose relative error may be up to `tolerance`.
    pub fn new(op: impl Reference + 'static, inputs: Vec<HostTensor>, tolerance: f64) -> Self {
        Self { op: Box::new(op), inputs, tolerance }
    }
}

/// Checks the number of inputs and that those with a given dtype have it (`None`: any weight format).
pub fn expect(op: &str, inputs: &[Desc], wanted: &[Option<DType>]) -> Result<()> {
    if inputs.len() != wanted.len() {
        bail!(ShapeMismatch, "{op} takes {} inputs, not {}", wanted.len(), inputs.len());
    }
    for (index, (input, wanted)) in inputs.iter().zip(wanted).enumerate() {
        match wanted {
            Some(dtype) if input.dtype != *dtype => {
                bail!(DtypeMismatch, "{op}: input {index} is {:?}, wanted {dtype:?}", input.dtype)
            }
            None if !matches!(input.dtype, DType::Weight(_)) => {
                bail!(DtypeMismatch, "{op}: input {index} is {:?}, wanted a weight", input.dtype)
            }
            _ => {}
        }
    }
    Ok(())
}

/// The dimensions of an input [outer, n, inner], none of which is 0. Ops along a dimension of n see what stands before it and after
/// it as one dimension each.
pub fn folded(op: &str, what: &str, input: &Desc) -> Result<(usize, usize, usize)> {
    let [outer, n, inner] = *input.shape.dims() else {
        bail!(ShapeMismatch, "{op}: {what} is {}, wanted [outer, n, inner]", input.shape)
    };
    if outer == 0 || n == 0 || inner == 0 {
        bail!(ShapeMismatch, "{op}: {what} {} has no elements", input.shape);
    }
    fits_u32(op, &[outer, n, inner])?;
    Ok((outer, n, inner))
}

/// Checks that kernels can number the elements of a shape.
pub fn fits_u32(op: &str, dims: &[usize]) -> Result<()> {
    let elements = dims.iter().try_fold(1u32, |all, dim| all.checked_mul(u32::try_from(*dim).ok()?));
    match elements {
        Some(_) => Ok(()),
        None => bail!(ShapeMismatch, "{op}: {dims:?} has more than 2^32 elements"),
    }
}
