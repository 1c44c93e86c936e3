//! What one kernel computes for an element: loads, then steps. Equal programs share a kernel, whatever the sizes and constants.

use crate::array::dtype::DType;

/// How the place of an element follows from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Access {
    /// They are the same, but for an offset.
    Linear,
    /// The same place for all.
    Single,
    /// By a stride for each dimension.
    Strided,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    Memory {
        binding: u8,
        dtype: DType,
        access: Access,
    },
    Places(Access),
    Constant(DType),
    /// What the kernel computes before the steps: the sum of a matrix product.
    Product,
}

impl Leaf {
    /// Says how it is read, if it is something that has a place for each element.
    pub fn set_access(&mut self, found: Access) {
        match self {
            Leaf::Memory { access, .. } | Leaf::Places(access) => *access = found,
            Leaf::Constant(_) | Leaf::Product => {}
        }
    }
}

/// A function of values before it. Values are numbered: leaves, then steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub function: &'static str,
    pub inputs: Vec<u8>,
    pub dtype: DType,
}

/// The form of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Program {
    /// Dimensions after joining those that lie as one in all leaves: of the outputs, and of the line of each output.
    pub rank: u8,
    pub line_rank: u8,
    pub leaves: Vec<Leaf>,
    pub steps: Vec<Step>,
    pub result: u8,
}
