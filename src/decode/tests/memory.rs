//! The GPU has no room for more. What it has is limited at chosen moments, as a browser's would be.

use std::cell::RefCell;

use futures_util::FutureExt;
use futures_util::future::join;

use super::mixed::prompt;
use super::recurrent::recurrent_of;
use super::*;
use crate::Code;

/// Decodes after a prompt, as long as it likes to wait for room.
async fn answer(
    decoder: &Rc<Decoder>,
    prompt: &[u32],
    longest: usize,
    canceller: Canceller,
) -> Result<Option<Vec<u32>>> {
    let (params, asked) = asked(prompt, &SamplingParams::greedy(), longest, false);
    let asked = Prompt { canceller: canceller.clone(), is_reproducible: true, ..asked };
    let Some(prefilled) = decoder.prefill(&asked, &params, None, &Patience::Waits(canceller)).await? else {
        return Ok(None);
    };
    let (sequence, _) = decoder.start(prefilled, params, prompt[prompt.len() - 1], 0, Methods::default())?;
    all(&sequence).await.map(Some)
}

fn text(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * at * 7 + at * seed + seed) % 250).collect()
}

/// A decoder, and what was done where memory ran short.
fn listening(max_sequences: usize) -> (Rc<Decoder>, Rc<RefCell<Vec<PressureAction>>>) {
    let done = Rc::new(RefCell::new(Vec::new()));
    let heard = done.clone();
    let listener = PressureListener::new(move |pressure: &MemoryPressure| {
        assert!(!pressure.message.is_empty() && pressure.held_bytes > 0, "{pressure:?}");
        heard.borrow_mut().push(pressure.action);
    });
    (tiny_that_tells(max_sequences, KvFormat::F16, listener, |transformer| transformer), done)
}

fn live(decoder: &Decoder) -> u64 {
    decoder.context.device().holdings().live_bytes
}

/// Everything is full, but for what reads tokens back.
fn fill(decoder: &Decoder) {
    decoder.context.device().trim();
    pollster::block_on(decoder.context.device().sync()).unwrap();
    decoder.context.device().set_memory_limit(Some(live(decoder) + 2048));
}

fn now(decoder: &Rc<Decoder>, prompt: &[u32], longest: usize) -> Result<Vec<u32>> {
    Ok(pollster::block_on(answer(decoder, prompt, longest, Canceller::default()))?.unwrap())
}

#[test]
fn a_prompt_without_room_fails_by_itself_and_takes_nothing_with_it() {
    let (decoder, done) = listening(1);
    let wanted = now(&decoder, &text(3, 90), 12).unwrap();
    // Other kernels' buffers, so that the next one needs new ones.
    fill(&decoder);
    let before = live(&decoder);
    for _ in 0..3 {
        let error = now(&decoder, &text(5, 120), 12).unwrap_err();
        assert_eq!(error.code(), Code::OutOfMemory);
        assert!(error.message().contains("MB"), "{error}");
    }
    assert!(live(&decoder) <= before, "{} bytes after {before}", live(&decoder));
    let heard = done.take();
    assert!(heard.contains(&PressureAction::Evicted) && heard.contains(&PressureAction::ShorterPasses), "{heard:?}");
    assert!(!heard.contains(&PressureAction::Queued), "nothing runs that could end: {heard:?}");
    decoder.context.device().set_memory_limit(None);
    assert_eq!(now(&decoder, &text(3, 90), 12).unwrap(), wanted);
    assert!(done.take().is_empty());
}

#[test]
fn texts_that_nobody_uses_make_room() {
    let (decoder, done) = listening(1);
    let wanted = now(&decoder, &text(9, 150), 12).unwrap();
    for seed in [11, 12, 13] {
        now(&decoder, &text(seed, 150), 4).unwrap();
    }
    let kept = decoder.prompt_cache.borrow().stats();
    assert!(kept.bytes > 50_000, "{kept:?}");
    fill(&decoder);
    // Not the prompt that is kept, but one as long.
    let other = text(21, 150);
    let answer = now(&decoder, &other, 12).unwrap();
    assert!(done.borrow().contains(&PressureAction::Evicted), "{done:?}");
    assert_eq!(decoder.prompt_cache.borrow().stats().entries, 0);
    decoder.context.device().set_memory_limit(None);
    assert_eq!(now(&decoder, &text(9, 150), 12).unwrap(), wanted);
    assert_eq!(now(&decoder, &other, 12).unwrap(), answer, "the answer is that of enough room");
}

#[test]
fn a_second_sequence_waits_for_the_first_one() {
    let (decoder, done) = listening(2);
    let prompts = [prompt(1), prompt(2)];
    let wanted: Vec<Vec<u32>> = prompts.iter().map(|prompt| now(&decoder, prompt, 40).unwrap()).collect();
    let first = start(&decoder, &prompts[0], &SamplingParams::greedy(), 40, Methods::default()).unwrap();
    let device = decoder.context.device();
    pollster::block_on(device.sync()).unwrap();
    fill(&decoder);
    let running = async {
        let tokens = all(&first.sequence).await;
        let waits = done.borrow().contains(&PressureAction::Queued);
        // What it frees is what the other one needs.
        device.set_memory_limit(None);
        drop(first);
        (tokens, waits)
    };
    let second = answer(&decoder, &prompts[1], 40, Canceller::default());
    let (second, (first, waited)) = pollster::block_on(join(second, running));
    assert!(waited, "{done:?}");
    assert_eq!([first.unwrap(), second.unwrap().unwrap()].to_vec(), wanted);
}

#[test]
fn who_waits_for_room_can_be_cancelled() {
    let (decoder, done) = listening(2);
    let first = start(&decoder, &prompt(1), &SamplingParams::greedy(), 40, Methods::default()).unwrap();
    pollster::block_on(decoder.context.device().sync()).unwrap();
    fill(&decoder);
    let (cancelled, patient) = (Canceller::default(), Canceller::default());
    let prompt = prompt(2);
    let waiting = answer(&decoder, &prompt, 8, cancelled.clone());
    let next = answer(&decoder, &prompt, 8, patient);
    pollster::block_on(async {
        futures_util::pin_mut!(waiting, next);
        for _ in 0..200 {
            assert!((&mut waiting).now_or_never().is_none() && (&mut next).now_or_never().is_none());
            if done.borrow().iter().filter(|action| **action == PressureAction::Queued).count() == 2 {
                break;
            }
        }
        assert!(done.borrow().contains(&PressureAction::Queued), "{done:?}");
        cancelled.cancel();
        assert!(waiting.await.unwrap().is_none());
        // The next one in the queue is not forgotten.
        assert_eq!(all(&first.sequence).await.unwrap().len(), 40);
        decoder.context.device().set_memory_limit(None);
        drop(first);
        assert_eq!(next.await.unwrap().unwrap().len(), 8);
    });
}

#[test]
fn sequences_without_room_for_a_shared_step_take_turns() {
    let (decoder, _) = listening(2);
    let prompts = [prompt(1), prompt(2)];
    let wanted: Vec<Vec<u32>> = prompts.iter().map(|prompt| now(&decoder, prompt, 24).unwrap()).collect();
    let begin = |prompt: &Vec<u32>| start(&decoder, prompt, &SamplingParams::greedy(), 24, Methods::default()).unwrap();
    let [first, second] = [begin(&prompts[0]), begin(&prompts[1])];
    pollster::block_on(decoder.context.device().sync()).unwrap();
    fill(&decoder);
    let (a, b) = pollster::block_on(join(all(&first.sequence), all(&second.sequence)));
    assert_eq!([a.unwrap(), b.unwrap()].to_vec(), wanted);
}

/// The checkpoints of recurrent states are made with a prompt. Those that found no room are not used again.
#[test]
fn checkpoints_without_room_are_given_up() {
    let texts = [3, 5, 9].map(|seed| text(seed, 100));
    let roomy = recurrent_of(1);
    let wanted = texts.each_ref().map(|text| now(&roomy, text, 12).unwrap());
    let decoder = recurrent_of(1);
    fill(&decoder);
    for text in &texts {
        assert_eq!(now(&decoder, text, 12).unwrap_err().code(), Code::OutOfMemory);
    }
    assert_eq!(decoder.recurrent_checkpoint_bytes(), 0);
    decoder.context.device().set_memory_limit(None);
    assert_eq!(texts.each_ref().map(|text| now(&decoder, text, 12).unwrap()), wanted);
    assert!(decoder.recurrent_checkpoint_bytes() > 0);
}
