//! The element types of safetensors files.
//!
//! Source: the enumeration `Dtype` of the reference implementation (huggingface/safetensors).

use crate::model::gguf::GgmlType;

macro_rules! dtypes {
    ($($variant:ident $name:literal $bits:literal,)*) => {
        /// The type of a tensor's elements as the file names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "the names of the format")]
        pub enum Dtype {
            $(#[doc = concat!("`", $name, "`: ", $bits, " bits an element.")] $variant,)*
        }

        impl Dtype {
            /// Every type.
            pub const ALL: &'static [Dtype] = &[$(Dtype::$variant,)*];

            /// The name in a file's header, such as `BF16`.
            pub const fn name(self) -> &'static str {
                match self { $(Dtype::$variant => $name,)* }
            }

            /// Bits of an element.
            pub const fn bits(self) -> u64 {
                match self { $(Dtype::$variant => $bits,)* }
            }
        }
    };
}

dtypes! {
    Bool "BOOL" 8,
    F4 "F4" 4,
    F6_E2M3 "F6_E2M3" 6,
    F6_E3M2 "F6_E3M2" 6,
    U8 "U8" 8,
    I8 "I8" 8,
    F8_E5M2 "F8_E5M2" 8,
    F8_E4M3 "F8_E4M3" 8,
    F8_E5M2FNUZ "F8_E5M2FNUZ" 8,
    F8_E4M3FNUZ "F8_E4M3FNUZ" 8,
    F8_E8M0 "F8_E8M0" 8,
    I16 "I16" 16,
    U16 "U16" 16,
    F16 "F16" 16,
    BF16 "BF16" 16,
    I32 "I32" 32,
    U32 "U32" 32,
    F32 "F32" 32,
    C64 "C64" 64,
    F64 "F64" 64,
    I64 "I64" 64,
    U64 "U64" 64,
}

impl Dtype {
    /// The type with this name in a file's header.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// The same type in GGUF files; `None` if there is none.
    pub fn ggml_type(self) -> Option<GgmlType> {
        Some(match self {
            Self::F32 => GgmlType::F32,
            Self::F16 => GgmlType::F16,
            Self::BF16 => GgmlType::BF16,
            Self::F64 => GgmlType::F64,
            Self::I8 => GgmlType::I8,
            Self::I16 => GgmlType::I16,
            Self::I32 => GgmlType::I32,
            Self::I64 => GgmlType::I64,
            _ => return None,
        })
    }
}
