//! Tests of the decode loop on a tiny model.

mod grammar;
mod mixed;
mod slot;

use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::error::Result;
use crate::model::checkpoint::Checkpoint;
use crate::model::config::Config;
use crate::model::folder::OneFile;
use crate::model::source::MemorySource;
use crate::model::{KvCache, KvFormat, Layout, Precision, Transformer, Weights};
use crate::sampler::{Ending, SamplingParams, TokenRules};
use crate::tensor::{Context, Device, DeviceOptions};

/// Tokens that a sequence has room for.
const CAPACITY: usize = 192;

/// A decoder of so many sequences.
fn tiny(max_sequences: usize) -> Rc<Decoder> {
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
        let cache = KvCache::new(&context, transformer.config(), CAPACITY, max_sequences, KvFormat::F16).unwrap();
        Decoder::new(&context, transformer, cache, CAPACITY, max_sequences).await.unwrap()
    })
}

/// A sequence, and the state of its grammar.
struct Started {
    sequence: SequenceHandle,
    grammar: Option<Rc<std::cell::RefCell<GrammarState>>>,
}

/// Prefills a prompt, and begins to decode.
fn start(
    decoder: &Rc<Decoder>,
    prompt: &[u32],
    sampler: &SamplingParams,
    longest: usize,
    methods: Methods,
) -> Result<Started> {
    let rules = Rc::new(TokenRules { answer_start: prompt.len(), ..TokenRules::default() });
    let params = SequenceParams {
        sampler: *sampler,
        rules,
        ending: Ending { stops: vec![], steps: longest },
        context_shift: None,
        logprobs: None,
        masked: methods.grammar.is_some(),
    };
    let last = prompt[prompt.len() - 1];
    let asked = Prompt { tokens: prompt, forced: 0, is_reproducible: true, logprobs: None };
    let prefilled = pollster::block_on(decoder.prefill(&asked, &params, None))?;
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
