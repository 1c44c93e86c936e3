//! The RMS norm of a state space model's result beside its gate, group by group (Dao, Gu 2024, "Transformers are SSMs", Mamba-2).

use rillm_cpu_kernels::{Activation, gate, rms_norm};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::{fits, zeros};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_row};
use crate::tensor::team::Team;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, length], the gate, as many columns of a matrix [tokens, columns], and weights [length], or [length / groups] that all groups
/// share. Output: [tokens, length]. Each group of columns is normed by itself.
#[derive(Clone, Copy, Debug)]
pub struct GatedNorm {
    /// Groups of columns; divides the length.
    pub groups: usize,
    /// The norm comes before the product with SiLU(scale · gate), instead of after it.
    pub first: bool,
    /// The gate's first column.
    pub gate_first: usize,
    /// The factor of the gate.
    pub gate_scale: f32,
    /// ε of the norm.
    pub epsilon: f32,
    /// Rows of the output are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

impl Op for GatedNorm {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gated_norm"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("gated_norm", inputs, &[f32, f32, f32])?;
        let ((rows, length), (gates, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let fits = self.groups > 0
            && length > 0
            && length.is_multiple_of(self.groups)
            && gates == rows
            && self.gate_first + length <= columns
            && [length, length / self.groups].contains(&inputs[2].shape.elements())
            && (!self.soa || length.is_multiple_of(BLOCK));
        if !fits {
            let [x, gate, weights] = [0, 1, 2].map(|input| inputs[input].shape);
            bail!(ShapeMismatch, "gated_norm: x {x}, gate {gate}, weights {weights} for {self:?}");
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((rows, length), (_, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let items = rows * self.groups;
        let of_group = length / self.groups;
        let team = Team::for_long_rows(of_group, capabilities);
        let team = team.unwrap_or_else(|| Team::for_columns(of_group, capabilities));
        let mut defines = team.defines();
        defines.push(("AT_ONCE", team.at_once(of_group, capabilities)));
        defines.extend(self.first.then_some(("NORM_FIRST", Define::Flag)));
        defines.extend(self.soa.then_some(("SOA", Define::Flag)));
        let numbers = [items, self.groups, length, columns, self.gate_first, inputs[2].shape.elements()];
        let scales = [self.gate_scale.to_bits(), self.epsilon.to_bits()];
        Ok(Kernel {
            template: crate::shader!("gated_norm.wgsl"),
            modules: &[],
            defines,
            params: numbers.map(|number| number as u32).into_iter().chain(scales).collect(),
            grid: grid_2d(items.div_ceil(team.teams()), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for GatedNorm {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((rows, length), (_, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (x, gates, weights) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let mut out = Vec::with_capacity(x.len());
        for row in 0..rows {
            let gate = |column: usize| {
                let gate = f64::from(gates[row * columns + self.gate_first + column]) * f64::from(self.gate_scale);
                gate / (1.0 + (-gate).exp())
            };
            for start in (0..length).step_by(length / self.groups) {
                let group = start..start + length / self.groups;
                let of_group = |column: usize| {
                    let x = f64::from(x[row * length + column]);
                    if self.first { x } else { x * gate(column) }
                };
                let squares: f64 = group.clone().map(|column| of_group(column).powi(2)).sum();
                let scale = 1.0 / (squares / group.len() as f64 + f64::from(self.epsilon)).sqrt();
                out.extend(group.map(|column| {
                    let normed = of_group(column) * scale * f64::from(weights[column % weights.len()]);
                    (if self.first { normed * gate(column) } else { normed }) as f32
                }));
            }
        }
        let out = HostTensor::f32(&[rows, length], &out);
        Ok(vec![if self.soa { rows_to_soa(&out)? } else { out }])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, gates, weights] = &tensors.inputs[..] else { bail!(Internal, "gated_norm without three inputs") };
        let ((_, length), (_, columns)) = (x.desc.shape.matrix()?, gates.desc.shape.matrix()?);
        let (x, gates, weights) = (x.f32s()?, gates.f32s()?, weights.f32s()?);
        let of_group = length / self.groups;
        let activation = Activation::Silu(self.gate_scale);
        let (mut gated, mut normed) = (zeros(of_group)?, zeros(length)?);
        let out = tensors.outputs[0].f32s_mut()?.chunks_exact_mut(length);
        for ((x, gates), out) in x.chunks_exact(length).zip(gates.chunks_exact(columns)).zip(out) {
            let groups = x.chunks_exact(of_group).zip(gates[self.gate_first..].chunks_exact(of_group));
            let weights = weights.chunks_exact(of_group).cycle();
            for (((x, gates), weights), out) in groups.zip(weights).zip(normed.chunks_exact_mut(of_group)) {
                if self.first {
                    fits(rms_norm(x, weights, self.epsilon, &mut gated))?;
                    gate(activation, gates, &gated, out);
                } else {
                    gate(activation, gates, x, &mut gated);
                    fits(rms_norm(&gated, weights, self.epsilon, out))?;
                }
            }
            write_row(&normed, self.soa, out);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(145);
    // rows, groups, length, first, gate_first, soa
    [
        (1, 1, 1, false, 0, false),
        (1, 1, 4096, false, 0, true),
        (3, 8, 64, false, 5, true),
        (17, 3, 201, false, 2, false),
        (5, 2, 8224, true, 0, true),
        (2, 1, 97, true, 33, false),
        (1, 16, 16, false, 0, false),
        (9, 4, 256, true, 3, false),
    ]
    .map(|(rows, groups, length, first, gate_first, soa)| {
        let gates = gate_first + length + 1;
        let weights = if groups == 4 { length / groups } else { length };
        let inputs = vec![rng.tensor(&[rows, length]), rng.tensor(&[rows, gates]), rng.tensor(&[weights])];
        Case::new(GatedNorm { groups, first, gate_first, gate_scale: 1.5, epsilon: 1e-5, soa }, inputs, 1e-5)
    })
    .into()
}
