//! What to tune: a step is traced, and each op with variants is noted with its shapes and weights.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::tuning::{TuningKey, Variant};
use crate::tensor::{Context, DType, Desc, Kernel, Op, Tensor};

/// Bytes of weights that a chain goes through in turn, so that no cache holds them.
const MAX_INSTANCES: usize = 32;

/// An op of a step that has variants.
pub struct Subject {
    pub(super) key: TuningKey,
    pub(super) mutates: &'static [usize],
    /// The default first; all differ.
    pub(super) kernels: Vec<(Option<Variant>, Kernel)>,
    pub(super) inputs: Vec<Desc>,
    pub(super) outputs: Vec<Desc>,
    /// For each use of the op with other weights, the inputs that exist outside of the step and that kernels only read:
    /// weights and states. The other inputs are replaced by random numbers.
    pub(super) instances: Vec<Vec<Option<Tensor>>>,
    uses: usize,
}

impl Subject {
    /// The op, sizes and format that a choice holds for.
    pub fn key(&self) -> &TuningKey {
        &self.key
    }

    /// The variants without the default.
    pub fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.kernels.iter().filter_map(|(variant, _)| variant.as_ref())
    }

    /// Bytes of the weights that a step reads by it. The subject with the most is measured first.
    fn bytes(&self) -> u64 {
        let weights = self.instances.iter().flatten().flatten().map(Tensor::bytes).max();
        weights.unwrap_or_default() * self.uses as u64
    }
}

/// Notes what a traced step would run.
#[derive(Default)]
pub struct Survey(Vec<Subject>);

impl Survey {
    pub(in crate::tensor) fn note(
        &mut self,
        key: TuningKey,
        op: &dyn Op,
        tensors: &[&Tensor],
        outputs: &[Desc],
        capabilities: &Capabilities,
    ) -> Result<()> {
        let is_kept = |tensor: &Tensor| matches!(tensor.dtype(), DType::Weight(_) | DType::U32);
        let lasting = |tensor: &&Tensor| is_kept(tensor).then(|| (*tensor).clone());
        let is_fit = |(index, tensor): (usize, &&Tensor)| {
            !is_kept(tensor) || (tensor.has_memory() && !op.mutates().contains(&index))
        };
        if !tensors.iter().enumerate().all(is_fit) {
            return Ok(());
        }
        if let Some(known) = self.0.iter_mut().find(|subject| subject.key == key) {
            known.uses += 1;
            if known.instances.len() < MAX_INSTANCES {
                known.instances.push(tensors.iter().map(lasting).collect());
            }
            return Ok(());
        }
        let inputs: Vec<Desc> = tensors.iter().map(|tensor| tensor.desc()).collect();
        let variants = op.variants(&inputs, capabilities);
        if variants.is_empty() {
            return Ok(());
        }
        let mut kernels = vec![(None, op.kernel(&inputs, outputs, capabilities)?)];
        for variant in variants {
            let kernel = op.kernel_as(&variant, &inputs, outputs, capabilities)?;
            if kernels.iter().all(|(_, other)| *other != kernel) {
                kernels.push((Some(variant), kernel));
            }
        }
        self.0.push(Subject {
            key,
            mutates: op.mutates(),
            kernels,
            inputs,
            outputs: outputs.to_vec(),
            instances: vec![tensors.iter().map(lasting).collect()],
            uses: 1,
        });
        Ok(())
    }
}

/// The ops with variants in some steps; within a step, those that read the most weights come first. The steps are only traced.
pub fn survey(context: &Context, steps: &[&dyn Fn() -> Result<()>]) -> Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    for step in steps {
        *context.tunings().survey.borrow_mut() = Some(Survey::default());
        let rehearsed = context.device().rehearse(step);
        let survey = context.tunings().survey.borrow_mut().take();
        rehearsed?;
        let mut found = survey.unwrap_or_default().0;
        found.retain(|subject| subject.kernels.len() > 1 && subjects.iter().all(|known| known.key != subject.key));
        // A stable sort: ops that read no weights stay at the end, in order.
        found.sort_by_key(|subject| std::cmp::Reverse(subject.bytes()));
        subjects.extend(found);
    }
    Ok(subjects)
}
