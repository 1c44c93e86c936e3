//! Numbers held between two bounds, in place: queries, keys and values of OLMo and DBRX (`clip_qkv`).

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: x (changed), of any shape.
#[derive(Clone)]
pub struct Clamp {
    /// Outputs are from −limit to limit; above 0.
    pub limit: f32,
}

impl Op for Clamp {
    on_cpu!();

    fn name(&self) -> &'static str {
        "clamp"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("clamp", inputs, &[Some(DType::F32)])?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("clamp.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, self.limit.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Clamp {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let clamped: Vec<f32> = inputs[0].to_f32()?.iter().map(|x| x.clamp(-self.limit, self.limit)).collect();
        inputs[0].set_f32(&clamped);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(81);
    let shapes = [[1, 1], [3, 97], [13, 1031]].into_iter().zip([0.5, 0.1, 8.0]);
    shapes.map(|(dims, limit)| Case::new(Clamp { limit }, vec![rng.tensor(&dims)], 0.0)).collect()
}
