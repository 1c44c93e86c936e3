//! Tensors in Rust memory, which references compute on and tests compare.

use super::{DType, Desc, Shape, kv_blocks};
use crate::error::Result;

/// A tensor in Rust memory.
#[derive(Clone, Debug)]
pub struct HostTensor {
    /// The shape, in elements.
    pub shape: Shape,
    /// The type of the elements.
    pub dtype: DType,
    /// Little-endian elements; for weights the bytes of a file, row by row.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// f32 elements. Panics if `data` does not fill the shape.
    pub fn f32(dims: &[usize], data: &[f32]) -> Self {
        let shape = Shape::new(dims);
        assert_eq!(shape.elements(), data.len());
        Self { shape, dtype: DType::F32, bytes: bytemuck::cast_slice(data).to_vec() }
    }

    /// u32 elements. Panics if `data` does not fill the shape.
    pub fn u32(dims: &[usize], data: &[u32]) -> Self {
        let shape = Shape::new(dims);
        assert_eq!(shape.elements(), data.len());
        Self { shape, dtype: DType::U32, bytes: bytemuck::cast_slice(data).to_vec() }
    }

    /// Words of four int8. `data` holds the single int8, four times the elements of `dims`.
    pub fn i8x4(dims: &[usize], data: &[i8]) -> Self {
        let shape = Shape::new(dims);
        assert_eq!(shape.elements() * 4, data.len());
        Self { shape, dtype: DType::I8x4, bytes: bytemuck::cast_slice(data).to_vec() }
    }

    /// The numbers as f16, an even number of them.
    pub fn f16(dims: &[usize], data: &[f32]) -> Self {
        let shape = Shape::new(dims);
        assert_eq!(shape.elements(), data.len());
        assert!(data.len().is_multiple_of(2));
        Self { shape, dtype: DType::F16, bytes: halves(data) }
    }

    /// A tensor of zero bytes.
    pub fn zeros(desc: &Desc) -> Self {
        let bytes = desc.dtype.bytes(desc.shape.elements() as u64) as usize;
        Self { shape: desc.shape, dtype: desc.dtype, bytes: vec![0; bytes] }
    }

    /// Shape and dtype.
    pub fn desc(&self) -> Desc {
        Desc { shape: self.shape, dtype: self.dtype }
    }

    /// The elements as f32; weights are dequantised, and a word of four int8 gives four.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        match self.dtype {
            DType::F32 => Ok(bytemuck::pod_collect_to_vec(&self.bytes)),
            DType::F16 => {
                let halves = self.bytes.chunks_exact(2).map(|half| half::f16::from_le_bytes([half[0], half[1]]));
                Ok(halves.map(half::f16::to_f32).collect())
            }
            DType::Q8_0 => Ok(kv_blocks::dequantize(&self.bytes, self.shape.elements())),
            DType::U32 => bail!(DtypeMismatch, "f32 elements are needed, these are u32"),
            DType::I8x4 => Ok(self.bytes.iter().map(|byte| f32::from(*byte as i8)).collect()),
            DType::Weight(format) => {
                let mut values = vec![0.0; self.shape.elements()];
                format.dequantize(&self.bytes, &mut values)?;
                Ok(values)
            }
        }
    }

    /// The elements. An error for other dtypes than u32.
    pub fn to_u32(&self) -> Result<Vec<u32>> {
        match self.dtype {
            DType::U32 => Ok(bytemuck::pod_collect_to_vec(&self.bytes)),
            _ => bail!(DtypeMismatch, "u32 elements are needed, these are {:?}", self.dtype),
        }
    }

    /// The same values in another dtype, each rounded to the nearest.
    pub fn set_f32(&mut self, data: &[f32]) {
        self.bytes = match self.dtype {
            DType::F16 => halves(data),
            DType::Q8_0 => kv_blocks::quantize(data),
            _ => bytemuck::cast_slice(data).to_vec(),
        };
    }

    /// Replaces the elements by `data`, as many u32 as the shape has.
    pub fn set_u32(&mut self, data: &[u32]) {
        self.bytes = bytemuck::cast_slice(data).to_vec();
    }
}

fn halves(data: &[f32]) -> Vec<u8> {
    data.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014): seeded numbers for test data, the same on every platform.
pub struct Rng(pub u64);

impl Rng {
    /// The next number, uniform over all of u64.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn signed(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Uniform in 0..n; `n` is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }

    /// A tensor of uniform numbers in [-1, 1).
    pub fn tensor(&mut self, dims: &[usize]) -> HostTensor {
        let data: Vec<f32> = (0..dims.iter().product()).map(|_| self.signed()).collect();
        HostTensor::f32(dims, &data)
    }

    /// The same as f16.
    pub fn f16(&mut self, dims: &[usize]) -> HostTensor {
        let data: Vec<f32> = (0..dims.iter().product()).map(|_| self.signed()).collect();
        HostTensor::f16(dims, &data)
    }

    /// A weight matrix of random blocks in a format.
    pub fn weight(&mut self, format: &'static super::quant::Format, rows: usize, columns: usize) -> HostTensor {
        let blocks = rows * columns / format.block_size;
        let bytes = super::quant::random_blocks(format, blocks, self);
        HostTensor { shape: Shape::from([rows, columns]), dtype: DType::Weight(format), bytes }
    }
}
