//! Logits of which only some tokens are left to choose from: what the others have becomes the lowest number there is. That is a
//! number, not minus infinity, so that whatever is computed of it later stays one. A NaN stays too, wherever it stands: it says that the
//! model is broken.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Rng};

/// Inputs: logits [rows, vocabulary] f32, allowed [rows, words] u32, a bit for each token, the first token's the lowest of the first
/// word. Output: [rows, vocabulary] f32.
pub struct MaskLogits;

impl MaskLogits {
    /// Words of bits for so many tokens.
    pub const fn words(vocabulary: usize) -> usize {
        vocabulary.div_ceil(32)
    }
}

impl Op for MaskLogits {
    fn name(&self) -> &'static str {
        "mask_logits"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("mask_logits", inputs, &[Some(DType::F32), Some(DType::U32)])?;
        let ((rows, vocabulary), allowed) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        if allowed != (rows, Self::words(vocabulary)) {
            bail!(ShapeMismatch, "mask_logits: {vocabulary} logits in {rows} rows, and bits of shape {allowed:?}");
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        Ok(Kernel {
            template: include_str!("mask_logits.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![(rows * vocabulary) as u32, vocabulary as u32, Self::words(vocabulary) as u32],
            grid: grid_2d((rows * vocabulary).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }

    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (_, vocabulary) = inputs[0].shape.matrix()?;
        let allowed = inputs[1].to_u32()?;
        let mut logits = inputs[0].to_f32()?;
        for (row, logits) in logits.chunks_mut(vocabulary).enumerate() {
            for (token, logit) in logits.iter_mut().enumerate() {
                let word = allowed[row * Self::words(vocabulary) + token / 32];
                if word >> (token % 32) & 1 == 0 && !logit.is_nan() {
                    *logit = f32::MIN;
                }
            }
        }
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &logits)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(53);
    let mut cases = Vec::new();
    for (rows, vocabulary) in [(1, 1), (1, 31), (1, 33), (3, 257), (2, 5003), (1, 151_937)] {
        let bits: Vec<u32> = (0..rows * MaskLogits::words(vocabulary)).map(|_| rng.next_u64() as u32).collect();
        let logits = rng.tensor(&[rows, vocabulary]);
        let allowed = HostTensor::u32(&[rows, MaskLogits::words(vocabulary)], &bits);
        cases.push(Case::new(MaskLogits, vec![logits, allowed], 0.0));
    }
    // All and none.
    for word in [u32::MAX, 0] {
        let allowed = HostTensor::u32(&[1, 4], &[word; 4]);
        cases.push(Case::new(MaskLogits, vec![rng.tensor(&[1, 101]), allowed], 0.0));
    }
    cases
}
