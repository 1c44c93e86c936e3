//! Causal attention of new tokens over latents: all heads read one row for each position, which is a key, and whose end is the value
//! (DeepSeek-AI 2024, "DeepSeek-V2": multi-head latent attention with absorbed matrices).

use rillm_cpu_kernels::Added;

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::attention::{Stays, attention, causal};
use crate::tensor::exec::{grid_2d, lanes_defines, subgroup_lanes};
use crate::tensor::op::{expect, fits_u32, on_cpu};
use crate::tensor::ops::Attention;
use crate::tensor::ops::cache::cache_dtype::{
    cache_columns, cache_defines, cache_dtype, cached, case_dtype, random_cache,
};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: q [tokens, heads · (turned + rank)], the cache [capacity, `cache_columns` of a head of turned + rank], state [4] u32 (state[0] is the
/// position of the first token). The new tokens' rows are in the cache already. Output: [tokens, heads · rank], sums of latents.
#[derive(Clone, Copy, Debug)]
pub struct LatentAttention {
    /// Query heads.
    pub heads: usize,
    /// The length of a latent.
    pub rank: usize,
    /// The numbers of a row before it.
    pub turned: usize,
    /// Scores are q·k · scale.
    pub scale: f32,
    /// The number of positions that a token sees, its own included and last (sliding window); `None`: all.
    pub window: Option<usize>,
}

impl Op for LatentAttention {
    on_cpu!();

    fn name(&self) -> &'static str {
        "latent_attention"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let cache = cache_dtype(inputs.get(1));
        expect("latent_attention", inputs, &[Some(DType::F32), cache, Some(DType::U32)])?;
        let (tokens, q_columns) = inputs[0].shape.matrix()?;
        let (_, cache_width) = inputs[1].shape.matrix()?;
        let row = self.turned + self.rank;
        if q_columns != self.heads * row || self.rank == 0 || cache_width != cache_columns(inputs[1].dtype, 1, row) {
            bail!(ShapeMismatch, "{self:?}: q {}, cache {}", inputs[0].shape, inputs[1].shape);
        }
        fits_u32("latent_attention", inputs[0].shape.dims())?;
        Ok(vec![Desc::f32(&[tokens, self.heads * self.rank])])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, _) = inputs[0].shape.matrix()?;
        let (capacity, _) = inputs[1].shape.matrix()?;
        let row = self.turned + self.rank;
        let lanes = subgroup_lanes(capabilities, row.next_power_of_two().min(32) as u32);
        let workgroup = lanes.unwrap_or(32);
        let mut defines = lanes_defines(workgroup, lanes);
        defines.push(("DIMS_PER_LANE", Define::U32((row as u32).div_ceil(workgroup))));
        defines.push(("LATENT", Define::Flag));
        defines.extend(cache_defines(inputs.get(1)));
        if self.window.is_some() {
            defines.push(("WINDOW", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("latent_attention.wgsl"),
            modules: &[],
            defines,
            params: vec![
                (tokens * self.heads) as u32,
                self.heads as u32,
                1,
                row as u32,
                self.rank as u32,
                capacity as u32,
                self.scale.to_bits(),
                self.window.unwrap_or(0) as u32,
            ],
            grid: grid_2d(tokens * self.heads, capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for LatentAttention {
    /// As attention of one head of keys and values, whose values are the rows with zeros in place of the turned part.
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let head_dim = self.turned + self.rank;
        let mut rows = cached(&inputs[1], head_dim)?;
        let keys = HostTensor::f32(&[rows.len() / head_dim, head_dim], &rows);
        rows.chunks_exact_mut(head_dim).for_each(|row| row[..self.turned].fill(0.0));
        let values = HostTensor::f32(&[rows.len() / head_dim, head_dim], &rows);
        let Self { heads, scale, window, .. } = *self;
        let attention = Attention { heads, kv_heads: 1, head_dim, scale, window, softcap: None };
        let of_attention = &mut [inputs[0].clone(), keys, values, inputs[2].clone()];
        let (tokens, _) = inputs[0].shape.matrix()?;
        let mut sums = Vec::new();
        for output in attention.reference(of_attention)? {
            for head in output.to_f32()?.chunks_exact(head_dim) {
                sums.extend_from_slice(&head[self.turned..]);
            }
        }
        Ok(vec![HostTensor::f32(&[tokens, self.heads * self.rank], &sums)])
    }

    /// Reads the rows that tokens see and no others. Rows are their own values; of the sums the turned part is dropped.
    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let Self { heads, scale, window, turned, rank } = *self;
        let head_dim = turned + rank;
        let [q, cache, state] = &tensors.inputs[..] else { bail!(Internal, "latent_attention without three inputs") };
        let (tokens, _) = q.desc.shape.matrix()?;
        let first = state.u32s()?.first().copied().unwrap_or(0) as usize;
        let all = Attention { heads, kv_heads: 1, head_dim, scale, window, softcap: None }.on_cpu(Added::Nothing);
        let sums = attention(
            tensors.team,
            &all,
            None,
            q.f32s()?,
            [cache, cache],
            Stays::Kept,
            &causal(window, first, tokens),
        )?;
        let out = tensors.output(0)?.f32s_mut()?;
        for (out, sums) in out.chunks_exact_mut(rank).zip(sums.chunks_exact(head_dim)) {
            out.copy_from_slice(&sums[turned..]);
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(613);
    let mut cases = Vec::new();
    // tokens, heads, rank, turned, capacity, position
    for (tokens, heads, rank, turned, capacity, position) in [
        (1, 1, 2, 2, 1, 0),
        (3, 5, 20, 8, 64, 7),
        (1, 16, 512, 64, 40, 33),
        (37, 3, 36, 28, 97, 13),
        (2, 2, 256, 32, 300, 255),
    ] {
        for n in 0..3 {
            let mut q = rng.tensor(&[tokens, heads * (turned + rank)]);
            // Large enough that the softmax is far from flat.
            let sharp: Vec<f32> = q.to_f32().unwrap_or_default().iter().map(|x| x * 8.0).collect();
            q.set_f32(&sharp);
            let cache = random_cache(&mut rng, case_dtype(n), &[capacity], 1, turned + rank);
            let inputs = vec![q, cache, HostTensor::u32(&[4], &[position, 0, 0, 0])];
            let scale = 1.0 / ((turned + rank) as f32).sqrt();
            let window = [None, Some(5), None][n];
            cases.push(Case::new(LatentAttention { heads, rank, turned, scale, window }, inputs, 1e-5));
        }
    }
    cases
}
