//! The types of elements, and which type two of them are promoted to.

use crate::tensor;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// `true` or `false`; a word of 0 or 1 on the GPU.
    Bool,
    /// Unsigned 32-bit integers.
    U32,
    /// Signed 32-bit integers.
    I32,
    /// IEEE 754 half precision in storage; computed in f32 and rounded after each operation.
    F16,
    /// bfloat16 in storage; computed in f32 and rounded after each operation.
    BF16,
    /// IEEE 754 single precision.
    F32,
}

impl DType {
    /// Every type.
    pub const ALL: [Self; 6] = [Self::Bool, Self::U32, Self::I32, Self::F16, Self::BF16, Self::F32];

    /// The name that callers use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        }
    }

    /// The type of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bytes of an element on the GPU.
    pub const fn size(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            _ => 4,
        }
    }

    /// Whether it has fractions.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32)
    }

    /// The type in which its elements are computed.
    pub(super) const fn computed(self) -> Self {
        match self {
            Self::F16 | Self::BF16 => Self::F32,
            other => other,
        }
    }

    /// What kernels that only see memory take it for: words, or pairs of 16 bits.
    pub const fn storage(self) -> tensor::DType {
        match self {
            Self::F32 => tensor::DType::F32,
            Self::F16 | Self::BF16 => tensor::DType::F16,
            Self::Bool | Self::U32 | Self::I32 => tensor::DType::U32,
        }
    }

    /// The float type of a result that is never an integer, such as a quotient: itself, or f32.
    pub(super) const fn floating(self) -> Self {
        if self.is_float() { self } else { Self::F32 }
    }
}

/// The type in which two types meet, as in PyTorch: bool < u32 < i32 < floats, and f16 with bf16 is f32. Integers of different sign are i32, which
/// holds the u32 below 2^31.
pub fn promote(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
        _ if rank(a) >= rank(b) => a,
        _ => b,
    }
}

const fn rank(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => 0,
        DType::U32 => 1,
        DType::I32 => 2,
        DType::F16 | DType::BF16 => 3,
        DType::F32 => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_a_lattice() {
        for a in DType::ALL {
            assert_eq!(promote(a, a), a);
            for b in DType::ALL {
                assert_eq!(promote(a, b), promote(b, a), "{a:?} {b:?}");
                for c in DType::ALL {
                    assert_eq!(promote(promote(a, b), c), promote(a, promote(b, c)), "{a:?} {b:?} {c:?}");
                }
            }
        }
        assert_eq!(promote(DType::I32, DType::F16), DType::F16);
        assert_eq!(promote(DType::U32, DType::I32), DType::I32);
        assert_eq!(promote(DType::F16, DType::BF16), DType::F32);
    }
}
