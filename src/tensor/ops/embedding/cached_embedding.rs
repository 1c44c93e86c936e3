//! Looks up a row for each token in a cache of a table's rows.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: tokens [tokens] u32, places [vocabulary] u32, cache [rows, columns] f32. Output: [tokens, columns], with
/// `out[i] = cache[places[tokens[i]]]`. A token that is not in the vocabulary has the place of the first, and a place that is none gives zeros.
#[derive(Clone)]
pub struct CachedEmbedding;

impl Op for CachedEmbedding {
    on_cpu!();

    fn name(&self) -> &'static str {
        "cached_embedding"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("cached_embedding", inputs, &[Some(DType::U32), Some(DType::U32), Some(DType::F32)])?;
        let (_, columns) = inputs[2].shape.matrix()?;
        Ok(vec![Desc::f32(&[inputs[0].shape.elements(), columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = outputs[0].shape.matrix()?;
        let (rows, _) = inputs[2].shape.matrix()?;
        Ok(Kernel {
            template: crate::shader!("cached_embedding.wgsl"),
            modules: &[],
            defines: vec![],
            params: [tokens * columns, columns, inputs[1].shape.elements(), rows].map(|word| word as u32).to_vec(),
            grid: grid_2d((tokens * columns).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

/// Writes the rows of tokens.
fn look_up(tokens: &[u32], places: &[u32], cache: &[f32], out: &mut [f32]) {
    let columns = out.len() / tokens.len().max(1);
    for (token, out) in tokens.iter().zip(out.chunks_exact_mut(columns.max(1))) {
        let place = places.get(*token as usize).or_else(|| places.first()).map_or(usize::MAX, |place| *place as usize);
        let row = place.checked_mul(columns).and_then(|first| cache.get(first..)?.get(..columns));
        match row {
            Some(row) => out.copy_from_slice(row),
            None => out.fill(0.0),
        }
    }
}

impl Reference for CachedEmbedding {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let (tokens, places, cache) = (inputs[0].to_u32()?, inputs[1].to_u32()?, inputs[2].to_f32()?);
        let (_, columns) = inputs[2].shape.matrix()?;
        let mut out = vec![0.0; tokens.len() * columns];
        look_up(&tokens, &places, &cache, &mut out);
        Ok(vec![HostTensor::f32(&[tokens.len(), columns], &out)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let [tokens, places, cache] = &tensors.inputs[..] else {
            bail!(Internal, "cached_embedding without three inputs")
        };
        look_up(tokens.u32s()?, places.u32s()?, cache.f32s()?, tensors.outputs[0].f32s_mut()?);
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(57);
    let mut cases = Vec::new();
    for (tokens, vocabulary, rows, columns) in [(1, 1, 1, 1), (1, 251, 16, 256), (13, 97, 5, 37), (300, 2000, 128, 768)]
    {
        let ids: Vec<u32> =
            (0..tokens).map(|_| rng.below(vocabulary) as u32).chain([0, vocabulary as u32, u32::MAX]).collect();
        let places: Vec<u32> =
            (0..vocabulary).map(|at| if at % 7 == 3 { u32::MAX } else { rng.below(rows) as u32 }).collect();
        let inputs = vec![
            HostTensor::u32(&[ids.len()], &ids),
            HostTensor::u32(&[vocabulary], &places),
            rng.tensor(&[rows, columns]),
        ];
        cases.push(Case::new(CachedEmbedding, inputs, 0.0));
    }
    cases
}
