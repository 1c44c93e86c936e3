//! One element of a line for each index.

use crate::error::Result;
use crate::gpu::Capabilities;
use crate::tensor::exec::grid_2d;
use crate::tensor::op::{expect, on_cpu};
use crate::tensor::ops::indexing::indices::{
    MODULES, RandomIndices, beside, defines, expect_words, index_of, missing, of_words, words,
};
use crate::tensor::ops::scan::cumsum::integers;
use crate::tensor::{Case, DType, Desc, HostTensor, Kernel, Op, Reference, Rng, Shape};

/// Inputs: x [outer, n, inner], f32 or u32, and an index u32 [outer, m, inner]. Output: [outer, m, inner], with
/// `out[o, j, i] = x[o, index[o, j, i], i]`.
#[derive(Clone)]
pub struct Gather {
    /// An index out of range gives NaN, and not 0.
    pub float: bool,
    /// Indices are i32, from −n on: −1 is the last element.
    pub signed: bool,
}

impl Op for Gather {
    on_cpu!();

    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let [x, index] = inputs else {
            return expect("gather", inputs, &[Some(DType::F32), Some(DType::U32)]).map(|()| vec![]);
        };
        expect_words("gather", x, index)?;
        let [outer, _, inner, m] = beside("gather", x, index)?;
        Ok(vec![Desc { shape: Shape::from([outer, m, inner]), dtype: x.dtype }])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let [outer, n, inner, m] = beside("gather", &inputs[0], &inputs[1])?;
        let elements = outer * m * inner;
        let mut params = [elements, n, inner, m].map(|word| word as u32).to_vec();
        params.push(missing(self.float));
        Ok(Kernel {
            template: crate::shader!("gather.wgsl"),
            modules: MODULES,
            defines: defines(self.signed),
            params,
            grid: grid_2d(elements.div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for Gather {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let [outer, n, inner, m] = beside("gather", &inputs[0].desc(), &inputs[1].desc())?;
        let (x, index) = (words(&inputs[0]), inputs[1].to_u32()?);
        let element = |(at, index): (usize, &u32)| match index_of(*index, n, self.signed) {
            Some(index) => x[(at / inner / m * n + index) * inner + at % inner],
            None => missing(self.float),
        };
        let out: Vec<u32> = index.iter().enumerate().map(element).collect();
        Ok(vec![of_words(inputs[0].dtype, &[outer, m, inner], &out)])
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(95);
    let mut cases = Vec::new();
    let shapes =
        [([1, 1, 1], 1), ([1, 1, 1], 9), ([2, 3, 5], 7), ([7, 31, 1], 61), ([1, 257, 131], 67), ([3, 1031, 2], 1)];
    for (dims, m) in shapes {
        for signed in [false, true] {
            let index = RandomIndices { n: dims[1], signed }.tensor(&[dims[0], m, dims[2]], &mut rng);
            let op = Gather { float: true, signed };
            cases.push(Case::new(op, vec![rng.tensor(&dims), index.clone()], 0.0));
            let op = Gather { float: false, signed };
            cases.push(Case::new(op, vec![integers(&dims, &mut rng), index], 0.0));
        }
    }
    cases
}
