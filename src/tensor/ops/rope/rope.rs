//! Rotary position embedding (Su et al. 2021, RoFormer), in place.
//!
//! The frequencies are a tensor, so that their scalings (linear, llama3 …) are the caller's data. The angle `position · frequency` is
//! computed in f32 as in other implementations. Its sine and cosine are our own polynomials, because WGSL allows the built-ins an error
//! of 2^-11, and SwiftShader uses it.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::rope::Angles;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, heads · head_dim] (changed), frequencies [n] with 2n ≤ head_dim (the rest of a head is left alone),
/// state [4] u32 (state[0] is the position of the first token).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Pairs are neighbours (2i, 2i + 1), as in GGUF files of Llama, rather than (i, i + n).
    pub interleaved: bool,
    /// The factor of sine and cosine; some scalings of rope sharpen the attention with it.
    pub scale: f32,
}

impl Op for Rope {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rope"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("rope", inputs, &[Some(DType::F32), Some(DType::F32), Some(DType::U32)])?;
        let (_, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        if columns % self.head_dim != 0 || 2 * pairs > self.head_dim {
            bail!(
                ShapeMismatch,
                "rope: x {}, heads of {}, {pairs} frequencies for pairs of it",
                inputs[0].shape,
                self.head_dim
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        let heads = columns / self.head_dim;
        let n = tokens * heads * pairs;
        Ok(Kernel {
            template: crate::shader!("rope.wgsl"),
            modules: &[],
            defines: if self.interleaved { vec![("INTERLEAVED", Define::Flag)] } else { vec![] },
            params: vec![n as u32, heads as u32, self.head_dim as u32, pairs as u32, self.scale.to_bits()],
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Rope {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, columns) = inputs[0].shape.matrix()?;
        let mut x = inputs[0].to_f32()?;
        let frequencies = inputs[1].to_f32()?;
        let first = inputs[2].to_u32()?[0];
        let pairs = frequencies.len();
        for (token, row) in x.chunks_exact_mut(columns).enumerate() {
            for head in row.chunks_exact_mut(self.head_dim) {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let angle = f64::from((first + token as u32) as f32 * frequency);
                    let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                    let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                    let (sin, cos) = (angle.sin() * f64::from(self.scale), angle.cos() * f64::from(self.scale));
                    head[a] = (x * cos - y * sin) as f32;
                    head[b] = (x * sin + y * cos) as f32;
                }
            }
        }
        inputs[0].set_f32(&x);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, frequencies, state] = &mut tensors.inputs[..] else { bail!(Internal, "rope without three inputs") };
        let (_, columns) = x.desc.shape.matrix()?;
        let (frequencies, first) = (frequencies.f32s()?, state.u32s()?[0] as usize);
        for (position, row) in (first..).zip(x.f32s_mut()?.chunks_exact_mut(columns)) {
            let angles = Angles::new(position, frequencies, self.scale);
            row.chunks_exact_mut(self.head_dim).for_each(|head| angles.turn(head, self.interleaved));
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(8);
    let mut cases = Vec::new();
    // tokens, heads, head_dim, rotated, position
    for (tokens, heads, head_dim, rotated, position) in [
        (1, 1, 2, 2, 0),
        (1, 3, 64, 64, 7),
        (5, 2, 96, 48, 1000),
        (37, 7, 128, 128, 131_000),
        (3, 1, 256, 256, 31),
        (2, 128, 64, 64, 9),
    ] {
        for interleaved in [true, false] {
            let frequencies: Vec<f32> =
                (0..rotated / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
            let inputs = vec![
                rng.tensor(&[tokens, heads * head_dim]),
                HostTensor::f32(&[rotated / 2], &frequencies),
                HostTensor::u32(&[4], &[position, 0, 0, 0]),
            ];
            let scale = if rotated < head_dim { 1.19 } else { 1.0 };
            cases.push(Case::new(Rope { head_dim, interleaved, scale }, inputs, 2e-6));
        }
    }
    cases
}
