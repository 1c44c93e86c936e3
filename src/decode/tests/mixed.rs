//! Requests of every kind at once: each gives the same tokens as alone.

use std::cell::RefCell;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};

use super::*;
use crate::decode::constraint::{Advance, Constraint, TokenBytes};
use crate::decode::grammar::Mode;

/// Five even tokens, then three forced ones, again and again.
#[derive(Clone)]
struct Evens(usize);

const FORCED: [u32; 3] = [9, 11, 13];

impl Evens {
    fn forced(&self) -> &'static [u32] {
        match self.0 % 8 {
            at @ 5..=7 => &FORCED[at - 5..],
            _ => &[],
        }
    }
}

impl Constraint for Evens {
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance> {
        let mut taken = 0;
        for token in tokens {
            let is_allowed = self.forced().first().map_or(token % 2 == 0, |forced| forced == token);
            if !is_allowed {
                break;
            }
            (self.0, taken) = (self.0 + 1, taken + 1);
        }
        Ok(Advance { taken, forced: self.forced().to_vec(), is_complete: false })
    }

    fn mask(&mut self, bits: &mut [u32]) -> Result<()> {
        bits.fill(0x5555_5555);
        Ok(())
    }

    fn fork(&self) -> Result<Option<Box<dyn Constraint>>> {
        Ok(Some(Box::new(self.clone())))
    }
}

struct NoText;

impl TokenBytes for NoText {
    fn bytes(&self, _: u32) -> &[u8] {
        &[]
    }
}

/// Lowers every third logit, after a while.
struct Slowly {
    polls: usize,
    steps: RefCell<Vec<usize>>,
}

impl LogitsProcessor for Slowly {
    fn process(&self, mut logits: Vec<f32>, _: Vec<u32>, step: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        self.steps.borrow_mut().push(step);
        let mut polls = self.polls;
        async move {
            std::future::poll_fn(|task| {
                if polls == 0 {
                    return std::task::Poll::Ready(());
                }
                polls -= 1;
                task.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
            for token in (0..logits.len()).step_by(3) {
                logits[token] -= 2.0;
            }
            Ok(Some(logits))
        }
        .boxed_local()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Plain,
    Ahead,
    Single,
    AnyMode,
    Lookup,
    LookupUnderGrammar,
    Processor,
    ProcessorUnderGrammar,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Plain,
    Kind::Ahead,
    Kind::Processor,
    Kind::Lookup,
    Kind::Single,
    Kind::ProcessorUnderGrammar,
    Kind::LookupUnderGrammar,
    Kind::AnyMode,
];

pub(super) fn methods(kind: Kind, vocab_size: usize) -> Methods {
    let grammar = |mode| Grammar {
        cursor: GrammarCursor { constraint: Box::new(Evens(0)), known: KnownMasks::default() },
        vocabulary: Rc::new(NoText),
        vocab_size,
        mode,
    };
    let lookup = Speculation::PromptLookup(PromptLookup { max_tokens: 4, min_ngram: 1 });
    let processor = || Rc::new(Slowly { polls: 3, steps: RefCell::default() });
    match kind {
        Kind::Plain => Methods::default(),
        Kind::Ahead => Methods { grammar: Some(grammar(Some(Mode::Ahead))), ..Methods::default() },
        Kind::Single => Methods { grammar: Some(grammar(Some(Mode::StepByStep(None)))), ..Methods::default() },
        Kind::AnyMode => Methods { grammar: Some(grammar(None)), ..Methods::default() },
        Kind::Lookup => Methods { speculation: Some(lookup), ..Methods::default() },
        Kind::LookupUnderGrammar => {
            Methods { speculation: Some(lookup), grammar: Some(grammar(None)), ..Methods::default() }
        }
        Kind::Processor => Methods { processor: Some(processor()), ..Methods::default() },
        Kind::ProcessorUnderGrammar => {
            Methods { processor: Some(processor()), grammar: Some(grammar(None)), ..Methods::default() }
        }
    }
}

pub(super) fn prompt(index: usize) -> Vec<u32> {
    (0..3 + 7 * index as u32).map(|at| (at * at * 3 + index as u32 * 17) % 250).collect()
}

pub(super) fn begin(decoder: &Rc<Decoder>, index: usize, kind: Kind) -> SequenceHandle {
    let (settings, vocab_size) = (SamplingParams::greedy(), decoder.transformer.config().vocab_size);
    start(decoder, &prompt(index), &settings, 30 + 5 * index, methods(kind, vocab_size)).unwrap().sequence
}

#[test]
fn each_kind_gives_beside_the_others_what_it_gives_alone() {
    let decoder = tiny(8);
    let alone: Vec<Vec<u32>> =
        KINDS.iter().enumerate().map(|(index, kind)| rest(&begin(&decoder, index, *kind)).unwrap()).collect();
    // A grammar gives the same answer in every mode, and with drafts.
    for kind in [Kind::Ahead, Kind::Single, Kind::AnyMode, Kind::LookupUnderGrammar] {
        let by_step = rest(&begin(&decoder, 2, Kind::Single)).unwrap();
        assert_eq!(rest(&begin(&decoder, 2, kind)).unwrap(), by_step, "{kind:?}");
    }
    assert_eq!(rest(&begin(&decoder, 3, Kind::Plain)).unwrap(), alone[3], "a draft changes nothing");
    for chosen in [vec![0, 1], vec![0, 2], vec![2, 3], vec![0, 1, 2, 3], vec![4, 5], vec![1, 6, 7], (0..8).collect()] {
        let running: Vec<(usize, SequenceHandle)> =
            chosen.iter().map(|index| (*index, begin(&decoder, *index, KINDS[*index]))).collect();
        let given = pollster::block_on(join_all(running.iter().map(|(_, sequence)| all(sequence))));
        for ((index, _), given) in running.iter().zip(given) {
            assert_eq!(given.unwrap(), alone[*index], "{:?} of {chosen:?}", KINDS[*index]);
        }
    }
    assert_eq!(decoder.scheduler.borrow().members.len(), 0);
}

/// Sequences are read in turns and dropped half-way, in every order. The remaining ones give the same tokens as alone.
#[test]
fn whoever_is_dropped_in_the_middle_holds_nobody_up() {
    let decoder = tiny(4);
    let kinds = [Kind::Plain, Kind::Ahead, Kind::Processor, Kind::Lookup];
    let alone: Vec<Vec<u32>> =
        kinds.iter().enumerate().map(|(index, kind)| rest(&begin(&decoder, index, *kind)).unwrap()).collect();
    for dropped in 0..kinds.len() {
        for rounds in [0, 1, 3] {
            let mut running: Vec<(usize, SequenceHandle, Vec<u32>)> =
                kinds.iter().enumerate().map(|(index, kind)| (index, begin(&decoder, index, *kind), vec![])).collect();
            for _ in 0..rounds {
                for (_, sequence, tokens) in &mut running {
                    if let Tokens::Some(next) = pollster::block_on(sequence.next()).unwrap() {
                        tokens.extend(next.iter().map(|sampled| sampled.token));
                    }
                }
            }
            // One waits and gives up. The others still get the result that it waited for.
            let abandoned = running[dropped].1.next();
            let mut abandoned = Box::pin(abandoned);
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = abandoned.as_mut().poll(&mut task);
            drop(abandoned);
            running.remove(dropped);
            for (index, sequence, mut tokens) in running {
                tokens.extend(rest(&sequence).unwrap());
                assert_eq!(tokens, alone[index], "{:?} without {:?}", kinds[index], kinds[dropped]);
            }
        }
    }
}

#[test]
fn requests_of_every_kind_share_forward_passes() {
    let decoder = tiny(4);
    let stats = || decoder.context.device().stats();
    let kinds = [Kind::Plain, Kind::Single, Kind::Processor];
    let dispatches = |kinds: &[(usize, Kind)]| {
        let before = stats().dispatches;
        let running: Vec<SequenceHandle> = kinds.iter().map(|(index, kind)| begin(&decoder, *index, *kind)).collect();
        for given in pollster::block_on(join_all(running.iter().map(all))) {
            given.unwrap();
        }
        stats().dispatches - before
    };
    let all: Vec<(usize, Kind)> = kinds.iter().copied().enumerate().collect();
    let together = dispatches(&all);
    let warm = dispatches(&all);
    let apart: u64 = all.iter().map(|one| dispatches(&[*one])).sum();
    assert!(warm <= together && warm < apart, "{together}, then {warm} together and {apart} one after the other");
}
