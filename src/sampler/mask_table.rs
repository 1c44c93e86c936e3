//! The allowed tokens, by the state of an automaton that every chosen token advances. So steps can be masked that were submitted before
//! the tokens before them were read. The kernel `mask_logits` reads the table. The CPU checks the state of each step afterwards, so a
//! wrong or incomplete table costs time and never gives a wrong token.
//!
//! The table is `STATES` pairs of words (what a state allows, and the state after any token without an edge), and then `SLOTS` pairs
//! of an edge's key and the state that it leads to: a hash table with open addressing and linear probing (Knuth, The
//! Art of Computer Programming, volume 3, section 6.4), with multiplicative hashing.

use crate::tensor::Define;

const TOKEN_BITS: u32 = 22;
const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
/// The number of slots that a key may be in.
const PROBES: usize = 16;
/// 2^32 divided by the golden ratio.
const MULTIPLIER: u32 = 0x9E37_79B9;
const EMPTY: u32 = u32::MAX;
const ALL: u32 = u32::MAX;
const ONE: u32 = 1 << 31;
const LAST_STATE: u32 = (1 << 31) - 1;

/// What a state allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allowed {
    All,
    /// A single token.
    One(u32),
    /// The tokens of a mask, by its row.
    Mask(u32),
}

impl Allowed {
    fn word(self) -> u32 {
        match self {
            Self::All => ALL,
            Self::One(token) => ONE | token,
            Self::Mask(mask) => mask,
        }
    }

    fn of(word: u32) -> Self {
        match word {
            ALL => Self::All,
            word if word & ONE != 0 => Self::One(word & !ONE),
            mask => Self::Mask(mask),
        }
    }
}

/// The table's words.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskTable(Vec<u32>);

impl MaskTable {
    pub const STATES: usize = 1 << (32 - TOKEN_BITS);
    pub const WORDS: usize = 2 * Self::STATES + 2 * SLOTS;
    /// Set in a step's state to make it the state of the next step, whatever token was chosen.
    pub const ENTRY: u32 = 1 << 31;
    /// The state of a sequence without a grammar in a batch with grammars: it allows everything, and stays.
    pub const FREE: u32 = LAST_STATE;

    /// A table whose states allow everything and lead to themselves.
    pub fn new() -> Self {
        let mut words = vec![EMPTY; Self::WORDS];
        for state in 0..Self::STATES {
            words[2 * state + 1] = state as u32;
        }
        Self(words)
    }

    pub fn from_words(words: Vec<u32>) -> Self {
        Self(words)
    }

    pub fn words(&self) -> &[u32] {
        &self.0
    }

    /// Sets what a state allows, and its default next state. Returns the index of the first of the two changed words.
    pub fn set_state(&mut self, state: u32, allowed: Allowed, fallback: u32) -> usize {
        let at = 2 * state as usize;
        self.0[at..at + 2].copy_from_slice(&Self::state_words(allowed, fallback));
        at
    }

    /// The two words of a state.
    pub fn state_words(allowed: Allowed, fallback: u32) -> [u32; 2] {
        [allowed.word(), fallback]
    }

    pub fn allowed(&self, state: u32) -> Allowed {
        Allowed::of(self.0[2 * state as usize])
    }

    /// Adds an edge from a state to another with a token. Returns the index of the first of the two changed words; `None` if there is no
    /// room.
    pub fn set_edge(&mut self, state: u32, token: u32, to: u32) -> Option<usize> {
        let key = key(state, token)?;
        let at = slots(key).find(|at| matches!(self.0[*at], EMPTY) || self.0[*at] == key)?;
        self.0[at] = key;
        self.0[at + 1] = to;
        Some(at)
    }

    /// The state after a token, and whether an edge leads to it.
    pub fn next(&self, state: u32, token: u32) -> (u32, bool) {
        let fallback = (self.0[2 * state as usize + 1], false);
        let Some(key) = key(state, token) else { return fallback };
        for at in slots(key) {
            match self.0[at] {
                EMPTY => break,
                other if other == key => return (self.0[at + 1], true),
                _ => {}
            }
        }
        fallback
    }

    pub(super) fn defines() -> Vec<(&'static str, Define)> {
        let word = |word: usize| Define::U32(word as u32);
        vec![
            ("EDGES", word(2 * Self::STATES)),
            ("TABLE_WORDS", word(Self::WORDS)),
            ("FREE", Define::U32(Self::FREE)),
            ("TOKEN_BITS", Define::U32(TOKEN_BITS)),
            ("SLOT_BITS", Define::U32(SLOT_BITS)),
            ("PROBES", word(PROBES)),
            ("MULTIPLIER", Define::U32(MULTIPLIER)),
        ]
    }
}

impl Default for MaskTable {
    fn default() -> Self {
        Self::new()
    }
}

fn key(state: u32, token: u32) -> Option<u32> {
    let key = (token >> TOKEN_BITS == 0).then_some(state << TOKEN_BITS | token);
    key.filter(|key| *key != EMPTY)
}

/// Where a key's pair may begin.
fn slots(key: u32) -> impl Iterator<Item = usize> {
    let first = (key.wrapping_mul(MULTIPLIER) >> (32 - SLOT_BITS)) as usize;
    (0..PROBES).map(move |probe| 2 * MaskTable::STATES + 2 * ((first + probe) % SLOTS))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::tensor::Rng;

    #[test]
    fn edges_lead_where_they_were_set_to() {
        let mut rng = Rng(3);
        let (mut table, mut model, mut refused) = (MaskTable::new(), HashMap::new(), 0);
        for _ in 0..3000 {
            let (state, token) = (rng.below(MaskTable::STATES) as u32, rng.below(1 << 18) as u32);
            let to = rng.below(MaskTable::STATES) as u32;
            match table.set_edge(state, token, to) {
                Some(_) => _ = model.insert((state, token), to),
                None => refused += 1,
            }
        }
        assert!(refused < 150, "{refused}");
        for (&(state, token), &to) in &model {
            assert_eq!(table.next(state, token), (to, true));
            assert_eq!(table.allowed(state), Allowed::All);
        }
        let unknown = (0..).find(|token| !model.contains_key(&(7, *token))).unwrap();
        assert_eq!(table.next(7, unknown), (7, false));
        table.set_state(7, Allowed::One(12), 9);
        assert_eq!((table.next(7, unknown), table.allowed(7)), ((9, false), Allowed::One(12)));
    }

    #[test]
    fn tokens_beyond_the_keys_have_no_edges() {
        let mut table = MaskTable::new();
        assert_eq!(table.set_edge(1, 1 << TOKEN_BITS, 5), None);
        assert_eq!(table.next(1, 1 << TOKEN_BITS), (1, false));
        // The key that would equal an empty slot.
        assert_eq!(table.set_edge(MaskTable::STATES as u32 - 1, (1 << TOKEN_BITS) - 1, 5), None);
    }
}
