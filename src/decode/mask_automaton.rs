//! An automaton of masks that guesses what a grammar allows next. It follows the tokens of an answer, so that the GPU can mask steps whose
//! tokens nobody has read yet (`sampler/mask_table.rs`). Its guesses can be wrong: a grammar may need more states than any table has, such
//! as one for each length of a text. So the acceptor asks the grammar about each token whether its step's mask was right, and corrects the
//! automaton if not.
//!
//! A state is a place in the grammar: it has a mask, and tokens that lead on. If nothing is known of a token, the state stays the same if
//! it allows much (the inside of a text). Otherwise the next state allows everything.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::constraint::{Advance, Constraint, TokenBytes};
use crate::error::Result;
use crate::sampler::{Allowed, MASKS, MaskDelta, MaskTable};

/// A token that has no edge.
const NO_TOKEN: u32 = u32::MAX;

/// The state that allows everything, and the one for a single choice that the automaton does not learn from.
const ANYTHING: u32 = 0;
const SCRATCH: u32 = 1;
const SCRATCH_MASK: u32 = 0;

/// If a state allows at most this many tokens, each is followed ahead.
const NARROW: u32 = 16;
/// Two places that force the same tokens, at least this many, count as one place.
const TELLING: usize = 3;
/// The most places that wait to be looked at.
const MOST_PLACES: usize = 64;
/// The assumed number of tokens between two wrong guesses, before anything is known.
const FIRST_RUN: usize = 24;

/// What the grammar allows.
#[derive(Clone, Copy, Debug)]
pub enum TokenSet<'a> {
    One(u32),
    /// A bit for each token.
    Bits(&'a [u32]),
}

impl<'a> TokenSet<'a> {
    /// The first forced token; if nothing is forced, `allowed`.
    pub fn of(forced: &[u32], allowed: &'a [u32]) -> Self {
        match forced.first() {
            Some(first) => Self::One(*first),
            None => Self::Bits(allowed),
        }
    }

    pub fn has(&self, token: u32) -> bool {
        match self {
            Self::One(one) => *one == token,
            Self::Bits(bits) => has(bits, token),
        }
    }
}

/// How the mask of a state compares with what the grammar allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskMatch {
    Same,
    /// It allows all of it and little more.
    Near,
    /// It allows all of it, and much more.
    Covers,
    No,
}

pub struct MaskAutomaton {
    /// Words of one mask.
    words: usize,
    /// [masks, words]
    masks: Vec<u32>,
    /// Rows of `masks` by the hash of their bits.
    rows: HashMap<u64, Vec<u32>>,
    /// Of each row: how many tokens it allows, and the last state that has it.
    wide: Vec<(u32, u32)>,
    table: MaskTable,
    states: Vec<State>,
    by_text: HashMap<(u32, Vec<u8>), u32>,
    by_forced: HashMap<Box<[u32]>, u32>,
    /// Pairs of state and token that lead to more than one place.
    untold: HashSet<(u32, u32)>,
    vocabulary: Rc<dyn TokenBytes>,
    root: Option<u32>,
    /// Where to look further, and what is forced there.
    frontier: VecDeque<(Box<dyn Constraint>, u32, Vec<u32>)>,
    usual_run: usize,
    /// The first words of the table's pairs that changed, in order.
    changes: Vec<usize>,
    /// Counted up when changes are forgotten: who has not seen them takes the whole table.
    generation: u64,
}

/// The mask of a single choice of which nothing is to be learned. Each answer has its own.
pub struct Scratch {
    words: [u32; 2],
    mask: Vec<u32>,
    version: u64,
}

impl Scratch {
    /// `words` is the length of a mask.
    pub fn new(words: usize) -> Self {
        Self { words: MaskTable::state_words(Allowed::All, ANYTHING), mask: vec![0; words], version: 0 }
    }

    /// Sets what it allows. Returns its state: what follows it, it does not know.
    pub fn set(&mut self, wanted: TokenSet<'_>) -> u32 {
        let allowed = match wanted {
            TokenSet::One(token) => Allowed::One(token),
            TokenSet::Bits(bits) => {
                self.mask.copy_from_slice(bits);
                Allowed::Mask(SCRATCH_MASK)
            }
        };
        self.words = MaskTable::state_words(allowed, ANYTHING);
        self.version += 1;
        SCRATCH
    }
}

#[derive(Clone)]
struct State {
    children: Vec<u32>,
    is_explored: bool,
    /// The last state before this one in which a text stays (or one far back), and the text since then. The same text leads to the same
    /// place, whatever tokens it was cut into.
    anchor: u32,
    text: Vec<u8>,
}

impl State {
    /// A state where a text begins anew.
    fn new(own: u32) -> Self {
        Self { children: Vec::new(), is_explored: false, anchor: own, text: Vec::new() }
    }
}

/// A text that gets longer than this begins anew.
const LONGEST_TEXT: usize = 64;

/// What the GPU has of an automaton.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uploaded {
    /// The table as a whole, with these changes after it.
    table: Option<u64>,
    changes: usize,
    masks: usize,
    scratch: u64,
}

/// After this many changes the whole table is written.
const MOST_CHANGES: usize = MaskTable::WORDS / 2;

impl MaskAutomaton {
    /// For masks of `words` words over the tokens of `vocabulary`.
    pub fn new(words: usize, vocabulary: &Rc<dyn TokenBytes>) -> Self {
        Self {
            words,
            masks: vec![0; words],
            rows: HashMap::new(),
            wide: vec![(0, SCRATCH)],
            table: MaskTable::new(),
            states: [ANYTHING, SCRATCH].map(State::new).into(),
            by_text: HashMap::new(),
            by_forced: HashMap::new(),
            untold: HashSet::new(),
            vocabulary: vocabulary.clone(),
            root: None,
            frontier: VecDeque::new(),
            usual_run: FIRST_RUN,
            changes: Vec::new(),
            generation: 0,
        }
    }

    fn set(&mut self, state: u32, allowed: Allowed, fallback: u32) {
        let at = self.table.set_state(state, allowed, fallback);
        self.changed(at);
    }

    fn changed(&mut self, at: usize) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.clear();
            self.generation += 1;
        }
        self.changes.push(at);
    }

    /// The state at the grammar's beginning. None if the automaton is full.
    pub fn root(&mut self, wanted: TokenSet<'_>) -> Option<u32> {
        match self.root {
            Some(root) if self.compare(root, wanted) == MaskMatch::Same => Some(root),
            _ => {
                self.root = self.orphan(wanted);
                self.root
            }
        }
    }

    /// The state after a token, where the grammar allows `wanted` and forces `forced`. None if the automaton is full.
    pub fn child(&mut self, state: u32, token: u32, wanted: TokenSet<'_>, forced: &[u32]) -> Option<u32> {
        let (expected, is_edge) = self.table.next(state, token);
        if self.compare(expected, wanted) == MaskMatch::Same {
            return Some(expected);
        }
        let (fallback, _) = self.table.next(state, NO_TOKEN);
        if is_edge && self.compare(fallback, wanted) == MaskMatch::Same {
            // The edge was learned when a text had its greatest length.
            let at = self.table.set_edge(state, token, fallback)?;
            self.changed(at);
            self.untold.insert((state, token));
            return Some(fallback);
        }
        let State { children, anchor, text, .. } = &self.states[state as usize];
        let is_it = |child: &u32| self.compare(*child, wanted) == MaskMatch::Same;
        let text = [text, self.vocabulary.bytes(token)].concat();
        let place = (*anchor, text);
        let known = children.iter().copied().find(is_it);
        let known = known.or_else(|| self.by_text.get(&place).copied().filter(is_it));
        let known = known.or_else(|| self.by_forced.get(forced).copied());
        let child = match known {
            Some(child) => child,
            None => {
                let child = self.orphan(wanted)?;
                // A text has reached its least length: tokens that would end it are now allowed.
                if self.is_less(expected, wanted)
                    && let Some(widest) = self.widest(wanted)
                {
                    self.set(child, self.table.allowed(child), widest);
                }
                self.states[state as usize].children.push(child);
                let goes_on = place.1.len() <= LONGEST_TEXT && self.table.next(child, NO_TOKEN).0 != child;
                if goes_on {
                    let State { anchor, text, .. } = &mut self.states[child as usize];
                    (*anchor, *text) = place.clone();
                }
                self.by_text.insert(place, child);
                if forced.len() >= TELLING {
                    self.by_forced.insert(forced.into(), child);
                }
                child
            }
        };
        // Near a text's greatest length fewer tokens fit. The same token elsewhere does not mean that.
        let is_about_length = expected == state && count_of(wanted) > NARROW && self.is_more(expected, wanted);
        if !is_about_length && !self.untold.contains(&(state, token)) {
            let at = self.table.set_edge(state, token, child)?;
            self.changed(at);
        }
        Some(child)
    }

    /// A new state that no edge leads to. None if the automaton is full.
    pub fn orphan(&mut self, wanted: TokenSet<'_>) -> Option<u32> {
        if self.states.len() == MaskTable::STATES {
            return None;
        }
        let state = self.states.len() as u32;
        let allowed = match wanted {
            TokenSet::One(token) => Allowed::One(token),
            TokenSet::Bits(bits) => Allowed::Mask(self.row(bits)?),
        };
        if let Allowed::Mask(row) = allowed {
            self.wide[row as usize].1 = state;
        }
        let is_wide = count_of(wanted) as usize >= self.words * 32 / 4;
        self.states.push(State::new(state));
        self.set(state, allowed, if is_wide { state } else { ANYTHING });
        Some(state)
    }

    fn row(&mut self, bits: &[u32]) -> Option<u32> {
        let mut hasher = DefaultHasher::new();
        bits.hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.rows.get(&hash).and_then(|rows| rows.iter().copied().find(|row| self.mask(*row) == bits));
        if known.is_some() {
            return known;
        }
        let row = self.masks.len() / self.words;
        if row == MASKS {
            return None;
        }
        self.masks.extend_from_slice(bits);
        self.wide.push((count(bits), SCRATCH));
        self.rows.entry(hash).or_default().push(row as u32);
        Some(row as u32)
    }

    /// Whether a state allows a part of what the grammar allows.
    fn is_less(&self, state: u32, wanted: TokenSet<'_>) -> bool {
        match (self.table.allowed(state), wanted) {
            (Allowed::Mask(row), TokenSet::Bits(wanted)) => covers(wanted, self.mask(row)),
            _ => false,
        }
    }

    /// Whether a state allows all that the grammar allows.
    fn is_more(&self, state: u32, wanted: TokenSet<'_>) -> bool {
        !matches!(self.compare(state, wanted), MaskMatch::No)
    }

    /// Of the states that allow all of `wanted`, the one that allows the most.
    fn widest(&self, wanted: TokenSet<'_>) -> Option<u32> {
        let TokenSet::Bits(wanted) = wanted else { return None };
        let rows = (0..self.wide.len() as u32).filter(|row| *row != SCRATCH_MASK && covers(self.mask(*row), wanted));
        rows.max_by_key(|row| self.wide[*row as usize]).map(|row| self.wide[row as usize].1)
    }

    fn mask(&self, row: u32) -> &[u32] {
        &self.masks[row as usize * self.words..][..self.words]
    }

    /// Compares a state's mask with what the grammar allows.
    pub fn compare(&self, state: u32, wanted: TokenSet<'_>) -> MaskMatch {
        match (self.table.allowed(state), wanted) {
            (Allowed::All, _) => MaskMatch::Covers,
            (Allowed::One(one), TokenSet::One(wanted)) if one == wanted => MaskMatch::Same,
            (Allowed::One(_), _) => MaskMatch::No,
            (Allowed::Mask(row), TokenSet::One(token)) => {
                if has(self.mask(row), token) {
                    MaskMatch::Covers
                } else {
                    MaskMatch::No
                }
            }
            (Allowed::Mask(row), TokenSet::Bits(wanted)) => {
                let mask = self.mask(row);
                if mask == wanted {
                    return MaskMatch::Same;
                }
                if !covers(mask, wanted) {
                    return MaskMatch::No;
                }
                let wanted = count(wanted);
                if self.wide[row as usize].0 <= wanted + wanted / 4 { MaskMatch::Near } else { MaskMatch::Covers }
            }
        }
    }

    /// The state after some tokens, if it is known.
    pub fn state_after(&self, state: u32, tokens: &[u32]) -> Option<u32> {
        let after = tokens.iter().fold(state, |state, token| self.table.next(state, *token).0);
        (after != ANYTHING).then_some(after)
    }

    /// Looks ahead from a state over up to `tokens` tokens: through forced tokens, and through choices among few tokens. `forced` is what
    /// the grammar forces at this state.
    pub fn explore(&mut self, state: u32, constraint: &dyn Constraint, forced: &[u32], tokens: usize) -> Result<()> {
        if !self.states[state as usize].is_explored
            && let Some(here) = constraint.fork()?
        {
            self.frontier.push_front((here, state, forced.to_vec()));
        }
        self.look_on(tokens)
    }

    /// Goes on looking ahead from where it stopped.
    pub fn look_on(&mut self, mut tokens: usize) -> Result<()> {
        let mut bits = vec![0; self.words];
        while tokens > 0
            && let Some((place, state, forced)) = self.frontier.pop_front()
        {
            if std::mem::replace(&mut self.states[state as usize].is_explored, true) {
                continue;
            }
            let branches = match (&forced[..], self.table.allowed(state)) {
                ([_, ..], _) => vec![forced],
                ([], Allowed::Mask(row)) if count(self.mask(row)) <= NARROW => {
                    ones(self.mask(row)).map(|token| vec![token]).collect()
                }
                _ => continue,
            };
            for branch in branches {
                tokens = tokens.saturating_sub(1);
                if self.follow(&*place, state, &branch, &mut bits)?.is_none() {
                    self.frontier.clear();
                    return Ok(());
                }
            }
        }
        self.frontier.truncate(MOST_PLACES);
        Ok(())
    }

    /// Learns what follows some tokens; all but the first are forced. None if the automaton is full.
    fn follow(&mut self, place: &dyn Constraint, state: u32, tokens: &[u32], bits: &mut [u32]) -> Result<Option<()>> {
        let mut before = state;
        for (at, pair) in tokens.windows(2).enumerate() {
            let Some(child) = self.child(before, pair[0], TokenSet::One(pair[1]), &tokens[at + 1..]) else {
                return Ok(None);
            };
            self.states[child as usize].is_explored = true;
            before = child;
        }
        let (Some(mut after), Some(&last)) = (place.fork()?, tokens.last()) else { return Ok(Some(())) };
        let Advance { taken, forced, is_complete } = after.advance(tokens)?;
        if taken < tokens.len() || is_complete {
            return Ok(Some(()));
        }
        if forced.is_empty() {
            after.mask(bits)?;
        }
        let wanted = TokenSet::of(&forced, bits);
        let Some(child) = self.child(before, last, wanted, &forced) else { return Ok(None) };
        if !self.states[child as usize].is_explored {
            self.frontier.push_back((after, child, forced));
        }
        Ok(Some(()))
    }

    /// The recent average of tokens between two wrong guesses.
    pub fn usual_run(&self) -> usize {
        self.usual_run
    }

    /// A guess was wrong after this many tokens.
    pub fn missed_after(&mut self, tokens: usize) {
        self.usual_run = (self.usual_run + tokens) / 2;
    }

    /// An answer ended this many tokens after a wrong guess or its beginning. It might have gone on without one.
    pub fn ended_after(&mut self, tokens: usize) {
        self.usual_run = self.usual_run.max((self.usual_run + 2 * tokens) / 2);
    }

    /// What the GPU has not got yet.
    pub fn news<'a>(&'a self, scratch: &'a Scratch, uploaded: &mut Uploaded) -> MaskDelta<'a> {
        let (words, masks) = (self.table.words(), self.masks.len() / self.words);
        let mut runs = Vec::new();
        if uploaded.masks < masks {
            runs.push((uploaded.masks, &self.masks[uploaded.masks * self.words..]));
        }
        let has_table = uploaded.table == Some(self.generation);
        let mut table: Vec<(usize, &[u32])> = if has_table {
            self.changes[uploaded.changes..].iter().map(|at| (*at, &words[*at..at + 2])).collect()
        } else {
            vec![(0, words)]
        };
        // The whole table holds nothing of it.
        if uploaded.scratch != scratch.version || (!has_table && scratch.version > 0) {
            runs.push((SCRATCH_MASK as usize, &scratch.mask));
            table.push((2 * SCRATCH as usize, &scratch.words));
        }
        *uploaded =
            Uploaded { table: Some(self.generation), changes: self.changes.len(), masks, scratch: scratch.version };
        MaskDelta { masks: runs, table }
    }
}

fn count(bits: &[u32]) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

fn count_of(wanted: TokenSet<'_>) -> u32 {
    match wanted {
        TokenSet::One(_) => 1,
        TokenSet::Bits(bits) => count(bits),
    }
}

/// Whether all bits of the second are set in the first.
fn covers(bits: &[u32], others: &[u32]) -> bool {
    bits.iter().zip(others).all(|(bits, others)| others & !bits == 0)
}

fn has(bits: &[u32], token: u32) -> bool {
    bits.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

fn ones(bits: &[u32]) -> impl Iterator<Item = u32> {
    let tokens = |(at, word): (usize, &u32)| {
        let word = *word;
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 32 * at as u32 + bit)
    };
    bits.iter().enumerate().flat_map(tokens)
}
