//! What training makes small.

use super::functions::{Choice, Compare, Scalar, Unary};
use super::reductions::Reduce;
use crate::array::dtype::DType;
use crate::array::graph::node::Array;
use crate::error::Result;

/// What becomes of the losses of single elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Nothing.
    None,
}

impl Reduction {
    /// Every one, in the order of their numbers.
    pub const ALL: &'static [Self] = &[Self::Mean, Self::Sum, Self::None];
}

/// How the cross entropy is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Targets of this class do not count.
    pub ignore_index: i32,
    /// This part of each target is spread over all classes (Szegedy et al. 2015).
    pub label_smoothing: f64,
    /// What becomes of the losses. The mean is over the targets that count.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        Self { ignore_index: -100, label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

impl Array {
    /// −log softmax(x) at the target: `self` is logits [classes], or [n, classes, …]; the target is the classes, i32 or u32, in the shape of `self`
    /// without its dimension of classes. A class that there is not gives NaN. Computed in f32.
    pub fn cross_entropy(&self, target: &Array, how: CrossEntropy) -> Result<Array> {
        let rank = self.dims().len();
        let along = usize::from(rank > 1);
        let mut dims = self.dims().to_vec();
        if dims.is_empty() {
            bail!(ShapeMismatch, "cross_entropy: the logits are {}, wanted [classes] or [n, classes, …]", self.shape());
        }
        let classes = dims.remove(along);
        if target.dims() != dims {
            bail!(ShapeMismatch, "cross_entropy: the target is {}, wanted {dims:?}", target.shape());
        }
        if !matches!(target.dtype(), DType::I32 | DType::U32) {
            bail!(DtypeMismatch, "cross_entropy: the target is {}, wanted i32 or u32", target.dtype().name());
        }
        if !self.dtype().is_float() {
            bail!(DtypeMismatch, "cross_entropy: the logits are {}, wanted floats", self.dtype().name());
        }
        if !(0.0..=1.0).contains(&how.label_smoothing) {
            bail!(OutOfRange, "cross_entropy: labelSmoothing is {}, wanted 0 to 1", how.label_smoothing);
        }
        if classes == 0 {
            bail!(ShapeMismatch, "cross_entropy: the logits {} have no classes", self.shape());
        }
        // [n, classes]
        let order: Vec<i64> = (0..rank as i64).filter(|dim| *dim != along as i64).chain([along as i64]).collect();
        let n: usize = dims.iter().product();
        let logits = self.cast(DType::F32)?.permute(&order)?.reshape(&[n as i64, classes as i64])?;
        let logarithms = logits.softmax(-1, true)?;
        let target = target.cast(DType::I32)?.reshape(&[n as i64, 1])?;
        let ignored = target.compare_scalar(Compare::Equal, Scalar::Int(i64::from(how.ignore_index)))?;
        // A class below 0 is no class, and not one from the end.
        let is_none = target.compare_scalar(Compare::Lower, Scalar::Int(0))?;
        let number = |number: usize| Choice::Scalar(Scalar::Int(number as i64));
        let index = is_none.choose_scalars(number(classes), Choice::Array(&target))?;
        let index = ignored.choose_scalars(number(0), Choice::Array(&index))?;
        let mut losses = logarithms.gather(1, &index)?.unary(Unary::Neg)?;
        if how.label_smoothing > 0.0 {
            let spread = logarithms.over_dims(Reduce::Sum, &[1])?.scaled(-how.label_smoothing / classes as f64)?;
            losses = losses.scaled(1.0 - how.label_smoothing)?.plus(&spread)?;
        }
        let losses = ignored.choose(&losses.zero()?, &losses)?;
        let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        match how.reduction {
            Reduction::None => losses.reshape(&dims),
            Reduction::Sum => losses.reduce(Reduce::Sum, None, false),
            Reduction::Mean => {
                let counted = ignored.logical_not()?.cast(DType::F32)?.reduce(Reduce::Sum, None, false)?;
                losses.reduce(Reduce::Sum, None, false)?.over(&counted)
            }
        }?
        .cast(self.dtype())
    }

    /// The squares of differences from a target of the same shape.
    pub fn mse_loss(&self, target: &Array, reduction: Reduction) -> Result<Array> {
        if target.shape() != self.shape() {
            bail!(ShapeMismatch, "mse_loss: the target is {}, wanted {}", target.shape(), self.shape());
        }
        let difference = self.minus(target)?;
        let squares = difference.times(&difference)?;
        match reduction {
            Reduction::None => Ok(squares),
            Reduction::Sum => squares.reduce(Reduce::Sum, None, false),
            Reduction::Mean => squares.reduce(Reduce::Mean, None, false),
        }
    }
}
