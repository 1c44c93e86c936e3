//! How other libraries pack quants into a file's words, and the kernel that unpacks them into blocks of 32.

use crate::gpu::Define;

/// How the quants of a matrix [rows, columns] stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Rows of words with eight quants of four bits each, the first lowest (compressed-tensors, MLX).
    Nibbles,
    /// The same, but in each byte the first quant is the high half (bitsandbytes).
    HighNibbles,
    /// Rows of bytes.
    Bytes,
    /// Rows of unsigned bytes, which become signed ones by subtracting 128.
    UnsignedBytes,
    /// Rows of quants of two bits, without gaps: the first is lowest, and words follow one another (MLX). They become nibbles.
    Stream2,
    /// The same of three bits.
    Stream3,
    /// The same of five bits, which become unsigned bytes less 128.
    Stream5,
    /// The same of six bits.
    Stream6,
    /// A word holds eight columns of one row, the first lowest; the words of all rows stand side by side (GPTQ).
    ColumnNibbles,
    /// The same with four unsigned bytes in a word.
    ColumnBytes,
    /// A word holds one column of eight rows, in the order 0 2 4 6 1 3 5 7; the words of a column stand side by side (AWQ).
    Awq,
}

impl Packing {
    /// Bits of a quant in a file.
    pub fn bits(self) -> usize {
        match self {
            Self::Stream2 => 2,
            Self::Stream3 => 3,
            Self::Stream5 => 5,
            Self::Stream6 => 6,
            Self::Nibbles | Self::HighNibbles | Self::ColumnNibbles | Self::Awq => 4,
            Self::Bytes | Self::UnsignedBytes | Self::ColumnBytes => 8,
        }
    }

    /// Bits of a quant on the GPU.
    pub fn stored_bits(self) -> usize {
        if self.bits() <= 4 { 4 } else { 8 }
    }

    /// Whether a file holds the matrix column by column.
    pub fn is_by_columns(self) -> bool {
        matches!(self, Self::ColumnNibbles | Self::ColumnBytes | Self::Awq)
    }

    /// Flags of the kernel.
    pub(in crate::tensor) fn defines(self) -> &'static [(&'static str, Define)] {
        match self {
            Self::Nibbles => &[],
            Self::HighNibbles => &[("HIGH_FIRST", Define::Flag)],
            Self::Bytes => &[("BITS_8", Define::Flag)],
            Self::UnsignedBytes => &[("BITS_8", Define::Flag), ("UNSIGNED", Define::Flag)],
            Self::Stream2 => &[("STREAM", Define::U32(2))],
            Self::Stream3 => &[("STREAM", Define::U32(3))],
            Self::Stream5 => &[("STREAM", Define::U32(5)), ("BITS_8", Define::Flag), ("UNSIGNED", Define::Flag)],
            Self::Stream6 => &[("STREAM", Define::U32(6)), ("BITS_8", Define::Flag), ("UNSIGNED", Define::Flag)],
            Self::ColumnNibbles => &[("COLUMNS", Define::Flag)],
            Self::ColumnBytes => &[("COLUMNS", Define::Flag), ("BITS_8", Define::Flag), ("UNSIGNED", Define::Flag)],
            Self::Awq => &[("COLUMNS", Define::Flag), ("AWQ", Define::Flag)],
        }
    }
}

/// The kernel: one invocation makes a block.
pub(in crate::tensor) const KERNEL: &str = crate::shader!("packing.wgsl");
