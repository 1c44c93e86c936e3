//! What nobody means to do: everything at its limit, stopped half-way, called from within, or without a device.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, join_all};

use super::mixed::{Kind, begin, methods, prompt};
use super::*;
use crate::Code;

/// As many sequences as a batch has rows, all with the longest drafts.
#[test]
fn eight_sequences_with_drafts_give_what_each_gives_alone() {
    let decoder = tiny(MAX_SEQUENCES);
    let lookup = || Methods {
        speculation: Some(Speculation::PromptLookup(PromptLookup { max_tokens: MAX_DRAFT, min_ngram: 1 })),
        ..Methods::default()
    };
    // Texts that repeat give drafts.
    let texts: Vec<Vec<u32>> = (0..MAX_SEQUENCES as u32).map(|of| [of, 7, 9, of + 30].repeat(6)).collect();
    let started = |text: &Vec<u32>| start(&decoder, text, &SamplingParams::greedy(), 40, lookup()).unwrap().sequence;
    let alone: Vec<Vec<u32>> = texts.iter().map(|text| rest(&started(text)).unwrap()).collect();
    let running: Vec<SequenceHandle> = texts.iter().map(started).collect();
    let given = pollster::block_on(join_all(running.iter().map(all)));
    for (index, given) in given.into_iter().enumerate() {
        assert_eq!(given.unwrap(), alone[index], "sequence {index}");
    }
    assert!(running.iter().any(|sequence| sequence.counts().draft_tokens > 0), "nothing was drafted");
    let error = start(&decoder, &prompt(1), &SamplingParams::greedy(), 4, Methods::default()).err().unwrap();
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
}

/// Goes on until plans are being recorded, and stops there.
fn until_recording(decoder: &Decoder) {
    let mut task = TaskContext::from_waker(Waker::noop());
    let mut scheduler = decoder.scheduler.borrow_mut();
    for _ in 0..100_000 {
        scheduler.submit(&decoder.transformer).unwrap();
        if scheduler.preparing.is_some() {
            return;
        }
        scheduler.poll_flight(&mut task).unwrap();
    }
    panic!("nothing was recorded");
}

#[test]
fn whoever_leaves_while_plans_are_recorded_holds_nobody_up() {
    for kind in [Kind::Plain, Kind::Lookup] {
        let decoder = tiny(3);
        let alone = rest(&begin(&decoder, 1, Kind::Plain)).unwrap();
        // Plans for two rows or for a draft are not recorded yet.
        let leaving = begin(&decoder, 2, kind);
        let staying = begin(&decoder, 1, Kind::Plain);
        until_recording(&decoder);
        drop(leaving);
        assert_eq!(rest(&staying).unwrap(), alone, "{kind:?}");
        assert_eq!(rest(&begin(&decoder, 1, kind)).unwrap(), alone, "{kind:?} afterwards");
    }
}

#[test]
fn a_device_that_is_destroyed_while_plans_are_recorded_ends_all_with_an_error() {
    let decoder = tiny(3);
    let running: Vec<SequenceHandle> = (0..3).map(|index| begin(&decoder, index, Kind::Plain)).collect();
    until_recording(&decoder);
    decoder.context.device().destroy();
    for ended in pollster::block_on(join_all(running.iter().map(all))) {
        assert_eq!(ended.unwrap_err().code(), Code::Disposed);
    }
    drop(running);
    let held = pollster::block_on(decoder.hold(&prompt(1), &AdapterSet::default())).err().unwrap();
    assert_eq!(held.code(), Code::Disposed, "{held}");
    let error = start(&decoder, &prompt(1), &SamplingParams::greedy(), 4, Methods::default()).err().unwrap();
    assert_eq!(error.code(), Code::Disposed, "{error}");
}

/// Reads tokens of another sequence before it allows its own choice.
struct Reads {
    other: SequenceHandle,
    read: RefCell<Vec<u32>>,
}

impl LogitsProcessor for Reads {
    fn process(&self, logits: Vec<f32>, _: Vec<u32>, _: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        async move {
            if let Tokens::Some(tokens) = self.other.next().await? {
                self.read.borrow_mut().extend(tokens.iter().map(|sampled| sampled.token));
            }
            Ok(Some(logits))
        }
        .boxed_local()
    }
}

#[test]
fn a_processor_may_wait_for_another_sequence_of_the_same_engine() {
    let decoder = tiny(2);
    let alone = [1, 2].map(|index| rest(&begin(&decoder, index, Kind::Plain)).unwrap());
    let processor = Rc::new(Reads { other: begin(&decoder, 2, Kind::Plain), read: RefCell::default() });
    let of = Methods { processor: Some(processor.clone()), ..Methods::default() };
    let started = start(&decoder, &prompt(1), &SamplingParams::greedy(), 35, of).unwrap().sequence;
    assert_eq!(rest(&started).unwrap(), alone[0]);
    drop(started);
    let mut read = processor.read.take();
    read.extend(rest(&processor.other).unwrap());
    assert_eq!(read, alone[1]);
}

/// Fails at a step, or never answers.
struct Fails {
    at: usize,
    hangs: bool,
}

impl LogitsProcessor for Fails {
    fn process(&self, logits: Vec<f32>, _: Vec<u32>, step: usize) -> LocalBoxFuture<'_, Result<Option<Vec<f32>>>> {
        async move {
            match step == self.at {
                false => Ok(Some(logits)),
                true if self.hangs => std::future::pending().await,
                true => Err(err!(InvalidRequest, "the processor has no more")),
            }
        }
        .boxed_local()
    }
}

#[test]
fn a_processor_that_fails_or_hangs_ends_its_own_sequence_alone() {
    for (at, hangs) in [(0, false), (4, false), (0, true), (4, true)] {
        let decoder = tiny(2);
        let alone = rest(&begin(&decoder, 2, Kind::Ahead)).unwrap();
        let of = Methods { processor: Some(Rc::new(Fails { at, hangs })), ..Methods::default() };
        let failing = start(&decoder, &prompt(1), &SamplingParams::greedy(), 35, of).unwrap().sequence;
        let other = begin(&decoder, 2, Kind::Ahead);
        if hangs {
            let (hanging, going) = (pin!(all(&failing)), pin!(all(&other)));
            match pollster::block_on(futures_util::future::select(hanging, going)) {
                Either::Left(_) => panic!("what hangs ended"),
                Either::Right((given, _)) => assert_eq!(given.unwrap(), alone),
            }
        } else {
            let (failed, given) = pollster::block_on(futures_util::future::join(all(&failing), all(&other)));
            assert_eq!(failed.unwrap_err().code(), Code::InvalidRequest);
            assert_eq!(given.unwrap(), alone);
        }
        drop((failing, other));
        let vocab_size = decoder.transformer.config().vocab_size;
        let again = start(&decoder, &prompt(2), &SamplingParams::greedy(), 40, methods(Kind::Ahead, vocab_size));
        assert_eq!(rest(&again.unwrap().sequence).unwrap(), alone, "afterwards");
    }
}

/// A caller polls without being woken.
#[test]
fn it_does_not_matter_who_polls_or_how_often() {
    let decoder = tiny(2);
    let alone = rest(&begin(&decoder, 2, Kind::Plain)).unwrap();
    let sequence = begin(&decoder, 2, Kind::Plain);
    let mut tokens = Vec::new();
    let mut task = TaskContext::from_waker(Waker::noop());
    'over: loop {
        let mut next = pin!(sequence.next());
        for _ in 0..1000 {
            if let Poll::Ready(ready) = next.as_mut().poll(&mut task) {
                match ready.unwrap() {
                    Tokens::Some(given) => tokens.extend(given.iter().map(|sampled| sampled.token)),
                    _ => break 'over,
                }
                break;
            }
            let _ = decoder.context.device().sync().now_or_never();
        }
    }
    assert_eq!(tokens, alone);
}
