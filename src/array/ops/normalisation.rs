//! Softmax and normalisation over dimensions.

use super::functions::{Binary, Scalar, Unary};
use super::reductions::Reduce;
use super::views::checked_dim;
use crate::array::dtype::{DType, promote};
use crate::array::graph::node::Array;
use crate::error::Result;
use crate::tensor::{Shape, ops};

/// Which normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Layer normalisation (Ba, Kiros, Hinton 2016).
    Layer,
    /// Root mean square layer normalisation (Zhang, Sennrich 2019), without a bias.
    Rms,
}

/// Lines from this length on are a workgroup's.
const LONG: usize = 64;
/// Rows above this length are normalised by reductions: the kernel for a row has 32 invocations, and llvmpipe ends a loop after 65,535 rounds.
const LONG_ROW: usize = 1 << 16;

impl Array {
    /// Softmax along a dimension, or its logarithm.
    pub fn softmax(&self, dim: i64, log: bool) -> Result<Array> {
        let what = if log { "log_softmax" } else { "softmax" };
        // As in PyTorch, what has no dimensions has one.
        let rank = self.dims().len().max(1);
        let dim = checked_dim(what, dim, rank)?;
        let dtype = self.dtype().floating();
        let result = self.detached().cast(dtype)?.softmax_along(dim, log)?;
        // What has no dimensions has one element.
        let along: Vec<i64> = if self.dims().is_empty() { Vec::new() } else { vec![dim as i64] };
        result.clone().derived(what, &[self], &[Some(&result)], move |pull| {
            let (gradient, y) = (&pull.gradient, pull.saved(0)?);
            Ok(vec![Some(if log {
                gradient.minus(&y.unary(Unary::Exp)?.times(&gradient.over_dims(Reduce::Sum, &along)?)?)?
            } else {
                y.times(&gradient.minus(&gradient.times(y)?.over_dims(Reduce::Sum, &along)?)?)?
            })])
        })
    }

    fn softmax_along(&self, dim: usize, log: bool) -> Result<Array> {
        let (array, dtype) = (self, self.dtype());
        if self.elements() == 0 {
            return Ok(self.clone());
        }
        let [_, n, inner] = array.folded(dim);
        let rank = self.dims().len().max(1);
        let last = rank - 1;
        if inner > 1 && n >= LONG && !self.library().context().device().capabilities().software {
            // A workgroup a line is faster than an invocation a line, by more than it costs to move the elements.
            let (dim, last) = (dim as i64, last as i64);
            return array.transpose(dim, last)?.softmax_along(rank - 1, log)?.transpose(dim, last);
        }
        let x = array.wide(&array.folded(dim))?;
        let out = self.library().context().run1(&ops::Softmax { log }, &[&x])?;
        self.narrowed(&out, self.dims(), dtype)
    }

    /// Normalises the last dimensions, as many as `weight` or `bias` have, or one; then weight and bias are of their shape.
    pub fn norm(
        &self,
        kind: Norm,
        dims: usize,
        weight: Option<&Array>,
        bias: Option<&Array>,
        epsilon: f32,
    ) -> Result<Array> {
        let plain = |array: Option<&Array>| array.map(Array::detached);
        let (own_weight, own_bias) = (plain(weight), plain(bias));
        let result = self.detached().normed(kind, dims, own_weight.as_ref(), own_bias.as_ref(), epsilon)?;
        let given: Vec<&Array> = [Some(self), weight, bias].into_iter().flatten().collect();
        let (has_weight, name) = (weight.is_some(), if kind == Norm::Layer { "layer_norm" } else { "rms_norm" });
        result.derived(name, &given, &[Some(self), weight], move |pull| {
            let (gradient, x) = (&pull.gradient, pull.saved(0)?);
            let last: Vec<i64> = (1..=dims as i64).map(|dim| -dim).collect();
            let mean = |array: &Array| array.over_dims(Reduce::Mean, &last);
            let centred = if kind == Norm::Layer { x.minus(&mean(x)?)? } else { x.clone() };
            let scale = mean(&centred.times(&centred)?)?.plus_number(f64::from(epsilon))?.unary(Unary::Rsqrt)?;
            let normed = centred.times(&scale)?;
            let of_x = || {
                let gradient = if has_weight { gradient.times(pull.saved(1)?)? } else { gradient.clone() };
                let along = normed.times(&mean(&gradient.times(&normed)?)?)?;
                let across = if kind == Norm::Layer { gradient.minus(&mean(&gradient)?)? } else { gradient };
                across.minus(&along)?.times(&scale)
            };
            let of_weight = || gradient.times(&normed);
            let of_bias = || Ok(gradient.clone());
            if has_weight { pull.each(&[&of_x, &of_weight, &of_bias]) } else { pull.each(&[&of_x, &of_bias]) }
        })
    }

    fn normed(
        &self,
        kind: Norm,
        dims: usize,
        weight: Option<&Array>,
        bias: Option<&Array>,
        epsilon: f32,
    ) -> Result<Array> {
        let what = if kind == Norm::Layer { "layer_norm" } else { "rms_norm" };
        let rank = self.dims().len();
        if dims == 0 || dims > rank {
            bail!(ShapeMismatch, "{what}: {dims} dimensions of {} can't be normalised", self.shape());
        }
        let last = Shape::new(&self.dims()[rank - dims..]);
        for (name, array) in [("weight", weight), ("bias", bias)] {
            if let Some(array) = array
                && array.shape() != last
            {
                bail!(ShapeMismatch, "{what}: the {name} is {}, wanted {last}", array.shape());
            }
        }
        if kind == Norm::Rms && bias.is_some() {
            bail!(InvalidRequest, "rms_norm: there is no bias");
        }
        let dtype = weight.iter().chain(&bias).map(|array| array.dtype()).fold(self.dtype().floating(), promote);
        if self.elements() == 0 {
            return self.cast(dtype);
        }
        let columns = last.elements();
        if columns > LONG_ROW {
            return self.norm_of_long_rows(kind, dims, weight, bias, epsilon)?.cast(dtype);
        }
        let x = self.cast(DType::F32)?.wide(&[self.elements() / columns, columns])?;
        let row = |array: &Array| array.cast(DType::F32)?.wide(&[columns]);
        let weight = match weight {
            Some(weight) => row(weight)?,
            None => row(&self.library().full(last.dims(), DType::F32, Scalar::Int(1))?)?,
        };
        let context = self.library().context();
        let out = match (kind, bias) {
            (Norm::Rms, _) => context.run1(&ops::RmsNorm { epsilon }, &[&x, &weight])?,
            (Norm::Layer, None) => context.run1(&ops::LayerNorm { epsilon, bias: false }, &[&x, &weight])?,
            (Norm::Layer, Some(bias)) => {
                context.run1(&ops::LayerNorm { epsilon, bias: true }, &[&x, &weight, &row(bias)?])?
            }
        };
        self.narrowed(&out, self.dims(), dtype)
    }

    /// The same in f32, by two reductions of which each takes many workgroups.
    fn norm_of_long_rows(
        &self,
        kind: Norm,
        dims: usize,
        weight: Option<&Array>,
        bias: Option<&Array>,
        epsilon: f32,
    ) -> Result<Array> {
        let last: Vec<i64> = (1..=dims as i64).map(|dim| -dim).collect();
        let x = self.cast(DType::F32)?;
        let centred = match kind {
            Norm::Layer => x.binary(Binary::Sub, &x.reduce(Reduce::Mean, Some(&last), true)?)?,
            Norm::Rms => x,
        };
        let square = centred.binary(Binary::Mul, &centred)?.reduce(Reduce::Mean, Some(&last), true)?;
        let scale = square.binary_scalar(Binary::Add, Scalar::Float(f64::from(epsilon)), false)?.unary(Unary::Rsqrt)?;
        let mut normed = centred.binary(Binary::Mul, &scale)?;
        for (factor, array) in [(Binary::Mul, weight), (Binary::Add, bias)] {
            if let Some(array) = array {
                normed = normed.binary(factor, &array.cast(DType::F32)?)?;
            }
        }
        Ok(normed)
    }
}
