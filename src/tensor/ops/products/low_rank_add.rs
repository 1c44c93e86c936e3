//! The second of an adapter's two products (LoRA, Hu et al. 2021): y += B·h, where h is the result of `low_rank_down`.

use super::low_rank::{LowRankSegment, for_each_part, random_segments};
use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::quant::BLOCK;
use crate::tensor::soa::change_soa;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: h [tokens, ranks], words [words] u32 (of B: `LowRankSegment`), and y [tokens, columns] (changed).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowRankAdd {
    /// The factor of all sums.
    pub factor: f32,
    /// Rows of y are in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

/// Tokens of an invocation if there are many.
const MANY: usize = 4;

impl Op for LowRankAdd {
    on_cpu!();

    fn name(&self) -> &'static str {
        "low_rank_add"
    }

    fn mutates(&self) -> &'static [usize] {
        &[2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("low_rank_add", inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::F32)])?;
        let ((tokens, ranks), (of_y, columns)) = (inputs[0].shape.matrix()?, inputs[2].shape.matrix()?);
        if tokens != of_y || !ranks.is_multiple_of(2) || (self.soa && !columns.is_multiple_of(BLOCK)) {
            bail!(
                ShapeMismatch,
                "low_rank_add: h {} and y {}; wanted one row for each token, an even number of ranks, and in SoA columns of a multiple \
                 of {BLOCK}",
                inputs[0].shape,
                inputs[2].shape
            );
        }
        fits_u32("low_rank_add", &[tokens, columns])?;
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let ((tokens, ranks), (_, columns)) = (inputs[0].shape.matrix()?, inputs[2].shape.matrix()?);
        // Many tokens share what is read of B.
        let at_once = if tokens > MANY { MANY } else { 1 };
        let n = tokens.div_ceil(at_once) * columns;
        let last_pair = (tokens * ranks / 2).saturating_sub(1);
        let numbers = [n, tokens, columns, ranks, last_pair].map(|number| number as u32);
        let soa = self.soa.then_some(("SOA", Define::Flag));
        Ok(Kernel {
            template: crate::shader!("low_rank_add.wgsl"),
            modules: &[],
            defines: soa.into_iter().chain([("TOKENS", Define::U32(at_once as u32))]).collect(),
            params: numbers.into_iter().chain([self.factor.to_bits()]).collect(),
            grid: grid_2d(n.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for LowRankAdd {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ((_, ranks), (_, columns)) = (inputs[0].shape.matrix()?, inputs[2].shape.matrix()?);
        let (h, words, mut y) = (inputs[0].to_f32()?, inputs[1].to_u32()?, inputs[2].to_f32()?);
        for (h, y) in h.chunks_exact(ranks.max(1)).zip(y.chunks_exact_mut(columns)) {
            self.add(h, &words, y);
        }
        inputs[2].set_f32(&y);
        Ok(vec![])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (_, columns) = tensors.input(2)?.desc.shape.matrix()?;
        let (_, ranks) = tensors.input(0)?.desc.shape.matrix()?;
        let [h, words, y] = &mut tensors.inputs[..] else { bail!(Internal, "low_rank_add without three inputs") };
        let (h, words) = (h.f32s()?, words.u32s()?);
        for (h, y) in h.chunks_exact(ranks.max(1)).zip(y.f32s_mut()?.chunks_exact_mut(columns)) {
            self.add(h, words, y);
        }
        Ok(())
    }
}

impl LowRankAdd {
    /// To the row of one token.
    fn add(&self, h: &[f32], words: &[u32], y: &mut [f32]) {
        let mut sums = vec![0.0; y.len()];
        for_each_part(h, words, |row, part| sums[row] += part);
        if self.soa {
            change_soa(y, 0, &sums, |y, sum| y + self.factor * sum);
        } else {
            y.iter_mut().zip(&sums).for_each(|(y, sum)| *y += self.factor * sum);
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(71);
    // Tokens, columns, and the ranks of three segments, of which one may have none.
    let shapes = [
        (1, 96, [2, 0, 4]),
        (1, 160, [16, 0, 8]),
        (3, 96, [6, 0, 2]),
        (5, 64, [2, 0, 2]),
        (67, 101, [4, 0, 6]),
        (8, 1024, [16, 2, 8]),
        (4, 1056, [64, 0, 2]),
        (1, 96, [512, 0, 258]),
        (5, 64, [256, 300, 2]),
    ];
    let mut cases = Vec::new();
    for (index, (tokens, columns, ranks)) in shapes.into_iter().enumerate() {
        for soa in [false, true] {
            if soa && !usize::is_multiple_of(columns, BLOCK) {
                continue;
            }
            let (segments, pairs) = random_segments(&mut rng, columns, ranks);
            let words = LowRankSegment::words(&segments, &pairs);
            let inputs = vec![
                rng.tensor(&[tokens, ranks.iter().sum()]),
                HostTensor::u32(&[words.len()], &words),
                rng.tensor(&[tokens, columns]),
            ];
            cases.push(Case::new(LowRankAdd { factor: 1.0 + index as f32 * 0.25, soa }, inputs, 1e-5));
        }
    }
    cases
}
