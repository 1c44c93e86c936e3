//! Matrix-vector product of one token that is added to the residual stream.

use super::low_rank;
use super::mat_vec::{reference_linear, takes_case};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Residual;
use crate::tensor::quant::in_cases;
use crate::tensor::soa::from_soa;
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: activations [1, columns] in SoA (`tensor/soa.rs`), weight [rows, columns], with `low_rank` h and the words of B
/// (`low_rank.rs`), an optional bias of all rows, and x [1, rows] in SoA, if the product is added to it (`Residual`).
#[derive(Clone, Copy, Debug)]
pub struct MatVecAdd {
    /// Where the product goes.
    pub residual: Residual,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether an adapter adds to the product.
    pub low_rank: bool,
}

/// Inputs before those of an adapter.
const OPERANDS: usize = 2;

/// Rows that a team computes at once. More rows share each activation that was read, fewer rows make more teams.
fn rows_of_a_team(rows: usize, columns: usize) -> u32 {
    if columns >= 4096 && rows >= 2048 { 4 } else { 2 }
}

impl Op for MatVecAdd {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mat_vec_add"
    }

    fn mutates(&self) -> &'static [usize] {
        self.residual.mutates(self.operands(), self.bias)
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let (f32, u32) = (Some(DType::F32), Some(DType::U32));
        let of_adapter = [f32, u32].into_iter().take(low_rank::inputs(self.low_rank));
        let further = std::iter::repeat_n(f32, self.residual.inputs(self.bias));
        let wanted: Vec<_> = [f32, None].into_iter().chain(of_adapter).chain(further).collect();
        expect("mat_vec_add", inputs, &wanted)?;
        let (rows, columns) = inputs[1].shape.matrix()?;
        let fits = inputs[0].shape.dims() == [1, columns]
            && columns.is_multiple_of(32)
            && low_rank::fit(self.low_rank, inputs, OPERANDS);
        match self.residual.infer(inputs, self.operands(), self.bias, rows).filter(|_| fits) {
            Some(outputs) => Ok(outputs),
            None => bail!(
                ShapeMismatch,
                "mat_vec_add: activations {}, weight {}, bias and x {:?}; wanted one row each, multiples of 32",
                inputs[0].shape,
                inputs[1].shape,
                &inputs[OPERANDS..]
            ),
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[1].shape.matrix()?;
        self.kernel_of(Team::for_columns(columns, capabilities), rows_of_a_team(rows, columns), inputs, capabilities)
    }

    fn variants(&self, _: &[Desc], capabilities: &Capabilities) -> Vec<Variant> {
        let fits = |team: &Variant| team.get("workgroup") == team.get("team").max(64);
        let teams = Team::candidates(capabilities).into_iter().filter(fits);
        teams.flat_map(|team| [2, 4].map(|rows| team.clone().with("rows", rows))).collect()
    }

    fn kernel_as(&self, variant: &Variant, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[1].shape.matrix()?;
        self.kernel_of(Team::of(variant, columns, capabilities), variant.get("rows"), inputs, capabilities)
    }
}

impl Reference for MatVecAdd {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let activations = from_soa(&inputs[0].to_f32()?);
        let activations = HostTensor::f32(inputs[0].shape.dims(), &activations);
        let mut products = reference_linear(&[activations, inputs[1].clone()])?;
        low_rank::add_reference(self.low_rank, inputs, OPERANDS, 1.0, &mut products)?;
        let products = products.iter().map(|product| *product as f32).collect();
        self.residual.reference(inputs, self.operands(), self.bias, products)
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let mut product = linear(tensors.input(1)?, &from_soa(tensors.input(0)?.f32s()?))?;
        low_rank::add_on_cpu(self.low_rank, &tensors, OPERANDS, 1.0, &mut product)?;
        self.residual.on_cpu(&mut tensors, self.operands(), self.bias, product)
    }
}

impl MatVecAdd {
    /// The inputs before the bias.
    fn operands(&self) -> usize {
        OPERANDS + low_rank::inputs(self.low_rank)
    }

    fn kernel_of(
        &self,
        team: Team,
        rows_of_a_team: u32,
        inputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<Kernel> {
        let (rows, columns) = inputs[1].shape.matrix()?;
        let mut defines = team.defines();
        defines.extend(low_rank::defines(self.low_rank, 1));
        defines.extend(self.residual.defines(1 + low_rank::inputs(self.low_rank) as u32, self.bias));
        defines.extend([("ROWS", Define::U32(rows_of_a_team)), ("TWO_ROWS", Define::Flag)]);
        if rows_of_a_team == 4 {
            defines.push(("FOUR_ROWS", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("mat_vec_add.wgsl"),
            modules: &[],
            defines,
            params: [rows as u32, (columns / 32) as u32]
                .into_iter()
                .chain(self.residual.params(inputs, rows))
                .collect(),
            grid: grid_2d(
                rows.div_ceil(rows_of_a_team as usize * team.teams()),
                capabilities.max_workgroups_per_dimension,
            ),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(34);
    let mut cases = Vec::new();
    for format in in_cases() {
        let shapes = [(32, 32), (96, 160), (160, 4864), (1056, 992), (2048, 4128)];
        for (index, (rows, columns)) in shapes.into_iter().enumerate() {
            if !takes_case(format, index, shapes.len()) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let residual = Residual::ALL[cases.len() % Residual::ALL.len()];
            let mut inputs = vec![rng.tensor(&[1, columns]), rng.weight(format, rows, columns)];
            let bias = cases.len() % 2 == 1;
            let low_rank = cases.len() % 4 >= 2 && index % 2 == 1;
            inputs.extend(low_rank::random_inputs(low_rank, &mut rng, rows));
            inputs.extend(residual.random_inputs(&mut rng, bias, rows));
            cases.push(Case::new(MatVecAdd { residual, bias, low_rank }, inputs, 1e-5));
        }
    }
    cases
}
