//! Both ways to go on give the same tokens, whatever is known of the grammar beforehand.

use std::rc::Rc;

use super::automaton::Fit;
use super::*;
use crate::engine::constraint::Advance;
use crate::engine::source::MemorySource;
use crate::engine::{Engine, LoadOptions};
use crate::sampler::{Ending, Penalties, SamplerSettings, TokenRules};

fn engine() -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tiny_llama/tied-q4_0.gguf");
    let source = MemorySource::new(std::fs::read(path).unwrap());
    pollster::block_on(Engine::load(&source, &LoadOptions::default(), &mut |_| Ok(()))).unwrap()
}

/// A text of even tokens up to a length, or until one that ends it; then forced tokens; then one of a few, that decides how the next text begins.
#[derive(Clone, Debug)]
struct Texts {
    longest: usize,
    shortest: usize,
    place: Place,
    /// Masks of texts depend on how long they are, and on this.
    fickle: Option<u32>,
    /// Texts before the end.
    texts: usize,
    can_fork: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Text(usize),
    Forced(usize),
    Few,
}

/// What ends a text that is full. Others end one, too.
const EXIT: u32 = 8;

fn is_exit(token: u32) -> bool {
    token.is_multiple_of(8)
}

const FORCED: [u32; 11] = [1, 2, 3, 5, 5, 9, 10, 11, 12, 14, 1];
const FEW: [u32; 3] = [20, 33, 51];
const VOCABULARY: u32 = 256;

impl Texts {
    fn allows(&self, token: u32) -> bool {
        match self.place {
            Place::Text(length) => {
                let ends = is_exit(token) && length >= self.shortest && (length < self.longest || token == EXIT);
                let noise =
                    |salt: u32| (token + 1).wrapping_mul(0x9E37_79B9).wrapping_mul(2 * (salt + length as u32) + 1);
                let fickle = self.fickle.is_some_and(|salt| noise(salt) >> 29 == 0);
                ends || (!is_exit(token) && token.is_multiple_of(2) && !fickle && length < self.longest)
            }
            Place::Forced(at) => token == FORCED[at],
            Place::Few => FEW.contains(&token),
        }
    }
}

impl Constraint for Texts {
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance> {
        let mut taken = 0;
        for &token in tokens {
            if self.texts == 0 || !self.allows(token) {
                break;
            }
            taken += 1;
            self.place = match self.place {
                Place::Text(_) if is_exit(token) => Place::Forced(0),
                Place::Text(length) => Place::Text(length + 1),
                Place::Forced(at) if at + 1 < FORCED.len() => Place::Forced(at + 1),
                Place::Forced(_) => Place::Few,
                Place::Few => {
                    self.texts -= 1;
                    // Which of the few it was decides how far the next text is.
                    Place::Text(if token == FEW[1] { 2 } else { 0 })
                }
            };
        }
        let forced = match self.place {
            Place::Forced(at) => FORCED[at..].to_vec(),
            Place::Text(length) if length == self.longest => vec![EXIT],
            _ => Vec::new(),
        };
        Ok(Advance { taken, forced, is_complete: self.texts == 0 })
    }

    fn mask(&mut self, bits: &mut [u32]) -> Result<()> {
        bits.fill(0);
        for token in (0..VOCABULARY).filter(|token| self.allows(*token)) {
            bits[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(())
    }

    fn fork(&self) -> Result<Option<Box<dyn Constraint>>> {
        Ok(self.can_fork.then(|| Box::new(self.clone()) as Box<dyn Constraint>))
    }
}

struct Run {
    tokens: Vec<u32>,
    counts: Counts,
    automaton: MaskAutomaton,
    full_automata: usize,
}

fn run(
    engine: &Engine,
    grammar: &Texts,
    settings: &SamplerSettings,
    way: Option<Way>,
    known: Option<MaskAutomaton>,
    longest: usize,
) -> Run {
    let inner = &engine.0;
    let prompt = [11, 45, 78, 102];
    pollster::block_on(async {
        let mut session = inner.take_session(&prompt).unwrap();
        session.forget();
        let rules = Rc::new(TokenRules { answer_start: prompt.len(), ..TokenRules::default() });
        let ending = Ending { stops: vec![], steps: longest };
        session.configure(inner.decoder().unwrap(), settings, &rules, &ending).await.unwrap();
        session.prepare_masks(&inner.context).await.unwrap();
        let logits = session.pass(inner.decoder().unwrap(), &prompt, 0).unwrap();
        let following = Following { constraint: Box::new(grammar.clone()), grammar: None };
        let mut constrained = Constrained::new(inner, session, following, (logits, 4), 102, 0).unwrap();
        if let Some(way) = way {
            (constrained.way, constrained.way_is_fixed) = (way, true);
        }
        if let Some(known) = known {
            constrained.automaton = known;
        }
        let mut tokens = vec![];
        while !constrained.is_complete() && tokens.len() < longest {
            let next = constrained.next_tokens(inner, longest).await.unwrap();
            tokens.extend(next.iter().map(|sampled| sampled.token));
        }
        let Constrained { session, automaton, counts, full_automata, .. } = constrained;
        inner.give_back(session);
        Run { tokens, counts, automaton, full_automata }
    })
}

fn samplers() -> Vec<SamplerSettings> {
    let warm = |seed| SamplerSettings { temperature: 1.3, seed, ..SamplerSettings::default() };
    let penalties = Penalties { repetition: 1.3, presence: 0.4, window: 20, ..Penalties::default() };
    vec![
        SamplerSettings::greedy(),
        warm(1),
        SamplerSettings { penalties, ..warm(2) },
        SamplerSettings { top_p: 0.8, top_k: 30, ..warm(3) },
        SamplerSettings { typical_p: 0.7, ..warm(4) },
    ]
}

#[test]
fn steps_that_ran_ahead_take_what_single_steps_take() {
    let engine = engine();
    let grammar = Texts { longest: 9, shortest: 0, place: Place::Text(0), fickle: None, texts: 6, can_fork: true };
    let short = Texts { shortest: 4, ..grammar.clone() };
    let single = Texts { can_fork: false, ..grammar.clone() };
    for grammar in [grammar, short, single] {
        for settings in samplers() {
            let by_steps = run(&engine, &grammar, &settings, Some(Way::StepByStep(None)), None, 120);
            assert_eq!((by_steps.counts.missed, by_steps.counts.dropped), (0, 0), "{settings:?}");
            let mut following = grammar.clone();
            assert_eq!(following.advance(&by_steps.tokens).unwrap().taken, by_steps.tokens.len());
            let ahead = run(&engine, &grammar, &settings, Some(Way::Ahead), None, 120);
            assert_eq!(ahead.tokens, by_steps.tokens, "{settings:?}");
            // What was learned helps, and changes nothing.
            let again = run(&engine, &grammar, &settings, Some(Way::Ahead), Some(ahead.automaton), 120);
            assert_eq!(again.tokens, by_steps.tokens, "{settings:?}");
        }
    }
}

#[test]
fn a_repeated_answer_misses_no_mask() {
    let engine = engine();
    let grammar = Texts { longest: 1000, shortest: 0, place: Place::Text(0), fickle: None, texts: 5, can_fork: true };
    for settings in [SamplerSettings::greedy(), SamplerSettings { temperature: 1.3, seed: 7, ..Default::default() }] {
        let mut known = None;
        let counts: Vec<Counts> = (0..4)
            .map(|_| {
                let run = run(&engine, &grammar, &settings, Some(Way::Ahead), known.take(), 100);
                known = Some(run.automaton);
                run.counts
            })
            .collect();
        assert_eq!(counts[3], Counts { missed: 0, dropped: 0, ..counts[3] }, "{counts:?}");
    }
}

/// Masks of a text that are all different.
fn fickle(salt: u32) -> Texts {
    Texts { longest: 90, shortest: 90, place: Place::Text(0), fickle: Some(salt), texts: 2, can_fork: true }
}

#[test]
fn masks_that_nobody_expects_are_taken_one_by_one() {
    let engine = engine();
    for settings in samplers() {
        let by_steps = run(&engine, &fickle(0), &settings, Some(Way::StepByStep(None)), None, 100);
        let ahead = run(&engine, &fickle(0), &settings, Some(Way::Ahead), None, 100);
        assert_eq!(ahead.tokens, by_steps.tokens, "{settings:?}");
        assert!(ahead.counts.missed > 10, "{:?}", ahead.counts);
    }
}

#[test]
fn where_guesses_are_mostly_wrong_tokens_are_chosen_step_by_step() {
    let engine = engine();
    for settings in samplers() {
        let by_steps = run(&engine, &fickle(3), &settings, Some(Way::StepByStep(None)), None, 100);
        let fixed = run(&engine, &fickle(3), &settings, Some(Way::Ahead), None, 100);
        // As slow as this GPU was found to be, it would not be tried.
        engine.0.structured_step.set(None);
        let free = run(&engine, &fickle(3), &settings, None, None, 100);
        assert_eq!((&fixed.tokens, &free.tokens), (&by_steps.tokens, &by_steps.tokens), "{settings:?}");
        assert!(2 * free.counts.missed < fixed.counts.missed, "{:?} and {:?}", free.counts, fixed.counts);
    }
}

#[test]
fn an_automaton_that_is_full_begins_anew() {
    let engine = engine();
    let (mut known, mut full_automata) = (None, 0);
    for seed in 0..8 {
        let settings = SamplerSettings { temperature: 1.5, seed, ..SamplerSettings::default() };
        let mut grammar = fickle(100 * seed as u32);
        let by_steps = run(&engine, &grammar, &settings, Some(Way::StepByStep(None)), None, 100);
        let ahead = run(&engine, &grammar, &settings, Some(Way::Ahead), known.take(), 100);
        assert_eq!(ahead.tokens, by_steps.tokens, "{seed}");
        assert_eq!(grammar.advance(&ahead.tokens).unwrap().taken, ahead.tokens.len());
        (known, full_automata) = (Some(ahead.automaton), full_automata + ahead.full_automata);
    }
    assert!(full_automata > 0);
}

#[test]
fn a_look_ahead_goes_through_what_is_forced_and_through_choices_among_few() {
    let engine = engine();
    let words = VOCABULARY.div_ceil(32) as usize;
    let mut automaton = MaskAutomaton::new(words, &engine.0.tokenizer);
    let mut grammar = Texts { place: Place::Forced(0), ..fickle(0) };
    let root = automaton.root(Wanted::One(FORCED[0])).unwrap();
    automaton.explore(root, &grammar, &FORCED, 100).unwrap();
    let mut bits = vec![0; words];
    for at in 1..FORCED.len() {
        let state = automaton.behind(root, &FORCED[..at]).unwrap();
        assert_eq!(automaton.fit(state, Wanted::One(FORCED[at])), Fit::Same);
    }
    grammar.advance(&FORCED).unwrap();
    for chosen in FEW {
        let mut after = grammar.clone();
        after.mask(&mut bits).unwrap();
        let state = automaton.behind(root, &FORCED).unwrap();
        assert_eq!(automaton.fit(state, Wanted::Bits(&bits)), Fit::Same);
        assert_eq!(after.advance(&[chosen]).unwrap().taken, 1);
        after.mask(&mut bits).unwrap();
        let state = automaton.behind(state, &[chosen]).unwrap();
        assert_eq!(automaton.fit(state, Wanted::Bits(&bits)), Fit::Same, "{chosen}");
    }
    // Beyond that nothing is known: the state of a text stays, and a forced token has none behind it.
    let unknown = automaton.orphan(Wanted::One(3)).unwrap();
    assert_eq!(automaton.behind(unknown, &[3]), None);
}
