//! Copies the first positions of one sequence to another in the same cache, since WebGPU has no copy within a buffer.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::on_cpu;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: a cache [sequences, capacity, columns] (changed) of any dtype except weights, where each sequence has whole words.
#[derive(Clone, Copy, Debug)]
pub struct CopySequence {
    /// The sequence that is copied.
    pub from: usize,
    /// The sequence that is overwritten; not `from`.
    pub to: usize,
    /// The number of positions to copy, up to the capacity.
    pub positions: usize,
}

impl CopySequence {
    /// The words of a sequence, and the words to copy.
    fn words(&self, cache: Desc) -> Result<(usize, usize)> {
        let [sequences, capacity, columns] = *cache.shape.dims() else {
            bail!(ShapeMismatch, "copy_sequence: a cache {}, wanted [sequences, capacity, columns]", cache.shape)
        };
        let of_sequence = cache.dtype.bytes((capacity * columns) as u64);
        let is_whole = of_sequence * sequences as u64 == cache.dtype.bytes(cache.shape.elements() as u64);
        if self.from.max(self.to) >= sequences || self.from == self.to || self.positions > capacity || !is_whole {
            bail!(ShapeMismatch, "{self:?} of a cache {}", cache.shape);
        }
        Ok((of_sequence as usize / 4, cache.dtype.bytes((self.positions * columns) as u64) as usize / 4))
    }
}

impl Op for CopySequence {
    on_cpu!();

    fn name(&self) -> &'static str {
        "copy_sequence"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        match inputs {
            [cache] if !matches!(cache.dtype, DType::Weight(_)) => self.words(*cache).map(|_| vec![]),
            _ => bail!(DtypeMismatch, "copy_sequence takes one cache, not {inputs:?}"),
        }
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (of_sequence, words) = self.words(inputs[0])?;
        Ok(Kernel {
            template: crate::shader!("copy_sequence.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![words as u32, (self.from * of_sequence) as u32, (self.to * of_sequence) as u32],
            grid: grid_2d(words.div_ceil(256), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for CopySequence {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (of_sequence, words) = self.words(inputs[0].desc())?;
        let source = 4 * self.from * of_sequence;
        inputs[0].bytes.copy_within(source..source + 4 * words, 4 * self.to * of_sequence);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let cache = tensors.changed(0)?;
        let (of_sequence, words) = self.words(cache.desc)?;
        let source = 4 * self.from * of_sequence;
        cache.bytes_mut()?.copy_within(source..source + 4 * words, 4 * self.to * of_sequence);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(73);
    let mut cases = Vec::new();
    for (dims, from, to, positions) in
        [([2, 1, 2], 0, 1, 1), ([3, 64, 6], 2, 0, 64), ([8, 128, 34], 3, 7, 61), ([2, 4096, 520], 1, 0, 4001)]
    {
        let op = CopySequence { from, to, positions };
        cases.push(Case::new(op, vec![rng.tensor(&dims)], 0.0));
        cases.push(Case::new(op, vec![rng.f16(&dims)], 0.0));
    }
    cases
}
