//! A tensor of one number.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, Desc, HostTensor, Kernel, Op, Reference, Shape};

/// No inputs. Output: `shape`.
#[derive(Clone)]
pub struct Fill {
    /// The shape of the output.
    pub shape: Shape,
    /// Every element of it.
    pub value: f32,
}

impl Op for Fill {
    on_cpu!();

    fn name(&self) -> &'static str {
        "fill"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("fill", inputs, &[])?;
        Ok(vec![Desc::f32(self.shape.dims())])
    }

    fn kernel(&self, _: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let n = self.shape.elements();
        Ok(Kernel {
            template: crate::shader!("fill.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, self.value.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Fill {
    fn reference(&self, _: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        Ok(vec![HostTensor::f32(self.shape.dims(), &vec![self.value; self.shape.elements()])])
    }
}

pub fn cases() -> Vec<Case> {
    let shapes: [(&[usize], f32); 5] =
        [(&[1], 1.0), (&[37], 0.0), (&[13, 61], -0.1), (&[3, 5, 7, 11], f32::MAX), (&[257, 1031], 1e-30)];
    shapes.iter().map(|&(dims, value)| Case::new(Fill { shape: Shape::new(dims), value }, vec![], 0.0)).collect()
}
