//! The operations of tensors for JavaScript. Functions are numbers, by the order of their lists; a tensor that is left out is `NONE`.

use wasm_bindgen::prelude::*;

use super::target::Target;
use super::tensors::check_size;
use crate::array::{
    Array, Attention, Binary, Choice, Compare, Convolution, CrossEntropy, DType, Logical, Norm, Pooling, Reduce,
    Reduction, Scalar, TransposedConvolution, Unary,
};
use crate::error::Result;

/// The operations on tensors of a device, or on buffers of a batch.
#[wasm_bindgen]
pub struct WasmOperations {
    target: Target,
}

impl WasmOperations {
    pub fn on(target: Target) -> Self {
        Self { target }
    }
}

#[wasm_bindgen]
impl WasmOperations {
    pub fn unary(&self, kind: usize, x: u32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.unary(listed(Unary::ALL, kind)?))
    }

    pub fn binary(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.target.one([a, b], move |[a, b]| a.binary(listed(Binary::ALL, kind)?, b))
    }

    #[wasm_bindgen(js_name = binaryScalar)]
    pub fn binary_scalar(&self, kind: usize, x: u32, number: f64, reversed: bool) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.binary_scalar(listed(Binary::ALL, kind)?, Scalar::Number(number), reversed))
    }

    pub fn compare(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.target.one([a, b], move |[a, b]| a.compare(listed(Compare::ALL, kind)?, b))
    }

    #[wasm_bindgen(js_name = compareScalar)]
    pub fn compare_scalar(&self, kind: usize, x: u32, number: f64) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.compare_scalar(listed(Compare::ALL, kind)?, Scalar::Number(number)))
    }

    pub fn logical(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.target.one([a, b], move |[a, b]| a.logical(listed(Logical::ALL, kind)?, b))
    }

    #[wasm_bindgen(js_name = logicalNot)]
    pub fn logical_not(&self, x: u32) -> Result<u32, JsValue> {
        self.target.one([x], |[x]| x.logical_not())
    }

    pub fn choose(&self, condition: u32, x: u32, y: u32) -> Result<u32, JsValue> {
        self.target.one([condition, x, y], |[condition, x, y]| condition.choose(x, y))
    }

    /// The same, with a number for each tensor that is left out.
    #[wasm_bindgen(js_name = chooseScalars)]
    pub fn choose_scalars(&self, condition: u32, x: u32, y: u32, x_number: f64, y_number: f64) -> Result<u32, JsValue> {
        self.target.some([condition, x, y], move |[condition, x, y]| {
            let x = x.map_or(Choice::Scalar(Scalar::Number(x_number)), Choice::Array);
            let y = y.map_or(Choice::Scalar(Scalar::Number(y_number)), Choice::Array);
            given(condition)?.choose_scalars(x, y)
        })
    }

    pub fn clamp(&self, x: u32, least: Option<f64>, most: Option<f64>) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.clamp(least.map(Scalar::Number), most.map(Scalar::Number)))
    }

    pub fn softplus(&self, x: u32, beta: f64, threshold: f64) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.softplus(beta, threshold))
    }

    /// A copy also if the tensor is of this dtype already.
    pub fn cast(&self, x: u32, dtype: usize) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| {
            let dtype = listed(&DType::ALL, dtype)?;
            if dtype == x.dtype() { x.apart() } else { x.cast(dtype) }
        })
    }

    /// Over all dimensions if `dims` is left out.
    pub fn reduce(&self, kind: usize, x: u32, dims: Option<Vec<i32>>, keep_dims: bool) -> Result<u32, JsValue> {
        let dims = dims.as_deref().map(wide);
        self.target.one([x], move |[x]| x.reduce(listed(Reduce::ALL, kind)?, dims.as_deref(), keep_dims))
    }

    pub fn variance(&self, x: u32, dims: Option<Vec<i32>>, correction: f64, keep: bool) -> Result<u32, JsValue> {
        let dims = dims.as_deref().map(wide);
        self.target.one([x], move |[x]| x.variance(dims.as_deref(), correction, keep))
    }

    #[wasm_bindgen(js_name = argReduce)]
    pub fn arg_reduce(&self, largest: bool, x: u32, dim: Option<i32>, keep: bool) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.arg_reduce(largest, dim.map(i64::from), keep))
    }

    pub fn cumsum(&self, x: u32, dim: i32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.cumsum(i64::from(dim)))
    }

    pub fn softmax(&self, x: u32, dim: i32, log: bool) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.softmax(i64::from(dim), log))
    }

    /// Layer normalisation, or by the root mean square.
    pub fn norm(&self, rms: bool, x: u32, dims: usize, weight: u32, bias: u32, epsilon: f32) -> Result<u32, JsValue> {
        let kind = if rms { Norm::Rms } else { Norm::Layer };
        self.target.some([x, weight, bias], move |[x, weight, bias]| given(x)?.norm(kind, dims, weight, bias, epsilon))
    }

    /// `ignore` is the class that does not count; `reduction` is 0 for the mean, 1 for the sum and 2 for none.
    #[wasm_bindgen(js_name = crossEntropy)]
    pub fn cross_entropy(
        &self,
        x: u32,
        target: u32,
        ignore: i32,
        smoothing: f64,
        reduction: usize,
    ) -> Result<u32, JsValue> {
        self.target.one([x, target], move |[x, target]| {
            let reduction = listed(Reduction::ALL, reduction)?;
            x.cross_entropy(target, CrossEntropy { ignore_index: ignore, label_smoothing: smoothing, reduction })
        })
    }

    #[wasm_bindgen(js_name = mseLoss)]
    pub fn mse_loss(&self, x: u32, target: u32, reduction: usize) -> Result<u32, JsValue> {
        self.target.one([x, target], move |[x, target]| x.mse_loss(target, listed(Reduction::ALL, reduction)?))
    }

    pub fn matmul(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.target.one([a, b], |[a, b]| a.matmul(b))
    }

    pub fn dot(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.target.one([a, b], |[a, b]| a.dot(b))
    }

    /// `how`: stride, padding, dilation and output padding, two each, then groups.
    pub fn convolution(
        &self,
        flat: bool,
        transposed: bool,
        x: u32,
        weight: u32,
        bias: u32,
        how: Vec<u32>,
    ) -> Result<u32, JsValue> {
        self.target.some([x, weight, bias], move |[x, weight, bias]| {
            let (x, weight) = (given(x)?, given(weight)?);
            let of = Convolution {
                stride: pair(&how, 0)?,
                padding: pair(&how, 2)?,
                dilation: pair(&how, 4)?,
                groups: pair(&how, 8).map(|[groups, _]| groups)?,
            };
            let back = TransposedConvolution { of, output_padding: pair(&how, 6)? };
            match (flat, transposed) {
                (true, false) => x.conv1d(weight, bias, of),
                (false, false) => x.conv2d(weight, bias, of),
                (true, true) => x.conv_transpose1d(weight, bias, back),
                (false, true) => x.conv_transpose2d(weight, bias, back),
            }
        })
    }

    /// `how`: kernel, stride, padding and dilation, two each. Values, then indices.
    #[wasm_bindgen(js_name = maxPool2d)]
    pub fn max_pool2d(&self, x: u32, how: Vec<u32>, ceil_mode: bool) -> Result<Vec<u32>, JsValue> {
        self.target.several([x], move |[x]| x.max_pool2d(pooling(&how, ceil_mode)?).map(in_order))
    }

    #[wasm_bindgen(js_name = avgPool2d)]
    pub fn avg_pool2d(&self, x: u32, how: Vec<u32>, ceil_mode: bool, count_include_pad: bool) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.avg_pool2d(pooling(&how, ceil_mode)?, count_include_pad))
    }

    pub fn attention(&self, q: u32, k: u32, v: u32, causal: bool, scale: Option<f32>) -> Result<u32, JsValue> {
        self.target.one([q, k, v], move |[q, k, v]| q.flash_attention(k, v, Attention { causal, scale }))
    }
}

#[wasm_bindgen]
impl WasmOperations {
    pub fn reshape(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        let dims = wide(dims);
        self.target.one([x], move |[x]| x.reshape(&dims))
    }

    pub fn flatten(&self, x: u32, first: i32, last: i32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.flatten(i64::from(first), i64::from(last)))
    }

    pub fn permute(&self, x: u32, order: &[i32]) -> Result<u32, JsValue> {
        let order = wide(order);
        self.target.one([x], move |[x]| x.permute(&order))
    }

    pub fn transpose(&self, x: u32, a: i32, b: i32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.transpose(i64::from(a), i64::from(b)))
    }

    pub fn expand(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        let dims = wide(dims);
        self.target.one([x], move |[x]| x.expand(&dims))
    }

    pub fn squeeze(&self, x: u32, dims: Option<Vec<i32>>) -> Result<u32, JsValue> {
        let dims = dims.as_deref().map(wide);
        self.target.one([x], move |[x]| x.squeeze(dims.as_deref()))
    }

    pub fn unsqueeze(&self, x: u32, dim: i32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.unsqueeze(i64::from(dim)))
    }

    pub fn slice(&self, x: u32, dim: i32, start: Option<f64>, stop: Option<f64>, step: f64) -> Result<u32, JsValue> {
        let whole = |bound: f64| bound as i64;
        let (start, stop, step) = (start.map(whole), stop.map(whole), whole(step));
        self.target.one([x], move |[x]| x.slice(i64::from(dim), start, stop, step))
    }

    pub fn select(&self, x: u32, dim: i32, index: f64) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.select(i64::from(dim), index as i64))
    }

    pub fn split(&self, x: u32, sizes: &[u32], dim: i32) -> Result<Vec<u32>, JsValue> {
        let sizes = sizes_of(sizes);
        self.target.several([x], move |[x]| x.split(&sizes, i64::from(dim)))
    }

    #[wasm_bindgen(js_name = splitEvery)]
    pub fn split_every(&self, x: u32, size: usize, dim: i32) -> Result<Vec<u32>, JsValue> {
        self.target.several([x], move |[x]| x.split_every(size, i64::from(dim)))
    }

    pub fn chunk(&self, x: u32, chunks: usize, dim: i32) -> Result<Vec<u32>, JsValue> {
        self.target.several([x], move |[x]| x.chunk(chunks, i64::from(dim)))
    }

    pub fn flip(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        let dims = wide(dims);
        self.target.one([x], move |[x]| x.flip(&dims))
    }

    pub fn cat(&self, tensors: &[u32], dim: i32) -> Result<u32, JsValue> {
        self.target.list(tensors, move |arrays| Array::cat(arrays, i64::from(dim)))
    }

    pub fn stack(&self, tensors: &[u32], dim: i32) -> Result<u32, JsValue> {
        self.target.list(tensors, move |arrays| Array::stack(arrays, i64::from(dim)))
    }

    pub fn repeat(&self, x: u32, times: &[u32]) -> Result<u32, JsValue> {
        let times = sizes_of(times);
        self.target.one([x], move |[x]| x.repeat(&times))
    }

    pub fn pad(&self, x: u32, counts: &[i32], value: f64) -> Result<u32, JsValue> {
        let counts = wide(counts);
        self.target.one([x], move |[x]| x.pad(&counts, Scalar::Number(value)))
    }

    pub fn triangle(&self, x: u32, upper: bool, diagonal: i32) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.triangle(upper, i64::from(diagonal)))
    }

    pub fn contiguous(&self, x: u32) -> Result<u32, JsValue> {
        self.target.one([x], |[x]| x.contiguous())
    }

    pub fn copied(&self, x: u32) -> Result<u32, JsValue> {
        self.target.one([x], |[x]| x.copied())
    }

    pub fn assign(&self, x: u32, from: u32) -> Result<(), JsValue> {
        self.target.several([x, from], |[x, from]| x.assign(from).map(|()| Vec::new())).map(|_| ())
    }

    /// One number in a tensor's shape and type.
    #[wasm_bindgen(js_name = fullLike)]
    pub fn full_like(&self, x: u32, value: f64) -> Result<u32, JsValue> {
        self.target.one([x], move |[x]| x.library().full(x.dims(), x.dtype(), Scalar::Number(value)))
    }

    pub fn gather(&self, x: u32, dim: i32, index: u32) -> Result<u32, JsValue> {
        self.target.one([x, index], move |[x, index]| x.gather(i64::from(dim), index))
    }

    #[wasm_bindgen(js_name = scatterAdd)]
    pub fn scatter_add(&self, x: u32, dim: i32, index: u32, source: u32) -> Result<u32, JsValue> {
        self.target.one([x, index, source], move |[x, index, source]| x.scatter_add(i64::from(dim), index, source))
    }

    #[wasm_bindgen(js_name = indexSelect)]
    pub fn index_select(&self, x: u32, dim: i32, index: u32) -> Result<u32, JsValue> {
        self.target.one([x, index], move |[x, index]| x.index_select(i64::from(dim), index))
    }

    pub fn embedding(&self, weight: u32, index: u32) -> Result<u32, JsValue> {
        self.target.one([weight, index], |[weight, index]| weight.embedding(index))
    }

    /// Values, then indices.
    pub fn sort(&self, x: u32, dim: i32, descending: bool) -> Result<Vec<u32>, JsValue> {
        self.target.several([x], move |[x]| x.sort(i64::from(dim), descending).map(in_order))
    }

    pub fn topk(&self, x: u32, k: usize, dim: i32, largest: bool) -> Result<Vec<u32>, JsValue> {
        self.target.several([x], move |[x]| x.topk(k, i64::from(dim), largest).map(in_order))
    }
}

#[wasm_bindgen]
impl WasmOperations {
    pub fn full(&self, shape: u32, dtype: usize, value: f64) -> Result<u32, JsValue> {
        let dims = self.target.dims(shape)?;
        self.target.made(move |library| {
            let dtype = listed(&DType::ALL, dtype)?;
            check_size(&dims, dtype, library.context().device())?;
            library.full(&dims, dtype, Scalar::Number(value))
        })
    }

    pub fn arange(&self, start: f64, end: f64, step: f64, dtype: usize) -> Result<u32, JsValue> {
        self.target.made(move |library| library.arange(start, end, step, listed(&DType::ALL, dtype)?))
    }

    pub fn linspace(&self, start: f64, end: f64, count: usize, dtype: usize) -> Result<u32, JsValue> {
        self.target.made(move |library| library.linspace(start, end, count, listed(&DType::ALL, dtype)?))
    }

    pub fn eye(&self, rows: usize, columns: usize, dtype: usize) -> Result<u32, JsValue> {
        self.target.made(move |library| library.eye(rows, columns, listed(&DType::ALL, dtype)?))
    }

    /// Uniform in [0, 1), or normally distributed.
    pub fn random(&self, shape: u32, normal: bool, seed_high: u32, seed_low: u32) -> Result<u32, JsValue> {
        let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
        let dims = self.target.dims(shape)?;
        let library = self.target.library().clone();
        self.target.list(&[], move |_| {
            check_size(&dims, DType::F32, library.context().device())?;
            if normal { library.randn(&dims, seed) } else { library.rand(&dims, seed) }
        })
    }
}

fn given(array: Option<&Array>) -> Result<&Array> {
    array.ok_or_else(|| err!(Internal, "an input is missing"))
}

fn in_order((values, indices): (Array, Array)) -> Vec<Array> {
    vec![values, indices]
}

fn listed<T: Copy>(list: &[T], number: usize) -> Result<T> {
    list.get(number).copied().ok_or_else(|| err!(Internal, "there is no function {number} of {}", list.len()))
}

fn wide(dims: &[i32]) -> Vec<i64> {
    dims.iter().map(|dim| i64::from(*dim)).collect()
}

fn sizes_of(sizes: &[u32]) -> Vec<usize> {
    sizes.iter().map(|size| *size as usize).collect()
}

fn pair(numbers: &[u32], first: usize) -> Result<[usize; 2]> {
    match numbers.get(first..first + 2) {
        Some(&[height, width]) => Ok([height as usize, width as usize]),
        _ => bail!(Internal, "{} numbers are too few", numbers.len()),
    }
}

fn pooling(how: &[u32], ceil_mode: bool) -> Result<Pooling> {
    Ok(Pooling {
        kernel: pair(how, 0)?,
        stride: pair(how, 2)?,
        padding: pair(how, 4)?,
        dilation: pair(how, 6)?,
        ceil_mode,
    })
}
