//! Chooses each token's experts in a mixture of experts (Shazeer et al. 2017): those with the largest router logits, with their
//! probabilities as weights.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// How the logits of a router become weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Gating {
    /// Their softmax.
    #[default]
    Softmax,
    /// Each by itself, through a sigmoid (DeepSeek-V3).
    Sigmoid,
    /// The softmax over those that come relatively close to the chosen one, which is then left out (SparseMixer, Liu et al. 2023; Phi-3.5-MoE).
    Sparse {
        /// Experts further from the chosen one than twice this, in parts of the larger, do not count.
        jitter: f32,
    },
}

/// Experts in groups of neighbours, of which only the best are open to a token (DeepSeek-AI 2024, "DeepSeek-V2" and "DeepSeek-V3").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// The number of groups; a divisor of the number of experts.
    pub count: usize,
    /// Groups that are open to a token.
    pub used: usize,
    /// A group counts by the sum of its two best experts, rather than by its best.
    pub by_two: bool,
}

/// Inputs: router logits [tokens, experts] and, if there is one, a bias [experts], by which experts are chosen and not weighted. Outputs: ids
/// [tokens, used] u32, the most probable first, and among equals the smaller number first, and their weights [tokens, used].
#[derive(Clone, Copy, Debug)]
pub struct RouteExperts {
    /// Experts of a token.
    pub used: usize,
    /// What becomes of the logits.
    pub gating: Gating,
    /// Whether there is a bias.
    pub bias: bool,
    /// Weights are shares of the chosen, rather than of all. `Gating::Sparse` ignores it.
    pub normalize: bool,
    /// The factor of the weights.
    pub scale: f32,
    /// Some if experts are in groups.
    pub groups: Option<ExpertGroups>,
}

impl ExpertGroups {
    /// Whether `experts` fall into equal groups, and the open ones have the `used` experts of a token.
    pub fn fits(&self, experts: usize, used: usize) -> bool {
        self.count > 0
            && experts.is_multiple_of(self.count)
            && (1..=self.count).contains(&self.used)
            && used <= self.used * (experts / self.count)
            && (!self.by_two || experts / self.count >= 2)
    }
}

impl RouteExperts {
    /// More would not fit the workgroup memory that every WebGPU device has.
    pub const MAX_EXPERTS: usize = 1024;
}

impl Op for RouteExperts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "route_experts"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let f32 = Some(DType::F32);
        expect("route_experts", inputs, &[f32, f32][..1 + usize::from(self.bias)])?;
        let (tokens, experts) = inputs[0].shape.matrix()?;
        if self.bias && (inputs[1].shape.dims() != [experts] || matches!(self.gating, Gating::Sparse { .. })) {
            bail!(ShapeMismatch, "route_experts: a bias {} for {experts} experts, {:?}", inputs[1].shape, self.gating);
        }
        if let Some(groups) = self.groups
            && (!groups.fits(experts, self.used) || matches!(self.gating, Gating::Sparse { .. }))
        {
            bail!(ShapeMismatch, "route_experts: {} of {experts} experts, {:?}, {groups:?}", self.used, self.gating);
        }
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
        if self.bias {
            defines.push(("BIASED", Define::Flag));
        }
        if self.bias || self.groups.is_some() {
            defines.push(("KEYED", Define::Flag));
        }
        if let Some(ExpertGroups { count, used, by_two }) = self.groups {
            defines.push(("GROUPS", Define::U32(count as u32)));
            defines.push(("GROUPS_USED", Define::U32(used as u32)));
            if by_two {
                defines.push(("BY_TWO", Define::Flag));
            }
        }
        let mut jitter_of = 0.0;
        match self.gating {
            Gating::Softmax => {}
            Gating::Sigmoid => defines.push(("SIGMOID", Define::Flag)),
            Gating::Sparse { jitter } => {
                jitter_of = jitter;
                defines.push(("SPARSE", Define::Flag));
            }
        }
        Ok(Kernel {
            template: crate::shader!("route_experts.wgsl"),
            modules: &[],
            defines,
            params: vec![tokens as u32, self.scale.to_bits(), jitter_of.to_bits()],
            grid: grid_2d(tokens, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for RouteExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, experts) = inputs[0].shape.matrix()?;
        let bias: Vec<f64> = match inputs.get(1).filter(|_| self.bias) {
            Some(bias) => bias.to_f32()?.into_iter().map(f64::from).collect(),
            None => vec![],
        };
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for logits in inputs[0].to_f32()?.chunks_exact(experts) {
            let logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
            let score = |expert: usize| match self.gating {
                Gating::Sigmoid => 1.0 / (1.0 + (-logits[expert]).exp()),
                _ => (logits[expert] - largest).exp() / all,
            };
            let key = |expert: usize| match self.groups {
                _ if self.bias => score(expert) + bias[expert],
                Some(_) => score(expert),
                None => logits[expert],
            };
            let mut order: Vec<usize> = (0..experts).collect();
            if let Some(groups) = self.groups {
                let of_group = experts / groups.count;
                let group_key = |group: usize| {
                    let mut keys: Vec<f64> = (group * of_group..(group + 1) * of_group).map(key).collect();
                    keys.sort_by(|a, b| b.total_cmp(a));
                    keys.iter().take(if groups.by_two { 2 } else { 1 }).sum::<f64>()
                };
                let mut best: Vec<usize> = (0..groups.count).collect();
                best.sort_by(|a, b| group_key(*b).total_cmp(&group_key(*a)).then(a.cmp(b)));
                order.retain(|expert| best[..groups.used].contains(&(expert / of_group)));
            }
            order.sort_by(|a, b| key(*b).total_cmp(&key(*a)).then(a.cmp(b)));
            let chosen = &order[..self.used];
            let total: f64 = if self.normalize { chosen.iter().map(|expert| score(*expert)).sum() } else { 1.0 };
            for (place, expert) in chosen.iter().enumerate() {
                let weight = match self.gating {
                    Gating::Sparse { jitter } => {
                        let own = logits[*expert];
                        let is_near = |other: &usize| {
                            (own - logits[*other]) / logits[*other].abs().max(own) <= 2.0 * f64::from(jitter)
                        };
                        let near = order[place..].iter().filter(|other| is_near(other));
                        1.0 / near.map(|other| (logits[*other] - own).exp()).sum::<f64>()
                    }
                    _ => score(*expert) / total,
                };
                weights.push((weight * f64::from(self.scale)) as f32);
            }
            ids.extend(chosen.iter().map(|expert| *expert as u32));
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
            let logits = HostTensor::f32(&[tokens, experts], &sharp);
            let scale = if tokens == 3 { 2.5 } else { 1.0 };
            let op = RouteExperts { used, gating: Gating::Softmax, bias: false, normalize, scale, groups: None };
            cases.push(Case::new(op, vec![logits.clone()], 1e-5));
            // Each expert's number apart from the others by more than rounding, so that both choose the same.
            let bias: Vec<f32> = (0..experts).map(|expert| (expert * 7 % experts) as f32).collect();
            let bias = HostTensor::f32(&[experts], &bias);
            for gating in [Gating::Softmax, Gating::Sigmoid] {
                let op = RouteExperts { used, gating, bias: true, normalize, scale, groups: None };
                cases.push(Case::new(op, vec![logits.clone(), bias.clone()], 1e-5));
            }
            if used == 2 || !normalize {
                let gating = if used == 2 { Gating::Sparse { jitter: 0.2 } } else { Gating::Sigmoid };
                let op = RouteExperts { used: used.min(60), gating, bias: false, normalize, scale, groups: None };
                cases.push(Case::new(op, vec![logits], 1e-5));
            }
        }
    }
    // In groups, by their best expert or by two.
    for (tokens, experts, used, count, open) in
        [(3, 8, 3, 4, 2), (1, 12, 2, 2, 1), (2, 256, 8, 8, 4), (1, 160, 6, 8, 3)]
    {
        let logits = rng.tensor(&[tokens, experts]);
        let bias = HostTensor::f32(&[experts], &rng.tensor(&[experts]).to_f32().unwrap_or_default());
        for (gating, by_two) in [(Gating::Softmax, false), (Gating::Sigmoid, true), (Gating::Sigmoid, false)] {
            for biased in [false, true] {
                let groups = Some(ExpertGroups { count, used: open, by_two });
                let op = RouteExperts { used, gating, bias: biased, normalize: by_two, scale: 2.5, groups };
                let inputs = [logits.clone(), bias.clone()];
                cases.push(Case::new(op, inputs[..1 + usize::from(biased)].to_vec(), 1e-5));
            }
        }
    }
    // Equals.
    let op = RouteExperts { used: 3, gating: Gating::Softmax, bias: false, normalize: true, scale: 1.0, groups: None };
    cases.push(Case::new(op, vec![HostTensor::f32(&[1, 5], &[1.0, 2.0, 1.0, 2.0, 1.0])], 1e-5));
    cases
}
