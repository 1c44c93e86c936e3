//! Matrices that another library quantised: where a folder holds their quants, and what their groups are made of.

use super::Part;
use crate::model::safetensors::Dtype;
use crate::tensor::quant::Format;
use crate::tensor::quant::packed::{Kind, packing::Packing};

/// A matrix, or one for each expert, all of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// The name for people, such as `GPTQ`.
    pub method: &'static str,
    /// The format on the GPU.
    pub format: &'static Format,
    /// What the words of its groups hold.
    pub kind: Kind,
    /// How the quants stand in the files.
    pub packing: Packing,
    /// How the words are made.
    pub groups: Groups,
    /// At least one.
    pub matrices: Vec<PackedMatrix>,
}

/// Where a matrix is.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedMatrix {
    /// Its quants.
    pub quants: Part,
    /// What belongs to them, in any order.
    pub sides: Vec<SidePart>,
}

/// A tensor beside the quants.
#[derive(Clone, Debug, PartialEq)]
pub struct SidePart {
    /// What it holds.
    pub side: Side,
    /// Where it is.
    pub part: Part,
    /// The type of its elements.
    pub dtype: Dtype,
}

/// What a tensor beside quants holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Scales, or what stands for them where they are quantised as well.
    Scales,
    /// Zero points.
    Zeros,
    /// What is added to the products of scales and quants.
    Summands,
    /// Of each column, the group.
    ColumnGroups,
    /// Of quantised scales: the numbers that their bytes stand for.
    ScaleCodes,
    /// Of quantised scales: a factor for each 256.
    ScaleFactors,
    /// JSON that says how many rows, columns and weights of a block there are, and what is added to quantised scales.
    State,
    /// The numbers that quants stand for, which must be those of the format.
    Codebook,
    /// A byte that says how the quants are ordered, which must be 0.
    Order,
}

/// How the word of a group is made from the tensors beside the quants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Where the scale of a row and a column stands, and its summand.
    pub scales: Places,
    /// Whether the scales are the largest magnitudes, which became 127.
    pub are_maxima: bool,
    /// The zero points.
    pub zeros: Zeros,
}

/// Where the number of a row and a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// In a table of two dimensions.
    Table {
        /// Rows and columns that share a number.
        shared: [usize; 2],
        /// From one number to the next, for the rows and for the columns.
        strides: [usize; 2],
    },
    /// One for a number of weights of all rows, one after the other.
    Flat(usize),
}

/// Zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// All have this one, if the format has any.
    All(u8),
    /// Words, each with the numbers of several rows of one group.
    Words {
        /// The order of rows within a word.
        order: Order,
        /// Words from one group of a row to the next, and from one word of rows to the next.
        strides: [usize; 2],
        /// What is added to each, modulo the number of values that it has.
        plus: u8,
    },
    /// Signed bytes at the places of scales.
    Bytes {
        /// What is added to each, half of the range of quants. The sum is none of a quant's values if it is negative or twice that.
        plus: u8,
    },
}

/// The order of numbers in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first lowest.
    Plain,
    /// 0 2 4 6 1 3 5 7.
    Awq,
}

impl PackedMatrix {
    /// Bytes in the files.
    pub fn bytes(&self) -> u64 {
        self.quants.bytes + self.sides.iter().map(|side| side.part.bytes).sum::<u64>()
    }
}
