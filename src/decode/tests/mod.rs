//! Tests of the decode loop on a tiny model.

mod grammar;
mod hostile;
mod memory;
mod mixed;
mod prompt_cache;
mod recurrent;
mod slot;

use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::error::Result;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;
use crate::model::folder::OneFile;
use crate::model::source::MemorySource;
use crate::model::{KvFormat, Layout, Precision, Transformer, Weights};
use crate::sampler::{Ending, SamplingParams, TokenRules};
use crate::tensor::{CacheStats, Context, Device, DeviceOptions};

/// How many tokens fit into a sequence.
const CAPACITY: usize = 192;

/// Bytes of the prompt cache.
const PROMPT_CACHE: u64 = 1 << 20;

/// A decoder with a number of sequences.
fn tiny(max_sequences: usize) -> Rc<Decoder> {
    tiny_with(max_sequences, KvFormat::F16, |transformer| transformer)
}

fn tiny_with(max_sequences: usize, format: KvFormat, change: impl FnOnce(Transformer) -> Transformer) -> Rc<Decoder> {
    tiny_that_tells(max_sequences, format, PressureListener::default(), change)
}

fn tiny_that_tells(
    max_sequences: usize,
    format: KvFormat,
    listener: PressureListener,
    change: impl FnOnce(Transformer) -> Transformer,
) -> Rc<Decoder> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny_llama/tied-q4_0.gguf");
    let source = MemorySource::new(std::fs::read(path).unwrap());
    pollster::block_on(async {
        let context = Context::new(Device::request(&DeviceOptions::default()).await.unwrap());
        let folder = OneFile(&source);
        let checkpoint = Checkpoint::open(&folder, None).await.unwrap();
        let config = Config::of(&checkpoint).unwrap();
        let layout = Layout { join: true, quantize: None };
        let weights = Weights::load(&context, &checkpoint, &config, &layout, &mut |_, _| Ok(())).await.unwrap();
        let transformer = Transformer::new(&context, config, &weights, CAPACITY, Precision::Exact).unwrap();
        let transformer = change(transformer);
        let cache = transformer.layer_states(CAPACITY, max_sequences, format).unwrap();
        let decoder =
            Decoder::new(&context, transformer, cache, CAPACITY, max_sequences, PROMPT_CACHE, listener).await.unwrap();
        // Also where these tests have the CPU, which does not by itself.
        decoder.scheduler.borrow_mut().set_at_once(false);
        decoder
    })
}

/// A sequence, and the state of its grammar.
struct Started {
    sequence: SequenceHandle,
    grammar: Option<Rc<std::cell::RefCell<GrammarState>>>,
}

/// The parameters and the prompt of an answer.
fn asked<'a>(
    prompt: &'a [u32],
    sampler: &SamplingParams,
    longest: usize,
    masked: bool,
) -> (SequenceParams, Prompt<'a>) {
    let params = SequenceParams {
        sampler: *sampler,
        rules: Rc::new(TokenRules { answer_start: prompt.len(), ..TokenRules::default() }),
        ending: Ending { stops: vec![], steps: longest },
        context_shift: None,
        logprobs: None,
        masked,
    };
    let prompt = Prompt {
        tokens: prompt,
        source: None,
        forced: 0,
        is_reproducible: false,
        logprobs: None,
        adapters: AdapterSet::default(),
        canceller: Canceller::default(),
    };
    (params, prompt)
}

/// Prefills a prompt and begins to decode.
fn start(
    decoder: &Rc<Decoder>,
    prompt: &[u32],
    sampler: &SamplingParams,
    longest: usize,
    methods: Methods,
) -> Result<Started> {
    let (params, asked) = asked(prompt, sampler, longest, methods.grammar.is_some());
    let asked = Prompt { is_reproducible: true, ..asked };
    let last = prompt[prompt.len() - 1];
    let prefilled = pollster::block_on(decoder.prefill(&asked, &params, None, &Patience::Fails))?.unwrap();
    let (sequence, grammar) = decoder.start(prefilled, params, last, 0, methods)?;
    Ok(Started { sequence, grammar })
}

/// All tokens up to the end.
async fn all(sequence: &SequenceHandle) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    while let Tokens::Some(next) = sequence.next().await? {
        tokens.extend(next.iter().map(|sampled| sampled.token));
    }
    Ok(tokens)
}

fn rest(sequence: &SequenceHandle) -> Result<Vec<u32>> {
    pollster::block_on(all(sequence))
}
