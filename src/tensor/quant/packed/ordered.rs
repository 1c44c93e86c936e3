//! Integers whose columns belong to groups in any order, as GPTQ's `desc_act` (act-order) makes them: a table before the words of the groups
//! says of each column which group it has.

use super::int_groups::dequantize;
use super::{Kind, packed_formats};
use crate::gpu::Define;
use crate::tensor::quant::{BLOCK, Format, Table};

packed_formats! {
    "ordered.wgsl", None, Table::Columns, 0, dequantize;
    ORDERED4_32 Ordered4 "int4_32_ordered" 4 32 ["WEIGHT_COLUMNS"],
    ORDERED4_64 Ordered4 "int4_64_ordered" 4 64 ["WEIGHT_COLUMNS"],
    ORDERED4_128 Ordered4 "int4_128_ordered" 4 128 ["WEIGHT_COLUMNS"],
    ORDERED8_32 Ordered8 "uint8_32_ordered" 8 32 ["WEIGHT_COLUMNS", "BITS_8"],
    ORDERED8_64 Ordered8 "uint8_64_ordered" 8 64 ["WEIGHT_COLUMNS", "BITS_8"],
    ORDERED8_128 Ordered8 "uint8_128_ordered" 8 128 ["WEIGHT_COLUMNS", "BITS_8"],
}
