//! Stop strings in streamed text: finds the first one, and holds back text that could be the beginning of one. In linear time, by the automaton
//! of Knuth, Morris and Pratt (1977).
//!
//! Must not know tokens: a stop string may begin and end in the middle of one.

use crate::error::Result;

/// What became final with a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopProgress {
    /// Text before any stop string, to be returned.
    pub text: String,
    /// The stop string that was found. The text after it and all later pieces are dropped.
    pub matched: Option<String>,
}

/// Looks for stop strings in a stream of text. The one that begins first ends the text. If several begin at the same place, the shortest
/// one does, because it is complete first.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    /// The shortest first.
    stops: Vec<Automaton>,
    /// Text that could be the beginning of a stop string.
    held: String,
    /// Of the stop strings that were found, the one that begins first: where in `held`, and its index. A longer one that began earlier may
    /// still be completed, and would count instead.
    found: Option<(usize, usize)>,
    stopped: bool,
}

/// A stop string, and how much of it the text ends with.
#[derive(Clone, Debug)]
struct Automaton {
    stop: String,
    /// For each length of a beginning, that of the longest shorter beginning that it ends with.
    shorter: Vec<usize>,
    /// Bytes of the longest beginning that the text ends with; less than all.
    matched: usize,
}

impl Automaton {
    fn new(stop: String) -> Self {
        let mut automaton = Self { shorter: vec![0; stop.len() + 1], stop, matched: 0 };
        for end in 1..automaton.stop.len() {
            automaton.step(automaton.stop.as_bytes()[end]);
            automaton.shorter[end + 1] = automaton.matched;
        }
        automaton.matched = 0;
        automaton
    }

    /// Takes a byte of the text, and tells whether the stop string ends with it.
    fn push(&mut self, byte: u8) -> bool {
        self.step(byte);
        let is_whole = self.matched == self.stop.len();
        if is_whole {
            self.matched = self.shorter[self.matched];
        }
        is_whole
    }

    fn step(&mut self, byte: u8) {
        while self.matched > 0 && self.stop.as_bytes()[self.matched] != byte {
            self.matched = self.shorter[self.matched];
        }
        self.matched += usize::from(self.stop.as_bytes()[self.matched] == byte);
    }
}

impl StopStrings {
    /// `Code::InvalidRequest` if a string is empty.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let mut stops: Vec<String> = stops.into_iter().map(Into::into).collect();
        if stops.iter().any(String::is_empty) {
            bail!(InvalidRequest, "a stop string is empty, wanted at least one character");
        }
        stops.sort_by_key(String::len);
        Ok(Self { stops: stops.into_iter().map(Automaton::new).collect(), ..Self::default() })
    }

    /// Takes the next piece. Returns the text that can no longer be part of a stop string.
    pub fn push(&mut self, piece: &str) -> StopProgress {
        self.take(piece, true)
    }

    /// Takes a piece in which no stop string may end; if one does, it counts as text. One that begins here may end in a later piece.
    pub fn push_exempt(&mut self, piece: &str) -> StopProgress {
        self.take(piece, false)
    }

    fn take(&mut self, piece: &str, may_end: bool) -> StopProgress {
        if self.stopped {
            return StopProgress::default();
        }
        if self.stops.is_empty() {
            return StopProgress { text: piece.to_owned(), matched: None };
        }
        let before = self.held.len();
        self.held.push_str(piece);
        for (at, byte) in piece.bytes().enumerate() {
            for (index, automaton) in self.stops.iter_mut().enumerate() {
                if automaton.push(byte) && may_end {
                    let candidate = (before + at + 1 - automaton.stop.len(), index);
                    self.found = Some(self.found.map_or(candidate, |found| found.min(candidate)));
                }
            }
        }
        self.decide()
    }

    fn decide(&mut self) -> StopProgress {
        let longest = self.stops.iter().map(|automaton| automaton.matched).max().unwrap_or(0);
        let undecided = self.held.len() - longest;
        if let Some((start, _)) = self.found
            && start <= undecided
        {
            return self.finish();
        }
        let keep_from = self.found.map_or(undecided, |(start, _)| undecided.min(start));
        let rest = self.held.split_off(keep_from);
        self.found = self.found.map(|(start, index)| (start - keep_from, index));
        StopProgress { text: std::mem::replace(&mut self.held, rest), matched: None }
    }

    /// The end of the stream. Returns the text held back, up to a whole stop string in it that waited for a longer one.
    pub fn finish(&mut self) -> StopProgress {
        if self.stopped {
            return StopProgress::default();
        }
        self.stopped = true;
        let mut text = std::mem::take(&mut self.held);
        let matched = self.found.map(|(start, index)| {
            text.truncate(start);
            self.stops[index].stop.clone()
        });
        StopProgress { text, matched }
    }
}
