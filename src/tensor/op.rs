//! What an operation is: shape inference and a kernel; and, for tests, a plain CPU reference that they hold the kernel to.

use super::{DType, HostTensor, Shape, Variant};
use crate::error::Result;
use crate::gpu::{Capabilities, Define, Grid};

/// A tensor's shape and dtype, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desc {
    pub shape: Shape,
    pub dtype: DType,
}

impl Desc {
    pub fn f32(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::F32 }
    }

    pub fn u32(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::U32 }
    }

    /// Of so many words of four int8.
    pub fn i8x4(dims: &[usize]) -> Self {
        Self { shape: Shape::new(dims), dtype: DType::I8x4 }
    }
}

/// How an op runs on the GPU for given inputs.
///
/// Bindings follow from the op's tensors: inputs in order and then outputs at 0, 1, 2 …, leaving out weights; the planes of
/// the weight input (an op takes at most one) at 10, 11 …; the parameters at 20.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The WGSL template; the format of a weight input is importable as `"weight"`.
    pub template: &'static str,
    /// Further modules that the template imports, by name.
    pub modules: &'static [(&'static str, &'static str)],
    pub defines: Vec<(&'static str, Define)>,
    /// The uniform block, as 32-bit words.
    pub params: Vec<u32>,
    pub grid: Grid,
}

/// An operation with its parameters.
pub trait Op {
    /// The one name of the op: of its file, its kernel, its pipeline and its tests.
    fn name(&self) -> &'static str;

    /// Which inputs the kernel writes, by index. They are bound read-write and are no other input of the same call.
    fn mutates(&self) -> &'static [usize] {
        &[]
    }

    /// The outputs, or why the inputs don't fit.
    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>>;

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel>;

    /// Ways to run the kernel that give the same and may be faster on some GPU: what autotuning compares with `kernel`. That one may
    /// be among them.
    fn variants(&self, _inputs: &[Desc], _capabilities: &Capabilities) -> Vec<Variant> {
        Vec::new()
    }

    /// The kernel as one of the `variants` for such inputs.
    fn kernel_as(
        &self,
        _variant: &Variant,
        inputs: &[Desc],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        self.kernel(inputs, outputs, capabilities)
    }

    /// The sizes that decide which variant is the fastest: what was chosen for them holds wherever they are the same.
    fn tuning_sizes(&self, inputs: &[Desc]) -> [usize; 3] {
        let weight = inputs.iter().find(|input| matches!(input.dtype, DType::Weight(_)));
        match weight.map(|weight| weight.shape.dims()) {
            Some([rows, columns]) => [*rows, *columns, 0],
            _ => [0; 3],
        }
    }
}

/// What tests hold an op's kernel to. Only test cases name it, and they only stand in the lists that tests walk: so nothing of it is
/// linked into the wasm that users download.
pub trait Reference: Op {
    /// The same on the CPU, in plain loops: returns the outputs and changes the mutated inputs in place.
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>>;
}

/// An op with inputs that tests run on the GPU and on the CPU.
pub struct Case {
    pub op: Box<dyn Reference>,
    pub inputs: Vec<HostTensor>,
    /// The most that ‖gpu − reference‖ / ‖reference‖ may be.
    pub tolerance: f64,
}

impl Case {
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
