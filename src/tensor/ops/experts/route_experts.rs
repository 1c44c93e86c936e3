//! Chooses each token's experts in a mixture of experts (Shazeer et al. 2017): those with the largest router logits, with their
//! probabilities as weights.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::expect;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: router logits [tokens, experts]. Outputs: ids [tokens, used] u32, the most probable first, and among equals the smaller
/// number first, and their weights [tokens, used].
pub struct RouteExperts {
    /// Experts of a token.
    pub used: usize,
    /// Weights are the softmax over the chosen, rather than over all.
    pub normalize: bool,
    /// The factor of the weights.
    pub scale: f32,
}

impl RouteExperts {
    /// More would not fit the workgroup memory that every WebGPU device has.
    pub const MAX_EXPERTS: usize = 1024;
}

impl Op for RouteExperts {
    fn name(&self) -> &'static str {
        "route_experts"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("route_experts", inputs, &[Some(DType::F32)])?;
        let (tokens, experts) = inputs[0].shape.matrix()?;
        if self.used == 0 || self.used > experts || experts > Self::MAX_EXPERTS {
            bail!(
                ShapeMismatch,
                "route_experts: {} of {experts} experts, wanted 1 to all of at most {}",
                self.used,
                Self::MAX_EXPERTS
            );
        }
        Ok(vec![Desc::u32(&[tokens, self.used]), Desc::f32(&[tokens, self.used])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, experts) = inputs[0].shape.matrix()?;
        let mut defines = vec![("EXPERTS", Define::U32(experts as u32)), ("USED", Define::U32(self.used as u32))];
        if self.normalize {
            defines.push(("NORMALIZE", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("route_experts.wgsl"),
            modules: &[],
            defines,
            params: vec![tokens as u32, self.scale.to_bits()],
            grid: grid_2d(tokens, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RouteExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, experts) = inputs[0].shape.matrix()?;
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for logits in inputs[0].to_f32()?.chunks_exact(experts) {
            let mut order: Vec<u32> = (0..experts as u32).collect();
            order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
            let chosen = &order[..self.used];
            let counted = if self.normalize { chosen } else { &order };
            let largest = f64::from(logits[order[0] as usize]);
            let weight = |expert: &u32| (f64::from(logits[*expert as usize]) - largest).exp();
            let total: f64 = counted.iter().map(weight).sum();
            weights.extend(chosen.iter().map(|expert| (weight(expert) / total * f64::from(self.scale)) as f32));
            ids.extend_from_slice(chosen);
        }
        let dims = [tokens, self.used];
        Ok(vec![HostTensor::u32(&dims, &ids), HostTensor::f32(&dims, &weights)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(75);
    let mut cases = Vec::new();
    // tokens, experts, used
    for (tokens, experts, used) in [(1, 1, 1), (3, 8, 2), (1, 128, 8), (70, 60, 4), (2, 257, 257)] {
        for normalize in [true, false] {
            let sharp: Vec<f32> =
                rng.tensor(&[tokens, experts]).to_f32().unwrap_or_default().iter().map(|x| x * 6.0).collect();
            let op = RouteExperts { used, normalize, scale: if tokens == 3 { 2.5 } else { 1.0 } };
            cases.push(Case::new(op, vec![HostTensor::f32(&[tokens, experts], &sharp)], 1e-5));
        }
    }
    // Equals.
    let op = RouteExperts { used: 3, normalize: true, scale: 1.0 };
    cases.push(Case::new(op, vec![HostTensor::f32(&[1, 5], &[1.0, 2.0, 1.0, 2.0, 1.0])], 1e-5));
    cases
}
