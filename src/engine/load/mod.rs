//! From a source of bytes to an engine that answers.

mod autotune;
mod compile_ahead;
mod draft_vocabulary;
pub(in crate::engine) mod generation_config;
pub mod hub;
pub(super) mod info;
pub(super) mod inspect;
mod model_text;
pub(super) mod options;
mod plan;
mod room;
mod unread;

use std::cell::Cell;
use std::rc::Rc;

use self::info::{AutotuneInfo, DraftInfo, ModelInfo, Phase, Progress, Warning};
use self::model_text::ModelText;
use self::options::LoadOptions;
use self::plan::{Known, Plan};
use self::unread::unread_bytes;
use crate::decode::{Decoder, DraftModel};
use crate::engine::adapters::Adapters;
use crate::engine::engine::{Engine, Inner, Model};
use crate::engine::grammars::Grammars;
use crate::engine::memory::{Lasting, MemoryUse};
use crate::engine::scoring::{ScoredBy, Scoring};
use crate::error::{Code, Error, Result};
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;
use crate::model::folder::{Folder, OneFile};
use crate::model::source::ByteSource;
use crate::model::{
    Classifier, DenseLayers, Encoder, EncoderText, KvFormat, Pooling, Precision, Transformer, Unloaded, Weights,
};
use crate::tensor::{CacheSizes, Context, Device, DeviceKind, DeviceOptions, HostTensor, Tensor};

/// The least sizes of a model's caches. A pass over a prompt has ten bind groups a layer, others for each length of a prompt; plans and
/// recorded steps pin theirs. A smaller cache makes them all anew for each prompt, which took longer than the GPU's part of the work.
const BIND_GROUPS: usize = 4096;
const UNIFORMS: usize = 1024;

/// How a model decodes, as far as there is room.
struct Decoding {
    /// The longest context to take, in tokens.
    capacity: usize,
    max_sequences: usize,
    precision: Precision,
    kv_format: KvFormat,
    warnings: Vec<Warning>,
}

/// A model whose kernels are compiled, and what goes with it.
struct Ready {
    model: Model,
    /// Tokens of a context.
    capacity: usize,
    kv_cache_bytes: u64,
    /// A part of them: the states of recurrent layers.
    recurrent_state_bytes: u64,
    autotune: AutotuneInfo,
    tunings: Option<String>,
}

impl Ready {
    async fn decoder(
        context: &Context,
        (config, weights): (&Config, &Weights),
        plan: &mut Decoding,
        options: &LoadOptions,
    ) -> Result<Self> {
        let Decoding { capacity, precision, kv_format, .. } = *plan;
        let transformer = Transformer::new(context, config.clone(), weights, capacity, precision)?;
        let (autotune, tunings) = autotune::run(context, &transformer, capacity, kv_format, options).await?;
        let device = context.device();
        let mut found = Self::with_context(context, transformer, plan, capacity, options).await;
        let mut taken = capacity;
        let mut needed_bytes = 0;
        while let Err(error) = &found
            && let Some(shorter) = room::shorter(taken, error, options)
        {
            taken = shorter;
            needed_bytes = device.refused_bytes().max(needed_bytes);
            device.free_unused().await?;
            let transformer = Transformer::new(context, config.clone(), weights, taken, precision)?;
            found = Self::with_context(context, transformer, plan, taken, options).await;
        }
        let (decoder, kv_cache_bytes, recurrent_state_bytes) = found?;
        if taken < capacity {
            plan.warnings.push(room::tell(device, (capacity, taken), needed_bytes, options));
        }
        let model = Model::Decoder(decoder);
        Ok(Self { model, capacity: taken, kv_cache_bytes, recurrent_state_bytes, autotune, tunings })
    }

    /// A decoder with a context of `capacity` tokens, and the bytes of its cache and of recurrent states in it. An error if there is no room for
    /// it, or none for a prompt beside it.
    async fn with_context(
        context: &Context,
        transformer: Transformer,
        &Decoding { max_sequences, kv_format, .. }: &Decoding,
        capacity: usize,
        options: &LoadOptions,
    ) -> Result<(Rc<Decoder>, u64, u64)> {
        let what = format!("the KV cache of {capacity} tokens for each of {max_sequences} sequences");
        let new_cache = || transformer.layer_states(capacity, max_sequences, kv_format);
        let cache = context.device().attempt(&what, new_cache).await?;
        let (kv_cache_bytes, recurrent_state_bytes) = (cache.bytes(), cache.recurrent().bytes());
        let of_one = kv_cache_bytes / max_sequences as u64;
        let prompt_cache_bytes = options.prompt_cache_bytes.unwrap_or(of_one);
        let listener = options.on_memory_pressure.clone();
        let decoder =
            Decoder::new(context, transformer, cache, capacity, max_sequences, prompt_cache_bytes, listener).await?;
        decoder.check_room().await?;
        Ok((decoder, kv_cache_bytes, recurrent_state_bytes))
    }

    async fn encoder(
        context: &Context,
        config: Config,
        weights: &Weights,
        (capacity, pooling): (usize, Pooling),
    ) -> Result<Self> {
        let encoder = Encoder::new(context, config, weights)?;
        // The kernels don't depend on the number of tokens and texts.
        let text = |ids| EncoderText { ids, types: &[] };
        context.prepare(|| encoder.forward(&[text(&[0, 0]), text(&[0])], &[[0, 2], [0, 1]], pooling)).await?;
        context.device().sync().await?;
        let (autotune, tunings) = (AutotuneInfo::off(), None);
        let model = Model::Encoder(Box::new(encoder));
        Ok(Self { model, capacity, kv_cache_bytes: 0, recurrent_state_bytes: 0, autotune, tunings })
    }
}

impl Engine {
    /// Loads a model from one file (GGUF). `progress` may end the load with an error.
    pub async fn load(
        source: &dyn ByteSource,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        Self::load_from(&OneFile(source), None, options, progress).await
    }

    /// Loads a model from a folder: `file`, or the only model in it.
    pub async fn load_from(
        folder: &dyn Folder,
        file: Option<&str>,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<Engine> {
        let device = options.device();
        let caches = device.caches;
        let caches = CacheSizes {
            bind_groups: caches.bind_groups.max(BIND_GROUPS),
            uniforms: caches.uniforms.max(UNIFORMS),
            ..caches
        };
        let device = Device::request(&DeviceOptions { caches, ..device }).await?;
        device.set_paced(options.is_paced_on(device.capabilities().software));
        let held = Cell::new(Lasting::default());
        let loaded = Self::load_on(device.clone(), folder, file, options, progress, &held).await;
        loaded.map_err(|error| {
            let held = MemoryUse::of(&device, held.get(), 0);
            let packs = device.capabilities().packs_weights;
            device.destroy();
            let error = held.explain(error);
            if !packs || error.code() != Code::OutOfMemory {
                return error;
            }
            let advice = "weights are packed for the precision \"fast\"; \"exact\" takes less memory";
            Error::new(error.code(), format!("{}; {advice}", error.message()))
        })
    }

    async fn load_on(
        device: Device,
        folder: &dyn Folder,
        file: Option<&str>,
        options: &LoadOptions,
        progress: &mut dyn FnMut(Progress) -> Result<()>,
        held: &Cell<Lasting>,
    ) -> Result<Engine> {
        progress(Progress { phase: Phase::Header, loaded: 0, total: 0 })?;
        let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
        let total = checkpoint.file_bytes();
        let metadata = &checkpoint.metadata;
        let plan = Plan::of(&checkpoint, options, Some(device.capabilities()), &mut Known::default())?;
        let Plan { config, capacity, max_sequences, layout, precision, kv_format, .. } = plan;
        let context = Context::new(device);
        let n_layers = config.n_layers;
        // Headers, and all else that is not read, count as read; what has to be at hand later does when all is.
        let on_disk = config.bytes_on_disk(&checkpoint)?;
        let mut on_bytes = |loaded: u64, of: u64| {
            let left = of.saturating_sub(loaded).saturating_add(on_disk);
            progress(Progress { phase: Phase::Weights, loaded: total.saturating_sub(left), total })
        };
        let is_encoder = config.arch.is_encoder;
        let unloaded = {
            let layout = layout.of(&config);
            let allocate = || Unloaded::new(&context, &checkpoint, &config, &layout);
            context.device().attempt("the weights", allocate).await?
        };
        held.set(Lasting { weights: unloaded.bytes(), ..Lasting::default() });
        let preview = if is_encoder {
            None
        } else {
            let weights = unloaded.preview(&context)?;
            Some(Transformer::new(&context, config.clone(), &weights, capacity, precision)?)
        };
        let weights = unloaded.load(&context, &mut on_bytes);
        let weights = match &preview {
            Some(model) => compile_ahead::beside(weights, &context, model, capacity, kv_format, options).await?,
            None => weights.await?,
        };
        drop(preview);
        let unread = unread_bytes(&checkpoint, &config, &layout.of(&config), context.device().capabilities())?;
        let mut decoding = Decoding { capacity, max_sequences, precision, kv_format, warnings: plan.warnings };
        let model_config = config.clone();
        let ready = if is_encoder {
            let of_head = plan.scoring.as_ref().and_then(Scoring::pooling);
            let pooling = plan.embeds.pooling.or(of_head).unwrap_or(Pooling::Mean);
            Ready::encoder(&context, config, &weights, (capacity, pooling)).await?
        } else {
            Ready::decoder(&context, (&config, &weights), &mut decoding, options).await?
        };
        let dense = DenseLayers::new(&context, &weights, &plan.embeds.dense)?;
        if !dense.is_empty() {
            let vectors = zeros(&context, model_config.n_embd)?;
            context.prepare(|| dense.run(vectors.clone())).await?;
        }
        let classifier = Self::head(&context, (&model_config, &weights), plan.scoring.as_ref()).await?;
        let Ready { model, capacity, kv_cache_bytes, recurrent_state_bytes, autotune, tunings } = ready;
        let config = model.config();
        let info = ModelInfo {
            device: if context.device().is_cpu() { DeviceKind::Cpu } else { DeviceKind::Gpu },
            device_reason: options.device_reason,
            threads: context.device().threads(),
            name: metadata.optional_str("general.name")?.map(str::to_owned),
            has_chat_template: plan.has_chat_template,
            architecture: config.arch.name.to_owned(),
            generates: plan.generates,
            is_encoder_decoder: config.encoder.is_some(),
            embeds: plan.embeds.pooling.is_some(),
            reranks: plan.scoring.as_ref().is_some_and(|scoring| scoring.relevance.is_some()),
            labels: plan.scoring.as_ref().map(Scoring::labels).unwrap_or_default(),
            parameters: model.parameters(),
            layers: n_layers,
            context_length: capacity,
            max_sequences,
            vocab_size: config.vocab_size,
            embedding_length: config.embedding_length(),
            quantization: model.quantization().to_uppercase(),
            precision: model.precision(),
            kv_cache: kv_format,
            weight_bytes: model.weight_bytes(),
            weight_bytes_per_token: model.weight_bytes().saturating_sub(unread),
            per_layer_embeddings: options.per_layer_embeddings,
            kv_cache_bytes,
            multi_token_prediction: config.mtp.is_some(),
            draft: None,
            adapter: context.device().adapter().clone(),
            autotune,
            warnings: decoding.warnings,
        };
        let engine = Engine(Rc::new(Inner {
            context,
            model,
            dense,
            embeds: plan.embeds,
            scoring: plan.scoring,
            classifier,
            answer_defaults: plan.answer_defaults,
            tokenizer: Rc::new(plan.tokenizer),
            templates: plan.templates,
            utc_offset_seconds: options.utc_offset_seconds,
            recurrent_state_bytes,
            info,
            layout,
            tunings,
            grammars: Grammars::default(),
            adapters: Adapters::default(),
        }));
        progress(Progress { phase: Phase::Ready, loaded: total, total })?;
        Ok(engine)
    }

    /// The head that scores or labels texts, if there is one, with its kernels compiled.
    async fn head(
        context: &Context,
        (config, weights): (&Config, &Weights),
        scoring: Option<&Scoring>,
    ) -> Result<Option<Classifier>> {
        let Some(Scoring { by: ScoredBy::Head(head), .. }) = scoring else { return Ok(None) };
        let classifier = Classifier::new(context, config, weights, head)?;
        let vectors = zeros(context, config.n_embd)?;
        context.prepare(|| classifier.run(&vectors)).await?;
        Ok(Some(classifier))
    }

    /// Loads a second, smaller model with the same vocabulary on the same device. It drafts for requests with
    /// `speculation: {"type": "draft_model"}`. Call it before the first request. After an error the engine is disposed of.
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
                *inner.decoder()?.draft_model.borrow_mut() = Some(model);
                inner.info.draft = Some(info);
                Ok(())
            }
            None => bail!(InvalidRequest, "a draft model is loaded before the first request"),
        });
        match added {
            Ok(()) => Ok(self),
            Err(error) => {
                let error = self.0.explain(error);
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
        if inner.decoder()?.transformer.has_encoder() {
            bail!(
                InvalidRequest,
                "the model ({}) has an encoder, so that a draft model would not know its prompt; leave draft out",
                inner.info.architecture
            );
        }
        inner.info.per_layer_embeddings.check_draft()?;
        progress(Progress { phase: Phase::Header, loaded: 0, total: 0 })?;
        let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
        let total = checkpoint.file_bytes();
        draft_vocabulary::check_vocabulary(&inner.tokenizer, &ModelText::of(&checkpoint)?.tokenizer)?;
        let mut on_bytes = |loaded: u64, of: u64| {
            let left = of.saturating_sub(loaded);
            progress(Progress { phase: Phase::Weights, loaded: total.saturating_sub(left), total })
        };
        let config = Config::of(&checkpoint)?;
        if config.arch.is_encoder || config.encoder.is_some() {
            bail!(
                InvalidRequest,
                "the draft model ({}) is an encoder or has one, wanted a model that goes on with a text",
                config.arch.name
            );
        }
        let (context, own) = (&inner.context, &inner.info);
        // Its context is as long as the model's, unless it was trained for less.
        let capacity = own.context_length.min(config.context_length);
        let weights = Weights::load(context, &checkpoint, &config, &inner.layout, &mut on_bytes).await?;
        let transformer = Transformer::new(context, config, &weights, capacity, own.precision)?;
        let new_cache = || transformer.layer_states(capacity, 1, own.kv_cache);
        let cache = context.device().attempt("the draft model's KV cache", new_cache).await?;
        let info = DraftInfo {
            architecture: transformer.config().arch.name.to_owned(),
            parameters: transformer.parameters(),
            quantization: transformer.quantization().to_uppercase(),
            weight_bytes: transformer.weight_bytes(),
            kv_cache_bytes: cache.bytes(),
        };
        let model = DraftModel::new(transformer, cache, capacity).await?;
        progress(Progress { phase: Phase::Ready, loaded: total, total })?;
        Ok((model, info))
    }
}

/// The size of the files that hold a model's tensors, by their headers.
pub async fn file_bytes(folder: &dyn Folder, file: Option<&str>) -> Result<u64> {
    let checkpoint = Checkpoint::open(folder, file).await.map_err(|error| about(&folder.name(), error))?;
    Ok(checkpoint.file_bytes())
}

/// A vector of a text, for kernels that are compiled.
fn zeros(context: &Context, width: usize) -> Result<Tensor> {
    context.tensor(&HostTensor::f32(&[1, width], &vec![0.0; width]))
}

/// Names the source in an error that doesn't name it yet.
pub(super) fn about(name: &str, error: Error) -> Error {
    if error.message().contains(name) { error } else { error.context(name) }
}
