//! The operations of tensors for JavaScript. Functions are numbers, by the order of their lists; a tensor that is left out is 0, and a number
//! that is left out NaN.

use wasm_bindgen::prelude::*;

use super::super::convert::js_error;
use super::device::WasmGpu;
use super::tensors::check_size;
use crate::array::{
    Array, Attention, Binary, Choice, Compare, Convolution, DType, Library, Logical, Norm, Pooling, Reduce, Scalar,
    TransposedConvolution, Unary,
};
use crate::error::Result;

#[wasm_bindgen]
impl WasmGpu {
    pub fn unary(&self, kind: usize, x: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.unary(listed(Unary::ALL, kind)?))
    }

    pub fn binary(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(a)?.binary(listed(Binary::ALL, kind)?, &self.array(b)?))
    }

    #[wasm_bindgen(js_name = binaryScalar)]
    pub fn binary_scalar(&self, kind: usize, x: u32, number: f64, reversed: bool) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.binary_scalar(listed(Binary::ALL, kind)?, scalar(number), reversed))
    }

    pub fn compare(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(a)?.compare(listed(Compare::ALL, kind)?, &self.array(b)?))
    }

    #[wasm_bindgen(js_name = compareScalar)]
    pub fn compare_scalar(&self, kind: usize, x: u32, number: f64) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.compare_scalar(listed(Compare::ALL, kind)?, scalar(number)))
    }

    pub fn logical(&self, kind: usize, a: u32, b: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(a)?.logical(listed(Logical::ALL, kind)?, &self.array(b)?))
    }

    #[wasm_bindgen(js_name = logicalNot)]
    pub fn logical_not(&self, x: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.logical_not())
    }

    pub fn choose(&self, condition: u32, x: u32, y: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(condition)?.choose(&self.array(x)?, &self.array(y)?))
    }

    /// The same, with a number for each tensor that is left out.
    #[wasm_bindgen(js_name = chooseScalars)]
    pub fn choose_scalars(&self, condition: u32, x: u32, y: u32, x_number: f64, y_number: f64) -> Result<u32, JsValue> {
        self.made(|_| {
            let (x, y) = (self.maybe(x)?, self.maybe(y)?);
            let x = x.as_ref().map_or(Choice::Scalar(scalar(x_number)), Choice::Array);
            let y = y.as_ref().map_or(Choice::Scalar(scalar(y_number)), Choice::Array);
            self.array(condition)?.choose_scalars(x, y)
        })
    }

    pub fn clamp(&self, x: u32, least: Option<f64>, most: Option<f64>) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.clamp(least.map(scalar), most.map(scalar)))
    }

    pub fn softplus(&self, x: u32, beta: f64, threshold: f64) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.softplus(beta, threshold))
    }

    pub fn cast(&self, x: u32, dtype: usize) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.cast(listed(&DType::ALL, dtype)?))
    }

    /// Over all dimensions if `dims` is left out.
    pub fn reduce(&self, kind: usize, x: u32, dims: Option<Vec<i32>>, keep_dims: bool) -> Result<u32, JsValue> {
        self.made(|_| {
            let dims = dims.as_deref().map(wide);
            self.array(x)?.reduce(listed(Reduce::ALL, kind)?, dims.as_deref(), keep_dims)
        })
    }

    pub fn variance(&self, x: u32, dims: Option<Vec<i32>>, correction: f64, keep: bool) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.variance(dims.as_deref().map(wide).as_deref(), correction, keep))
    }

    #[wasm_bindgen(js_name = argReduce)]
    pub fn arg_reduce(&self, largest: bool, x: u32, dim: Option<i32>, keep: bool) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.arg_reduce(largest, dim.map(i64::from), keep))
    }

    pub fn cumsum(&self, x: u32, dim: i32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.cumsum(i64::from(dim)))
    }

    pub fn softmax(&self, x: u32, dim: i32, log: bool) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.softmax(i64::from(dim), log))
    }

    /// Layer normalisation, or by the root mean square.
    pub fn norm(&self, rms: bool, x: u32, dims: usize, weight: u32, bias: u32, epsilon: f32) -> Result<u32, JsValue> {
        self.made(|_| {
            let (weight, bias) = (self.maybe(weight)?, self.maybe(bias)?);
            let kind = if rms { Norm::Rms } else { Norm::Layer };
            self.array(x)?.norm(kind, dims, weight.as_ref(), bias.as_ref(), epsilon)
        })
    }

    pub fn matmul(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(a)?.matmul(&self.array(b)?))
    }

    pub fn dot(&self, a: u32, b: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(a)?.dot(&self.array(b)?))
    }

    /// `how`: stride, padding, dilation and output padding, two each, then groups.
    pub fn convolution(
        &self,
        flat: bool,
        transposed: bool,
        x: u32,
        weight: u32,
        bias: u32,
        how: &[u32],
    ) -> Result<u32, JsValue> {
        self.made(|_| {
            let (x, weight, bias) = (self.array(x)?, self.array(weight)?, self.maybe(bias)?);
            let of = Convolution {
                stride: pair(how, 0)?,
                padding: pair(how, 2)?,
                dilation: pair(how, 4)?,
                groups: pair(how, 8).map(|[groups, _]| groups)?,
            };
            let back = TransposedConvolution { of, output_padding: pair(how, 6)? };
            match (flat, transposed) {
                (true, false) => x.conv1d(&weight, bias.as_ref(), of),
                (false, false) => x.conv2d(&weight, bias.as_ref(), of),
                (true, true) => x.conv_transpose1d(&weight, bias.as_ref(), back),
                (false, true) => x.conv_transpose2d(&weight, bias.as_ref(), back),
            }
        })
    }

    /// `how`: kernel, stride, padding and dilation, two each. Values, then indices.
    #[wasm_bindgen(js_name = maxPool2d)]
    pub fn max_pool2d(&self, x: u32, how: &[u32], ceil_mode: bool) -> Result<Vec<u32>, JsValue> {
        self.several(|_| {
            let (values, indices) = self.array(x)?.max_pool2d(pooling(how, ceil_mode)?)?;
            Ok(vec![values, indices])
        })
    }

    #[wasm_bindgen(js_name = avgPool2d)]
    pub fn avg_pool2d(&self, x: u32, how: &[u32], ceil_mode: bool, count_include_pad: bool) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.avg_pool2d(pooling(how, ceil_mode)?, count_include_pad))
    }

    pub fn attention(&self, q: u32, k: u32, v: u32, causal: bool, scale: Option<f32>) -> Result<u32, JsValue> {
        self.made(|_| self.array(q)?.flash_attention(&self.array(k)?, &self.array(v)?, Attention { causal, scale }))
    }
}

#[wasm_bindgen]
impl WasmGpu {
    pub fn reshape(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.reshape(&wide(dims)))
    }

    pub fn flatten(&self, x: u32, first: i32, last: i32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.flatten(i64::from(first), i64::from(last)))
    }

    pub fn permute(&self, x: u32, order: &[i32]) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.permute(&wide(order)))
    }

    pub fn transpose(&self, x: u32, a: i32, b: i32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.transpose(i64::from(a), i64::from(b)))
    }

    pub fn expand(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.expand(&wide(dims)))
    }

    pub fn squeeze(&self, x: u32, dims: Option<Vec<i32>>) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.squeeze(dims.as_deref().map(wide).as_deref()))
    }

    pub fn unsqueeze(&self, x: u32, dim: i32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.unsqueeze(i64::from(dim)))
    }

    pub fn slice(&self, x: u32, dim: i32, start: Option<f64>, stop: Option<f64>, step: f64) -> Result<u32, JsValue> {
        let whole = |bound: f64| bound as i64;
        self.made(|_| self.array(x)?.slice(i64::from(dim), start.map(whole), stop.map(whole), whole(step)))
    }

    pub fn select(&self, x: u32, dim: i32, index: f64) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.select(i64::from(dim), index as i64))
    }

    pub fn split(&self, x: u32, sizes: &[u32], dim: i32) -> Result<Vec<u32>, JsValue> {
        self.several(|_| self.array(x)?.split(&sizes_of(sizes), i64::from(dim)))
    }

    #[wasm_bindgen(js_name = splitEvery)]
    pub fn split_every(&self, x: u32, size: usize, dim: i32) -> Result<Vec<u32>, JsValue> {
        self.several(|_| self.array(x)?.split_every(size, i64::from(dim)))
    }

    pub fn chunk(&self, x: u32, chunks: usize, dim: i32) -> Result<Vec<u32>, JsValue> {
        self.several(|_| self.array(x)?.chunk(chunks, i64::from(dim)))
    }

    pub fn flip(&self, x: u32, dims: &[i32]) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.flip(&wide(dims)))
    }

    pub fn cat(&self, tensors: &[u32], dim: i32) -> Result<u32, JsValue> {
        self.made(|_| Array::cat(&self.registry.tensors(tensors)?, i64::from(dim)))
    }

    pub fn stack(&self, tensors: &[u32], dim: i32) -> Result<u32, JsValue> {
        self.made(|_| Array::stack(&self.registry.tensors(tensors)?, i64::from(dim)))
    }

    pub fn repeat(&self, x: u32, times: &[u32]) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.repeat(&sizes_of(times)))
    }

    pub fn pad(&self, x: u32, counts: &[i32], value: f64) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.pad(&wide(counts), scalar(value)))
    }

    pub fn triangle(&self, x: u32, upper: bool, diagonal: i32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.triangle(upper, i64::from(diagonal)))
    }

    pub fn contiguous(&self, x: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.contiguous())
    }

    pub fn copied(&self, x: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.copied())
    }

    pub fn assign(&self, x: u32, from: u32) -> Result<(), JsValue> {
        let assign = || self.array(x)?.assign(&self.array(from)?);
        assign().map_err(js_error)
    }

    /// One number in a tensor's shape and type.
    #[wasm_bindgen(js_name = fullLike)]
    pub fn full_like(&self, x: u32, value: f64) -> Result<u32, JsValue> {
        self.made(|library| {
            let x = self.array(x)?;
            library.full(x.dims(), x.dtype(), scalar(value))
        })
    }

    pub fn gather(&self, x: u32, dim: i32, index: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.gather(i64::from(dim), &self.array(index)?))
    }

    #[wasm_bindgen(js_name = scatterAdd)]
    pub fn scatter_add(&self, x: u32, dim: i32, index: u32, source: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.scatter_add(i64::from(dim), &self.array(index)?, &self.array(source)?))
    }

    #[wasm_bindgen(js_name = indexSelect)]
    pub fn index_select(&self, x: u32, dim: i32, index: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(x)?.index_select(i64::from(dim), &self.array(index)?))
    }

    pub fn embedding(&self, weight: u32, index: u32) -> Result<u32, JsValue> {
        self.made(|_| self.array(weight)?.embedding(&self.array(index)?))
    }

    /// Values, then indices.
    pub fn sort(&self, x: u32, dim: i32, descending: bool) -> Result<Vec<u32>, JsValue> {
        self.several(|_| self.array(x)?.sort(i64::from(dim), descending).map(|(values, indices)| vec![values, indices]))
    }

    pub fn topk(&self, x: u32, k: usize, dim: i32, largest: bool) -> Result<Vec<u32>, JsValue> {
        self.several(|_| self.array(x)?.topk(k, i64::from(dim), largest).map(|(values, indices)| vec![values, indices]))
    }
}

#[wasm_bindgen]
impl WasmGpu {
    pub fn full(&self, shape: u32, dtype: usize, value: f64) -> Result<u32, JsValue> {
        self.made(|library| {
            let (dims, dtype) = (self.registry.dims(shape)?, listed(&DType::ALL, dtype)?);
            check_size(&dims, dtype, library.context().device())?;
            library.full(&dims, dtype, scalar(value))
        })
    }

    pub fn arange(&self, start: f64, end: f64, step: f64, dtype: usize) -> Result<u32, JsValue> {
        self.made(|library| library.arange(start, end, step, listed(&DType::ALL, dtype)?))
    }

    pub fn linspace(&self, start: f64, end: f64, count: usize, dtype: usize) -> Result<u32, JsValue> {
        self.made(|library| library.linspace(start, end, count, listed(&DType::ALL, dtype)?))
    }

    pub fn eye(&self, rows: usize, columns: usize, dtype: usize) -> Result<u32, JsValue> {
        self.made(|library| library.eye(rows, columns, listed(&DType::ALL, dtype)?))
    }

    /// Uniform in [0, 1), or normally distributed.
    pub fn random(&self, shape: u32, normal: bool, seed_high: u32, seed_low: u32) -> Result<u32, JsValue> {
        let seed = u64::from(seed_high) << 32 | u64::from(seed_low);
        self.made(|library| {
            let dims = self.registry.dims(shape)?;
            check_size(&dims, DType::F32, library.context().device())?;
            if normal { library.randn(&dims, seed) } else { library.rand(&dims, seed) }
        })
    }
}

impl WasmGpu {
    fn array(&self, id: u32) -> Result<Array> {
        self.registry.tensor(id)
    }

    fn maybe(&self, id: u32) -> Result<Option<Array>> {
        if id == 0 { Ok(None) } else { self.array(id).map(Some) }
    }

    fn several(&self, make: impl FnOnce(&Library) -> Result<Vec<Array>>) -> Result<Vec<u32>, JsValue> {
        let arrays = make(&self.registry.library).map_err(js_error)?;
        arrays.into_iter().map(|array| self.made(|_| Ok(array))).collect()
    }
}

/// JavaScript has one type of number: what has no fraction meets integers as one of them.
fn scalar(number: f64) -> Scalar {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.trunc() == number && number.abs() < EXACT { Scalar::Int(number as i64) } else { Scalar::Float(number) }
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
