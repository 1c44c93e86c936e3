//! The product of each head's numbers with a matrix of that head, for attention over latents (DeepSeek-AI 2024, "DeepSeek-V2"): queries are
//! brought to the latents' space, and the sums over latents to values. Heads may lie apart in the input and in the output.

use rillm_cpu_kernels::add_scaled;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::{linear_rows, rows};
use crate::tensor::cpu::{filled, fits};
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::quant::{BLOCK, FORMATS};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, heads · of_head], where the first `columns` numbers of a head count, weight [heads_here · rows, columns], and out
/// [tokens, heads · of_out_head] (changed: the `rows` numbers from `out_first` on of each head). `heads_here` are all heads, or, if the weight
/// is a part of the stack, those from `first_head` on. With `transposed` the weight is [heads_here · columns, rows].
#[derive(Clone, Copy, Debug)]
pub struct HeadProducts {
    /// All heads, also if the weight holds a part of them.
    pub heads: usize,
    /// The first head of the weight.
    pub first_head: usize,
    /// The length of a head's input.
    pub columns: usize,
    /// The length of its output.
    pub rows: usize,
    /// Where the output begins in a head.
    pub out_first: usize,
    /// The matrices are transposed.
    pub transposed: bool,
}

const WORKGROUP: usize = 64;

impl HeadProducts {
    /// More would not fit the workgroup memory that every WebGPU device has.
    pub const MAX_COLUMNS: usize = 1024;

    /// The numbers of a matrix's row in memory, and how many of them a head has.
    fn of_weight(&self) -> (usize, usize) {
        if self.transposed { (self.rows, self.columns) } else { (self.columns, self.rows) }
    }
}

impl Op for HeadProducts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "head_products"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("head_products", inputs, &[f32, None, f32])?;
        let (tokens, x_columns) = inputs[0].shape.matrix()?;
        let (weight_rows, weight_columns) = inputs[1].shape.matrix()?;
        let (out_tokens, out_columns) = inputs[2].shape.matrix()?;
        let (length, of_head) = self.of_weight();
        let heads = self.heads.max(1);
        let fits = self.columns > 0
            && self.rows > 0
            && self.columns <= Self::MAX_COLUMNS
            && tokens == out_tokens
            && x_columns.is_multiple_of(heads)
            && x_columns / heads >= self.columns
            && out_columns.is_multiple_of(heads)
            && out_columns / heads >= self.out_first + self.rows
            && weight_columns == length
            && weight_rows.is_multiple_of(of_head)
            && self.first_head + weight_rows / of_head <= self.heads;
        if !fits {
            bail!(
                ShapeMismatch,
                "{self:?} of x {}, weight {} and out {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape
            );
        }
        fits_u32("head_products", inputs[0].shape.dims())?;
        fits_u32("head_products", inputs[2].shape.dims())?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, x_columns) = inputs[0].shape.matrix()?;
        let (weight_rows, _) = inputs[1].shape.matrix()?;
        let (_, out_columns) = inputs[2].shape.matrix()?;
        let (length, of_head) = self.of_weight();
        let heads_here = weight_rows / of_head;
        let blocks = length.div_ceil(BLOCK);
        let mut defines = vec![("VECTORS", Define::U32((self.columns.next_multiple_of(BLOCK) / 4) as u32))];
        let of_workgroup = if self.transposed {
            // Teams of invocations share a block of outputs, each for some of the columns.
            let blocks_here = blocks.next_power_of_two().min(WORKGROUP);
            defines.extend([
                ("TRANSPOSED", Define::Flag),
                ("BLOCKS", Define::U32(blocks_here as u32)),
                ("SHARES", Define::U32((WORKGROUP / blocks_here) as u32)),
            ]);
            blocks_here * BLOCK
        } else {
            WORKGROUP
        };
        let limit = capabilities.max_workgroups_per_dimension;
        let (groups, items) = (self.rows.div_ceil(of_workgroup) as u32, (tokens * heads_here) as u32);
        let planes = items.div_ceil(limit).max(1);
        if groups > limit || planes > limit {
            bail!(
                AdapterLimits,
                "head_products: {items} heads, and this adapter allows {limit} workgroups a dimension"
            );
        }
        Ok(Kernel {
            template: crate::shader!("head_products.wgsl"),
            modules: &[],
            defines,
            params: vec![
                items,
                self.heads as u32,
                self.first_head as u32,
                heads_here as u32,
                (x_columns / self.heads) as u32,
                self.columns as u32,
                self.rows as u32,
                blocks as u32,
                (out_columns / self.heads) as u32,
                self.out_first as u32,
            ],
            grid: [groups, items.div_ceil(planes), planes],
        })
    }
}

impl Reference for HeadProducts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, x_columns) = inputs[0].shape.matrix()?;
        let (x, weight, mut out) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let (of_head, of_out) = (x_columns / self.heads, out.len() / tokens / self.heads);
        let matrix = self.rows * self.columns;
        for token in 0..tokens {
            for (number, weights) in weight.chunks_exact(matrix).enumerate() {
                let head = token * self.heads + self.first_head + number;
                let x = &x[head * of_head..][..self.columns];
                for row in 0..self.rows {
                    let at = |column: usize| {
                        if self.transposed { column * self.rows + row } else { row * self.columns + column }
                    };
                    let products =
                        x.iter().enumerate().map(|(column, x)| f64::from(*x) * f64::from(weights[at(column)]));
                    out[head * of_out + self.out_first + row] = products.sum::<f64>() as f32;
                }
            }
        }
        inputs[2].set_f32(&out);
        Ok(vec![])
    }

    /// Head by head. Of a matrix that is transposed one row at a time is added up, as floats.
    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, weight, out] = &mut tensors.inputs[..] else { bail!(Internal, "head_products without three inputs") };
        let (tokens, x_columns) = x.desc.shape.matrix()?;
        let (_, out_columns) = out.desc.shape.matrix()?;
        let (of_x, of_out) = (x_columns / self.heads, out_columns / self.heads);
        let (x, out) = (x.f32s()?, out.f32s_mut()?);
        let (length, of_head) = self.of_weight();
        let (all, _) = weight.desc.shape.matrix()?;
        let mut numbers = filled(0.0, if self.transposed { of_head * length } else { 0 })?;
        for number in 0..all / of_head {
            let (head, of_weight) = (self.first_head + number, number * of_head..(number + 1) * of_head);
            let x = |token: usize| &x[token * x_columns + head * of_x..][..self.columns];
            let place = |token: usize| {
                let first = token * out_columns + head * of_out + self.out_first;
                first..first + self.rows
            };
            if !self.transposed {
                let of_head: Vec<f32> = (0..tokens).flat_map(x).copied().collect();
                let products = linear_rows(weight, of_weight, &of_head)?;
                for (token, products) in products.chunks_exact(self.rows).enumerate() {
                    out[place(token)].copy_from_slice(products);
                }
                continue;
            }
            rows(weight, of_weight, &mut numbers)?;
            for token in 0..tokens {
                let out = &mut out[place(token)];
                out.fill(0.0);
                for (x, numbers) in x(token).iter().zip(numbers.chunks_exact(length)) {
                    fits(add_scaled(out, *x, numbers))?;
                }
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(611);
    let mut cases = Vec::new();
    for format in FORMATS {
        // tokens, heads, heads of the weight, the first of them, columns, rows, numbers of a head besides in x and in out
        for (tokens, heads, here, first_head, columns, rows, besides) in
            [(1, 1, 1, 0, 32, 32, 0), (3, 5, 5, 0, 12, 20, 8), (2, 6, 2, 3, 256, 96, 16), (1, 3, 3, 0, 96, 2304, 2)]
        {
            for transposed in [false, true] {
                let op = HeadProducts { heads, first_head, columns, rows, out_first: besides, transposed };
                let (length, of_head) = op.of_weight();
                if length % format.block_size != 0 {
                    continue;
                }
                let inputs = vec![
                    rng.tensor(&[tokens, heads * (columns + besides)]),
                    rng.weight(format, here * of_head, length),
                    rng.tensor(&[tokens, heads * (rows + besides)]),
                ];
                cases.push(Case::new(op, inputs, 1e-5));
            }
        }
    }
    cases
}
