//! Lists of things that may be gone.

/// Adds to a list. When it would grow, those that are not kept are swept out; it grows if more than half of it stays, so that a sweep is paid for by as
/// many additions.
pub(super) fn push_swept<T>(list: &mut Vec<T>, item: T, keep: impl FnMut(&T) -> bool) {
    if list.len() == list.capacity() {
        list.retain(keep);
        if list.len() > list.capacity() / 2 {
            list.reserve(list.capacity() + 1);
        }
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use super::push_swept;
    use std::cell::Cell;

    #[test]
    fn a_sweep_is_paid_for_by_additions() {
        let looked_at = Cell::new(0);
        let mut list = Vec::new();
        // Most of it stays, and one goes before each addition.
        for item in 0..10_000 {
            push_swept(&mut list, item, |other| {
                looked_at.set(looked_at.get() + 1);
                *other != item - 5000
            });
        }
        assert!(looked_at.get() < 40_000, "{}", looked_at.get());
        // What goes makes room.
        let mut list = Vec::new();
        (0..10_000).for_each(|item| push_swept(&mut list, item, |other| *other + 10 > item));
        assert!(list.capacity() < 64);
    }
}
