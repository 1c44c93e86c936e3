//! Autotuning at load: which steps of a model are looked at, whether that is wanted, and what the caller hears of it.

use web_time::Duration;

use super::info::{AutotuneInfo, AutotuneState};
use super::options::{Autotune, LoadOptions};
use crate::error::Result;
use crate::model::{KvFormat, Logits, Transformer};
use crate::tensor::{self, Context, DeviceClock, HostTensor, StoredTunings, Subject, Tensor, TuningReport};

/// What all of it may take, less what the last step that was begun may take longer than expected: a second in all.
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

/// What there is to compare of a model.
pub(super) fn subjects(
    context: &Context,
    transformer: &Transformer,
    capacity: usize,
    kv_format: KvFormat,
) -> Result<Vec<Subject>> {
    let positions = capacity.min(POSITIONS);
    let prompt = positions.min(PROMPT);
    // A step allocates in a rehearsal what it needs no memory for; the state says how far kernels read, so it is real.
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

/// Tunes the kernels of a model whose weights are on the GPU, as far as `options` want it. Returns what was done, and what is to
/// be kept if something new was found.
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
    // What it ran on is of other sizes than what a session needs.
    context.device().trim();
    let state = if report.left == 0 { AutotuneState::Done } else { AutotuneState::Partial };
    Ok((AutotuneInfo { state, report }, stored.into_text()))
}
