//! Autotuning at load: which steps of a model are measured, whether that is wanted, and what the caller is told.

use web_time::Duration;

use super::info::{AutotuneInfo, AutotuneState};
use super::options::{Autotune, LoadOptions};
use crate::error::Result;
use crate::model::{KvFormat, Logits, Transformer};
use crate::tensor::{self, Context, DeviceClock, HostTensor, StoredTunings, Subject, Tensor, TuningReport};

/// After this time nothing new begins. With the time that the last step may still take, all ends within a second.
const BUDGET: Duration = Duration::from_millis(750);

/// Positions of the context that attention is measured with.
const POSITIONS: usize = 1024;

/// Tokens of the prompt that products are measured with.
const PROMPT: usize = 256;

/// Why nothing is compared, if so.
pub(super) fn skipped(context: &Context, options: &LoadOptions) -> Option<AutotuneState> {
    match options.autotune {
        Autotune::Off => Some(AutotuneState::Off),
        Autotune::Auto if context.device().capabilities().software => Some(AutotuneState::Software),
        _ => None,
    }
}

/// The ops of a model that have variants to compare.
pub(super) fn subjects(
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
) -> Result<Vec<Subject>> {
    let positions = capacity.min(POSITIONS);
    let prompt = positions.min(PROMPT);
    // A rehearsed step's tensors take no memory. The state is real, because it says how far kernels read.
    let state = |position: usize| context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0]));
    let tokens = |count: usize| context.tensor(&HostTensor::u32(&[count], &vec![0; count]));
    let (last, first) = (state(positions - 1)?, state(0)?);
    let (token, prompt) = (tokens(1)?, tokens(prompt)?);
    let step = |tokens: &Tensor, state: &Tensor| {
        let cache = transformer.layer_states(positions, 1, kv_format)?;
        transformer.forward(tokens, state, &cache, Logits::Last).map(|_| ())
    };
    let decode = || step(&token, &last);
    let prefill = || step(&prompt, &first);
    tensor::survey(context, &[&decode, &prefill])
}

/// Tunes the kernels of a model whose weights are on the GPU, if `options` want that. Returns what was done, and the text to keep if
/// something new was found.
pub(super) async fn run(
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
    options: &LoadOptions,
) -> Result<(AutotuneInfo, Option<String>)> {
    if let Some(state) = skipped(context, options) {
        return Ok((AutotuneInfo { state, report: TuningReport::default() }, None));
    }
    let clock = DeviceClock::start();
    let subjects = subjects(context, transformer, capacity, kv_format)?;
    let mut stored = StoredTunings::new(options.tunings.as_deref(), context);
    let report = tensor::Autotune::new(context, &clock, BUDGET).run(&subjects, &mut stored).await;
    drop(subjects);
    // Its buffers, and those of its read-backs, are of other sizes than those that requests need.
    context.device().free_unused().await?;
    let state = if report.left == 0 { AutotuneState::Done } else { AutotuneState::Partial };
    Ok((AutotuneInfo { state, report }, stored.into_text()))
}
