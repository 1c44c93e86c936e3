//! The operations on arrays, by family. What is no function of elements runs on ops of `tensor`, which take contiguous f32 or words.

mod attention;
mod convolution;
mod creation;
mod elementwise;
mod formula;
mod functions;
mod host;
mod indexing;
mod joining;
mod lines;
mod losses;
mod normalisation;
mod pooling;
mod products;
mod reductions;
mod sorting;
mod views;
mod writes;

pub use attention::Attention;
pub use convolution::{Convolution, TransposedConvolution};
pub use functions::{Binary, Choice, Compare, Logical, Scalar, Unary};
pub use losses::{CrossEntropy, Reduction};
pub use normalisation::Norm;
pub use pooling::Pooling;
pub use reductions::Reduce;
