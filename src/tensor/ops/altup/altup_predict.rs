//! The prediction of alternating updates (AltUp, Baykal et al. 2023; Gemma 3n): the streams of a token mixed by a matrix that a router makes.

use rillm_cpu_kernels::add_scaled;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::fits;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, streams · columns], routed [tokens, streams], weights [streams³]. With m the tanh of a token's `routed`, and the matrix
/// C = weights · m of [streams, streams], the output, as x, has in stream j: x_j + Σ C[j, i] · x_i.
#[derive(Clone, Copy, Debug)]
pub struct AltupPredict {
    /// The number of streams.
    pub streams: usize,
}

impl AltupPredict {
    /// A kernel holds a number for each in registers.
    pub const MAX_STREAMS: usize = 8;
}

impl Op for AltupPredict {
    on_cpu!();

    fn name(&self) -> &'static str {
        "altup_predict"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("altup_predict", inputs, &[f32, f32, f32])?;
        let (tokens, all) = inputs[0].shape.matrix()?;
        let fits = (2..=Self::MAX_STREAMS).contains(&self.streams)
            && all.is_multiple_of(self.streams)
            && inputs[1].shape.dims() == [tokens, self.streams]
            && inputs[2].shape.elements() == self.streams.pow(3);
        if !fits {
            bail!(
                ShapeMismatch,
                "altup_predict: x {}, routed {}, weights {}, {} streams of at most {}",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                self.streams,
                Self::MAX_STREAMS
            );
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, all) = inputs[0].shape.matrix()?;
        let n = tokens * all;
        Ok(Kernel {
            template: crate::shader!("altup_predict.wgsl"),
            modules: &[],
            defines: vec![("STREAMS", Define::U32(self.streams as u32))],
            params: vec![n as u32, (all / self.streams) as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AltupPredict {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, all) = inputs[0].shape.matrix()?;
        let (streams, columns) = (self.streams, all / self.streams);
        let (x, routed, weights) = (inputs[0].to_f32()?, inputs[1].to_f32()?, inputs[2].to_f32()?);
        let mut out = Vec::with_capacity(x.len());
        for (x, routed) in x.chunks_exact(all).zip(routed.chunks_exact(streams)) {
            let m: Vec<f64> = routed.iter().map(|r| f64::from(*r).tanh()).collect();
            let row = |at: usize| weights[at * streams..][..streams].iter().zip(&m);
            let c: Vec<f64> = (0..streams * streams).map(|at| row(at).map(|(w, m)| f64::from(*w) * m).sum()).collect();
            for at in 0..all {
                let (stream, column) = (at / columns, at % columns);
                let mixed = (0..streams).map(|i| c[stream * streams + i] * f64::from(x[i * columns + column]));
                out.push((f64::from(x[at]) + mixed.sum::<f64>()) as f32);
            }
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, routed, weights] = &tensors.inputs[..] else { bail!(Internal, "altup_predict without three inputs") };
        let (_, all) = x.desc.shape.matrix()?;
        let (streams, columns) = (self.streams, all / self.streams);
        let (x, routed, weights) = (x.f32s()?, routed.f32s()?, weights.f32s()?);
        let out = tensors.outputs[0].f32s_mut()?;
        out.copy_from_slice(x);
        let tokens = x.chunks_exact(all).zip(routed.chunks_exact(streams));
        for ((x, routed), out) in tokens.zip(out.chunks_exact_mut(all)) {
            let m: Vec<f32> = routed.iter().map(|routed| routed.tanh()).collect();
            let of_outputs = weights.chunks_exact(streams * streams).zip(out.chunks_exact_mut(columns));
            for (weights, out) in of_outputs {
                for (weights, x) in weights.chunks_exact(streams).zip(x.chunks_exact(columns)) {
                    let share: f32 = weights.iter().zip(&m).map(|(weight, m)| weight * m).sum();
                    fits(add_scaled(out, share, x))?;
                }
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(87);
    [(1, 2, 1), (3, 4, 37), (1, 4, 2048), (67, 3, 32)]
        .map(|(tokens, streams, columns)| {
            let inputs = vec![
                rng.tensor(&[tokens, streams * columns]),
                rng.tensor(&[tokens, streams]),
                rng.tensor(&[streams * streams * streams]),
            ];
            Case::new(AltupPredict { streams }, inputs, 1e-5)
        })
        .into()
}
