//! From a source of bytes to an engine that answers.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Serialize;

use super::autotune::{self, Autotune, AutotuneInfo};
use super::chat_prompt::Templates;
use super::decoding::Decoding;
use super::draft::{self, DraftInfo, DraftModel};
use super::model_text::ModelText;
use super::prefill_pace::PrefillPace;
use super::sequences::{MAX_SEQUENCES, Sequences};
use super::session::Session;
use crate::error::{Error, Result};
use crate::model::checkpoint::{Checkpoint, TensorInfo};
use crate::model::config::Config;
use crate::model::folder::{Folder, OneFile};
use crate::model::source::ByteSource;
use crate::model::{Embeds, Encoder, KvCache, KvFormat, Layout, Logits, Pooling, Precision, Transformer, Weights};
use crate::tensor::quant::{Format, quantize::TARGETS};
use crate::tensor::{AdapterInfo, CacheSizes, Context, Device, DeviceOptions, KernelUse, Stats, Tensor};
use crate::text::tokenizer::Tokenizer;

/// The context of a model that allows more, unless asked for: its KV cache has to fit beside the weights.
const DEFAULT_CONTEXT_LENGTH: usize = 4096;

/// The least sizes of a model's caches. A pass over a prompt has a bind group for each of its dispatches, ten for a layer, for each
/// length of a prompt that comes again; plans and what is recorded pin theirs. A cache that holds fewer makes them all anew
/// for each prompt, which took longer than the GPU's part of the work.
const BIND_GROUPS: usize = 4096;
const UNIFORMS: usize = 1024;

#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    pub device: DeviceOptions,
    /// Tokens that the KV cache holds; at most what the model was trained for.
    pub context_length: Option<usize>,
    /// How many requests can run at once, 1 (the default) to 8. Each has its own KV cache.
    pub max_sequences: Option<usize>,
    /// What the clock on the wall differs from UTC, for templates that ask for the date.
    pub utc_offset_seconds: i64,
    /// A chat template in place of the model's own, in Jinja.
    pub chat_template: Option<String>,
    /// Without it, fast on a GPU and exact on a software adapter, which gains nothing by 8 bits.
    pub precision: Option<Precision>,
    /// Quantise matrices of plain numbers (F32, F16, BF16) while they are loaded: `q8_0` or `q4_0`. Others stay as they are.
    pub quantize: Option<String>,
    /// How keys and values are stored. Without it f16, and f32 where the precision is exact.
    pub kv_cache: Option<KvFormat>,
    /// Run one op at a time, to compare with the ops that join several.
    pub plain_ops: bool,
    /// Whether variants of kernels are compared on this adapter.
    pub autotune: Autotune,
    /// What [`Engine::tunings`] of an earlier load gave. Anything else is passed over.
    pub tunings: Option<String>,
}

impl LoadOptions {
    /// The precision on an adapter.
    pub(super) fn precision_on(&self, software: bool) -> Precision {
        self.precision.unwrap_or(if software { Precision::Exact } else { Precision::Fast })
    }

    pub(super) fn kv_format_on(&self, software: bool) -> KvFormat {
        self.kv_cache.unwrap_or(match self.precision_on(software) {
            Precision::Exact => KvFormat::F32,
            Precision::Fast => KvFormat::F16,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Header,
    Weights,
    Ready,
}

/// How far loading is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    pub phase: Phase,
    pub loaded: u64,
    pub total: u64,
}

/// What was loaded.
#[derive(Clone, Debug, Serialize)]
pub struct ModelInfo {
    pub name: Option<String>,
    /// The file has a chat template of its own, or the load was given one.
    pub has_chat_template: bool,
    pub architecture: String,
    pub parameters: u64,
    pub layers: usize,
    /// It goes on with a text. Otherwise it is an encoder, which makes embeddings only.
    pub generates: bool,
    /// It makes embeddings.
    pub embeds: bool,
    /// Tokens that fit the KV cache; of an encoder, those that a text may have.
    pub context_length: usize,
    /// Requests that run at once, each with a context of its own.
    pub max_sequences: usize,
    pub vocab_size: usize,
    pub embedding_length: usize,
    pub quantization: String,
    pub precision: Precision,
    pub kv_cache: KvFormat,
    pub weight_bytes: u64,
    /// Of the weights, those that a decoded token reads. Without the embedding table, where it isn't the output's too.
    pub weight_bytes_per_token: u64,
    /// Of all sequences.
    pub kv_cache_bytes: u64,
    /// The model that drafts, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftInfo>,
    pub adapter: AdapterInfo,
    pub autotune: AutotuneInfo,
    /// What may make the model answer worse than it could.
    pub warnings: Vec<Warning>,
}

/// Something that is no error and that a person should know.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// Stable, for programs: `no_chat_template`.
    pub code: &'static str,
    pub message: String,
}

/// A loaded model.
pub struct Engine(pub(super) Rc<Inner>);

/// What a model does.
pub(super) enum Model {
    /// Goes on with a text.
    Decoder(Box<Transformer>),
    /// Makes vectors of texts.
    Encoder(Box<Encoder>),
}

impl Model {
    fn config(&self) -> &Config {
        match self {
            Self::Decoder(transformer) => transformer.config(),
            Self::Encoder(encoder) => encoder.config(),
        }
    }

    fn parameters(&self) -> u64 {
        match self {
            Self::Decoder(transformer) => transformer.parameters(),
            Self::Encoder(encoder) => encoder.parameters(),
        }
    }

    fn quantization(&self) -> &'static str {
        match self {
            Self::Decoder(transformer) => transformer.quantization(),
            Self::Encoder(encoder) => encoder.quantization(),
        }
    }

    fn precision(&self) -> Precision {
        match self {
            Self::Decoder(transformer) => transformer.precision(),
            Self::Encoder(_) => Precision::Exact,
        }
    }

    fn weight_bytes(&self) -> u64 {
        match self {
            Self::Decoder(transformer) => transformer.weight_bytes(),
            Self::Encoder(encoder) => encoder.weight_bytes(),
        }
    }
}

/// A model whose kernels are compiled, and what goes with it.
struct Ready {
    model: Model,
    kv_cache_bytes: u64,
    autotune: AutotuneInfo,
    tunings: Option<String>,
    sessions: Vec<Session>,
    together: Option<Sequences>,
}

impl Ready {
    async fn decoder(
        context: &Context,
        transformer: Transformer,
        capacity: usize,
        max_sequences: usize,
        kv_format: KvFormat,
        options: &LoadOptions,
    ) -> Result<Self> {
        let (autotune, tunings) = autotune::run(context, &transformer, capacity, kv_format, options).await?;
        let cache = KvCache::new(context, transformer.config(), capacity, max_sequences, kv_format)?;
        let kv_cache_bytes = cache.bytes();
        let mut sessions = (0..max_sequences)
            .map(|sequence| Session::new(context, cache.sequence(sequence)?, capacity, sequence))
            .collect::<Result<Vec<Session>>>()?;
        if let Some(first) = sessions.first_mut() {
            first.prepare(context, &transformer).await?;
        }
        let together = match max_sequences > 1 && transformer.is_joined() {
            true => Some(Sequences::new(context, cache)?),
            false => None,
        };
        let model = Model::Decoder(Box::new(transformer));
        Ok(Self { model, kv_cache_bytes, autotune, tunings, sessions, together })
    }

    async fn encoder(context: &Context, config: Config, weights: &Weights) -> Result<Self> {
        let encoder = Encoder::new(context, config, weights)?;
        // The kernels do not depend on how many tokens and texts there are.
        context.prepare(|| encoder.forward(&[&[0, 0], &[0]], Pooling::Mean)).await?;
        context.device().sync().await?;
        let (autotune, tunings) = (AutotuneInfo::off(), None);
        let model = Model::Encoder(Box::new(encoder));
        Ok(Self { model, kv_cache_bytes: 0, autotune, tunings, sessions: Vec::new(), together: None })
    }
}

pub(super) struct Inner {
    pub context: Context,
    pub model: Model,
    pub embeds: Embeds,
    pub tokenizer: Tokenizer,
    pub templates: Templates,
    pub utc_offset_seconds: i64,
    pub info: ModelInfo,
    /// Of autotuning, to be kept for the next load.
    pub tunings: Option<String>,
    /// One for each sequence; taken out while a generation runs on it. The one that was given back last is the last.
    pub sessions: RefCell<Vec<Session>>,
    /// The generations that decode together.
    pub decoding: RefCell<Decoding>,
    pub pace: RefCell<PrefillPace>,
    /// Taken out while a generation drafts with it.
    pub draft: RefCell<Option<DraftModel>>,
    /// What was asked of the weights.
    pub layout: Layout,
}

impl Engine {
    /// Loads a model of one file (GGUF). `progress` may end the load with an error.
    pub async fn load(
        source: &dyn ByteSource,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        Self::load_from(&OneFile(source), None, options, progress).await
    }

    /// Loads a model of a folder: `file` of it, or the only model that it holds.
    pub async fn load_from(
        folder: &dyn Folder,
        file: Option<&str>,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        let caches = options.device.caches;
        let caches = CacheSizes {
            bind_groups: caches.bind_groups.max(BIND_GROUPS),
            uniforms: caches.uniforms.max(UNIFORMS),
            ..caches
        };
        let device = Device::request(&DeviceOptions { caches, ..options.device.clone() }).await?;
        let loaded = Self::load_on(device.clone(), folder, file, options, progress).await;
        if loaded.is_err() {
            device.destroy();
        }
        loaded
    }

    async fn load_on(
        device: Device,
        folder: &dyn Folder,
        file: Option<&str>,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        progress(Progress { phase: Phase::Header, loaded: 0, total: 0 })?;
        let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
        let total = checkpoint.file_bytes();
        let metadata = &checkpoint.metadata;
        let config = Config::of(&checkpoint)?;
        let ModelText { tokenizer, chat_templates } = ModelText::of(&checkpoint)?;
        if tokenizer.vocab_size() > config.vocab_size {
            bail!(
                InvalidFile,
                "the tokenizer has {} tokens and the model {}",
                tokenizer.vocab_size(),
                config.vocab_size
            );
        }
        let (templates, has_chat_template, warnings) =
            Templates::of(&chat_templates, options, !config.arch.is_encoder)?;
        let embeds = Embeds::of(&checkpoint, config.arch.is_encoder)?;
        let capacity = capacity(options.context_length, &config)?;
        let layout = layout(options)?;
        let max_sequences = options.max_sequences.unwrap_or(1);
        if !(1..=MAX_SEQUENCES).contains(&max_sequences) {
            bail!(InvalidRequest, "maxSequences is {max_sequences}, wanted 1 to {MAX_SEQUENCES}");
        }

        let software = device.capabilities().software;
        let (precision, kv_format) = (options.precision_on(software), options.kv_format_on(software));
        let context = Context::new(device);
        let n_layers = config.n_layers;
        // Headers, and whatever else is not read, count as read.
        let mut on_bytes = |loaded: u64, of: u64| {
            let left = of.saturating_sub(loaded);
            progress(Progress { phase: Phase::Weights, loaded: total.saturating_sub(left), total })
        };
        let is_encoder = config.arch.is_encoder;
        let weights = Weights::load(&context, &checkpoint, &config, &layout.of(&config), &mut on_bytes).await?;
        let only_gathered = match config.tie_embeddings && !is_encoder {
            true => 0,
            false => checkpoint.tensor("token_embd.weight").map_or(0, TensorInfo::bytes),
        };
        let ready = match is_encoder {
            true => Ready::encoder(&context, config, &weights).await?,
            false => {
                let transformer = Transformer::new(&context, config, &weights, capacity, precision)?;
                Ready::decoder(&context, transformer, capacity, max_sequences, kv_format, options).await?
            }
        };
        let Ready { model, kv_cache_bytes, autotune, tunings, sessions, together } = ready;
        let config = model.config();
        let info = ModelInfo {
            name: metadata.optional_str("general.name")?.map(str::to_owned),
            has_chat_template,
            architecture: config.arch.name.to_owned(),
            generates: !is_encoder,
            embeds: embeds.pooling.is_some(),
            parameters: model.parameters(),
            layers: n_layers,
            context_length: capacity,
            max_sequences,
            vocab_size: config.vocab_size,
            embedding_length: config.n_embd,
            quantization: model.quantization().to_uppercase(),
            precision: model.precision(),
            kv_cache: kv_format,
            weight_bytes: model.weight_bytes(),
            weight_bytes_per_token: model.weight_bytes().saturating_sub(only_gathered),
            kv_cache_bytes,
            draft: None,
            adapter: context.device().adapter().clone(),
            autotune,
            warnings,
        };
        let engine = Engine(Rc::new(Inner {
            context,
            model,
            embeds,
            tokenizer,
            templates,
            utc_offset_seconds: options.utc_offset_seconds,
            info,
            sessions: RefCell::new(sessions),
            decoding: RefCell::new(Decoding::new(together)),
            pace: RefCell::default(),
            draft: RefCell::default(),
            layout,
            tunings,
        }));
        progress(Progress { phase: Phase::Ready, loaded: total, total })?;
        Ok(engine)
    }

    /// Loads a second, smaller model with the same vocabulary, which drafts for requests that ask for it
    /// (`speculation: {"type": "draft_model"}`), on the same device. To be called before the first request. After an error the
    /// engine is disposed of.
    pub async fn with_draft(
        mut self,
        folder: &dyn Folder,
        file: Option<&str>,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        let loaded = self.load_draft(folder, file, progress).await;
        let device = self.0.context.device().clone();
        let added = loaded.and_then(|(model, info)| match Rc::get_mut(&mut self.0) {
            Some(inner) => {
                inner.draft = RefCell::new(Some(model));
                inner.info.draft = Some(info);
                Ok(())
            }
            None => bail!(InvalidRequest, "a draft model is loaded before the first request"),
        });
        match added {
            Ok(()) => Ok(self),
            Err(error) => {
                device.destroy();
                Err(error)
            }
        }
    }

    async fn load_draft(
        &self,
        folder: &dyn Folder,
        file: Option<&str>,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<(DraftModel, DraftInfo)> {
        let inner = &self.0;
        inner.decoder()?;
        progress(Progress { phase: Phase::Header, loaded: 0, total: 0 })?;
        let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
        let total = checkpoint.file_bytes();
        draft::check_vocabulary(&inner.tokenizer, &ModelText::of(&checkpoint)?.tokenizer)?;
        let mut on_bytes = |loaded: u64, of: u64| {
            let left = of.saturating_sub(loaded);
            progress(Progress { phase: Phase::Weights, loaded: total.saturating_sub(left), total })
        };
        let (capacity, precision, kv_format) = (inner.info.context_length, inner.info.precision, inner.info.kv_cache);
        let (context, layout) = (&inner.context, &inner.layout);
        let loaded =
            DraftModel::load(context, &checkpoint, capacity, precision, kv_format, layout, &mut on_bytes).await?;
        progress(Progress { phase: Phase::Ready, loaded: total, total })?;
        Ok(loaded)
    }

    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// What autotuning found and `LoadOptions::tunings` did not say yet: a text to be kept and handed to later loads, of this model or
    /// others, on this adapter or others.
    pub fn tunings(&self) -> Option<&str> {
        self.0.tunings.as_deref()
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    pub fn stats(&self) -> Stats {
        self.0.context.device().stats()
    }

    pub fn reset_stats(&self) {
        self.0.context.device().reset_stats();
    }

    /// Switches the timing of kernels on or off. While it is on, everything takes longer.
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

    /// One forward pass over `ids` from an empty context: logits [n_tokens, vocab_size], float32. What the session held is
    /// forgotten.
    pub async fn forward(&self, ids: &[u32]) -> Result<EngineTensor> {
        self.0.decoder()?;
        let mut session = self.0.take_session(&[])?;
        session.forget();
        let logits = session.forward(self.0.decoder()?, ids, Logits::All);
        self.0.give_back(session);
        match logits? {
            Some(tensor) => {
                self.0.context.device().flush();
                Ok(EngineTensor { context: self.0.context.clone(), tensor })
            }
            None => bail!(Internal, "a forward pass over all tokens gave no logits"),
        }
    }

    /// Frees everything on the GPU. What runs is rejected; later calls end in `disposed`.
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
    pub fn shape(&self) -> Vec<usize> {
        self.tensor.shape().dims().to_vec()
    }

    pub fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    pub async fn readback(&self) -> Result<Vec<f32>> {
        match &self.context.readback(&[&self.tensor]).await?[..] {
            [host] => host.to_f32(),
            _ => bail!(Internal, "a read-back of one tensor gave another number of them"),
        }
    }
}

impl Inner {
    /// The model, if it can go on with a text.
    pub fn decoder(&self) -> Result<&Transformer> {
        match &self.model {
            Model::Decoder(transformer) => Ok(transformer),
            Model::Encoder(_) => bail!(
                InvalidRequest,
                "the model ({}) is an encoder: it makes embeddings and no text; use embeddings, or load another model",
                self.info.architecture
            ),
        }
    }

    /// The session that holds most of the beginning of a prompt; among equals the one that was used longest ago.
    pub fn take_session(&self, prompt: &[u32]) -> Result<Session> {
        let mut sessions = self.sessions.borrow_mut();
        let best = (0..sessions.len()).rev().max_by_key(|index| common_prefix(sessions[*index].tokens(), prompt));
        match best {
            Some(index) => Ok(sessions.remove(index)),
            None => bail!(
                InvalidRequest,
                "as many generations run on this engine as it was loaded for ({}); wait for one, cancel one, or load with a \
                 larger maxSequences",
                self.info.max_sequences
            ),
        }
    }

    pub fn give_back(&self, session: Session) {
        self.sessions.borrow_mut().push(session);
    }
}

/// How many tokens two sequences begin with in common.
pub(super) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The size of the files that hold a model's tensors, by their headers.
pub async fn file_bytes(folder: &dyn Folder, file: Option<&str>) -> Result<u64> {
    let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
    Ok(checkpoint.file_bytes())
}

/// Names the source in an error that does not name it yet.
pub(super) fn about(name: &str, error: Error) -> Error {
    if error.message().contains(name) { error } else { error.context(name) }
}

/// What is asked of the weights.
pub(super) fn layout(options: &LoadOptions) -> Result<Layout> {
    let quantize = match &options.quantize {
        None => None,
        Some(name) => match Format::by_name(name).filter(|_| TARGETS.contains(&name.as_str())) {
            Some(format) => Some(format),
            None => bail!(InvalidRequest, "quantize is {name:?}, wanted {}", TARGETS.join(" or ")),
        },
    };
    Ok(Layout { join: !options.plain_ops, quantize })
}

/// Tokens that the model is to hold.
pub(super) fn capacity(asked: Option<usize>, config: &Config) -> Result<usize> {
    let trained = config.context_length;
    // An encoder keeps nothing of a text, so that a long context costs nothing.
    let default = if config.arch.is_encoder { trained } else { DEFAULT_CONTEXT_LENGTH };
    match asked {
        None => Ok(trained.min(default)),
        Some(asked) if asked == 0 || asked > trained => {
            bail!(InvalidRequest, "contextLength is {asked}, wanted 1 to {trained}, which the model was trained for")
        }
        Some(asked) => Ok(asked),
    }
}
