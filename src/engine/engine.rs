//! A loaded model: what it holds, and what it can be asked besides answers.

use std::rc::Rc;

use serde::Serialize;

use super::adapters::Adapters;
use super::api::chat_prompt::Templates;
use super::grammars::{GrammarLoader, Grammars};
use super::load::generation_config::AnswerDefaults;
use super::load::info::ModelInfo;
use super::load::options::Smoothness;
use super::memory::{Lasting, MemoryUse};
use super::scoring::Scoring;
use crate::decode::{AdapterSet, Decoder};
use crate::error::{Error, Result};
use crate::model::config::Config;
use crate::model::{Classifier, DenseLayers, Embeds, Encoder, Layout, Precision, Transformer};
use crate::tensor::{CacheStats, Context, KernelUse, Stats, Tensor};
use crate::text::tokenizer::Tokenizer;

/// Counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineStats {
    /// Counters of the GPU runtime.
    #[serde(flatten)]
    pub device: Stats,
    /// The cache of earlier texts, in blocks of up to 64 tokens. Hits and misses count prompts.
    pub prompt_cache: CacheStats,
    /// The GPU memory, by what it is for.
    pub memory: MemoryUse,
}

impl std::ops::Deref for EngineStats {
    type Target = Stats;

    fn deref(&self) -> &Stats {
        &self.device
    }
}

/// A loaded model.
pub struct Engine(pub(super) Rc<Inner>);

/// A model, by what it does.
pub(super) enum Model {
    /// Continues a text.
    Decoder(Rc<Decoder>),
    /// Makes vectors of texts.
    Encoder(Box<Encoder>),
}

impl Model {
    /// Read off the file.
    pub fn config(&self) -> &Config {
        match self {
            Self::Decoder(decoder) => decoder.transformer.config(),
            Self::Encoder(encoder) => encoder.config(),
        }
    }

    /// How many weights it has.
    pub fn parameters(&self) -> u64 {
        match self {
            Self::Decoder(decoder) => decoder.transformer.parameters(),
            Self::Encoder(encoder) => encoder.parameters(),
        }
    }

    /// The type that most bytes of the matrices have, in lower case.
    pub fn quantization(&self) -> &'static str {
        match self {
            Self::Decoder(decoder) => decoder.transformer.quantization(),
            Self::Encoder(encoder) => encoder.quantization(),
        }
    }

    /// Encoders are exact, except on the CPU where it packs weights.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Encoder(encoder) if encoder.packs_weights() => Precision::Fast,
            Self::Decoder(decoder) => decoder.transformer.precision(),
            Self::Encoder(_) => Precision::Exact,
        }
    }

    /// On the GPU.
    pub fn weight_bytes(&self) -> u64 {
        match self {
            Self::Decoder(decoder) => decoder.transformer.weight_bytes(),
            Self::Encoder(encoder) => encoder.weight_bytes(),
        }
    }
}

/// What the engine and its generations share.
pub(super) struct Inner {
    /// Owns the GPU device.
    pub context: Context,
    /// On the GPU.
    pub model: Model,
    /// How embeddings are made of it.
    pub embeds: Embeds,
    /// The layers after the pooling.
    pub dense: DenseLayers,
    /// How it scores or labels texts; `None` if it doesn't.
    pub scoring: Option<Scoring>,
    /// The head that does it, if the model has one.
    pub classifier: Option<Classifier>,
    /// What the files of an encoder-decoder say of its answers.
    pub answer_defaults: AnswerDefaults,
    /// Shared with the grammar engine, which writes what grammars force.
    pub tokenizer: Rc<Tokenizer>,
    /// Those of its chats.
    pub templates: Templates,
    /// `LoadOptions::utc_offset_seconds`.
    pub utc_offset_seconds: i64,
    /// Bytes of the states of recurrent layers, which `info.kv_cache_bytes` holds too.
    pub recurrent_state_bytes: u64,
    /// For callers; it never changes after the load.
    pub info: ModelInfo,
    /// New results of autotuning, to be kept for the next load.
    pub tunings: Option<String>,
    /// How the options asked for the weights.
    pub layout: Layout,
    /// Loaded and compiled as requests need them.
    pub grammars: Grammars,
    /// What adds to the weights.
    pub adapters: Adapters,
}

impl Engine {
    /// What was loaded. It never changes.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// What this load's autotuning found beyond `LoadOptions::tunings`: a text to keep and hand to later loads, of any model on any
    /// adapter.
    pub fn tunings(&self) -> Option<&str> {
        self.0.tunings.as_deref()
    }

    /// The model's own, for texts outside of requests.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// The text of ids, with control tokens written out. An id that the model has and its tokenizer has not is without text.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String> {
        let without_text = self.tokenizer().vocab_size()..self.0.model.config().vocab_size;
        let written: Vec<u32> = ids.iter().copied().filter(|id| !without_text.contains(&(*id as usize))).collect();
        self.tokenizer().decode_with_control(&written)
    }

    /// Counts since the load or the last `reset_stats`.
    pub fn stats(&self) -> EngineStats {
        let prompt_cache = self.0.prompt_cache();
        EngineStats { device: self.0.context.device().stats(), prompt_cache, memory: self.0.memory() }
    }

    /// Counts from 0 again.
    pub fn reset_stats(&self) {
        self.0.context.device().reset_stats();
        if let Model::Decoder(decoder) = &self.0.model {
            decoder.prompt_cache.borrow_mut().reset_stats();
        }
    }

    /// Changes `LoadOptions::smoothness`, from now on.
    pub fn set_smoothness(&self, smoothness: Smoothness) {
        self.0.context.device().set_paced(smoothness == Smoothness::Frames);
    }

    /// Switches the timing of kernels on or off. Everything takes longer while it is on.
    pub fn set_profiling(&self, on: bool) -> Result<()> {
        self.0.context.device().set_profiling(on)
    }

    /// GPU times since the last call, by kernel and by what a dispatch reads.
    pub async fn kernel_times(&self) -> Result<Vec<KernelUse>> {
        self.0.context.device().kernel_uses().await
    }

    /// Waits until the GPU has done all that was asked of it.
    pub async fn sync(&self) -> Result<()> {
        self.0.context.device().sync().await
    }

    /// One forward pass over `ids` from an empty context: logits [n_tokens, vocab_size], float32. It overwrites a slot of the KV cache.
    pub async fn forward(&self, ids: &[u32]) -> Result<EngineTensor> {
        self.forward_with_hidden_states(ids, &[]).await.map(|(logits, _)| logits)
    }

    /// The same with the hidden states after these numbers of layers, [n_tokens, embedding_length] each: 0 is the input of the first layer, and the
    /// number of layers what comes before the last norm.
    pub async fn forward_with_hidden_states(
        &self,
        ids: &[u32],
        layers: &[usize],
    ) -> Result<(EngineTensor, Vec<EngineTensor>)> {
        let most = self.0.info.layers;
        if let Some(layer) = layers.iter().find(|layer| **layer > most) {
            bail!(
                OutOfRange,
                "hidden states: the model has {most} layers, so 0 to {most} can be asked for, not {layer}"
            );
        }
        let decoder = self.0.decoder()?;
        if decoder.transformer.has_encoder() {
            bail!(
                InvalidRequest,
                "the model ({}) has an encoder, without whose text its decoder gives no logits; use completions",
                self.0.info.architecture
            );
        }
        let passed = decoder.forward(None, ids, layers, &self.0.adapter_set(None)?).await;
        let (logits, hidden_states) = passed.map_err(|error| self.0.explain(error))?;
        self.0.context.device().flush();
        let shared = |tensor: Tensor| EngineTensor::new(&self.0.context, tensor);
        Ok((shared(logits), hidden_states.into_iter().map(shared).collect()))
    }

    /// One forward pass of the decoder of an encoder-decoder over `ids`, which begin with its start token: the logits after each, [n_tokens,
    /// vocab_size], when the encoder has read `source`.
    pub async fn forward_after(&self, source: &[u32], ids: &[u32]) -> Result<EngineTensor> {
        let decoder = self.0.decoder()?;
        if !decoder.transformer.has_encoder() {
            bail!(InvalidRequest, "the model ({}) has no encoder", self.0.info.architecture);
        }
        let passed = decoder.forward(Some(source), ids, &[], &AdapterSet::default()).await;
        let (logits, _) = passed.map_err(|error| self.0.explain(error))?;
        self.0.context.device().flush();
        Ok(EngineTensor::new(&self.0.context, logits))
    }

    /// The model itself, if it continues texts: for whoever computes more with it, such as training.
    pub fn transformer(&self) -> Result<&Transformer> {
        Ok(&self.0.decoder()?.transformer)
    }

    /// Of its weights and the rope: other models, also of the same kind, have another one.
    pub fn fingerprint(&self) -> Result<u64> {
        Ok(self.transformer()?.fingerprint())
    }

    /// What runs it, for whoever shares its GPU.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Sets where the grammar engine comes from. Without it, requests for structured output are refused.
    pub fn set_grammars(&self, loader: Rc<dyn GrammarLoader>) {
        self.0.grammars.set_loader(loader);
    }

    /// Frees everything on the GPU. What runs rejects; later calls end in `disposed`.
    pub fn dispose(&self) {
        self.0.context.device().destroy();
    }
}

/// A tensor that the engine made, on the GPU until it is read.
pub struct EngineTensor {
    context: Context,
    tensor: Tensor,
}

impl EngineTensor {
    pub(super) fn new(context: &Context, tensor: Tensor) -> Self {
        Self { context: context.clone(), tensor }
    }

    /// Rows first: [n_tokens, vocab_size].
    pub fn shape(&self) -> Vec<usize> {
        self.tensor.shape().dims().to_vec()
    }

    /// What it was made on.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Itself, for whoever shares its memory.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// As WGSL calls it, such as `f32`.
    pub fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// All elements, row by row. Waits for the GPU.
    pub async fn readback(&self) -> Result<Vec<f32>> {
        self.context.readback_one(&self.tensor).await?.to_f32()
    }
}

impl Inner {
    fn prompt_cache(&self) -> CacheStats {
        match &self.model {
            Model::Decoder(decoder) => decoder.prompt_cache.borrow().stats(),
            Model::Encoder(_) => CacheStats::default(),
        }
    }

    /// Whose the bytes on the GPU are.
    pub fn memory(&self) -> MemoryUse {
        let info = &self.info;
        let (draft_weights, draft_cache) =
            info.draft.as_ref().map_or((0, 0), |draft| (draft.weight_bytes, draft.kv_cache_bytes));
        let lasting = Lasting {
            weights: info.weight_bytes + draft_weights,
            kv_cache: info.kv_cache_bytes - self.recurrent_state_bytes + draft_cache,
            recurrent_state: self.recurrent_state_bytes,
            adapters: self.adapters.bytes(),
            recurrent_checkpoints: match &self.model {
                Model::Decoder(decoder) => decoder.recurrent_checkpoint_bytes(),
                Model::Encoder(_) => 0,
            },
        };
        MemoryUse::of(self.context.device(), lasting, self.prompt_cache().bytes)
    }

    /// The error with what is held, if memory has run out.
    pub fn explain(&self, error: Error) -> Error {
        self.memory().explain(error)
    }

    /// The model, if it generates text that goes on with a chat.
    pub fn chat_decoder(&self) -> Result<&Rc<Decoder>> {
        let decoder = self.decoder()?;
        if decoder.transformer.has_encoder() {
            bail!(
                InvalidRequest,
                "the model ({}) has an encoder, which reads one text, and answers it: it holds no chats; use completions, or load another \
                 model",
                self.info.architecture
            );
        }
        Ok(decoder)
    }

    /// The model, if it generates text.
    pub fn decoder(&self) -> Result<&Rc<Decoder>> {
        match &self.model {
            Model::Decoder(_) if !self.info.generates => bail!(
                InvalidRequest,
                "the model ({}) has no matrix that gives the logits of tokens, so it makes no text; {}",
                self.info.architecture,
                if self.scoring.is_some() { "use rerank or classify" } else { "use embeddings, or load another model" }
            ),
            Model::Decoder(decoder) => Ok(decoder),
            Model::Encoder(_) => bail!(
                InvalidRequest,
                "the model ({}) is an encoder: it makes embeddings and no text; use embeddings, or load another model",
                self.info.architecture
            ),
        }
    }
}
