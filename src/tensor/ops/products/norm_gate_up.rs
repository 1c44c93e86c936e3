//! The first half of a gated feed-forward of one token, in one dispatch: a norm, the projections gate and up, and
//! `silu(gate) · up` (SwiGLU, or with GELU GEGLU: Shazeer 2020, "GLU Variants Improve Transformer").

use rillm_cpu_kernels::gate;

use super::low_rank;
use super::mat_vec::takes_case;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::linear;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::{Activation, RowNorm};
use crate::tensor::quant::in_cases;
use crate::tensor::soa::{from_soa, to_soa, write_soa};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Variant};

/// Inputs: x [1, columns] in SoA (`tensor/soa.rs`), norm [columns] in SoA (of a layer norm [2 · columns], weight and bias:
/// `RowNorm`), weight [2 · outputs, columns] (all rows of the gate, then all of up), and with `low_rank` h and the words of B (`low_rank.rs`).
/// Output: [1, outputs] in SoA.
#[derive(Clone)]
pub struct NormGateUp {
    /// The norm of x before the products.
    pub norm: RowNorm,
    /// The function that the gate goes through.
    pub activation: Activation,
    /// Whether an adapter adds to the product.
    pub low_rank: bool,
}

/// Inputs before those of an adapter.
const OPERANDS: usize = 3;

impl Op for NormGateUp {
    on_cpu!();

    fn name(&self) -> &'static str {
        "norm_gate_up"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let operands = inputs.len() - low_rank::inputs(self.low_rank).min(inputs.len());
        expect("norm_gate_up", &inputs[..operands], &[Some(DType::F32), Some(DType::F32), None])?;
        let (rows, columns) = inputs[2].shape.matrix()?;
        let fits = inputs[0].shape.dims() == [1, columns]
            && inputs[1].shape.elements() == self.norm.vectors() * columns
            && columns.is_multiple_of(32)
            && rows.is_multiple_of(64)
            && low_rank::fit(self.low_rank, inputs, OPERANDS);
        if !fits {
            bail!(
                ShapeMismatch,
                "norm_gate_up: x {}, norm {}, weight {}; wanted one row of as many columns as the weight, multiples of 32, and \
                 rows of a multiple of 64",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape
            );
        }
        Ok(vec![Desc::f32(&[1, rows / 2])])
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

impl Reference for NormGateUp {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let x = from_soa(&inputs[0].to_f32()?);
        let norm: Vec<Vec<f32>> = inputs[1].to_f32()?.chunks_exact(x.len()).map(from_soa).collect();
        let mut products = self.norm.products(&x, &norm, &inputs[2].to_f32()?);
        low_rank::add_reference(self.low_rank, inputs, OPERANDS, 1.0 / self.norm.divisor(&x), &mut products)?;
        let (gate, up) = products.split_at(products.len() / 2);
        let out: Vec<f32> = gate.iter().zip(up).map(|(gate, up)| (self.activation.of(*gate) * up) as f32).collect();
        Ok(vec![HostTensor::f32(&[1, out.len()], &to_soa(&out))])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let normed = self.norm.on_cpu(tensors.input(0)?.f32s()?, tensors.input(1)?.f32s()?)?;
        let mut products = linear(tensors.input(2)?, &normed)?;
        low_rank::add_normed_on_cpu(self.low_rank, self.norm, &tensors, OPERANDS, &mut products)?;
        let (gates, up) = products.split_at(products.len() / 2);
        let mut out = vec![0.0; up.len()];
        gate(self.activation.on_cpu(), gates, up, &mut out);
        write_soa(&out, tensors.output(0)?.f32s_mut()?);
        Ok(())
    }
}

impl NormGateUp {
    fn kernel_of(&self, team: Team, inputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[2].shape.matrix()?;
        let outputs = rows / 2;
        let mut defines = team.defines();
        defines.extend(self.norm.defines());
        defines.extend(self.activation.defines());
        defines.extend([("TWO_ROWS", Define::Flag), ("FOUR_ROWS", Define::Flag)]);
        defines.extend(low_rank::defines(self.low_rank, 2));
        defines.push(("OUT_BINDING", Define::U32(2 + low_rank::inputs(self.low_rank) as u32)));
        Ok(Kernel {
            template: crate::shader!("norm_gate_up.wgsl"),
            modules: &[],
            defines,
            params: vec![columns as u32, (columns / 32) as u32, self.norm.epsilon_bits(), outputs as u32],
            grid: grid_2d(outputs.div_ceil(2 * team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(32);
    let mut cases = Vec::new();
    for format in in_cases() {
        let shapes = [(32, 32), (96, 160), (1408, 224), (160, 2080)];
        for (index, (outputs, columns)) in shapes.into_iter().enumerate() {
            if !takes_case(format, index, shapes.len()) {
                continue;
            }
            let columns = usize::next_multiple_of(columns, format.block_size);
            let norm = RowNorm::ALL[cases.len() / 2 % 3];
            let vectors = rng.tensor(&[norm.vectors() * columns]);
            let low_rank = cases.len() % 4 == 3;
            let mut inputs = vec![rng.tensor(&[1, columns]), vectors, rng.weight(format, 2 * outputs, columns)];
            inputs.extend(low_rank::random_inputs(low_rank, &mut rng, 2 * outputs));
            let activation = Activation::ALL[cases.len() % Activation::ALL.len()];
            cases.push(Case::new(NormGateUp { norm, activation, low_rank }, inputs, 1e-5));
        }
    }
    cases
}
