//! A place in an expression, and what stands there.

use super::syntax::Refusal;

pub(super) type Parsed<T> = Result<T, Refusal>;

pub(super) fn refuse<T>(what: &'static str, at: usize) -> Parsed<T> {
    Err(Refusal { what, at })
}

/// An expression. Places are in bytes.
pub(super) struct Scanner<'e> {
    pub text: &'e str,
    /// Whether blanks and comments are left out.
    pub spaced: bool,
}

impl<'e> Scanner<'e> {
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// The character at a place, which is not the end.
    pub(super) fn char(&self, at: usize) -> Parsed<char> {
        self.rest(at).chars().next().ok_or(Refusal { what: "an unexpected end", at })
    }

    pub(super) fn rest(&self, at: usize) -> &'e str {
        self.text.get(at..).unwrap_or_default()
    }

    /// Behind a comment and, where they are to be left out, blanks.
    pub(super) fn blanks(&self, mut at: usize) -> Parsed<usize> {
        loop {
            match self.byte(at) {
                Some(b'#') if self.spaced => at = self.rest(at).find('\n').map_or(self.text.len(), |end| at + end + 1),
                Some(b' ' | b'\r' | b'\n' | b'\t') if self.spaced => at += 1,
                Some(b'(') if self.rest(at).starts_with("(?#") => {
                    let from = at;
                    at += 3;
                    loop {
                        match self.byte(at) {
                            None => return refuse("a comment without an end", from),
                            Some(b')') => break at += 1,
                            Some(b'\\') => at += 2,
                            Some(_) => at += 1,
                        }
                    }
                }
                _ => return Ok(at),
            }
        }
    }
}
