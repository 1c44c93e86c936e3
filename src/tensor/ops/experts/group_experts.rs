//! Sorts the pairs of a token and one of its experts by expert, so that each expert's matrix is read once for all of its tokens: a
//! counting sort on the GPU (the grouping of tokens in MegaBlocks, Gale et al. 2022).

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Input: ids [tokens, used] u32, the experts of each token. Outputs: order [tokens · used] u32, the numbers of the pairs, sorted by
/// expert (stable); tiles [n, 4] u32, runs of at most `TILE` of them: expert, first place in the order, count, 0. n is the largest
/// possible number of tiles; the last ones may have no pairs.
#[derive(Clone, Copy, Debug)]
pub struct GroupExperts {
    /// The number of experts; ids are below it.
    pub experts: usize,
}

/// Pairs of a tile.
pub(super) const TILE: usize = 32;

impl GroupExperts {
    /// Each expert has at most one tile that is not full.
    fn most_tiles(&self, pairs: usize) -> usize {
        pairs / TILE + self.experts.min(pairs)
    }
}

impl Op for GroupExperts {
    on_cpu!();

    fn name(&self) -> &'static str {
        "group_experts"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("group_experts", inputs, &[Some(DType::U32)])?;
        let pairs = inputs[0].shape.elements();
        if self.experts == 0 || self.experts > crate::tensor::ops::RouteExperts::MAX_EXPERTS {
            bail!(ShapeMismatch, "group_experts: {} experts", self.experts);
        }
        Ok(vec![Desc::u32(&[pairs]), Desc::u32(&[self.most_tiles(pairs), 4])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let pairs = inputs[0].shape.elements();
        Ok(Kernel {
            template: crate::shader!("group_experts.wgsl"),
            modules: &[],
            defines: vec![("EXPERTS", Define::U32(self.experts as u32)), ("TILE", Define::U32(TILE as u32))],
            params: vec![pairs as u32, self.most_tiles(pairs) as u32],
            grid: [1, 1, 1],
        })
    }
}

impl Reference for GroupExperts {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let ids = inputs[0].to_u32()?;
        let (mut order, mut tiles) = (Vec::new(), Vec::new());
        for expert in 0..self.experts as u32 {
            let of_expert: Vec<u32> = (0..ids.len() as u32).filter(|pair| ids[*pair as usize] == expert).collect();
            for tile in of_expert.chunks(TILE) {
                tiles.extend([expert, order.len() as u32, tile.len() as u32, 0]);
                order.extend_from_slice(tile);
            }
        }
        let most = self.most_tiles(ids.len());
        tiles.resize(4 * most, 0);
        Ok(vec![HostTensor::u32(&[ids.len()], &order), HostTensor::u32(&[most, 4], &tiles)])
    }
}

/// Experts of tokens, realistic and unrealistic: [tokens, used].
pub(super) fn random_ids(rng: &mut Rng, tokens: usize, used: usize, experts: usize) -> HostTensor {
    // A token never has an expert twice. Every third set uses few experts.
    let among = if rng.below(3) == 0 { used.max(experts / 4) } else { experts };
    let ids: Vec<u32> = (0..tokens)
        .flat_map(|_| {
            let first = rng.below(among);
            (0..used).map(move |next| ((first + next) % among) as u32)
        })
        .collect();
    HostTensor::u32(&[tokens, used], &ids)
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(97);
    // tokens, used, experts
    let mut cases: Vec<Case> =
        [(1, 1, 1), (1, 8, 128), (67, 1, 5), (37, 3, 8), (131, 4, 60), (509, 8, 128), (33, 2, 1024)]
            .into_iter()
            .map(|(tokens, used, experts)| {
                Case::new(GroupExperts { experts }, vec![random_ids(&mut rng, tokens, used, experts)], 0.0)
            })
            .collect();
    // All use one: the first or the last, in whole tiles and a few more.
    for (tokens, expert) in [(64, 0), (65, 6), (31, 6)] {
        let ids = HostTensor::u32(&[tokens, 1], &vec![expert; tokens]);
        cases.push(Case::new(GroupExperts { experts: 7 }, vec![ids], 0.0));
    }
    cases
}
