//! A norm and the product of the normed token with a weight, in one dispatch: the head of a model.

use super::low_rank;
use super::mat_vec::{LARGE_VOCABULARY, takes_case};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::RowNorm;
use crate::tensor::quant::{FORMATS, in_cases};
use crate::tensor::soa::from_soa;
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [1, columns] in SoA (`tensor/soa.rs`), norm [columns] in SoA (of a layer norm [2 · columns], weight and bias:
/// `RowNorm`), weight [rows, columns], and with `low_rank` h and the words of B (`low_rank.rs`). Output: [1, rows].
#[derive(Clone)]
pub struct NormMatVec {
    /// The norm of x before the products.
    pub norm: RowNorm,
    /// Whether an adapter adds to the product.
    pub low_rank: bool,
}

/// Inputs before those of an adapter.
const OPERANDS: usize = 3;

const ROWS: usize = 4;

impl Op for NormMatVec {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_mat_vec"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let operands = inputs.len() - low_rank::inputs(self.low_rank).min(inputs.len());
        expect("norm_mat_vec", &inputs[..operands], &[Some(DType::F32), Some(DType::F32), None])?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let fits = inputs[0].shape.dims() == [1, columns]
            && inputs[1].shape.elements() == self.norm.vectors() * columns
            && columns.is_multiple_of(32)
            && low_rank::fit(self.low_rank, inputs, OPERANDS);
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_mat_vec: x {}, norm {}, weight {}; wanted one row with the columns of the weight, a multiple of 32",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape
            );
        }
        Ok(vec![Desc::f32(&[1, rows])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::staged(columns, capabilities), inputs, capabilities)
    }

    fn variants(&self, inputs: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        inputs[2].shape.matrix().map_or(vec![], |(_, columns)| Team::staged_candidates(columns, capabilities))
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[2].shape.matrix()?;
        self.kernel_of(Team::of(variant, columns, capabilities), inputs, capabilities)
    }
}

impl Reference for NormMatVec {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let x = from_soa(&inputs[0].to_f32()?);
        let norm: Vec<Vec<f32>> = inputs[1].to_f32()?.chunks_exact(x.len()).map(from_soa).collect();
        let mut products = self.norm.products(&x, &norm, &inputs[2].to_f32()?);
        low_rank::add_reference(self.low_rank, inputs, OPERANDS, 1.0 / self.norm.divisor(&x), &mut products)?;
        let out: Vec<f32> = products.into_iter().map(|value| value as f32).collect();
        Ok(vec![HostTensor::f32(&[1, out.len()], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let normed = self.norm.on_cpu(tensors.input(0)?.f32s()?, tensors.input(1)?.f32s()?)?;
        let mut product = linear(tensors.input(2)?, &normed)?;
        low_rank::add_normed_on_cpu(self.low_rank, self.norm, &tensors, OPERANDS, &mut product)?;
        tensors.output(0)?.write_f32s(&product)
    }
}

impl NormMatVec {
    fn kernel_of(&self, team: Team, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[2].shape.matrix()?;
        let mut defines = team.defines();
        defines.extend(self.norm.defines());
        defines.extend([("TWO_ROWS", Define::Flag), ("FOUR_ROWS", Define::Flag)]);
        defines.extend(low_rank::defines(self.low_rank, 2));
        defines.push(("OUT_BINDING", Define::U32(2 + low_rank::inputs(self.low_rank) as u32)));
        Ok(Kernel {
            template: crate::shader!("norm_mat_vec.wgsl"),
            modules: &[],
            defines,
            params: vec![columns as u32, (columns / 32) as u32, self.norm.epsilon_bits(), rows as u32],
            grid: grid_2d(rows.div_ceil(ROWS * team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(33);
    let mut cases = Vec::new();
    for format in in_cases() {
        let shapes = [(1, 32), (7, 96), (1021, 224), (4099, 1056)];
        for (index, (rows, columns)) in shapes.into_iter().enumerate() {
            if !takes_case(format, index, shapes.len()) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let norm = RowNorm::ALL[cases.len() % 3];
            let vectors = rng.tensor(&[norm.vectors() * columns]);
            let low_rank = cases.len() % 4 == 3;
            let mut inputs = vec![rng.tensor(&[1, columns]), vectors, rng.weight(format, rows, columns)];
            inputs.extend(low_rank::random_inputs(low_rank, &mut rng, rows));
            cases.push(Case::new(NormMatVec { norm, low_rank }, inputs, 1e-5));
        }
    }
    let head = rng.weight(FORMATS[0], LARGE_VOCABULARY, 32);
    let norm = RowNorm::ALL[0];
    let op = NormMatVec { norm, low_rank: false };
    cases.push(Case::new(op, vec![rng.tensor(&[1, 32]), rng.tensor(&[32]), head], 1e-5));
    cases
}
