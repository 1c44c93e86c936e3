//! The forward pass of a decoder: from token ids to logits. It branches on the fields of the architecture, never on a model's name.
//! `layer.rs` says what a layer does. One token goes through it by the ops of `decode.rs` and many by those of `prefill.rs`, or both by
//! those of `unfused.rs`.

use std::rc::Rc;

use super::Weights;
use super::altup::StreamProjections;
use super::config::Config;
use super::cross_attention::CrossAttention;
use super::decode::Decode;
use super::encoder::Encoder;
use super::encoder_part;
use super::fused::{Fused, FusedPass};
use super::layer::Layer;
use super::layer_ops::LayerOps;
use super::matrix::Matrix;
use super::mtp::MtpHead;
use super::norm::Norm;
use super::per_layer::PerLayerEmbeddings;
use super::prefill::{Precision, Prefill};
use super::rope::{RopeTable, RopeTensor};
use super::row_cache::{RowCache, RowLease};
use super::state::{
    KvCache, KvFormat, LatentCache, LayerStates, MtpStates, RecurrentLayer, RecurrentStates, SourceStates, StateSize,
};
use super::unfused::{Tokens, Unfused};
use crate::error::Result;
use crate::tensor::ops::{self, AddRow, Epilogue, MatVecSmallBatch, RmsNormSoa, Scale, SliceRows, Softcap};
use crate::tensor::{Context, Tensor};

/// A model that is ready to run.
pub struct Transformer {
    pub(super) context: Context,
    pub(super) config: Config,
    precision: Precision,
    pub(super) token_embedding: Matrix, // [vocab_size, n_embd]
    pub(super) layers: Vec<Layer>,
    /// Some if the ops of a layer could be fused.
    pub(super) fused: Option<Fused>,
    /// Recurrent layers, each with the number of the layer after which it runs.
    pub(super) recurrent: Vec<(usize, Box<dyn RecurrentLayer>)>,
    /// Reads the text that the layers attend to besides.
    pub(super) encoder: Option<Box<Encoder>>,
    /// Drafts further tokens.
    mtp: Option<MtpHead>,
    pub(super) positions: Option<Matrix>,   // [context_length, n_embd]
    pub(super) output_norm: Norm,           // [n_embd]
    pub(super) output: Matrix,              // [vocab_size, n_embd]; the embedding again when tied
    pub(super) output_bias: Option<Tensor>, // [vocab_size]
    pub(super) embedding_norm: Norm,
    pub(super) per_layer: Option<PerLayerEmbeddings>,
    /// Some if there are several residual streams.
    pub(super) streams: Option<StreamProjections>,
    pub(super) ropes: Vec<RopeTensor>,
    quantization: &'static str,
    weight_bytes: u64,
    bytes_of_all: u64,
    parameters: u64,
    fingerprint: u64,
}

/// From this number of tokens on, the GPU takes longer for a layer than the host takes to record the next.
const LONG: usize = 128;

/// For which tokens a forward pass computes logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// For the last token, [1, vocab_size].
    Last,
    /// For every token, [n, vocab_size].
    All,
}

impl Transformer {
    /// `capacity` is the most tokens that there will be; some ropes depend on it, unless the configuration says for which length they are made.
    pub fn new(
        context: &Context,
        mut config: Config,
        weights: &Weights,
        capacity: usize,
        precision: Precision,
    ) -> Result<Self> {
        // A window of `capacity` tokens or more has no effect.
        for layer in &mut config.layers {
            layer.window = layer.window.filter(|&window| window < capacity);
        }
        let token_embedding = weights.matrix("token_embd.weight")?;
        let output = if config.tie_embeddings { token_embedding.clone() } else { weights.matrix("output.weight")? };
        let tables: Vec<RopeTable> = config
            .ropes
            .iter()
            .map(|rope| rope.table(config.rope_context.unwrap_or(capacity), |tensor| weights.vector(tensor)))
            .collect::<Result<_>>()?;
        let layers = (0..config.n_layers).map(|layer| Layer::new(context, &config, weights, layer));
        let layers = layers.collect::<Result<Vec<Layer>>>()?;
        let (fused, output_norm) = if weights.is_joined() {
            let output_norm = Norm::fused(context, &config, weights, "output_norm")?;
            (Some(Fused::new(context, &config, weights, &tables)?), output_norm)
        } else {
            (None, Norm::of(&config, weights, "output_norm"))
        };
        let embedding_norm = Norm::of(&config, weights, "token_embd_norm");
        let encoder = config.encoder.as_deref().map(|encoder| {
            let weights = weights.part(encoder_part::PREFIX, &[encoder_part::EMBEDDING]);
            Encoder::new(context, encoder.clone(), &weights).map(Box::new)
        });
        let encoder = encoder.transpose()?;
        // Where layers end with a norm, none follows the last one.
        if output_norm.is_none() && weights.optional("blk.0.layer_output_norm.weight").is_none() {
            bail!(MissingTensor, "the model has no tensor \"output_norm.weight\"")
        }
        Ok(Self {
            context: context.clone(),
            precision,
            token_embedding,
            layers,
            fused,
            recurrent: Vec::new(),
            encoder,
            mtp: MtpHead::of(context, &config, weights, &tables)?,
            positions: weights.optional_matrix("position_embd.weight"),
            output_norm,
            output,
            output_bias: weights.optional("output.bias").cloned(),
            embedding_norm,
            per_layer: PerLayerEmbeddings::of(context, &config, weights)?,
            streams: StreamProjections::of(&config, weights)?,
            fingerprint: fingerprint(weights, &tables),
            ropes: tables.into_iter().map(|table| RopeTensor::new(context, table)).collect::<Result<_>>()?,
            quantization: weights.quantization(),
            weight_bytes: weights.bytes(),
            bytes_of_all: weights.bytes_of_all(),
            parameters: weights.parameters(),
            config,
        })
    }

    /// The same model with a recurrent layer at the end of its layer `index`.
    pub fn with_recurrent(mut self, index: usize, layer: Box<dyn RecurrentLayer>) -> Self {
        self.recurrent.push((index, layer));
        self
    }

    /// Memory for the layers' states: `capacity` tokens, or a few more, in each of `sequences` sequences.
    pub fn layer_states(&self, capacity: usize, sequences: usize, format: KvFormat) -> Result<LayerStates> {
        let size = StateSize { capacity, sequences, format };
        let further = self.recurrent.iter().map(|(_, layer)| layer.state_len());
        let recurrent: Vec<usize> = self.config.recurrent_state_lens().chain(further).collect();
        let kv = KvCache::new(&self.context, &self.config, size)?;
        let latents = LatentCache::new(&self.context, &self.config, size)?;
        let states = LayerStates::new(kv, latents, RecurrentStates::new(&self.context, &recurrent, size.sequences)?);
        let states = match self.config.mtp.as_deref() {
            Some(mtp) => states.with_mtp(MtpStates::new(&self.context, mtp, size)?),
            None => states,
        };
        if self.encoder.is_none() {
            return Ok(states);
        }
        // The same sizes: a text of the encoder may be as long as one of the decoder.
        let kv = KvCache::new(&self.context, &self.config, size)?;
        Ok(states.with_source(SourceStates::new(&self.context, kv, size.sequences)?))
    }

    /// The matrices that adapters can add to.
    pub(super) fn adaptable(&self) -> impl Iterator<Item = &Matrix> {
        self.layers.iter().flat_map(Layer::adaptable).map(|linear| &linear.weight)
    }

    /// What holds rows of the per-layer embeddings where their table stays in the files. A pass's tokens must be held in it before the pass is recorded.
    pub fn row_cache(&self) -> Option<&Rc<RowCache>> {
        self.per_layer.as_ref().and_then(PerLayerEmbeddings::row_cache)
    }

    /// Holds what a pass over these tokens reads of embeddings that stay in files, until the pass is recorded.
    pub async fn hold_rows(&self, tokens: &[u32]) -> Result<Option<RowLease>> {
        match self.row_cache() {
            Some(cache) => cache.hold_pass(tokens).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn mtp(&self) -> Option<&MtpHead> {
        self.mtp.as_ref()
    }

    pub(super) fn output_norm(&self) -> &Norm {
        &self.output_norm
    }

    pub(super) fn encoder(&self) -> Option<&Encoder> {
        self.encoder.as_deref()
    }

    pub(super) fn cross_attentions(&self) -> impl Iterator<Item = &CrossAttention> {
        self.layers.iter().filter_map(|layer| layer.cross_attention.as_ref())
    }

    /// The model's dimensions and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How exact the activations of prompts are.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of the weights on the GPU.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// The same with what stays in the model's files.
    pub fn bytes_of_all(&self) -> u64 {
        self.bytes_of_all
    }

    /// The number of weights.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Of the weights and the ropes: states of another model, or of a rope for another context length, mean something else.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The type with the most bytes, of all matrices.
    pub fn quantization(&self) -> &'static str {
        self.quantization
    }

    /// Whether its matrices are joined and its ops fused, so that one pass can take in tokens of several sequences.
    pub fn is_fused(&self) -> bool {
        self.fused.is_some()
    }

    pub(super) fn has_learned_positions(&self) -> bool {
        self.positions.is_some()
    }

    /// The GPU that its tensors are on.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// A rope of the model by its number.
    pub(super) fn rope(&self, index: usize) -> Result<&RopeTensor> {
        self.ropes.get(index).ok_or_else(|| err!(Internal, "the model has no rope {index}"))
    }

    /// The input of the layers for `tokens` [n], the first at position `state[0]`; in SoA only for one token.
    fn embed(&self, tokens: &Tensor, state: &Tensor, soa: bool) -> Result<Stream> {
        let x = self.scaled_rows(tokens, soa)?;
        if let Some(positions) = &self.positions {
            positions.add_positions(&self.context, &x, state, soa)?;
        }
        // Models with such a norm run unfused, so the stream is not in SoA.
        let x = self.embedding_norm.run(&self.context, &x)?;
        let of_tokens = |of: &PerLayerEmbeddings| of.of_tokens(&self.context, tokens, &x, soa);
        let vectors = self.per_layer.as_ref().map(of_tokens).transpose()?;
        let x = match &self.streams {
            Some(streams) => streams.streams(&self.context, &x)?,
            None => x,
        };
        Ok(Stream { tokens: tokens.clone(), x, vectors, soa })
    }

    fn scaled_rows(&self, tokens: &Tensor, soa: bool) -> Result<Tensor> {
        let x = self.token_embedding.embed(&self.context, tokens, soa)?;
        match self.config.embedding_scale {
            1.0 => Ok(x),
            factor => self.context.run1(&Scale { factor }, &[&x]),
        }
    }

    /// The embeddings of `tokens` [n]: [n, n_embd].
    pub(super) fn embeddings(&self, tokens: &Tensor) -> Result<Tensor> {
        self.scaled_rows(tokens, false)
    }

    /// The head's output, [rows, vocab_size], with the model's scale and soft cap.
    pub(super) fn finish_logits(&self, mut logits: Tensor) -> Result<Tensor> {
        if let Some(bias) = &self.output_bias {
            self.context.run(&AddRow, &[&logits, bias])?;
        }
        if self.config.logit_scale != 1.0 {
            logits = self.context.run1(&Scale { factor: self.config.logit_scale }, &[&logits])?;
        }
        if let Some(cap) = self.config.logit_softcap {
            self.context.run(&Softcap { cap }, &[&logits])?;
        }
        Ok(logits)
    }

    /// Records one forward pass over `tokens` [n], like [`Transformer::forward`], but without the head. Returns the residual stream after
    /// the last norm, [n, n_embd].
    pub fn states(&self, tokens: &Tensor, state: &Tensor, states: &LayerStates) -> Result<Tensor> {
        let x = self.many(tokens, state, states, (self.layers.len(), false))?;
        self.output_norm.run(&self.context, &x)
    }

    /// The logits [rows, vocab_size] of rows of [`Transformer::states`].
    pub fn logits_of_states(&self, states: &Tensor) -> Result<Tensor> {
        let rows = states.shape().dims()[0];
        self.finish_logits(self.output.multiply(&self.context, ops::linear(rows), &[states])?)
    }

    /// Like [`Transformer::forward`] with the logits of all tokens. Returns besides copies of the residual stream, [n, n_embd] each: 0 is the input of
    /// the first layer, and `i` comes after `i` layers.
    pub fn forward_with_hidden_states(
        &self,
        tokens: &Tensor,
        state: &Tensor,
        states: &LayerStates,
        layers: &[usize],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        if self.streams.is_some() && !layers.is_empty() {
            bail!(
                InvalidRequest,
                "hidden states of {} are of several residual streams: not supported; ask for logits alone",
                self.config.arch.name
            );
        }
        let mut kept: Vec<Option<Tensor>> = vec![None; layers.len()];
        let mut keep = |after: usize, x: &Tensor| {
            for (slot, _) in kept.iter_mut().zip(layers).filter(|(_, layer)| **layer == after) {
                // Layers may add to the stream in place.
                let copy = self.context.empty(x.desc(), "hidden states")?;
                self.context.copy(x, 0..x.shape().elements(), &copy, 0)?;
                *slot = Some(copy);
            }
            Ok(())
        };
        let x = self.many_seen(tokens, state, states, (self.layers.len(), false), &mut keep)?; // [n, n_embd]
        let logits = self.head(&x)?;
        match kept.into_iter().collect::<Option<Vec<Tensor>>>() {
            Some(hidden_states) => Ok((logits, hidden_states)),
            None => bail!(OutOfRange, "hidden states are of 0 to {} layers, not of {layers:?}", self.layers.len()),
        }
    }

    /// Records one forward pass over `tokens` [n], the first at position `state[0]`. Appends their keys and values to the cache. Returns
    /// logits [1 or n, vocab_size].
    ///
    /// With a state [n, 4] and the cache of several sequences, each token belongs to its own sequence. That needs 2 to 8 tokens, the logits
    /// of all, and fused ops.
    ///
    /// Only what kernels read from `state` depends on the position, so the commands for one token are the same at every step.
    pub fn forward(&self, tokens: &Tensor, state: &Tensor, states: &LayerStates, logits: Logits) -> Result<Tensor> {
        let n = tokens.shape().elements();
        if let (1, Some(fused)) = (n, &self.fused) {
            let ops = Decode(self.fused_pass(fused, state, states));
            let stream = self.embed(tokens, state, true)?;
            let all = self.layers.len();
            let x = self.through_layers(&ops, stream, (state, states), all, &mut seen_by_nobody)?; // [1, n_embd] in SoA
            return self.finish_logits(ops.logits(&x, &self.output_norm, &self.output)?);
        }
        // Kernels for a small batch are compiled for each number of tokens. That pays for drafts, all of whose logits are needed, but not
        // for the short rest of a prompt.
        let small_batch = logits == Logits::All && MatVecSmallBatch::takes(n);
        let x = self.many(tokens, state, states, (self.layers.len(), small_batch))?; // [n, n_embd]
        let x = match logits {
            Logits::Last if n > 1 => self.context.run1(&SliceRows { first: n - 1, count: 1 }, &[&x])?, // [1, n_embd]
            _ => x,
        };
        self.head(&x)
    }

    /// The logits of a residual stream `x` [rows, n_embd]: [rows, vocab_size].
    fn head(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.shape().dims()[0];
        let in_soa = MatVecSmallBatch::takes(rows) && MatVecSmallBatch::can_be_soa(self.config.n_embd);
        let logits = match self.output_norm.rms_weight().filter(|_| in_soa) {
            Some((epsilon, weight)) => {
                let h = self.context.run1(&RmsNormSoa { epsilon }, &[x, weight])?; // [rows, n_embd] in SoA
                self.output.multiply(&self.context, &MatVecSmallBatch { soa: true, epilogue: Epilogue::NONE }, &[&h])?
            }
            None => {
                let h = self.output_norm.run(&self.context, x)?; // [rows, n_embd]
                self.output.multiply(&self.context, ops::linear(rows), &[&h])?
            }
        }; // [rows, vocab_size]
        self.finish_logits(logits)
    }

    /// The same pass without the head. It only appends to the states, so the last layers are left out if they reuse those of earlier ones.
    pub fn append(&self, tokens: &Tensor, state: &Tensor, states: &LayerStates) -> Result<()> {
        let appends = self.config.layers.iter().rposition(|layer| !layer.reuses_kv).map_or(0, |last| last + 1);
        let layers = if self.recurrent.is_empty() && self.mtp.is_none() { appends } else { self.layers.len() };
        match &self.fused {
            Some(fused) if tokens.shape().elements() == 1 => {
                let ops = Decode(self.fused_pass(fused, state, states));
                let stream = self.embed(tokens, state, true)?;
                self.through_layers(&ops, stream, (state, states), layers, &mut seen_by_nobody)
            }
            _ => self.many(tokens, state, states, (layers, false)),
        }
        .map(|_| ())
    }

    /// The residual stream of `tokens` [n] after the last layer, or after fewer, [n, n_embd]. `small_batch` matters only for fused ops, and
    /// allows no more tokens than `MatVecSmallBatch` takes.
    fn many(
        &self,
        tokens: &Tensor,
        state: &Tensor,
        states: &LayerStates,
        (layers, small_batch): (usize, bool),
    ) -> Result<Tensor> {
        self.many_seen(tokens, state, states, (layers, small_batch), &mut seen_by_nobody)
    }

    /// The same, where `see` is shown the stream after 0 layers, after one, and so on.
    fn many_seen(
        &self,
        tokens: &Tensor,
        state: &Tensor,
        states: &LayerStates,
        (layers, small_batch): (usize, bool),
        see: &mut See<'_>,
    ) -> Result<Tensor> {
        let stream = self.embed(tokens, state, false)?;
        match &self.fused {
            Some(fused) => {
                let pass = self.fused_pass(fused, state, states);
                // Where the device packs weights, the products round what they are given themselves.
                let packs = self.context.device().capabilities().packs_weights;
                let precision = if packs { Precision::Exact } else { self.precision };
                let ops = Prefill { pass, precision, small_batch };
                self.through_layers(&ops, stream, (state, states), layers, see)
            }
            None => {
                let (context, config) = (&self.context, &self.config);
                let product = ops::linear(tokens.shape().elements());
                let tokens = Tokens::After { states, state };
                let adapters = states.adapters();
                let ops = Unfused { context, config, ropes: &self.ropes, tokens, product, adapters };
                self.through_layers(&ops, stream, (state, states), layers, see)
            }
        }
    }

    fn fused_pass<'a>(&'a self, fused: &'a Fused, state: &'a Tensor, states: &'a LayerStates) -> FusedPass<'a> {
        FusedPass {
            context: &self.context,
            config: &self.config,
            fused,
            cache: states.kv(),
            recurrent: states.recurrent(),
            state,
            adapters: states.adapters(),
        }
    }

    /// The residual stream after the first `layers` layers.
    fn through_layers(
        &self,
        ops: &impl LayerOps,
        Stream { tokens, mut x, vectors, soa }: Stream,
        (state, states): (&Tensor, &LayerStates),
        layers: usize,
        see: &mut See<'_>,
    ) -> Result<Tensor> {
        see(0, &x)?;
        let is_long = self.is_fused() && x.shape().dims()[0] >= LONG;
        for (index, layer) in self.layers.iter().enumerate().take(layers) {
            x = layer.run(ops, &x, vectors.as_ref())?;
            for (number, (_, recurrent)) in self.recurrent.iter().enumerate().filter(|(_, (of, _))| *of == index) {
                let Some(of_layer) = states.recurrent().layer(self.config.recurrent_state_lens().count() + number)
                else {
                    bail!(Internal, "the states have no recurrent layer {number}")
                };
                recurrent.run(&self.context, &x, soa, state, of_layer)?;
            }
            see(index + 1, &x)?;
            if is_long && (index + 1).is_power_of_two() {
                // The GPU works while further layers are recorded. Each submit has about as many layers as all before it, so the GPU never
                // waits and submits are few.
                self.context.device().flush();
            }
        }
        if layers == self.layers.len() {
            self.show_head(&tokens, &x, soa, (state, states))?;
        }
        match &self.streams {
            // What only appends to the states has no use for the result.
            Some(streams) if layers == self.layers.len() => streams.merged(&self.context, &x),
            _ => Ok(x),
        }
    }
}

/// What goes into the layers.
struct Stream {
    tokens: Tensor, // [n]
    /// The residual stream, [n, n_embd], or one token in SoA; several lie side by side.
    x: Tensor,
    /// The vectors of per-layer embeddings, [n, layers · length].
    vectors: Option<Tensor>,
    soa: bool,
}

/// Is shown a residual stream and the number of layers before it.
type See<'a> = dyn FnMut(usize, &Tensor) -> Result<()> + 'a;

fn seen_by_nobody(_: usize, _: &Tensor) -> Result<()> {
    Ok(())
}

/// Ropes are rounded: their last digits differ between platforms.
fn fingerprint(weights: &Weights, ropes: &[RopeTable]) -> u64 {
    let rope = |RopeTable { frequencies, scale }: &RopeTable| {
        frequencies.iter().chain([scale]).map(|number| format!("{number:.3e} ")).collect::<String>()
    };
    let ropes: String = ropes.iter().map(rope).collect();
    weights.fingerprint().wrapping_add(u64::from(crc32fast::hash(ropes.as_bytes())) << 16)
}
