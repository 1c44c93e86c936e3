//! Looks up a row of the embedding matrix for each token.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::cpu::linear::row;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::products::mat_vec::LARGE_VOCABULARY;
use crate::tensor::quant::{BLOCK, FORMATS};
use crate::tensor::soa::to_soa;
use crate::tensor::{Case, CpuTensors, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// Inputs: tokens [tokens] u32, weight [vocabulary, columns]. Output: [tokens, columns]. A token that is not in the vocabulary has the
/// first row: callers check that there is none, except where models mean it so (the per-layer embeddings of Gemma 3n).
#[derive(Clone)]
pub struct Embedding {
    /// The output, of one token and columns of a multiple of 32, is in SoA (`tensor/soa.rs`).
    pub soa: bool,
}

impl Op for Embedding {
    on_cpu!();

    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        expect("embedding", inputs, &[Some(DType::U32), None])?;
        let (_, columns) = inputs[1].shape.matrix()?;
        if self.soa && (inputs[0].shape.elements() != 1 || !columns.is_multiple_of(BLOCK)) {
            bail!(
                ShapeMismatch,
                "embedding: tokens {}, weight {}; SoA needs one token and columns of a multiple of 32",
                inputs[0].shape,
                inputs[1].shape
            );
        }
        Ok(vec![Desc::f32(&[inputs[0].shape.elements(), columns])])
    }

    fn kernel(&self, inputs: &[Desc], outputs: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = outputs[0].shape.matrix()?;
        let blocks = columns.div_ceil(BLOCK);
        let rows = inputs[1].shape.dims()[0];
        let mut defines = vec![];
        if columns % BLOCK != 0 {
            defines.push(("RAGGED", Define::Flag));
        }
        if self.soa {
            defines.push(("SOA", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("embedding.wgsl"),
            modules: &[],
            defines,
            params: vec![tokens as u32, columns as u32, blocks as u32, rows as u32],
            grid: grid_2d((tokens * blocks).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Embedding {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let tokens = inputs[0].to_u32()?;
        let (_, columns) = inputs[1].shape.matrix()?;
        let weight = inputs[1].to_f32()?;
        let row = |token: &u32| {
            let first = *token as usize * columns;
            weight.get(first..first + columns).unwrap_or(&weight[..columns])
        };
        let rows: Vec<f32> = tokens.iter().flat_map(row).copied().collect();
        let rows = if self.soa { to_soa(&rows) } else { rows };
        Ok(vec![HostTensor::f32(&[tokens.len(), columns], &rows)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let (tokens, weight) = (tensors.inputs[0].u32s()?, &tensors.inputs[1]);
        let (rows, columns) = weight.desc.shape.matrix()?;
        let out = tensors.outputs[0].f32s_mut()?;
        for (token, out) in tokens.iter().zip(out.chunks_exact_mut(columns)) {
            let token = *token as usize;
            row(weight, if token < rows { token } else { 0 }, out)?;
            if self.soa {
                out.copy_from_slice(&to_soa(out));
            }
        }
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(4);
    let mut cases = Vec::new();
    for format in FORMATS {
        let ragged: &[usize] = if format.block_size == 1 { &[1, 37, 100] } else { &[] };
        for columns in [32, 96, 1024].iter().chain(ragged) {
            let columns = &columns.next_multiple_of(format.block_size);
            let vocabulary = 251;
            let tokens = [0, 250, 251, u32::MAX].into_iter().chain((0..9).map(|_| rng.below(vocabulary) as u32));
            let tokens: Vec<u32> = tokens.collect();
            let weight = rng.weight(format, vocabulary, *columns);
            if columns.is_multiple_of(BLOCK) {
                let inputs = vec![HostTensor::u32(&[1], &tokens[7..8]), weight.clone()];
                cases.push(Case::new(Embedding { soa: true }, inputs, 0.0));
            }
            let inputs = vec![HostTensor::u32(&[13], &tokens), weight];
            cases.push(Case::new(Embedding { soa: false }, inputs, 0.0));
        }
    }
    let weight = rng.weight(FORMATS[0], LARGE_VOCABULARY, 32);
    let tokens = HostTensor::u32(&[3], &[0, LARGE_VOCABULARY as u32 - 1, 131_071]);
    cases.push(Case::new(Embedding { soa: false }, vec![tokens, weight], 0.0));
    cases
}
