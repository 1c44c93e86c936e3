//! The element types that a GGUF file may name, with the sizes of their blocks. Kernels support only some of them; this file needs that
//! only for messages.
//!
//! Source: the enumeration `ggml_type` of the GGUF specification (ggml, docs/gguf.md) and, for the block sizes and the
//! ids above 39, the tables of the Python package `gguf` 0.19 and ggml's `block_q2_0`.

use crate::error::Result;
use crate::tensor::quant;

macro_rules! ggml_types {
    ($($id:literal $variant:ident $name:literal $block_size:literal $block_bytes:literal,)*) => {
        /// The type of a tensor's elements as the file names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names of the specification")]
        pub enum GgmlType {
            $(#[doc = concat!("`", $name, "`: ", $block_size, " elements in ", $block_bytes, " bytes.")] $variant,)*
        }

        impl GgmlType {
            /// Every type, by id.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            /// The type of a number in a file.
            pub const fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(GgmlType::$variant),)* _ => None }
            }

            /// The type's number in a file.
            pub const fn id(self) -> u32 {
                match self { $(GgmlType::$variant => $id,)* }
            }

            /// The name as in the specification, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(GgmlType::$variant => $name,)* }
            }

            /// Elements of a row that are stored together; 1 for unquantised types.
            pub const fn block_size(self) -> u64 {
                match self { $(GgmlType::$variant => $block_size,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> u64 {
                match self { $(GgmlType::$variant => $block_bytes,)* }
            }
        }
    };
}

ggml_types! {
    0 F32 "F32" 1 4,
    1 F16 "F16" 1 2,
    2 Q4_0 "Q4_0" 32 18,
    3 Q4_1 "Q4_1" 32 20,
    6 Q5_0 "Q5_0" 32 22,
    7 Q5_1 "Q5_1" 32 24,
    8 Q8_0 "Q8_0" 32 34,
    9 Q8_1 "Q8_1" 32 40,
    10 Q2_K "Q2_K" 256 84,
    11 Q3_K "Q3_K" 256 110,
    12 Q4_K "Q4_K" 256 144,
    13 Q5_K "Q5_K" 256 176,
    14 Q6_K "Q6_K" 256 210,
    15 Q8_K "Q8_K" 256 292,
    16 IQ2_XXS "IQ2_XXS" 256 66,
    17 IQ2_XS "IQ2_XS" 256 74,
    18 IQ3_XXS "IQ3_XXS" 256 98,
    19 IQ1_S "IQ1_S" 256 50,
    20 IQ4_NL "IQ4_NL" 32 18,
    21 IQ3_S "IQ3_S" 256 110,
    22 IQ2_S "IQ2_S" 256 82,
    23 IQ4_XS "IQ4_XS" 256 136,
    24 I8 "I8" 1 1,
    25 I16 "I16" 1 2,
    26 I32 "I32" 1 4,
    27 I64 "I64" 1 8,
    28 F64 "F64" 1 8,
    29 IQ1_M "IQ1_M" 256 56,
    30 BF16 "BF16" 1 2,
    34 TQ1_0 "TQ1_0" 256 54,
    35 TQ2_0 "TQ2_0" 256 66,
    39 MXFP4 "MXFP4" 32 17,
    40 NVFP4 "NVFP4" 64 36,
    41 Q1_0 "Q1_0" 128 18,
    42 Q2_0 "Q2_0" 64 18,
}

impl GgmlType {
    /// The type of an id, or `Code::UnsupportedTensorType` that names the tensor.
    pub(super) fn of_tensor(id: u32, tensor: &str) -> Result<Self> {
        if let Some(ty) = Self::from_id(id) {
            return Ok(ty);
        }
        let removed = match id {
            4 => " (Q4_2, removed from the format)",
            5 => " (Q4_3, removed from the format)",
            31 => " (Q4_0_4_4, removed from the format; requantise to Q4_0)",
            32 => " (Q4_0_4_8, removed from the format; requantise to Q4_0)",
            33 => " (Q4_0_8_8, removed from the format; requantise to Q4_0)",
            36 => " (IQ4_NL_4_4, removed from the format; requantise to IQ4_NL)",
            37 => " (IQ4_NL_4_8, removed from the format; requantise to IQ4_NL)",
            38 => " (IQ4_NL_8_8, removed from the format; requantise to IQ4_NL)",
            _ => "",
        };
        bail!(
            UnsupportedTensorType,
            "tensor {tensor:?} has the type id {id}{removed}, which is not known here; known are 0 (F32) to 42 (Q2_0) \
             with gaps; supported are {}: use a file of one of these",
            quant::supported()
        )
    }

    /// The bytes of a tensor of these dimensions (GGUF order: the first is the length of a row).
    pub(super) fn tensor_bytes(self, tensor: &str, dims: &[u64]) -> Result<u64> {
        let overflow =
            || err!(InvalidFile, "tensor {tensor:?} has the dimensions {dims:?}, whose product does not fit 63 bits");
        let mut elements: u64 = 1;
        for &dim in dims {
            elements = elements.checked_mul(dim).filter(|&product| product <= i64::MAX as u64).ok_or_else(overflow)?;
        }
        let row = dims.first().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_size()) {
            bail!(
                InvalidFile,
                "tensor {tensor:?} of type {} has rows of {row} elements, wanted a multiple of its block size {}",
                self.name(),
                self.block_size()
            );
        }
        (elements / self.block_size()).checked_mul(self.block_bytes()).ok_or_else(overflow)
    }
}
