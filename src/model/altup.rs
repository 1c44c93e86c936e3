//! Alternating updates (AltUp, Baykal et al. 2023) and learned residuals (Laurel, Menghani et al. 2024), as Gemma 3n has them: a token has several
//! residual streams. A layer predicts all of them, computes one, and corrects the others by what that one changed.
//!
//! Streams lie side by side, [n, streams · n_embd]. All rows are f32: the fused ops know one stream.

use super::Weights;
use super::altup_config::AltUp;
use super::config::Config;
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::Norm;
use crate::error::Result;
use crate::tensor::ops::{
    self, Add, AddToStreams, AltupCorrect, AltupPredict, Fill, MatchMagnitude, PlaceColumns, Scale, SliceColumns,
};
use crate::tensor::{Context, Shape, Tensor};

/// Below this mean square a projection is not made as large as the stream that it is of.
const LEAST: MatchMagnitude = MatchMagnitude { least: 1e-5 };

/// What makes the streams of an embedding, and one vector of the streams.
pub(super) struct StreamProjections {
    altup: AltUp,
    n_embd: usize,
    /// For each stream but the first, [n_embd, n_embd].
    projections: Vec<Matrix>,
    unembeddings: Vec<Matrix>,
}

impl StreamProjections {
    /// None if the model has one stream.
    pub fn of(config: &Config, weights: &Weights) -> Result<Option<Self>> {
        let Some(altup) = config.altup else { return Ok(None) };
        let matrices = |stem: &str| -> Result<Vec<Matrix>> {
            (0..altup.streams - 1).map(|stream| weights.matrix(&format!("{stem}.{stream}.weight"))).collect()
        };
        Ok(Some(Self {
            altup,
            n_embd: config.n_embd,
            projections: matrices("altup_proj")?,
            unembeddings: matrices("altup_unembd_proj")?,
        }))
    }

    /// The streams of an embedding [n, n_embd]: itself, and its projections, which are made as large: [n, streams · n_embd].
    pub fn streams(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        let n = x.shape().dims()[0];
        let shape = Shape::from([n, self.altup.streams * self.n_embd]);
        let streams = context.run1(&Fill { shape, value: 0.0 }, &[])?;
        context.run(&PlaceColumns { first: 0 }, &[x, &streams])?;
        for (index, projection) in self.projections.iter().enumerate() {
            let y = projection.multiply(context, ops::linear(n), &[x])?;
            let y = context.run1(&LEAST, &[&y, x])?;
            context.run(&PlaceColumns { first: (index + 1) * self.n_embd }, &[&y, &streams])?;
        }
        Ok(streams)
    }

    /// The mean of the first stream and of the projections of the others, which are made as large: [n, n_embd].
    pub fn merged(&self, context: &Context, streams: &Tensor) -> Result<Tensor> {
        let n = streams.shape().dims()[0];
        let stream =
            |index: usize| context.run1(&SliceColumns { first: index * self.n_embd, count: self.n_embd }, &[streams]);
        let (first, sum) = (stream(0)?, stream(0)?);
        for (index, unembedding) in self.unembeddings.iter().enumerate() {
            let y = unembedding.multiply(context, ops::linear(n), &[&stream(index + 1)?])?;
            context.run(&Add, &[&sum, &context.run1(&LEAST, &[&y, &first])?])?;
        }
        context.run1(&Scale { factor: 1.0 / self.altup.streams as f32 }, &[&sum])
    }
}

/// What a layer has for several streams.
pub(super) struct StreamsOfLayer {
    altup: AltUp,
    router: Linear, // [streams, n_embd]
    /// Of what the router reads, divided by n_embd.
    router_norm: Norm,
    predict: Tensor, // [streams³]
    correct: Tensor, // [streams²]
    /// The factors of the active stream where the token's vector for the layer is gated by it.
    scale: Tensor, // [n_embd]
    laurel: [Linear; 2], // [rank, n_embd], [n_embd, rank]
    laurel_norm: Norm,
}

impl StreamsOfLayer {
    /// None if the model has one stream.
    pub fn of(context: &Context, config: &Config, weights: &Weights, layer: usize) -> Result<Option<Self>> {
        let Some(altup) = config.altup else { return Ok(None) };
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        let linear = |stem: &str| Linear::of(weights, &name(stem));
        let vector = |stem: &str| match weights.optional(&name(stem)) {
            Some(vector) => Ok(vector.clone()),
            None => bail!(MissingTensor, "the model has no tensor {:?}", name(stem)),
        };
        let divided: Vec<f32> = weights
            .vector(&name("altup_router_norm.weight"))?
            .iter()
            .map(|weight| weight / config.n_embd as f32)
            .collect();
        Ok(Some(Self {
            altup,
            router: linear("altup_router")?,
            router_norm: Norm::rms(context, config.norm_eps, &divided)?,
            predict: vector("altup_predict_coef.weight")?,
            correct: vector("altup_correct_coef.weight")?,
            scale: vector("altup_correct_scale.weight")?,
            laurel: [linear("laurel_l")?, linear("laurel_r")?],
            laurel_norm: Norm::rms(context, config.norm_eps, weights.vector(&name("laurel_post_norm.weight"))?)?,
        }))
    }

    /// All streams as the layer is expected to leave them [n, streams · n_embd], and the one that it computes [n, n_embd].
    pub fn predicted(&self, context: &Context, streams: &Tensor) -> Result<(Tensor, Tensor)> {
        let active_of = |streams: &Tensor| {
            let count = streams.shape().dims()[1] / self.altup.streams;
            context.run1(&SliceColumns { first: self.altup.active * count, count }, &[streams])
        };
        let routed = self.routed(context, &active_of(streams)?)?;
        let predict = AltupPredict { streams: self.altup.streams };
        let predicted = context.run1(&predict, &[streams, &routed, &self.predict])?;
        let active = active_of(&predicted)?;
        Ok((predicted, active))
    }

    /// The normed stream with its projection through few numbers and back, [n, n_embd].
    pub fn laurel(&self, context: &Context, h: &Tensor) -> Result<Tensor> {
        let product = ops::linear(h.shape().dims()[0]);
        let [left, right] = &self.laurel;
        let y = right.run(context, product, &[&left.run(context, product, &[h])?])?;
        let y = self.laurel_norm.run(context, &y)?;
        context.run(&Add, &[&y, h])?;
        Ok(y)
    }

    /// The mean of what attention and the learned residual made of `x`, scaled so that its magnitude stays.
    pub fn with_laurel(&self, context: &Context, x: &Tensor, laurel: &Tensor) -> Result<Tensor> {
        context.run(&Add, &[x, laurel])?;
        context.run1(&Scale { factor: std::f32::consts::FRAC_1_SQRT_2 }, &[x])
    }

    /// The predicted streams, corrected by what the layer made of its own, `x`; and `x` as the token's vector for the layer is gated by it.
    pub fn corrected(&self, context: &Context, predicted: &Tensor, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let AltUp { streams, active } = self.altup;
        let routed = self.routed(context, x)?;
        let inputs = [predicted, x, &routed, &self.correct, &self.scale];
        match <[Tensor; 2]>::try_from(context.run(&AltupCorrect { streams, active }, &inputs)?) {
            Ok([corrected, scaled]) => Ok((corrected, scaled)),
            Err(_) => bail!(Internal, "altup_correct has two outputs"),
        }
    }

    /// Adds what `of` adds to zeros [n, n_embd] to all streams but the first.
    pub fn add_to_others(
        &self,
        context: &Context,
        streams: &Tensor,
        of: impl FnOnce(&Tensor) -> Result<()>,
    ) -> Result<()> {
        let [n, width] = [streams.shape().dims()[0], streams.shape().dims()[1]];
        let vector = context.run1(&Fill { shape: Shape::from([n, width / self.altup.streams]), value: 0.0 }, &[])?;
        of(&vector)?;
        context.run(&AddToStreams, &[streams, &vector])?;
        Ok(())
    }

    /// [n, streams], whose tanh weighs what mixes the streams.
    fn routed(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        let h = self.router_norm.run(context, x)?;
        self.router.run(context, ops::linear(h.shape().dims()[0]), &[&h])
    }
}
