//! The correction of alternating updates (AltUp, Baykal et al. 2023; Gemma 3n): all streams of a token move by what a layer changed in one.

use rillm_cpu_kernels::{add_scaled, multiply};

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::{fits, zeros};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::AltupPredict;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, streams · columns], y [tokens, columns] (the layer's result for the active stream), routed [tokens, streams], weights
/// [streams²], scale [columns]. With m the tanh of a token's `routed`, and c = weights · m + 1, the first output, as x, has in stream j:
/// x_j + c[j] · (y − x_active). The second, as y, is its active stream times the scale.
#[derive(Clone, Copy, Debug)]
pub struct AltupCorrect {
    /// The number of streams.
    pub streams: usize,
    /// The stream that the layer reads.
    pub active: usize,
}

impl Op for AltupCorrect {
    on_cpu!();

    fn name(&self) -> &'static str {
        "altup_correct"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("altup_correct", inputs, &[f32, f32, f32, f32, f32])?;
        let (tokens, columns) = inputs[1].shape.matrix()?;
        let fits = (2..=AltupPredict::MAX_STREAMS).contains(&self.streams)
            && self.active < self.streams
            && inputs[0].shape.dims() == [tokens, self.streams * columns]
            && inputs[2].shape.dims() == [tokens, self.streams]
            && inputs[3].shape.elements() == self.streams.pow(2)
            && inputs[4].shape.dims() == [columns];
        if !fits {
            bail!(
                ShapeMismatch,
                "altup_correct: x {}, y {}, routed {}, weights {}, scale {}, {} streams, of which {} is active",
                inputs[0].shape,
                inputs[1].shape,
                inputs[2].shape,
                inputs[3].shape,
                inputs[4].shape,
                self.streams,
                self.active
            );
        }
        Ok(vec![inputs[0], inputs[1]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[1].shape.matrix()?;
        let n = tokens * columns * self.streams;
        Ok(Kernel {
            template: crate::shader!("altup_correct.wgsl"),
            modules: &[],
            defines: vec![("STREAMS", Define::U32(self.streams as u32))],
            params: vec![n as u32, columns as u32, self.active as u32],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for AltupCorrect {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[1].shape.matrix()?;
        let streams = self.streams;
        let [x, y, routed, weights, scale] = [0, 1, 2, 3, 4].map(|input: usize| inputs[input].to_f32());
        let (x, y, routed, weights, scale) = (x?, y?, routed?, weights?, scale?);
        let (mut out, mut scaled) = (Vec::with_capacity(x.len()), Vec::with_capacity(y.len()));
        for (token, x) in x.chunks_exact(streams * columns).enumerate() {
            let m: Vec<f64> = routed[token * streams..][..streams].iter().map(|r| f64::from(*r).tanh()).collect();
            for at in 0..streams * columns {
                let (stream, column) = (at / columns, at % columns);
                let row = weights[stream * streams..][..streams].iter().zip(&m);
                let c = 1.0 + row.map(|(w, m)| f64::from(*w) * m).sum::<f64>();
                let change = f64::from(y[token * columns + column]) - f64::from(x[self.active * columns + column]);
                let corrected = f64::from(x[at]) + c * change;
                out.push(corrected as f32);
                if stream == self.active {
                    scaled.push((corrected * f64::from(scale[column])) as f32);
                }
            }
        }
        let outputs = [(&inputs[0], out), (&inputs[1], scaled)];
        Ok(outputs.into_iter().map(|(like, values)| HostTensor::f32(like.shape.dims(), &values)).collect())
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, y, routed, weights, scale] = &tensors.inputs[..] else {
            bail!(Internal, "altup_correct without five inputs")
        };
        let (_, columns) = y.desc.shape.matrix()?;
        let (streams, all) = (self.streams, self.streams * columns);
        let (weights, scale) = (weights.f32s()?, scale.f32s()?);
        let [corrected, scaled] = &mut tensors.outputs[..] else {
            bail!(Internal, "altup_correct without two outputs")
        };
        let (corrected, scaled) = (corrected.f32s_mut()?, scaled.f32s_mut()?);
        corrected.copy_from_slice(x.f32s()?);
        let mut change = zeros(columns)?;
        let tokens = corrected.chunks_exact_mut(all).zip(scaled.chunks_exact_mut(columns));
        let tokens = tokens.zip(y.f32s()?.chunks_exact(columns)).zip(routed.f32s()?.chunks_exact(streams));
        for (((corrected, scaled), y), routed) in tokens {
            let m: Vec<f32> = routed.iter().map(|routed| routed.tanh()).collect();
            let active = self.active * columns..(self.active + 1) * columns;
            change.copy_from_slice(y);
            fits(add_scaled(&mut change, -1.0, &corrected[active.clone()]))?;
            for (stream, weights) in corrected.chunks_exact_mut(columns).zip(weights.chunks_exact(streams)) {
                let share: f32 = weights.iter().zip(&m).map(|(weight, m)| weight * m).sum();
                fits(add_scaled(stream, 1.0 + share, &change))?;
            }
            scaled.copy_from_slice(&corrected[active]);
            multiply(scaled, scale);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(88);
    [(1, 2, 1, 0), (3, 4, 37, 2), (1, 4, 2048, 0), (67, 3, 32, 1)]
        .map(|(tokens, streams, columns, active)| {
            let inputs = vec![
                rng.tensor(&[tokens, streams * columns]),
                rng.tensor(&[tokens, columns]),
                rng.tensor(&[tokens, streams]),
                rng.tensor(&[streams * streams]),
                rng.tensor(&[columns]),
            ];
            Case::new(AltupCorrect { streams, active }, inputs, 1e-5)
        })
        .into()
}
