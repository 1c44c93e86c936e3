//! What a rendering may spend besides its steps: bytes and items that it handles, and bytes that it writes.
//!
//! A step of a template may double a text, so steps alone bound neither memory nor time. Whatever makes or reads a value pays for its
//! bytes before it does. Nothing is paid back, so what a rendering pays for also bounds the memory that it ever holds.

use minijinja::{Error, ErrorKind, State};

/// What a rendering may handle. A unit is a byte that is copied; what takes longer than copying costs more.
pub(super) const MOST_WORK: u64 = 256 << 20;

/// Bytes of a rendered text, which are far more than fit a context. What blocks and macros write counts too.
pub(super) const LONGEST_TEXT: u64 = 64 << 20;

/// What the rendering of a state has spent.
#[derive(Default)]
struct Spent {
    work: u64,
    written: u64,
}

/// Pays for work that is about to be done.
pub(super) fn pay(state: &mut State, units: u64) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.work = spent.work.saturating_add(units);
    if spent.work > MOST_WORK {
        return Err(refused(format!("it handles more than {MOST_WORK} bytes of texts and lists")));
    }
    Ok(())
}

/// Pays for a text that is about to be written.
pub(super) fn pay_to_write(state: &mut State, bytes: u64) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.written = spent.written.saturating_add(bytes);
    if spent.written > LONGEST_TEXT {
        return Err(refused(format!("it writes more than {LONGEST_TEXT} bytes")));
    }
    Ok(())
}

/// An error that says what a template may not do.
pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}
