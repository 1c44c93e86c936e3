//! Second half of choosing the next token: takes the best of all shares, writes it to where the next step reads its input and
//! to a ring that is read back, and moves the state on. So the commands of every decode step are the same.

use super::sample_partial::SHARES;
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: values [SHARES] f32, tokens [SHARES] u32, state [4] u32 (changed: state[0] += advance, state[1] += 1), token [1]
/// u32 (changed), ring [n] u32 (changed at state[1] mod n). When a share holds a NaN the token is u32::MAX.
pub struct SampleMerge {
    /// Tokens that the step put into the KV cache.
    pub advance: usize,
}

const WORKGROUP: usize = 256;
const _: () = assert!(SHARES.is_multiple_of(4 * WORKGROUP));

impl Op for SampleMerge {
    fn name(&self) -> &'static str {
        "sample_merge"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2, 3, 4]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let u32 = Some(DType::U32);
        expect("sample_merge", inputs, &[Some(DType::F32), u32, u32, u32, u32])?;
        let shares = [inputs[0].shape.elements(), inputs[1].shape.elements()];
        if shares != [SHARES; 2] {
            bail!(ShapeMismatch, "sample_merge takes {SHARES} shares, not {shares:?}");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        Ok(Kernel {
            template: include_str!("sample_merge.wgsl"),
            modules: &[],
            defines: vec![("SHARES", Define::U32(SHARES as u32)), ("WORKGROUP", Define::U32(WORKGROUP as u32))],
            params: vec![self.advance as u32, inputs[4].shape.elements() as u32],
            grid: [1, 1, 1],
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let values = inputs[0].to_f32()?;
        let tokens = inputs[1].to_u32()?;
        let mut best = (values[0], tokens[0]);
        for (value, token) in values.into_iter().zip(tokens.iter().copied()) {
            if value > best.0 || (value == best.0 && token < best.1) {
                best = (value, token);
            }
        }
        let token = if tokens.contains(&u32::MAX) { u32::MAX } else { best.1 };
        let mut state = inputs[2].to_u32()?;
        let mut ring = inputs[4].to_u32()?;
        let slot = state[1] as usize % ring.len();
        ring[slot] = token;
        state[0] += self.advance as u32;
        state[1] += 1;
        inputs[2].set_u32(&state);
        inputs[3].set_u32(&[token]);
        inputs[4].set_u32(&ring);
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(12);
    (0..6)
        .map(|kind| {
            let mut tokens: Vec<u32> = (0..SHARES as u32).collect();
            let mut values = rng.tensor(&[SHARES]);
            match kind {
                // The best in the last share.
                1 => values.set_f32(&(0..SHARES).map(|i| i as f32).collect::<Vec<_>>()),
                // All equal: the smallest token wins, wherever it stands.
                2 => {
                    values.set_f32(&[0.5; SHARES]);
                    tokens.reverse();
                }
                3 => tokens[700] = u32::MAX,
                _ => {}
            }
            let inputs = vec![
                values,
                HostTensor::u32(&[SHARES], &tokens),
                HostTensor::u32(&[4], &[11, 64 + kind, 0, 0]),
                HostTensor::u32(&[1], &[0]),
                HostTensor::u32(&[64], &[9; 64]),
            ];
            Case::new(SampleMerge { advance: 1 + kind as usize * 5 }, inputs, 0.0)
        })
        .collect()
}
