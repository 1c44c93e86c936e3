//! A gate, which goes through an activation, times columns of another tensor: a layer's part of per-layer embeddings (Gemma 3n).

use rillm_cpu_kernels::gate;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::zeros;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Activation;
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_row};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: gate [tokens, columns], x [tokens, all]. Output: [tokens, columns], the gate's activation times the columns of x from `first` on.
#[derive(Clone, Copy, Debug)]
pub struct GateInput {
    /// The function that the gate goes through.
    pub activation: Activation,
    /// The first column of x.
    pub first: usize,
    /// The output's rows are in SoA (`tensor/soa.rs`); columns are a multiple of 32 then.
    pub soa: bool,
}

impl Op for GateInput {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gate_input"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("gate_input", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let ((tokens, columns), (rows, all)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if rows != tokens || self.first + columns > all || (self.soa && !columns.is_multiple_of(BLOCK)) {
            bail!(
                ShapeMismatch,
                "gate_input: gate {}, x {} from column {}; in SoA wanted a multiple of {BLOCK} columns",
                inputs[0].shape,
                inputs[1].shape,
                self.first
            );
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((tokens, columns), (_, all)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let n = tokens * columns;
        let mut defines = self.activation.defines();
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("gate_input.wgsl"),
            modules: &[],
            defines,
            params: [n, columns, all, self.first].map(|number| number as u32).into(),
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for GateInput {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((_, columns), (_, all)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (gate, x) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut out = Vec::with_capacity(gate.len());
        for (gates, row) in gate.chunks_exact(columns).zip(x.chunks_exact(all)) {
            let values = gates.iter().zip(&row[self.first..]);
            out.extend(values.map(|(gate, x)| (self.activation.of(f64::from(*gate)) * f64::from(*x)) as f32));
        }
        let out = HostTensor::f32(inputs[0].shape.dims(), &out);
        Ok(vec![if self.soa { rows_to_soa(&out)? } else { out }])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [of_gate, x] = &tensors.inputs[..] else { bail!(Internal, "gate_input without two inputs") };
        let ((_, columns), (_, all)) = (of_gate.desc.shape.matrix()?, x.desc.shape.matrix()?);
        let mut gated = zeros(columns)?;
        let rows = of_gate.f32s()?.chunks_exact(columns).zip(x.f32s()?.chunks_exact(all));
        for ((of_gate, x), out) in rows.zip(tensors.outputs[0].f32s_mut()?.chunks_exact_mut(columns)) {
            gate(self.activation.on_cpu(), of_gate, &x[self.first..], &mut gated);
            write_row(&gated, self.soa, out);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(86);
    let mut cases = Vec::new();
    for activation in [Activation::GeluTanh, Activation::Silu] {
        // tokens, columns, layers, layer
        for (tokens, columns, layers, layer) in [(1, 1, 1, 0), (3, 37, 5, 4), (1, 256, 35, 20), (67, 32, 3, 1)] {
            for soa in [false, true] {
                if soa && columns % BLOCK != 0 {
                    continue;
                }
                let inputs = vec![rng.tensor(&[tokens, columns]), rng.tensor(&[tokens, layers * columns])];
                cases.push(Case::new(GateInput { activation, first: layer * columns, soa }, inputs, 1e-5));
            }
        }
    }
    cases
}
