//! Stop strings in streamed text: finds the first one, and holds back text that could be the beginning of one.
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
    stops: Vec<String>,
    /// Text that could be the beginning of a stop string.
    held: String,
    /// Bytes of `held` in which no stop string may end.
    exempt: usize,
    stopped: bool,
}

impl StopStrings {
    /// `Code::InvalidRequest` if a string is empty.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let stops: Vec<String> = stops.into_iter().map(Into::into).collect();
        if stops.iter().any(String::is_empty) {
            bail!(InvalidRequest, "a stop string is empty, wanted at least one character");
        }
        // Of those that begin at the same place the first in the list counts.
        let mut by_length = stops;
        by_length.sort_by_key(String::len);
        Ok(Self { stops: by_length, held: String::new(), exempt: 0, stopped: false })
    }

    /// Takes the next piece. Returns the text that can no longer be part of a stop string.
    pub fn push(&mut self, piece: &str) -> StopProgress {
        if self.stopped {
            return StopProgress::default();
        }
        if self.stops.is_empty() {
            return StopProgress { text: piece.to_owned(), matched: None };
        }
        self.held.push_str(piece);
        self.decide()
    }

    /// Takes a piece in which no stop string may end; if one does, it counts as text. One that begins here may end in a later piece.
    pub fn push_exempt(&mut self, piece: &str) -> StopProgress {
        if self.stopped || self.stops.is_empty() {
            return self.push(piece);
        }
        self.held.push_str(piece);
        self.exempt = self.held.len();
        self.decide()
    }

    fn decide(&mut self) -> StopProgress {
        let undecided = self.first_possible_beginning();
        match self.first() {
            // A longer stop string that began earlier may still be completed, and would count instead of this one.
            Some((start, pattern)) if undecided.is_none_or(|beginning| start <= beginning) => {
                self.stopped = true;
                let mut text = std::mem::take(&mut self.held);
                text.truncate(start);
                StopProgress { text, matched: Some(self.stops[pattern].clone()) }
            }
            _ => {
                let keep_from = undecided.unwrap_or(self.held.len());
                let rest = self.held.split_off(keep_from);
                self.exempt = self.exempt.saturating_sub(keep_from);
                StopProgress { text: std::mem::replace(&mut self.held, rest), matched: None }
            }
        }
    }

    /// The end of the stream. Returns the text held back, up to a whole stop string in it that waited for a longer one.
    pub fn finish(&mut self) -> StopProgress {
        if self.stopped {
            return StopProgress::default();
        }
        self.stopped = true;
        let found = self.first();
        let mut text = std::mem::take(&mut self.held);
        match found {
            Some((start, pattern)) => {
                text.truncate(start);
                StopProgress { text, matched: Some(self.stops[pattern].clone()) }
            }
            None => StopProgress { text, matched: None },
        }
    }

    /// The first stop string in the held text whose end is allowed: where it begins, and its index.
    fn first(&self) -> Option<(usize, usize)> {
        let mut across = (0..self.exempt).filter(|&start| self.held.is_char_boundary(start));
        let across = across.find_map(|start| {
            let tail = &self.held[start..];
            let counts = |stop: &String| start + stop.len() > self.exempt && tail.starts_with(stop.as_str());
            self.stops.iter().position(counts).map(|pattern| (start, pattern))
        });
        across.or_else(|| {
            let after = self.held.get(self.exempt..)?;
            let found = self.stops.iter().enumerate();
            let found = found.filter_map(|(pattern, stop)| Some((self.exempt + after.find(stop.as_str())?, pattern)));
            found.min()
        })
    }

    /// Where the end of the held text could begin a stop string.
    fn first_possible_beginning(&self) -> Option<usize> {
        let longest = self.stops.last().map_or(0, String::len);
        let earliest = self.held.len().saturating_sub(longest.saturating_sub(1));
        (earliest..self.held.len()).filter(|&start| self.held.is_char_boundary(start)).find(|&start| {
            self.stops.iter().any(|stop| {
                let tail = &self.held[start..];
                stop.len() > tail.len() && stop.starts_with(tail)
            })
        })
    }
}
