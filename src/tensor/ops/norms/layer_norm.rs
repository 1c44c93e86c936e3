//! Layer normalisation (Ba, Kiros, Hinton 2016): `(x − mean) / √(variance + ε) · weight + bias`, row by row.

use rillm_cpu_kernels::layer_norm;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::fits;
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [rows, columns], weight [groups · columns] (row r uses part r mod groups: heads may have different norms), and,
/// if there is one, a bias [columns]. Output: [rows, columns].
#[derive(Clone)]
pub struct LayerNorm {
    /// ε in the formula.
    pub epsilon: f32,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Op for LayerNorm {
    on_cpu!();

    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("layer_norm", inputs, &[f32, f32, f32][..2 + usize::from(self.bias)])?;
        let (rows, columns) = inputs[0].shape.matrix()?;
        let weights = inputs[1].shape.elements();
        let fits = weights > 0
            && weights.is_multiple_of(columns)
            && rows.is_multiple_of(weights / columns)
            && (!self.bias || inputs[2].shape.dims() == [columns]);
        if !fits {
            bail!(ShapeMismatch, "layer_norm: x {}, weight and bias {:?}", inputs[0].shape, &inputs[1..]);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, columns) = inputs[0].shape.matrix()?;
        let lanes = subgroup_lanes(capabilities, 32);
        // A workgroup is one team: its rows are loops of one length, so lanes stay together.
        let mut defines = lanes_defines(lanes.unwrap_or(64), lanes);
        if columns.is_multiple_of(4) {
            defines.push(("FOUR", Define::Flag));
        }
        if self.bias {
            defines.push(("BIAS", Define::Flag));
        }
        let groups = inputs[1].shape.elements() / columns;
        Ok(Kernel {
            template: crate::shader!("layer_norm.wgsl"),
            modules: &[],
            defines,
            params: vec![rows as u32, columns as u32, groups as u32, self.epsilon.to_bits()],
            grid: grid_2d(rows, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for LayerNorm {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let (x, weight) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        let bias = if self.bias { inputs[2].to_f32()? } else { vec![0.0; columns] };
        let mut out = Vec::with_capacity(x.len());
        for (row, weight) in x.chunks_exact(columns).zip(weight.chunks_exact(columns).cycle()) {
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / columns as f64;
            let scale = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
            let normed = row.iter().map(|x| (f64::from(*x) - mean) * scale);
            out.extend(normed.zip(weight).zip(&bias).map(|((x, w), b)| (x * f64::from(*w) + f64::from(*b)) as f32));
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (x, weight) = (&tensors.inputs[0], tensors.inputs[1].f32s()?);
        let bias = if self.bias { Some(tensors.inputs[2].f32s()?) } else { None };
        let (_, columns) = x.desc.shape.matrix()?;
        let out = tensors.outputs[0].f32s_mut()?;
        let rows = x.f32s()?.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
        for ((x, out), weight) in rows.zip(weight.chunks_exact(columns).cycle()) {
            fits(layer_norm(x, weight, bias, self.epsilon, out))?;
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(73);
    let mut cases = Vec::new();
    // rows, columns, groups
    for (rows, columns, groups) in [(1, 2, 1), (1, 31, 1), (3, 97, 3), (12, 64, 4), (17, 256, 1), (5, 4099, 1)] {
        for bias in [false, true] {
            // Far from zero, where computing the variance as a difference of squares would lose digits.
            let far: Vec<f32> =
                rng.tensor(&[rows, columns]).to_f32().unwrap_or_default().iter().map(|x| x + 30.0).collect();
            let mut inputs = vec![HostTensor::f32(&[rows, columns], &far), rng.tensor(&[groups * columns])];
            if bias {
                inputs.push(rng.tensor(&[columns]));
            }
            cases.push(Case::new(LayerNorm { epsilon: 1e-5, bias }, inputs, 2e-5));
        }
    }
    cases
}
