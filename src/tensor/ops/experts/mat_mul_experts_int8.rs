//! The products of `mat_mul_experts` with int8 activations: the kernel of `mat_mul_int8`, whose tiles are runs of pairs of one expert. The
//! precision `fast`.

use super::stack::{Stack, StackShape, add_grouped_cases};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::products::mat_mul_int8::{TILE_ROWS, most_buffers};
use crate::tensor::quant::{BLOCK, in_cases};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: quants [tokens, columns / 4] or [tokens · used, columns / 4] i8x4 and their scales [.., columns / 32], as `quantize` makes them, order
/// and tiles as `mat_mul_experts` has them, weight [experts · rows, columns] of a format with an int8 view, and with `bias` biases [experts, rows].
/// Output: [tokens · used, rows]. If the weight is a part of the stack, the output is a further input (changed: the rows of the part's experts).
#[derive(Clone, Copy, Debug)]
pub struct MatMulExpertsInt8 {
    /// The number of all experts, also if the weight holds a part.
    pub experts: usize,
    /// Whether experts have biases.
    pub bias: bool,
    /// The number of the weight's first expert, if it is a part of the stack.
    pub part: Option<usize>,
}

impl Op for MatMulExpertsInt8 {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_mul_experts_int8"
    }

    fn mutates(&self) -> &'static [usize] {
        match (self.part, self.bias) {
            (None, _) => &[],
            (Some(_), false) => &[5],
            (Some(_), true) => &[6],
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32, stack) = (Some(DType::F32), Some(DType::U32), self.stack());
        let wanted = [Some(DType::I8x4), f32, u32, u32, None, f32, f32];
        expect("mat_mul_experts_int8", inputs, &wanted[..stack.inputs()])?;
        if let DType::Weight(format) = inputs[4].dtype
            && format.int8.is_none()
        {
            bail!(
                DtypeMismatch,
                "mat_mul_experts_int8: {} weights can't be seen as int8; take mat_mul_experts",
                format.name
            );
        }
        let (x_rows, words) = inputs[0].shape.matrix()?;
        let pairs = inputs[2].shape.elements();
        let (_, tile_words) = inputs[3].shape.matrix()?;
        match stack.shape(inputs, pairs)? {
            Some(shape)
                if shape.columns == words * 4
                    && inputs[1].shape.dims() == [x_rows, shape.columns / BLOCK]
                    && pairs.is_multiple_of(x_rows)
                    && tile_words == 4 =>
            {
                Ok(stack.outputs(&shape, pairs))
            }
            _ => {
                let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
                bail!(ShapeMismatch, "mat_mul_experts_int8: {shapes:?} for {self:?}")
            }
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(most_buffers(&inputs[4], capabilities), inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        (1..=most_buffers(&inputs[4], capabilities)).map(|buffers| Variant::new(&[("buffers", buffers)])).collect()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(variant.get("buffers"), inputs, capabilities)
    }
}

impl Reference for MatMulExpertsInt8 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (quants, scales) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let x: Vec<f64> =
            quants.iter().enumerate().map(|(i, q)| f64::from(*q) * f64::from(scales[i / BLOCK])).collect();
        self.stack().multiply_groups(&x, inputs)
    }
}

impl MatMulExpertsInt8 {
    fn stack(&self) -> Stack {
        let Self { experts, bias, part } = *self;
        Stack { experts, bias, part, weight: 4 }
    }

    fn kernel_of(&self, buffers: u32, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (x_rows, words) = inputs[0].shape.matrix()?;
        let pairs = inputs[2].shape.elements();
        let Some(StackShape { rows, first, matrices, .. }) = self.stack().shape(inputs, pairs)? else {
            bail!(Internal, "mat_mul_experts_int8: a kernel of shapes that don't fit");
        };
        let mut defines = vec![
            ("EXPERTS", Define::Flag),
            ("BUFFERS", Define::U32(buffers)),
            ("OUT_BINDING", Define::U32(4 + u32::from(self.bias))),
        ];
        defines.extend(self.bias.then_some(("BIAS", Define::Flag)));
        defines.extend(capabilities.packed_dot.then_some(("PACKED_DOT", Define::Flag)));
        let numbers = [rows, words * 4 / BLOCK, pairs / x_rows, first, matrices];
        Ok(Kernel {
            template: crate::shader!("../products/mat_mul_int8.wgsl"),
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).to_vec(),
            // Tiles are the fastest index: neighbours may have the same expert, and share its weights.
            grid: [inputs[3].shape.dims()[0] as u32, rows.div_ceil(TILE_ROWS) as u32, 1],
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(101);
    let mut cases = Vec::new();
    for (number, format) in in_cases().filter(|format| format.int8.is_some()).enumerate() {
        let shapes = [[1, 1, 1, 1, 32], [37, 3, 5, 67, 96], [9, 8, 64, 19, 256], [131, 2, 4, 130, 544]];
        for (index, mut sizes) in shapes.into_iter().enumerate() {
            // The first two formats take all shapes; each shape is also taken by several of the others.
            if number > 1 && !(index + number).is_multiple_of(3) {
                continue;
            }
            let columns = usize::next_multiple_of(sizes[4], format.block_size);
            sizes[4] = columns;
            add_grouped_cases(
                &mut cases,
                &mut rng,
                format,
                sizes,
                |rng, x_rows| {
                    let quants: Vec<i8> = (0..x_rows * columns).map(|_| (rng.below(255) as i32 - 127) as i8).collect();
                    vec![HostTensor::i8x4(&[x_rows, columns / 4], &quants), rng.tensor(&[x_rows, columns / BLOCK])]
                },
                |experts, bias, part, inputs| Case::new(MatMulExpertsInt8 { experts, bias, part }, inputs, 1e-5),
            );
        }
    }
    cases
}
