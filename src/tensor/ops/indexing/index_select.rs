//! The same elements of every line: rows of a matrix, by their numbers.

use crate::error::Result;
use crate::gpu::{Capabilities, Define};
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, fits_u32, folded, on_cpu};
use crate::tensor::ops::indexing::indices::{
    MODULES, RandomIndices, defines, expect_words, index_of, missing, of_words, words,
};
use crate::tensor::ops::scan::cumsum::integers;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape};

/// Inputs: x [outer, n, inner], f32 or u32, and an index u32 [m]. Output: [outer, m, inner], with
/// `out[o, j, i] = x[o, index[j], i]`. With outer = 1 these are the rows of an embedding.
#[derive(Clone)]
pub struct IndexSelect {
    /// An index out of range gives NaN, and not 0.
    pub float: bool,
    /// Indices are i32, from −n on: −1 is the last element.
    pub signed: bool,
}

impl IndexSelect {
    fn dims(x: &Desc, index: &Desc) -> Result<[usize; 4]> {
        let (outer, n, inner) = folded("index_select", "x", x)?;
        match *index.shape.dims() {
            [m] if m > 0 => Ok([outer, n, inner, m]),
            _ => bail!(ShapeMismatch, "index_select: the index is {}, wanted one dimension", index.shape),
        }
    }
}

impl Op for IndexSelect {
    on_cpu!();

    fn name(&self) -> &'static str {
        "index_select"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [x, index] = inputs else {
            return expect("index_select", inputs, &[Some(DType::F32), Some(DType::U32)]).map(|()| vec![]);
        };
        expect_words("index_select", x, index)?;
        let [outer, _, inner, m] = Self::dims(x, index)?;
        fits_u32("index_select", &[outer, m, inner])?;
        Ok(vec![Desc { shape: Shape::from([outer, m, inner]), dtype: x.dtype }])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let [outer, n, inner, m] = Self::dims(&inputs[0], &inputs[1])?;
        let mut defines = defines(self.signed);
        let is_wide = inner.is_multiple_of(4);
        if is_wide {
            defines.push(("FOUR", Define::Flag));
        }
        let inner = if is_wide { inner / 4 } else { inner };
        let elements = outer * m * inner;
        let mut params = [elements, n, inner, m].map(|word| word as u32).to_vec();
        params.push(missing(self.float));
        Ok(Kernel {
            template: crate::shader!("index_select.wgsl"),
            modules: MODULES,
            defines,
            params,
            grid: grid_2d(elements.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for IndexSelect {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [outer, n, inner, m] = Self::dims(&inputs[0].desc(), &inputs[1].desc())?;
        let (x, index) = (words(&inputs[0]), inputs[1].to_u32()?);
        let mut out = Vec::with_capacity(outer * m * inner);
        for o in 0..outer {
            for index in &index {
                match index_of(*index, n, self.signed) {
                    Some(index) => out.extend_from_slice(&x[(o * n + index) * inner..][..inner]),
                    None => out.resize(out.len() + inner, missing(self.float)),
                }
            }
        }
        Ok(vec![of_words(inputs[0].dtype, &[outer, m, inner], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(96);
    let mut cases = Vec::new();
    let shapes =
        [([1, 1, 1], 1), ([2, 3, 5], 7), ([7, 31, 1], 61), ([3, 11, 4], 19), ([1, 509, 384], 67), ([1, 70, 131], 67)];
    for (dims, m) in shapes {
        for signed in [false, true] {
            let index = RandomIndices { n: dims[1], signed }.tensor(&[m], &mut rng);
            let op = IndexSelect { float: true, signed };
            cases.push(Case::new(op, vec![rng.tensor(&dims), index.clone()], 0.0));
            let op = IndexSelect { float: false, signed };
            cases.push(Case::new(op, vec![integers(&dims, &mut rng), index], 0.0));
        }
    }
    cases
}
