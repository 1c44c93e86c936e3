//! What a load does with a model, decided by its headers alone. A load carries the plan out and an inspection tells of it, so what one
//! refuses the other has told.
//!
//! Knows no device, only what one is capable of.

use super::generation_config::AnswerDefaults;
use super::info::Warning;
use super::model_text::ModelText;
use super::options::{LoadOptions, PerLayerEmbeddings, capacity, layout, rope_context};
use crate::decode::MAX_SEQUENCES;
use crate::engine::api::chat_prompt::Templates;
use crate::engine::scoring::Scoring;
use crate::error::Result;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;
use crate::model::state::{RecurrentStates, StateSize};
use crate::model::{Embeds, KvFormat, LayerStates, Layout, Precision};
use crate::tensor::Capabilities;
use crate::text::tokenizer::Tokenizer;

/// What is loaded, and how.
pub(super) struct Plan {
    pub config: Config,
    pub tokenizer: Tokenizer,
    pub templates: Templates,
    /// Chats are not written in ChatML for want of a template.
    pub has_chat_template: bool,
    pub embeds: Embeds,
    /// How the model scores or labels texts; `None` if it doesn't.
    pub scoring: Option<Scoring>,
    /// It makes text.
    pub generates: bool,
    /// What the files of an encoder-decoder say of its answers.
    pub answer_defaults: AnswerDefaults,
    /// Tokens of a context.
    pub capacity: usize,
    pub max_sequences: usize,
    pub layout: Layout,
    pub precision: Precision,
    pub kv_format: KvFormat,
    pub warnings: Vec<Warning>,
}

/// What is known of a model. After an error it is what was found before that.
#[derive(Default)]
pub(super) struct Known {
    pub config: Option<Config>,
    /// Bytes of the weights on the GPU.
    pub weight_bytes: Option<u64>,
    /// Bytes of the table of per-layer embeddings on the GPU.
    pub per_layer_embedding_bytes: Option<u64>,
    /// Tokens of a context.
    pub capacity: Option<usize>,
    /// Bytes of the KV cache on the GPU.
    pub kv_cache_bytes: Option<u64>,
    /// What a token more takes of it.
    pub kv_cache_bytes_per_token: Option<u64>,
    /// The most bytes of checkpoints of recurrent states.
    pub recurrent_checkpoint_bytes: Option<u64>,
}

impl Plan {
    /// The plan for an adapter, or for any without its capabilities. An error is what the load ends in.
    pub fn of(
        checkpoint: &Checkpoint<'_>,
        options: &LoadOptions,
        adapter: Option<&Capabilities>,
        known: &mut Known,
    ) -> Result<Self> {
        let (precision, kv_format) = (options.precision_on(adapter), options.kv_format_on(adapter));
        let max_sequences = options.max_sequences.unwrap_or(1);
        let mut config = Config::of(checkpoint)?;
        config.rope_context = rope_context(options.rope_context_length, &config)?;
        if options.multi_token_prediction {
            known.config = Some(config.clone());
            config = config.with_mtp(checkpoint)?;
        }
        known.config = Some(config.clone());
        let layout = layout(options)?;
        known.per_layer_embedding_bytes = Some(layout.per_layer_bytes(checkpoint, &config, adapter)?);
        if options.per_layer_embeddings == PerLayerEmbeddings::Disk {
            config = config.with_row_cache(checkpoint, options.per_layer_cache_rows)?;
        }
        let weights = layout.needs(checkpoint, &config, adapter)?;
        known.weight_bytes = Some(weights.bytes);
        // Otherwise as much of it as goes is taken, and stays taken.
        if let Some(most) = adapter.and_then(|adapter| adapter.max_memory).filter(|most| weights.bytes > *most) {
            bail!(
                OutOfMemory,
                "the weights take {} bytes, and here the CPU has {most} at most; use a smaller model, or one in fewer bits",
                weights.bytes
            );
        }
        let capacity = capacity(options.context_length, &config)?;
        known.capacity = Some(capacity);
        if !(1..=MAX_SEQUENCES).contains(&max_sequences) {
            bail!(InvalidRequest, "maxSequences is {max_sequences}, wanted 1 to {MAX_SEQUENCES}");
        }
        let needs = |capacity, sequences| {
            let size = StateSize { capacity, sequences, format: kv_format };
            if config.arch.is_encoder { (0, 0) } else { LayerStates::needs(&config, size) }
        };
        let (kv_bytes, kv_binding) = needs(capacity, max_sequences);
        // Recurrent states are the same for every length, and blocks share words.
        const TOKENS: usize = 128;
        known.kv_cache_bytes_per_token = Some((needs(2 * TOKENS, 1).0 - needs(TOKENS, 1).0) / TOKENS as u64);
        known.kv_cache_bytes = Some(kv_bytes);
        known.recurrent_checkpoint_bytes = Some(RecurrentStates::checkpoint_needs(&config, max_sequences));
        config.check_ropes(checkpoint, config.rope_context.unwrap_or(capacity))?;

        let ModelText { tokenizer, chat_templates } = ModelText::of(checkpoint)?;
        if tokenizer.vocab_size() > config.vocab_size {
            bail!(
                InvalidFile,
                "the tokenizer has {} tokens and the model {}",
                tokenizer.vocab_size(),
                config.vocab_size
            );
        }
        let scoring = Scoring::of(checkpoint, &config, options, (&chat_templates, &tokenizer))?;
        let generates = !config.arch.is_encoder && config.labels == 0 && !checkpoint.is_without_output()?;
        let (templates, has_chat_template, mut warnings) =
            Templates::of(&chat_templates, options.chat_template.as_deref(), generates && config.encoder.is_none())?;
        let answer_defaults = AnswerDefaults::of(checkpoint, &config)?;
        let embeds = Embeds::of(checkpoint, config.arch.is_encoder, scoring.is_some())?;
        if !generates && scoring.is_none() && embeds.pooling.is_none() {
            bail!(
                MissingTensor,
                "config.json says tie_word_embeddings: false, and there is no tensor \"lm_head.weight\"; the files do not say how \
                 embeddings are made of it either"
            );
        }
        warnings.extend(checkpoint.ignored_head()?.map(Warning::ignored_head));
        warnings.extend(checkpoint.ignored_parts()?.map(Warning::ignored_parts));
        if config.further_layers > 0 && config.mtp.is_none() {
            let option = if config.arch.predicts_further { ", which multiTokenPrediction loads" } else { "" };
            let layers = format!("{} layers of multi-token prediction{option}", config.further_layers);
            warnings.push(Warning::ignored_parts(&layers));
        }

        let bindings = [
            (&*weights.largest, weights.largest_binding, weights.largest_buffer),
            ("the KV cache of a layer", kv_binding, kv_binding),
        ];
        for (what, binding, buffer) in bindings {
            let Some(adapter) = adapter else { continue };
            if binding > adapter.max_storage_binding_size || buffer > adapter.max_buffer_size {
                bail!(
                    AdapterLimits,
                    "{what} takes {binding} bytes in one binding and {buffer} in one buffer, and this adapter allows {} and {}",
                    adapter.max_storage_binding_size,
                    adapter.max_buffer_size
                );
            }
        }
        Ok(Self {
            config,
            tokenizer,
            templates,
            has_chat_template,
            embeds,
            scoring,
            generates,
            answer_defaults,
            capacity,
            max_sequences,
            layout,
            precision,
            kv_format,
            warnings,
        })
    }
}
