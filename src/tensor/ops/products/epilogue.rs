//! The end of matrix products besides storing the result: a bias and a residual need no dispatch of their own
//! (`wgsl/epilogue.wgsl`).

use rillm_cpu_kernels::add;

use crate::error::Result;
use crate::gpu::Define;
use crate::tensor::cpu::linear::{linear, write_linear};
use crate::tensor::op::expect;
use crate::tensor::{CpuTensors, DType, Desc, HostTensor};

/// Further inputs of a product, after its operands: an optional bias [rows]; then an optional residual [tokens, rows], to which the
/// product is added instead of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epilogue {
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether the product is added to a residual stream.
    pub residual: bool,
}

impl Epilogue {
    /// Only store the product.
    pub const NONE: Epilogue = Epilogue { bias: false, residual: false };

    /// The inputs that the kernel writes, if `operands` come first.
    pub(super) fn mutates(self, operands: usize) -> &'static [usize] {
        match (self.residual, operands + usize::from(self.bias)) {
            (true, 2) => &[2],
            (true, 3) => &[3],
            (true, 4) => &[4],
            _ => &[],
        }
    }

    /// The outputs of a product [tokens, rows], or an error if the inputs after its operands don't fit.
    pub(super) fn infer(self, op: &str, inputs: &[Desc], operands: usize, product: Desc) -> Result<Vec<Desc>> {
        let further = inputs.get(operands..).unwrap_or_default();
        let count = usize::from(self.bias) + usize::from(self.residual);
        expect(op, further, &[Some(DType::F32), Some(DType::F32)][..count])?;
        let (_, rows) = product.shape.matrix()?;
        if self.bias && further[0].shape.dims() != [rows] {
            bail!(ShapeMismatch, "{op}: bias {} for the {rows} columns of {}", further[0].shape, product.shape);
        }
        if self.residual && further[count - 1].shape != product.shape {
            bail!(ShapeMismatch, "{op}: {} is to be added to a residual {}", product.shape, further[count - 1].shape);
        }
        Ok(if self.residual { vec![] } else { vec![product] })
    }

    /// For kernels whose operands take the bindings below `first`.
    pub(super) fn defines(self, first: u32) -> Vec<(&'static str, Define)> {
        let mut defines = vec![("OUT_BINDING", Define::U32(first + u32::from(self.bias)))];
        if self.bias {
            defines.extend([("BIAS", Define::Flag), ("BIAS_BINDING", Define::U32(first))]);
        }
        if self.residual {
            defines.push(("RESIDUAL", Define::Flag));
        }
        defines
    }

    /// Where the device is the CPU, for a product [tokens, rows].
    pub(super) fn on_cpu(self, tensors: &mut CpuTensors<'_>, operands: usize, mut product: Vec<f32>) -> Result<()> {
        if self.bias {
            add_bias(tensors.input(operands)?.f32s()?, &mut product);
        }
        if !self.residual {
            return tensors.output(0)?.write_f32s(&product);
        }
        let residual = tensors.changed(operands + usize::from(self.bias))?.f32s_mut()?;
        add(residual, &product);
        Ok(())
    }

    /// The same for the product of the first two inputs, written to its place at once if that is an output.
    pub(super) fn multiply_on_cpu(self, mut tensors: CpuTensors<'_>) -> Result<()> {
        if self.residual {
            let product = linear(tensors.input(1)?, tensors.input(0)?.f32s()?)?;
            return self.on_cpu(&mut tensors, 2, product);
        }
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let ([x, weight, more @ ..], [out]) = (&inputs[..], &mut outputs[..]) else {
            bail!(Internal, "a product of {} inputs with {} outputs", inputs.len(), outputs.len())
        };
        let out = out.f32s_mut()?;
        write_linear(weight, x.f32s()?, out)?;
        if let (true, [bias, ..]) = (self.bias, more) {
            add_bias(bias.f32s()?, out);
        }
        Ok(())
    }

    /// The same for the reference.
    pub(super) fn reference(
        self,
        inputs: &mut [HostTensor],
        operands: usize,
        mut product: Vec<f64>,
        dims: [usize; 2],
    ) -> Result<Vec<HostTensor>> {
        if self.bias {
            let bias = inputs[operands].to_f32()?;
            for row in product.chunks_exact_mut(dims[1]) {
                row.iter_mut().zip(&bias).for_each(|(value, bias)| *value += f64::from(*bias));
            }
        }
        if self.residual {
            let residual = &mut inputs[operands + usize::from(self.bias)];
            let sum: Vec<f32> =
                residual.to_f32()?.iter().zip(&product).map(|(x, y)| (f64::from(*x) + y) as f32).collect();
            residual.set_f32(&sum);
            return Ok(vec![]);
        }
        let product: Vec<f32> = product.iter().map(|value| *value as f32).collect();
        Ok(vec![HostTensor::f32(&dims, &product)])
    }
}

/// Adds a bias to each row.
pub(super) fn add_bias(bias: &[f32], rows: &mut [f32]) {
    rows.chunks_exact_mut(bias.len().max(1)).for_each(|row| add(row, bias));
}
