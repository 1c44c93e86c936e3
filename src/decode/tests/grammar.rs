//! Both modes under a grammar give the same tokens, whatever is known of the grammar before.

use futures_util::future::join_all;

use super::*;
use crate::decode::constraint::{Advance, Constraint, TokenBytes};
use crate::decode::grammar::Mode;
use crate::decode::mask_automaton::{MaskAutomaton, MaskMatch, TokenSet};
use crate::sampler::Penalties;

/// Even tokens up to a length or an end token, then forced tokens, then one of a few, which decides how the next text begins.
#[derive(Clone, Debug)]
struct Texts {
    longest: usize,
    shortest: usize,
    place: Place,
    /// If set, the masks of texts depend on their length and on this number.
    fickle: Option<u32>,
    /// How many texts remain.
    texts: usize,
    can_fork: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Text(usize),
    Forced(usize),
    Few,
}

/// The only end token that a full text allows.
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
                    // Which of the few it was decides at which length the next text begins.
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
    counts: SequenceCounts,
    full_automata: usize,
}

/// Tokens without text: only forced tokens tell places in the grammar apart.
struct NoText;

impl TokenBytes for NoText {
    fn bytes(&self, token: u32) -> &[u8] {
        &BYTES[token as usize % 256..][..1]
    }
}

/// Every byte once.
const BYTES: [u8; 256] = {
    let (mut bytes, mut at) = ([0; 256], 0);
    while at < 256 {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

fn begin(
    decoder: &Rc<Decoder>,
    prompt: &[u32],
    grammar: &Texts,
    settings: &SamplingParams,
    mode: Option<Mode>,
    known: &KnownMasks,
    longest: usize,
) -> Started {
    let asked = Grammar {
        cursor: GrammarCursor { constraint: Box::new(grammar.clone()), known: known.clone() },
        vocabulary: Rc::new(NoText),
        vocab_size: decoder.transformer.config().vocab_size,
        mode,
    };
    let methods = Methods { grammar: Some(asked), ..Methods::default() };
    start(decoder, prompt, settings, longest, methods).unwrap()
}

impl Run {
    fn of(Started { sequence, grammar }: Started, tokens: Vec<u32>) -> Self {
        let grammar = grammar.unwrap();
        let grammar = grammar.borrow();
        grammar.end();
        Self { tokens, counts: sequence.counts(), full_automata: grammar.full_automata }
    }
}

fn run(
    decoder: &Rc<Decoder>,
    grammar: &Texts,
    settings: &SamplingParams,
    mode: Option<Mode>,
    known: &KnownMasks,
    longest: usize,
) -> Run {
    let started = begin(decoder, &[11, 45, 78, 102], grammar, settings, mode, known, longest);
    let tokens = rest(&started.sequence).unwrap();
    Run::of(started, tokens)
}

const PROMPTS: [[u32; 3]; 4] = [[11, 45, 78], [102, 7, 30], [2, 2, 9], [200, 41, 55]];

/// Four answers at once, under grammars of one kind.
fn run_together(
    decoder: &Rc<Decoder>,
    grammar: &Texts,
    settings: &SamplingParams,
    known: &KnownMasks,
    longest: usize,
) -> Vec<Run> {
    let started = PROMPTS.map(|prompt| begin(decoder, &prompt, grammar, settings, Some(Mode::Ahead), known, longest));
    let answers = started.iter().map(|started| all(&started.sequence));
    let answers = pollster::block_on(join_all(answers));
    started.into_iter().zip(answers).map(|(started, tokens)| Run::of(started, tokens.unwrap())).collect()
}

fn run_alone(decoder: &Rc<Decoder>, grammar: &Texts, settings: &SamplingParams, longest: usize) -> Vec<Vec<u32>> {
    let alone = |prompt: [u32; 3]| {
        let (mode, known) = (Some(Mode::StepByStep(None)), KnownMasks::default());
        rest(&begin(decoder, &prompt, grammar, settings, mode, &known, longest).sequence).unwrap()
    };
    PROMPTS.map(alone).into()
}

fn samplers() -> Vec<SamplingParams> {
    let warm = |seed| SamplingParams { temperature: 1.3, seed, ..SamplingParams::default() };
    let penalties = Penalties { repetition: 1.3, presence: 0.4, window: 20, ..Penalties::default() };
    vec![
        SamplingParams::greedy(),
        warm(1),
        SamplingParams { penalties, ..warm(2) },
        SamplingParams { top_p: 0.8, top_k: 30, ..warm(3) },
        SamplingParams { typical_p: 0.7, ..warm(4) },
    ]
}

#[test]
fn steps_that_ran_ahead_take_what_single_steps_take() {
    let decoder = tiny(1);
    let grammar = Texts { longest: 9, shortest: 0, place: Place::Text(0), fickle: None, texts: 6, can_fork: true };
    let short = Texts { shortest: 4, ..grammar.clone() };
    let single = Texts { can_fork: false, ..grammar.clone() };
    for grammar in [grammar, short, single] {
        for settings in samplers() {
            let by_steps =
                run(&decoder, &grammar, &settings, Some(Mode::StepByStep(None)), &KnownMasks::default(), 120);
            assert_eq!((by_steps.counts.missed_masks, by_steps.counts.dropped_steps), (0, 0), "{settings:?}");
            let mut following = grammar.clone();
            assert_eq!(following.advance(&by_steps.tokens).unwrap().taken, by_steps.tokens.len());
            let known = KnownMasks::default();
            let ahead = run(&decoder, &grammar, &settings, Some(Mode::Ahead), &known, 120);
            assert_eq!(ahead.tokens, by_steps.tokens, "{settings:?}");
            // What was learned helps, and changes nothing.
            let again = run(&decoder, &grammar, &settings, Some(Mode::Ahead), &known, 120);
            assert_eq!(again.tokens, by_steps.tokens, "{settings:?}");
        }
    }
}

#[test]
fn a_repeated_answer_misses_no_mask() {
    let decoder = tiny(1);
    let grammar = Texts { longest: 1000, shortest: 0, place: Place::Text(0), fickle: None, texts: 5, can_fork: true };
    for settings in [SamplingParams::greedy(), SamplingParams { temperature: 1.3, seed: 7, ..Default::default() }] {
        let known = KnownMasks::default();
        let counts: Vec<SequenceCounts> =
            (0..4).map(|_| run(&decoder, &grammar, &settings, Some(Mode::Ahead), &known, 100).counts).collect();
        assert_eq!(counts[3], SequenceCounts { missed_masks: 0, dropped_steps: 0, ..counts[3] }, "{counts:?}");
    }
}

/// Where steps are computed in the call that submits them, each is submitted when the last one's token is known.
#[test]
fn where_nothing_runs_ahead_no_mask_is_guessed_and_no_step_dropped() {
    let decoder = tiny(1);
    for settings in samplers() {
        let ahead = run(&decoder, &fickle(0), &settings, Some(Mode::Ahead), &KnownMasks::default(), 100);
        decoder.scheduler.borrow_mut().set_at_once(true);
        let at_once = run(&decoder, &fickle(0), &settings, Some(Mode::Ahead), &KnownMasks::default(), 100);
        decoder.scheduler.borrow_mut().set_at_once(false);
        assert_eq!(at_once.tokens, ahead.tokens, "{settings:?}");
        assert_eq!((at_once.counts.missed_masks, at_once.counts.dropped_steps), (0, 0), "{settings:?}");
    }
}

/// Texts whose masks are all different.
fn fickle(salt: u32) -> Texts {
    Texts { longest: 90, shortest: 90, place: Place::Text(0), fickle: Some(salt), texts: 2, can_fork: true }
}

#[test]
fn masks_that_nobody_expects_are_taken_one_by_one() {
    let decoder = tiny(1);
    for settings in samplers() {
        let by_steps = run(&decoder, &fickle(0), &settings, Some(Mode::StepByStep(None)), &KnownMasks::default(), 100);
        let ahead = run(&decoder, &fickle(0), &settings, Some(Mode::Ahead), &KnownMasks::default(), 100);
        assert_eq!(ahead.tokens, by_steps.tokens, "{settings:?}");
        assert!(ahead.counts.missed_masks > 10, "{:?}", ahead.counts);
    }
}

#[test]
fn where_guesses_are_mostly_wrong_tokens_are_chosen_step_by_step() {
    let decoder = tiny(1);
    for settings in samplers() {
        let by_steps = run(&decoder, &fickle(3), &settings, Some(Mode::StepByStep(None)), &KnownMasks::default(), 100);
        let fixed = run(&decoder, &fickle(3), &settings, Some(Mode::Ahead), &KnownMasks::default(), 100);
        // As slow as this GPU was found to be, it would not be tried.
        decoder.scheduler.borrow_mut().forget_pace();
        let free = run(&decoder, &fickle(3), &settings, None, &KnownMasks::default(), 100);
        assert_eq!((&fixed.tokens, &free.tokens), (&by_steps.tokens, &by_steps.tokens), "{settings:?}");
        assert!(2 * free.counts.missed_masks < fixed.counts.missed_masks, "{:?} and {:?}", free.counts, fixed.counts);
    }
}

#[test]
fn what_one_answer_learns_all_know() {
    let decoder = tiny(4);
    let grammar = Texts { longest: 1000, shortest: 0, place: Place::Text(0), fickle: None, texts: 5, can_fork: true };
    for settings in [SamplingParams::greedy(), SamplingParams { temperature: 1.3, seed: 7, ..Default::default() }] {
        let (known, wanted) = (KnownMasks::default(), run_alone(&decoder, &grammar, &settings, 60));
        let missed: Vec<usize> = (0..4)
            .map(|_| {
                let runs = run_together(&decoder, &grammar, &settings, &known, 60);
                for (run, wanted) in runs.iter().zip(&wanted) {
                    assert_eq!(run.tokens, *wanted, "{settings:?}");
                }
                runs.iter().map(|run| run.counts.missed_masks).sum()
            })
            .collect();
        assert!(missed[0] > 0 && missed[3] == 0, "{missed:?}");
    }
}

#[test]
fn an_automaton_that_several_answers_fill_begins_anew_for_all() {
    let decoder = tiny(4);
    let (known, mut full_automata) = (KnownMasks::default(), 0);
    for seed in 0..3 {
        let settings = SamplingParams { temperature: 1.5, seed, ..SamplingParams::default() };
        let grammar = fickle(100 * seed as u32);
        let wanted = run_alone(&decoder, &grammar, &settings, 100);
        for (run, wanted) in run_together(&decoder, &grammar, &settings, &known, 100).into_iter().zip(wanted) {
            assert_eq!(run.tokens, wanted, "{seed}");
            full_automata += run.full_automata;
        }
    }
    assert!(full_automata > 0);
}

#[test]
fn an_automaton_that_is_full_begins_anew() {
    let decoder = tiny(1);
    let (known, mut full_automata) = (KnownMasks::default(), 0);
    for seed in 0..8 {
        let settings = SamplingParams { temperature: 1.5, seed, ..SamplingParams::default() };
        let mut grammar = fickle(100 * seed as u32);
        let by_steps = run(&decoder, &grammar, &settings, Some(Mode::StepByStep(None)), &KnownMasks::default(), 100);
        let ahead = run(&decoder, &grammar, &settings, Some(Mode::Ahead), &known, 100);
        assert_eq!(ahead.tokens, by_steps.tokens, "{seed}");
        assert_eq!(grammar.advance(&ahead.tokens).unwrap().taken, ahead.tokens.len());
        full_automata += ahead.full_automata;
    }
    assert!(full_automata > 0);
}

#[test]
fn a_look_ahead_goes_through_what_is_forced_and_through_choices_among_few() {
    let words = VOCABULARY.div_ceil(32) as usize;
    let mut automaton = MaskAutomaton::new(words, &(Rc::new(NoText) as Rc<dyn TokenBytes>));
    let mut grammar = Texts { place: Place::Forced(0), ..fickle(0) };
    let root = automaton.root(TokenSet::One(FORCED[0])).unwrap();
    automaton.explore(root, &grammar, &FORCED, 100).unwrap();
    let mut bits = vec![0; words];
    for at in 1..FORCED.len() {
        let state = automaton.state_after(root, &FORCED[..at]).unwrap();
        assert_eq!(automaton.compare(state, TokenSet::One(FORCED[at])), MaskMatch::Same);
    }
    grammar.advance(&FORCED).unwrap();
    for chosen in FEW {
        let mut after = grammar.clone();
        after.mask(&mut bits).unwrap();
        let state = automaton.state_after(root, &FORCED).unwrap();
        assert_eq!(automaton.compare(state, TokenSet::Bits(&bits)), MaskMatch::Same);
        assert_eq!(after.advance(&[chosen]).unwrap().taken, 1);
        after.mask(&mut bits).unwrap();
        let state = automaton.state_after(state, &[chosen]).unwrap();
        assert_eq!(automaton.compare(state, TokenSet::Bits(&bits)), MaskMatch::Same, "{chosen}");
    }
    // Nothing more is known: a text's state stays, and nothing follows a forced token.
    let unknown = automaton.orphan(TokenSet::One(3)).unwrap();
    assert_eq!(automaton.state_after(unknown, &[3]), None);
}
