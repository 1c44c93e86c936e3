//! Conversations take turns on one slot; each computes only what is new.

use super::recurrent::recurrent_of;
use super::relief::Relief;
use super::*;

const FORMATS: [KvFormat; 3] = [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0];

fn text(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|at| (at * at * 7 + at * seed + seed) % 250).collect()
}

fn answer(decoder: &Rc<Decoder>, prompt: &[u32], longest: usize, is_reproducible: bool) -> (Vec<u32>, usize) {
    let (params, asked) = asked(prompt, &SamplingParams::greedy(), longest, false);
    let asked = Prompt { is_reproducible, ..asked };
    let prefilled = pollster::block_on(decoder.prefill(&asked, &params, None, &Patience::Fails)).unwrap().unwrap();
    let (cached, last) = (prefilled.cached, prompt[prompt.len() - 1]);
    let (sequence, _) = decoder.start(prefilled, params, last, 0, Methods::default()).unwrap();
    (rest(&sequence).unwrap(), cached)
}

fn stats(decoder: &Decoder) -> CacheStats {
    decoder.prompt_cache.borrow().stats()
}

#[test]
fn conversations_that_take_turns_take_in_what_is_new() {
    for format in FORMATS {
        let new = || tiny_with(1, format, |transformer| transformer);
        // Three conversations take turns on two slots.
        let decoder = tiny_with(2, format, |transformer| transformer);
        let mut conversations = [text(3, 90), text(11, 70), text(17, 130)];
        for turn in 0..3 {
            for text in &mut conversations {
                let before = text.len();
                text.extend([7, 7, 9 + turn]);
                let (given, cached) = answer(&decoder, text, 6, false);
                // The last token of an answer was never taken in.
                let known = if turn == 0 { 0 } else { before - 1 };
                assert_eq!(cached, known, "{format:?}, turn {turn}");
                text.extend(given);
            }
        }
        let stats = stats(&decoder);
        assert_eq!((stats.hits + stats.misses, stats.evictions), (9, 0), "{format:?}");
        assert!(stats.hits >= 4, "{stats:?}");
        assert!(stats.bytes > 0 && stats.bytes <= PROMPT_CACHE);
        // What comes back is the same to the bit: a reproducible request takes over only what prefill computed.
        for (index, text) in conversations.iter().enumerate() {
            let (given, cached) = answer(&decoder, text, 12, true);
            assert_eq!(given, answer(&new(), text, 12, true).0, "{format:?}, conversation {index}");
            assert!(cached >= [90, 70, 130][index], "{cached} tokens of conversation {index}");
        }
    }
}

#[test]
fn a_cancelled_prompt_ends_between_passes_and_keeps_what_was_taken_in() {
    let decoder = tiny(1);
    let prompt = text(5, 150);
    let (params, asked) = asked(&prompt, &SamplingParams::greedy(), 8, false);
    // Asked once for each pass.
    let passes = std::cell::Cell::new(0);
    let is_decoding = || {
        passes.set(passes.get() + 1);
        asked.canceller.cancel();
        false
    };
    let taken = pollster::block_on(decoder.taking_in(&is_decoding, Relief::default()).run(&asked, &params)).unwrap();
    assert!(taken.is_none());
    assert_eq!(passes.get(), 1);
    assert!(
        pollster::block_on(decoder.prefill(&asked, &params, None, &Patience::Fails)).unwrap().is_none(),
        "cancelled before it began"
    );
    let (given, cached) = answer(&decoder, &prompt, 8, true);
    assert!((1..150).contains(&cached), "{cached} tokens were taken in");
    assert_eq!(given, answer(&tiny(1), &prompt, 8, true).0);
    assert!(decoder.has_free_slot());
}

#[test]
fn edits_and_branches_take_in_what_changed() {
    let decoder = tiny(1);
    let first = text(5, 150);
    answer(&decoder, &first, 5, false);
    for (shared, length) in [(100, 140), (101, 120), (64, 90), (63, 100), (128, 170), (1, 80), (149, 150)] {
        let mut edited = first[..shared].to_vec();
        edited.extend((shared..length).map(|at| (at as u32 * 3 + shared as u32 + 1) % 250));
        let common = edited.iter().zip(&first).take_while(|(a, b)| a == b).count();
        let (given, cached) = answer(&decoder, &edited, 5, false);
        assert!(cached >= common.min(length - 1), "{cached} of {common} tokens");
        assert_eq!(given.len(), 5);
        // Back to the first text: all of it is known but the token whose logits are wanted.
        assert_eq!(answer(&decoder, &first, 5, false).1, first.len() - 1, "after a branch at {shared}");
    }
}

#[test]
fn a_budget_is_kept_and_0_keeps_nothing() {
    let decoder = tiny(1);
    for seed in 0..60 {
        answer(&decoder, &text(2 * seed + 1, 100 + seed as usize), 2, false);
        assert!(stats(&decoder).bytes <= PROMPT_CACHE);
    }
    let before = stats(&decoder);
    assert!(before.evictions > 0 && before.entries > 0, "{before:?}");
    // The newest texts are there, and the oldest are not.
    assert_eq!(answer(&decoder, &text(2 * 58 + 1, 158), 2, false).1, 157);
    assert_eq!(answer(&decoder, &text(1, 100), 2, false).1, 0);
    decoder.prompt_cache.replace(super::super::prompt_cache::PromptCache::new(0));
    answer(&decoder, &text(3, 100), 2, false);
    answer(&decoder, &text(4, 100), 2, false);
    assert_eq!(answer(&decoder, &text(3, 100), 2, false).1, 0);
    assert_eq!((stats(&decoder).bytes, stats(&decoder).entries), (0, 0));
}

/// Recurrent layers go on from checkpoints; those of several conversations are kept too.
#[test]
fn recurrent_states_come_back_with_their_text() {
    let decoder = recurrent_of(1);
    let mut conversations = [text(3, 90), text(11, 70)];
    let mut reused = 0;
    for turn in 0..3 {
        for text in &mut conversations {
            text.extend([7, 7, 9 + turn]);
            let (given, cached) = answer(&decoder, text, 6, false);
            assert_eq!(given, answer(&recurrent_of(1), text, 6, false).0, "turn {turn}");
            assert!(cached > 0 || turn == 0, "turn {turn}");
            reused += cached;
            text.extend(given);
        }
    }
    assert!(reused > 2 * 80 + 2 * 60, "{reused} tokens");
}

/// Other work of an engine leaves what conversations hold.
#[test]
fn passes_of_other_kinds_lose_nothing() {
    let decoder = tiny(1);
    let first = text(5, 150);
    answer(&decoder, &first, 5, false);
    let none = AdapterSet::default();
    pollster::block_on(decoder.forward(None, &[1, 2, 3], &[], &none)).unwrap();
    pollster::block_on(decoder.states(&[4, 5], &none)).unwrap();
    assert_eq!(answer(&decoder, &first, 5, false).1, first.len() - 1);
}
