//! Adds each element of a tensor to one of another, by an index.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::indexing::indices::{MODULES, RandomIndices, beside, defines, expect_words, index_of};
use crate::tensor::ops::scan::cumsum::integers;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng};

/// What is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterKind {
    /// f32, in no fixed order: two runs may round differently.
    F32,
    /// i32 or u32, whose sums wrap around.
    Integer,
}

/// Inputs: x [outer, n, inner] (changed), f32 or u32 as the kind says, an index u32 [outer, m, inner] and a source [outer, m, inner]
/// like x: `x[o, index[o, j, i], i] += source[o, j, i]`. An index out of range leaves its element out.
#[derive(Clone)]
pub struct ScatterAdd {
    /// What is added.
    pub kind: ScatterKind,
    /// Indices are i32, from −n on: −1 is the last element.
    pub signed: bool,
}

impl Op for ScatterAdd {
    on_cpu!();

    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let number = match self.kind {
            ScatterKind::F32 => Some(DType::F32),
            ScatterKind::Integer => Some(DType::U32),
        };
        if let [x, index, _] = inputs {
            expect_words("scatter_add", x, index)?;
        }
        expect("scatter_add", inputs, &[number, Some(DType::U32), number])?;
        beside("scatter_add", &inputs[0], &inputs[1])?;
        let (index, source) = (inputs[1].shape, inputs[2].shape);
        if index != source {
            bail!(ShapeMismatch, "scatter_add: the index is {index} and the source {source}");
        }
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let [outer, n, inner, m] = beside("scatter_add", &inputs[0], &inputs[1])?;
        let elements = outer * m * inner;
        let mut defines = defines(self.signed);
        if self.kind == ScatterKind::Integer {
            defines.push(("INTEGERS", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("scatter_add.wgsl"),
            modules: MODULES,
            defines,
            params: [elements, n, inner, m].map(|word| word as u32).to_vec(),
            grid: grid_2d(elements.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for ScatterAdd {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [_, n, inner, m] = beside("scatter_add", &inputs[0].desc(), &inputs[1].desc())?;
        let index = inputs[1].to_u32()?;
        // Where each element of the source goes.
        let places: Vec<(usize, usize)> = (index.iter().enumerate())
            .filter_map(|(from, index)| Some((from, index_of(*index, n, self.signed)?)))
            .map(|(from, index)| (from, (from / inner / m * n + index) * inner + from % inner))
            .collect();
        if self.kind == ScatterKind::Integer {
            let (mut x, source) = (inputs[0].to_u32()?, inputs[2].to_u32()?);
            places.iter().for_each(|(from, to)| x[*to] = x[*to].wrapping_add(source[*from]));
            inputs[0].set_u32(&x);
        } else {
            let mut x: Vec<f64> = inputs[0].to_f32()?.iter().map(|x| f64::from(*x)).collect();
            let source = inputs[2].to_f32()?;
            places.iter().for_each(|(from, to)| x[*to] += f64::from(source[*from]));
            inputs[0].set_f32(&x.iter().map(|x| *x as f32).collect::<Vec<_>>());
        }
        Ok(vec![])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(97);
    let mut cases = Vec::new();
    // The last ones send many elements to few places.
    let shapes =
        [([1, 1, 1], 1), ([2, 3, 5], 7), ([7, 31, 1], 61), ([1, 257, 131], 67), ([1, 1, 1], 1031), ([2, 3, 1], 5003)];
    for (dims, m) in shapes {
        for signed in [false, true] {
            let source = [dims[0], m, dims[2]];
            let index = RandomIndices { n: dims[1], signed }.tensor(&source, &mut rng);
            let op = ScatterAdd { kind: ScatterKind::F32, signed };
            // The order of the additions is not fixed.
            cases.push(Case::new(op, vec![rng.tensor(&dims), index.clone(), rng.tensor(&source)], 1e-5));
            let op = ScatterAdd { kind: ScatterKind::Integer, signed };
            let inputs = vec![integers(&dims, &mut rng), index, integers(&source, &mut rng)];
            cases.push(Case::new(op, inputs, 0.0));
        }
    }
    // Infinities and NaN, which no number makes go away.
    let source = [1.0, f32::INFINITY, -1.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 2.0, f32::MAX, f32::MAX];
    let index = HostTensor::u32(&[1, 9, 1], &[0, 1, 1, 2, 3, 3, 2, 4, 4]);
    let inputs = vec![HostTensor::f32(&[1, 5, 1], &[1.0; 5]), index, HostTensor::f32(&[1, 9, 1], &source)];
    cases.push(Case::new(ScatterAdd { kind: ScatterKind::F32, signed: false }, inputs, 0.0));
    cases
}
