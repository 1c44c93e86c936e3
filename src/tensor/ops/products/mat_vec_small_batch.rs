//! Products of 2 to 8 tokens' activations with a weight in any format: the mat-vecs of several sequences, or of a draft that is
//! verified.
//!
//! As with one token, reading the weight takes most of the time. So each block of it is read and unpacked once and multiplied with
//! all tokens, and lanes share the columns as in `mat_vec`. The number of tokens is a constant of the kernel, so that the sums of
//! each token are in registers. Software adapters take the product of many tokens without workgroup memory.

use super::mat_mul::direct_kernel;
use super::mat_vec::{LARGE_VOCABULARY, infer_linear, ragged, reference_linear, takes_case, weight_shapes};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::on_cpu;
use crate::tensor::ops::Epilogue;
use crate::tensor::quant::{BLOCK, FORMATS, in_cases};
use crate::tensor::soa::from_soa;
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, columns], weight [rows, columns], and those of the epilogue. Output: [tokens, rows], unless there is a
/// residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatVecSmallBatch {
    /// What happens to the product besides storing it.
    pub epilogue: Epilogue,
    /// Each token's activations are in SoA (`tensor/soa.rs`): neighbouring lanes then read side by side.
    pub soa: bool,
}

/// Rows that a team of lanes computes at once.
const ROWS: usize = 4;
const OPERANDS: usize = 2;

/// Flags for the tokens after the first two, for their number.
const TOKENS: [(&str, Define); 6] = [
    ("TOKEN_2", Define::Flag),
    ("TOKEN_3", Define::Flag),
    ("TOKEN_4", Define::Flag),
    ("TOKEN_5", Define::Flag),
    ("TOKEN_6", Define::Flag),
    ("TOKEN_7", Define::Flag),
];

impl MatVecSmallBatch {
    /// The most tokens that it takes.
    pub const MAX_TOKENS: usize = 2 + TOKENS.len();

    /// Whether it takes this number of tokens.
    pub fn takes(tokens: usize) -> bool {
        (2..=Self::MAX_TOKENS).contains(&tokens)
    }

    /// Whether rows of `columns` can be in SoA: whole blocks of 32.
    pub fn can_be_soa(columns: usize) -> bool {
        columns.is_multiple_of(BLOCK)
    }
}

impl Op for MatVecSmallBatch {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_vec_small_batch"
    }

    fn mutates(&self) -> &'static [usize] {
        self.epilogue.mutates(OPERANDS)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let product = infer_linear("mat_vec_small_batch", &inputs[..OPERANDS.min(inputs.len())])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        if !Self::takes(tokens) {
            bail!(ShapeMismatch, "mat_vec_small_batch takes 2 to {} tokens, not {}", Self::MAX_TOKENS, inputs[0].shape);
        }
        if self.soa && !Self::can_be_soa(columns) {
            bail!(
                ShapeMismatch,
                "mat_vec_small_batch: {columns} columns can't be in SoA, wanted a multiple of {BLOCK}"
            );
        }
        self.epilogue.infer("mat_vec_small_batch", inputs, OPERANDS, product)
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        if capabilities.software {
            // One kernel for all numbers of tokens, and one that is compiled soon.
            return direct_kernel(self.epilogue, self.soa, inputs, capabilities);
        }
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        let team = Team::for_columns(columns, capabilities);
        let mut defines = team.defines();
        defines.extend(self.epilogue.defines(1));
        defines.extend(ragged(columns));
        defines.extend_from_slice(&TOKENS[..tokens - 2]);
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("mat_vec_small_batch.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, columns as u32, columns.div_ceil(BLOCK) as u32, tokens as u32],
            grid: grid_2d(rows.div_ceil(ROWS * team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MatVecSmallBatch {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let (rows, _) = inputs[1].shape.matrix()?;
        let mut x = inputs[0].clone();
        if self.soa {
            let rows: Vec<f32> = x.to_f32()?.chunks_exact(columns).flat_map(from_soa).collect();
            x.set_f32(&rows);
        }
        let product = reference_linear(&[x, inputs[1].clone()])?;
        self.epilogue.reference(inputs, OPERANDS, product, [tokens, rows])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (_, columns) = tensors.input(0)?.desc.shape.matrix()?;
        let x = tensors.input(0)?.f32s()?;
        let product = if self.soa {
            let rows: Vec<f32> = x.chunks_exact(columns).flat_map(from_soa).collect();
            linear(tensors.input(1)?, &rows)?
        } else {
            linear(tensors.input(1)?, x)?
        };
        self.epilogue.on_cpu(&mut tensors, OPERANDS, product)
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(61);
    let mut cases = Vec::new();
    for (index, format) in in_cases().enumerate() {
        let mut shapes: Vec<(usize, usize, usize)> =
            (2..=MatVecSmallBatch::MAX_TOKENS).map(|tokens| (tokens, 37, 224)).collect();
        // Each shape with some number of tokens; some rows are long enough for teams of several subgroups.
        let others = weight_shapes(format).into_iter().chain([(67, 2080), (33, 4128)]).enumerate();
        shapes.extend(others.map(|(shape, (rows, columns))| (2 + (shape * 3 + index) % 7, rows, columns)));
        for (case, (tokens, rows, columns)) in shapes.into_iter().enumerate() {
            if !takes_case(format, case, 4) {
                continue;
            }
            let columns = columns.next_multiple_of(format.block_size);
            let epilogue = Epilogue { bias: case % 2 == 1, residual: case % 4 >= 2 };
            let soa = MatVecSmallBatch::can_be_soa(columns) && case % 3 != 0;
            let mut inputs = vec![rng.tensor(&[tokens, columns]), rng.weight(format, rows, columns)];
            if epilogue.bias {
                inputs.push(rng.tensor(&[rows]));
            }
            if epilogue.residual {
                inputs.push(rng.tensor(&[tokens, rows]));
            }
            cases.push(Case::new(MatVecSmallBatch { epilogue, soa }, inputs, 1e-5));
        }
    }
    let inputs = vec![rng.tensor(&[3, 32]), rng.weight(FORMATS[0], LARGE_VOCABULARY, 32)];
    cases.push(Case::new(MatVecSmallBatch { epilogue: Epilogue::NONE, soa: true }, inputs, 1e-5));
    cases
}
