//! A second, smaller model that drafts what the first may say (speculative decoding; Leviathan et al. 2023, Chen et al. 2023). Its
//! greedy tokens stay on the GPU until the first model has verified them.

use std::rc::Rc;

use web_time::Instant;

use super::load::info::DraftInfo;
use super::loaded::common_prefix;
use super::prefill_pace::PrefillPace;
use super::session::Session;
use crate::error::Result;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;
use crate::model::{KvCache, KvFormat, Layout, Logits, Precision, Transformer, Weights};
use crate::sampler::{Ending, SamplerSettings};
use crate::tensor::{Context, Tensor};
use crate::text::tokenizer::Tokenizer;

/// Up to so many tokens are taken in one by one, by the step that is recorded anyway.
const FEW_TOKENS: usize = 4;

/// Token lists of one family differ by what fills them up to a round number; so many tokens at their end.
const PADDING: usize = 256;

pub struct DraftModel {
    transformer: Transformer,
    session: Session,
    pace: PrefillPace,
}

impl DraftModel {
    /// Loads the weights. Its context is as long as `capacity`, if it was trained for that.
    pub async fn load(
        context: &Context,
        checkpoint: &Checkpoint<'_>,
        capacity: usize,
        precision: Precision,
        kv_format: KvFormat,
        layout: &Layout,
        on_bytes: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<(Self, DraftInfo)> {
        let config = Config::of(checkpoint)?;
        if config.arch.is_encoder {
            bail!(
                InvalidRequest,
                "the draft model ({}) is an encoder, wanted one that goes on with a text",
                config.arch.name
            );
        }
        let capacity = capacity.min(config.context_length);
        let weights = Weights::load(context, checkpoint, &config, layout, on_bytes).await?;
        let transformer = Transformer::new(context, config, &weights, capacity, precision)?;
        let cache = KvCache::new(context, transformer.config(), capacity, 1, kv_format)?;
        let info = DraftInfo {
            architecture: transformer.config().arch.name.to_owned(),
            parameters: transformer.parameters(),
            quantization: transformer.quantization().to_uppercase(),
            weight_bytes: transformer.weight_bytes(),
            kv_cache_bytes: cache.bytes(),
        };
        let mut session = Session::new(context, cache, capacity, 0)?;
        let unending = Ending { stops: vec![], steps: usize::MAX };
        session.configure(&transformer, &SamplerSettings::greedy(), &Rc::default(), &unending).await?;
        Ok((Self { transformer, session, pace: PrefillPace::default() }, info))
    }

    /// Lets the GPU draft `count` tokens that may follow `sequence` and then `last`: they stand at the beginning of the tensor that
    /// comes back. `None` where it can't: beyond its context, or after tokens that it does not know.
    pub async fn draft(&mut self, sequence: &[u32], last: u32, count: usize) -> Result<Option<Tensor>> {
        let (session, transformer) = (&mut self.session, &self.transformer);
        let known = transformer.config().vocab_size;
        // The last draft is not taken in.
        if sequence.len() + count > session.capacity() || last as usize >= known {
            return Ok(None);
        }
        session.truncate(common_prefix(session.tokens(), sequence));
        let missing = &sequence[session.tokens().len()..];
        if missing.iter().any(|id| *id as usize >= known) {
            return Ok(None);
        }
        if missing.len() <= FEW_TOKENS {
            for id in missing {
                session.take_in(transformer, *id)?;
            }
        } else {
            let mut done = 0;
            while done < missing.len() {
                let begin = Instant::now();
                let tokens = self.pace.part_of(missing.len() - done, true);
                session.forward(transformer, &missing[done..done + tokens], Logits::None)?;
                done += tokens;
                transformer.context().device().sync().await?;
                self.pace.took(tokens, begin.elapsed());
            }
        }
        let context = transformer.context();
        session.resume(context, last, 0)?;
        session.decoded(last);
        for _ in 0..count {
            session.step(context)?;
        }
        Ok(Some(session.ring().clone()))
    }

    /// So many of its `draft` were right. All but the last have been taken in.
    pub fn accepted(&mut self, draft: &[u32], count: usize) {
        for token in &draft[..count.min(draft.len().saturating_sub(1))] {
            self.session.decoded(*token);
        }
    }

    /// After an error: what its cache holds is not known.
    pub fn forget(&mut self) {
        self.session.forget();
    }
}

/// Refuses a draft model whose tokens are others: its drafts would be other text.
pub fn check_vocabulary(own: &Tokenizer, drafts: &Tokenizer) -> Result<()> {
    let (own_size, draft_size) = (own.vocab_size(), drafts.vocab_size());
    if own_size.abs_diff(draft_size) > PADDING {
        bail!(
            VocabularyMismatch,
            "the draft model has {draft_size} tokens and the model {own_size}; a draft model must have the model's vocabulary, as \
             smaller models of one family do"
        );
    }
    for id in 0..own_size.min(draft_size) as u32 {
        let (own_bytes, draft_bytes) = (own.token_bytes_with_control(id)?, drafts.token_bytes_with_control(id)?);
        if own_bytes != draft_bytes || own.is_control(id) != drafts.is_control(id) {
            bail!(
                VocabularyMismatch,
                "token {id} is {:?} in the draft model and {:?} in the model; a draft model must have the model's vocabulary, as \
                 smaller models of one family do",
                String::from_utf8_lossy(draft_bytes),
                String::from_utf8_lossy(own_bytes)
            );
        }
    }
    Ok(())
}
