//! The products of `mat_mul_experts` with int8 activations: the kernel of `mat_mul_int8`, whose tiles are runs of pairs of one expert. The
//! precision `fast`.

use super::group_experts::{GroupExperts, random_ids};
use super::mat_vec_experts::biases_fit;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::expect;
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

const OPERANDS: usize = 5;

impl Op for MatMulExpertsInt8 {
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
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        let wanted = [Some(DType::I8x4), f32, u32, u32, None, f32, f32];
        expect("mat_mul_experts_int8", inputs, &wanted[..self.out() + usize::from(self.part.is_some())])?;
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
        let (all_rows, columns) = inputs[4].shape.matrix()?;
        let out = inputs.get(self.out());
        let rows_fit = match (self.part, out) {
            (Some(first), Some(out)) => {
                let (out_rows, rows) = out.shape.matrix()?;
                out_rows == pairs && all_rows.is_multiple_of(rows) && first + all_rows / rows <= self.experts
            }
            _ => self.experts > 0 && all_rows.is_multiple_of(self.experts),
        };
        let fits = pairs.is_multiple_of(x_rows)
            && tile_words == 4
            && words * 4 == columns
            && inputs[1].shape.dims() == [x_rows, columns / BLOCK]
            && rows_fit
            && biases_fit(self.bias.then(|| &inputs[OPERANDS]), self.experts, out, all_rows);
        if !fits {
            let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
            bail!(ShapeMismatch, "mat_mul_experts_int8: {shapes:?} for {self:?}");
        }
        Ok(if self.part.is_some() { vec![] } else { vec![Desc::f32(&[pairs, all_rows / self.experts])] })
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        self.kernel_of(most_buffers(&inputs[4], capabilities), inputs, outputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        (1..=most_buffers(&inputs[4], capabilities)).map(|buffers| Variant::new(&[("buffers", buffers)])).collect()
    }

    fn kernel_as(
        &self,
        variant: &Variant,
        inputs: &[Desc],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        self.kernel_of(variant.get("buffers"), inputs, outputs, capabilities)
    }
}

impl Reference for MatMulExpertsInt8 {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (x_rows, _) = inputs[0].shape.matrix()?;
        let (_, columns) = inputs[4].shape.matrix()?;
        let (quants, scales, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[4].to_f32()?);
        let x: Vec<f64> =
            quants.iter().enumerate().map(|(i, q)| f64::from(*q) * f64::from(scales[i / BLOCK])).collect();
        let (order, tiles) = (inputs[2].to_u32()?, inputs[3].to_u32()?);
        let bias = if self.bias { inputs[OPERANDS].to_f32()? } else { vec![] };
        let (first, rows) = match (self.part, inputs.get(self.out())) {
            (Some(first), Some(out)) => (first, out.shape.dims()[1]),
            _ => (0, weight.len() / columns / self.experts),
        };
        let mut out = match inputs.get(self.out()) {
            Some(out) => out.to_f32()?,
            None => vec![0.0; order.len() * rows],
        };
        let matrices: Vec<&[f32]> = weight.chunks_exact(rows * columns).collect();
        for tile in tiles.chunks_exact(4) {
            let Some(matrix) = (tile[0] as usize).checked_sub(first).and_then(|here| matrices.get(here)) else {
                continue;
            };
            for pair in &order[tile[1] as usize..][..tile[2] as usize] {
                let pair = *pair as usize;
                let x = &x[pair / (order.len() / x_rows) * columns..][..columns];
                for (at, row) in matrix.chunks_exact(columns).enumerate() {
                    let product = x.iter().zip(row).map(|(x, w)| x * f64::from(*w)).sum::<f64>();
                    let bias = bias.get(tile[0] as usize * rows + at).map_or(0.0, |bias| f64::from(*bias));
                    out[pair * rows + at] = (product + bias) as f32;
                }
            }
        }
        if let Some(changed) = inputs.get_mut(self.out()) {
            changed.set_f32(&out);
            return Ok(vec![]);
        }
        Ok(vec![HostTensor::f32(&[order.len(), rows], &out)])
    }
}

impl MatMulExpertsInt8 {
    /// The output of a part among the inputs.
    fn out(&self) -> usize {
        OPERANDS + usize::from(self.bias)
    }

    fn kernel_of(
        &self,
        buffers: u32,
        inputs: &[Desc],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        let (x_rows, words) = inputs[0].shape.matrix()?;
        let (pairs, rows) = inputs.get(self.out()).unwrap_or_else(|| &outputs[0]).shape.matrix()?;
        let mut defines = vec![
            ("EXPERTS", Define::Flag),
            ("BUFFERS", Define::U32(buffers)),
            ("OUT_BINDING", Define::U32(4 + u32::from(self.bias))),
        ];
        defines.extend(self.bias.then_some(("BIAS", Define::Flag)));
        defines.extend(capabilities.packed_dot.then_some(("PACKED_DOT", Define::Flag)));
        let numbers =
            [rows, words * 4 / BLOCK, pairs / x_rows, self.part.unwrap_or(0), inputs[4].shape.dims()[0] / rows];
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
        // tokens, used, experts, rows, columns
        let shapes = [(1, 1, 1, 1, 32), (37, 3, 5, 67, 96), (9, 8, 64, 19, 256), (131, 2, 4, 130, 544)];
        for (index, (tokens, used, experts, rows, columns)) in shapes.into_iter().enumerate() {
            // The first two formats take all shapes; each shape is also taken by several of the others.
            if number > 1 && !(index + number).is_multiple_of(3) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            // The whole stack, and a part of it that has the experts of some of the ids.
            for (all, part) in [(experts, None), (experts + 3, Some(2))] {
                let mut ids = [random_ids(&mut rng, tokens, used, all)];
                let Ok(grouped) = (GroupExperts { experts: all }).reference(&mut ids) else { continue };
                let x_rows = if cases.len() % 2 == 0 { tokens } else { tokens * used };
                let quants: Vec<i8> = (0..x_rows * columns).map(|_| (rng.below(255) as i32 - 127) as i8).collect();
                let mut inputs =
                    vec![HostTensor::i8x4(&[x_rows, columns / 4], &quants), rng.tensor(&[x_rows, columns / BLOCK])];
                inputs.extend(grouped);
                inputs.push(rng.weight(format, experts * rows, columns));
                let bias = cases.len() % 3 == 1;
                inputs.extend(bias.then(|| rng.tensor(&[all, rows])));
                inputs.extend(part.map(|_| rng.tensor(&[tokens * used, rows])));
                cases.push(Case::new(MatMulExpertsInt8 { experts: all, bias, part }, inputs, 1e-5));
            }
        }
    }
    cases
}
