//! The weighted sum of the outputs of each token's experts, added to the residual stream or by itself.

use rillm_cpu_kernels::{add, add_scaled};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::{fits, zeros};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::{rows_to_soa, write_row};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: y [tokens · used, columns], weights [tokens, used], and with `adds` x [tokens, columns] (changed: x += sum). Output
/// without: [tokens, columns].
#[derive(Clone, Copy, Debug, Default)]
pub struct CombineExperts {
    /// Whether the sum is added to x.
    pub adds: bool,
    /// x, or the output, is in SoA (`tensor/soa.rs`), each row.
    pub soa: bool,
}

impl Op for CombineExperts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "combine_experts"
    }

    fn mutates(&self) -> &'static [usize] {
        if self.adds { &[2] } else { &[] }
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("combine_experts", inputs, &[f32, f32, f32][..2 + usize::from(self.adds)])?;
        let (items, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        let fits = items == tokens * used
            && inputs.get(2).is_none_or(|x| x.shape.dims() == [tokens, columns])
            && (!self.soa || columns.is_multiple_of(BLOCK));
        if !fits {
            bail!(
                ShapeMismatch,
                "combine_experts: y {}, weights {}, x {:?}",
                inputs[0].shape,
                inputs[1].shape,
                inputs.get(2)
            );
        }
        Ok(if self.adds { vec![] } else { vec![Desc::f32(&[tokens, columns])] })
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        let n = tokens * columns;
        let mut defines = Vec::new();
        if self.adds {
            defines.push(("ADDS", Define::Flag));
        }
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("combine_experts.wgsl"),
            modules: &[],
            defines,
            params: vec![n as u32, columns as u32, used as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for CombineExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (tokens, used) = inputs[1].shape.matrix()?;
        let (y, weights) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let mut sums = Vec::with_capacity(tokens * columns);
        for token in 0..tokens {
            for column in 0..columns {
                let items = token * used..(token + 1) * used;
                let sum: f64 = items.map(|item| f64::from(weights[item]) * f64::from(y[item * columns + column])).sum();
                sums.push(sum as f32);
            }
        }
        let mut sums = HostTensor::f32(&[tokens, columns], &sums);
        if self.soa {
            sums = rows_to_soa(&sums)?;
        }
        if !self.adds {
            return Ok(vec![sums]);
        }
        let x: Vec<f32> = inputs[2].to_f32()?.iter().zip(sums.to_f32()?).map(|(x, sum)| x + sum).collect();
        inputs[2].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let (read, changed) = inputs.split_at_mut(2);
        let [y, weights] = read else { bail!(Internal, "combine_experts without two inputs") };
        let ((_, columns), (_, used)) = (y.desc.shape.matrix()?, weights.desc.shape.matrix()?);
        let Some(out) = changed.first_mut().or(outputs.first_mut()) else {
            bail!(Internal, "combine_experts without an output")
        };
        let (mut sum, mut in_order) = (zeros(columns)?, zeros(columns)?);
        let tokens = y.f32s()?.chunks_exact(columns * used).zip(weights.f32s()?.chunks_exact(used));
        for ((of_experts, weights), out) in tokens.zip(out.f32s_mut()?.chunks_exact_mut(columns)) {
            in_order.fill(0.0);
            for (y, weight) in of_experts.chunks_exact(columns).zip(weights) {
                fits(add_scaled(&mut in_order, *weight, y))?;
            }
            if self.adds {
                write_row(&in_order, self.soa, &mut sum);
                add(out, &sum);
            } else {
                write_row(&in_order, self.soa, out);
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(77);
    let mut cases = Vec::new();
    for (tokens, used, columns) in [(1, 1, 1), (3, 2, 37), (1, 8, 2048), (67, 4, 96)] {
        for (adds, soa) in [(false, false), (true, false), (false, true), (true, true)] {
            if soa && columns % BLOCK != 0 {
                continue;
            }
            let mut inputs = vec![rng.tensor(&[tokens * used, columns]), rng.tensor(&[tokens, used])];
            inputs.extend(adds.then(|| rng.tensor(&[tokens, columns])));
            cases.push(Case::new(CombineExperts { adds, soa }, inputs, 1e-5));
        }
    }
    cases
}
