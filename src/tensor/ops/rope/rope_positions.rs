//! Rotary position embedding as in `rope`, in place, with a position for every token: for several texts in one pass.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::rope::Angles;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::Rope;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: x [tokens, heads · head_dim] (changed), frequencies [n] with 2n ≤ head_dim (the rest of a head is left alone),
/// positions [tokens] u32.
#[derive(Clone)]
pub struct RopePositions {
    /// The dimensions of a head.
    pub head_dim: usize,
    /// Pairs are neighbours (2i, 2i + 1) rather than (i, i + n).
    pub interleaved: bool,
}

impl RopePositions {
    /// The same for consecutive tokens.
    fn rope(&self) -> Rope {
        Rope { head_dim: self.head_dim, interleaved: self.interleaved, scale: 1.0 }
    }
}

impl Op for RopePositions {
    on_cpu!();

    fn name(&self) -> &'static str {
        "rope_positions"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("rope_positions", inputs, &[Some(DType::F32), Some(DType::F32), Some(DType::U32)])?;
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let pairs = inputs[1].shape.elements();
        if columns % self.head_dim != 0 || 2 * pairs > self.head_dim || inputs[2].shape.dims() != [tokens] {
            bail!(
                ShapeMismatch,
                "rope_positions: x {}, heads of {}, {pairs} frequencies for pairs of it, positions {}",
                inputs[0].shape,
                self.head_dim,
                inputs[2].shape
            );
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let mut kernel = self.rope().kernel(inputs, outputs, capabilities)?;
        kernel.defines.push(("POSITIONS", Define::Flag));
        Ok(kernel)
    }
}

impl Reference for RopePositions {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let positions = inputs[2].to_u32()?;
        let x = inputs[0].to_f32()?;
        let mut all = Vec::with_capacity(x.len());
        for (token, position) in (0..tokens).zip(positions) {
            let row = HostTensor::f32(&[1, columns], &x[token * columns..][..columns]);
            let mut one = [row, inputs[1].clone(), HostTensor::u32(&[4], &[position, 0, 0, 0])];
            self.rope().reference(&mut one)?;
            all.extend(one[0].to_f32()?);
        }
        inputs[0].set_f32(&all);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [x, frequencies, positions] = &mut tensors.inputs[..] else {
            bail!(Internal, "rope_positions without three inputs")
        };
        let (_, columns) = x.desc.shape.matrix()?;
        let (frequencies, positions) = (frequencies.f32s()?, positions.u32s()?);
        for (position, row) in positions.iter().zip(x.f32s_mut()?.chunks_exact_mut(columns)) {
            let angles = Angles::new(*position as usize, frequencies, 1.0);
            row.chunks_exact_mut(self.head_dim).for_each(|head| angles.turn(head, self.interleaved));
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(43);
    let mut cases = Vec::new();
    for (heads, head_dim, rotated, positions) in [
        (1, 2, 2, &[0u32][..]),
        (3, 64, 64, &[0, 1, 2, 0, 1, 0, 500]),
        (2, 96, 48, &[7, 6, 5, 4, 3, 2, 1, 0, 8191]),
        (128, 64, 64, &[3, 4]),
    ] {
        for interleaved in [true, false] {
            let frequencies: Vec<f32> =
                (0..rotated / 2).map(|i| 10000f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
            let inputs = vec![
                rng.tensor(&[positions.len(), heads * head_dim]),
                HostTensor::f32(&[rotated / 2], &frequencies),
                HostTensor::u32(&[positions.len()], positions),
            ];
            cases.push(Case::new(RopePositions { head_dim, interleaved }, inputs, 2e-6));
        }
    }
    cases
}
