//! The operations on arrays, by family. What is no function of elements runs on ops of `tensor`, which take contiguous f32 or words.

mod attention;
mod convolution;
mod creation;
mod elementwise;
mod host;
mod indexing;
mod lines;
mod normalisation;
mod pooling;
mod products;
mod reductions;
mod sorting;
mod views;

pub use attention::Attention;
pub use convolution::{Convolution, TransposedConvolution};
pub use elementwise::{Binary, Choice, Compare, Logical, Scalar, Unary};
pub use normalisation::Norm;
pub use pooling::Pooling;
pub use reductions::Reduce;
