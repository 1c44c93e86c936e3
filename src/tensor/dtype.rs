//! Element types.

use std::fmt;

use super::kv_blocks;
use super::quant::Format;

/// The type of a tensor's elements.
#[derive(Clone, Copy)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// Two f16 in a word; an even number of them. Keys and values in a KV cache.
    F16,
    /// Blocks of 32 int8 with an f16 scale each, two blocks in 17 words (`kv_blocks.rs`). Keys and values in a KV cache.
    Q8_0,
    /// Unsigned 32-bit integers, such as tokens.
    U32,
    /// Four int8 in a word, the first in the lowest byte; shapes count words.
    I8x4,
    /// A weight matrix in one of the formats of `tensor/quant`, laid out in SoA.
    Weight(&'static Format),
}

impl DType {
    /// The name in messages and tuning keys, lower case; of a weight that of its format.
    pub fn name(&self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Q8_0 => "q8_0",
            DType::U32 => "u32",
            DType::I8x4 => "i8x4",
            DType::Weight(format) => format.name,
        }
    }
}

impl DType {
    /// Bytes of `elements` elements. Not for weights, whose `SoaLayout` holds their bytes.
    pub fn bytes(&self, elements: u64) -> u64 {
        match self {
            DType::F16 => elements.saturating_mul(2).div_ceil(4).saturating_mul(4),
            DType::Q8_0 => elements.div_ceil(kv_blocks::PAIR).saturating_mul(kv_blocks::PAIR_BYTES),
            _ => elements.saturating_mul(4),
        }
    }
}

impl PartialEq for DType {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (DType::F32, DType::F32)
            | (DType::F16, DType::F16)
            | (DType::Q8_0, DType::Q8_0)
            | (DType::U32, DType::U32)
            | (DType::I8x4, DType::I8x4) => true,
            (DType::Weight(a), DType::Weight(b)) => std::ptr::eq(*a, *b),
            _ => false,
        }
    }
}

impl Eq for DType {}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DType::Weight(format) => write!(f, "weight {}", format.name),
            _ => f.write_str(self.name()),
        }
    }
}
