//! The rings that steps write to, a slot for each step: sampled tokens, and what is read with them.

/// Slots of a ring; more than steps can be in flight.
pub const RING: usize = 128;

/// The places of the slots of some steps in a ring: at most as many as it has slots.
pub fn ring_ranges(first: usize, steps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let begin = first % RING;
    let before_wrap = steps.min(RING - begin);
    [begin..begin + before_wrap, 0..steps - before_wrap].into_iter().filter(|range| !range.is_empty())
}
