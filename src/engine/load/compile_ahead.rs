//! Compiles kernels while a model's weights are still arriving. A network has to be waited for anyway; if the weights come from a cache,
//! uploads and compilation use different threads of the browser.
//!
//! It runs steps on weights that are not there yet, the same that a session records, and compiles what these need and what autotuning
//! will compare.

use std::cell::Cell;
use std::future::Future;

use futures_util::future::join;

use super::autotune;
use super::options::LoadOptions;
use crate::error::{Code, Result};
use crate::model::{KvFormat, Logits, Transformer};
use crate::sampler::{Features, RING, Sampler, Target};
use crate::tensor::{self, Context, Desc, StoredTunings};

/// Lengths of the prompts that are tried, in tokens: a few tokens take other kernels than many.
const PROMPTS: [usize; 2] = [2, 256];

/// Runs `load` and compiles meanwhile. When `load` is done, it waits only for what is being compiled then; nothing begins
/// to compile for a load that has failed.
pub async fn beside<T>(
    load: impl Future<Output = Result<T>>,
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
    options: &LoadOptions,
) -> Result<T> {
    let (is_loaded, has_failed) = (Cell::new(false), Cell::new(false));
    let load = async {
        let loaded = load.await;
        is_loaded.set(true);
        has_failed.set(loaded.is_err());
        loaded
    };
    let compile = async {
        if has_failed.get() {
            return Ok(());
        }
        compile(context, transformer, capacity, kv_format, options, &is_loaded).await
    };
    let (loaded, compiled) = join(load, compile).await;
    let loaded = loaded?;
    match compiled {
        // The next use of the kernel reports it, with the kernel's name.
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
        if transformer.has_encoder() {
            transformer.encode(&[0; 2], &cache)?;
        }
        Ok(())
    };
    context.prepare(steps).await?;
    tensor::compile_ahead(context, &new, &|| is_loaded.get()).await
}
