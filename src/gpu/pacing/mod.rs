//! How submits share the GPU with the page.
//!
//! A page whose frames need the GPU waits for all that was submitted before them. So where the page is to stay smooth, what is flushed goes to
//! the GPU in pieces of a few milliseconds, and the next piece goes when an earlier one is done (`queue`, `backlog`). How long pieces take is learned from
//! when they were done (`costs`). Order is that of the flushes, so a cut changes no result.

mod backlog;
mod clock;
mod costs;
mod queue;

use std::cell::Cell;

use web_time::Duration;

pub(super) use backlog::Segment;
pub(super) use queue::SubmitQueue;

/// The work of a submit. It outlasts the 1 to 3 ms that a browser takes to say that a submit is done, so with two of them the GPU does not
/// wait, and a frame of 16.7 ms has room for both and for itself.
pub(super) const TARGET: Duration = Duration::from_millis(6);

/// The most work that is submitted and not done, unless a single dispatch takes longer.
pub(super) const MOST_QUEUED: Duration = Duration::from_millis(12);

/// How much more may be submitted of work that finds an idle GPU, until the first part of it is done. So a short prompt waits less, and one frame
/// is late by one at most.
pub(super) const BURST: Duration = Duration::from_millis(12);

thread_local! {
    static PAGE_IS_HIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Tells all devices of this thread whether anybody sees the page that they work for. While nobody does, nothing is cut.
pub fn set_page_hidden(is_hidden: bool) {
    PAGE_IS_HIDDEN.set(is_hidden);
}

fn is_page_hidden() -> bool {
    PAGE_IS_HIDDEN.get()
}
