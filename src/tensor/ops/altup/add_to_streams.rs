//! Adds a row to every stream of a token but the first, in place (Gemma 3n).

use rillm_cpu_kernels::add;

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, streams · columns] (changed), y [tokens, columns].
#[derive(Clone, Copy, Debug)]
pub struct AddToStreams;

impl Op for AddToStreams {
    on_cpu!();

    fn name(&self) -> &'static str {
        "add_to_streams"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("add_to_streams", inputs, &[Some(DType::F32), Some(DType::F32)])?;
        let ((tokens, all), (rows, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if rows != tokens || columns == 0 || !all.is_multiple_of(columns) || all == columns {
            bail!(
                ShapeMismatch,
                "add_to_streams: x {}, y {}, wanted several streams as wide as y",
                inputs[0].shape,
                inputs[1].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((tokens, all), (_, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let n = tokens * (all - columns);
        Ok(Kernel {
            template: crate::shader!("add_to_streams.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![n as u32, columns as u32, all as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AddToStreams {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((_, all), (_, columns)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let (mut x, y) = (inputs[0].to_f32()?, inputs[1].to_f32()?);
        for (x, y) in x.chunks_exact_mut(all).zip(y.chunks_exact(columns)) {
            for stream in x.chunks_exact_mut(columns).skip(1) {
                stream.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            }
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, y] = &mut tensors.inputs[..] else { bail!(Internal, "add_to_streams without two inputs") };
        let ((_, all), (_, columns)) = (x.desc.shape.matrix()?, y.desc.shape.matrix()?);
        for (x, y) in x.f32s_mut()?.chunks_exact_mut(all).zip(y.f32s()?.chunks_exact(columns)) {
            for stream in x.chunks_exact_mut(columns).skip(1) {
                add(stream, y);
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(89);
    [(1, 2, 1), (3, 4, 37), (1, 4, 2048), (67, 3, 32)]
        .map(|(tokens, streams, columns)| {
            let inputs = vec![rng.tensor(&[tokens, streams * columns]), rng.tensor(&[tokens, columns])];
            Case::new(AddToStreams, inputs, 1e-6)
        })
        .into()
}
