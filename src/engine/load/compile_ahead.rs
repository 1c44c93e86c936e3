//! Compiles kernels while a model's weights are still on their way: the network is waited for anyway, and where the weights come from
//! a cache, uploads and compilation take different threads of the browser.
//!
//! What is compiled follows from steps on weights that are not there yet: the same that a session records, and what
//! autotuning will compare.

use std::cell::Cell;
use std::future::Future;

use futures_util::future::join;

use super::autotune;
use super::options::LoadOptions;
use crate::error::{Code, Result};
use crate::model::{KvFormat, Logits, Transformer};
use crate::sampler::{Features, RING, Sampler, Target};
use crate::tensor::{self, Context, Desc, StoredTunings};

/// Tokens of the prompts that are looked at: kernels for a few tokens are others than those for many.
const PROMPTS: [usize; 2] = [2, 256];

/// Runs `load` and compiles meanwhile. When `load` is done, only what is being compiled right then is waited for.
pub async fn beside<T>(
    load: impl Future<Output = Result<T>>,
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
    options: &LoadOptions,
) -> Result<T> {
    let is_loaded = Cell::new(false);
    let load = async {
        let loaded = load.await;
        is_loaded.set(true);
        loaded
    };
    let (loaded, compiled) = join(load, compile(context, transformer, capacity, kv_format, options, &is_loaded)).await;
    let loaded = loaded?;
    match compiled {
        // Whoever uses the kernel next is told, and by what name.
        Err(error) if error.code() == Code::ShaderCompilation => {}
        compiled => compiled?,
    }
    Ok(loaded)
}

async fn compile(
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
    options: &LoadOptions,
    is_loaded: &Cell<bool>,
) -> Result<()> {
    let stored = StoredTunings::new(options.tunings.as_deref(), context);
    let subjects = match autotune::skipped(context, options) {
        None => autotune::subjects(context, transformer, capacity, kv_format)?,
        Some(_) => Vec::new(),
    };
    let new = tensor::take_over(context, &subjects, &stored);
    let steps = || {
        let cache = transformer.layer_states(capacity, 1, kv_format)?;
        let target = Target {
            state: context.zeros(Desc::u32(&[4]))?,
            token: context.zeros(Desc::u32(&[1]))?,
            ring: context.zeros(Desc::u32(&[RING]))?,
        };
        let logits = transformer.forward(&target.token, &target.state, &cache, Logits::Last)?;
        Sampler::new(context, target.clone())?.choose(context, &logits, Features::PLAIN, 1, true)?;
        for tokens in PROMPTS.into_iter().filter(|tokens| *tokens <= capacity) {
            let prompt = context.empty(Desc::u32(&[tokens]), "prompt")?;
            transformer.forward(&prompt, &target.state, &cache, Logits::Last)?;
        }
        Ok(())
    };
    context.prepare(steps).await?;
    tensor::compile_ahead(context, &new, &|| is_loaded.get()).await
}
