//! What waits for reuse, by size, within a budget.
//!
//! Invariants:
//! - What waits and what is in use take together at most what was in use at one time lately, or [`SPARE`] more than is in use. So reuse never
//!   takes more memory than the work itself has taken.
//! - What has waited longest goes first, so that sizes which are no longer asked for make room for those that are.

use std::collections::{HashMap, VecDeque};

/// Bytes that may wait in any case.
pub(super) const SPARE: u64 = 192 << 20;

/// How many submissions are a window. "Lately" is the window of the last submission and the one before it.
const WINDOW: u64 = 64;

pub(super) struct FreeList<T> {
    /// Those of a size, the one that came last at the end, each with its number in the order in which they came.
    by_size: HashMap<u64, VecDeque<(u64, T)>>,
    last_number: u64,
    waiting_bytes: u64,
    used_bytes: u64,
    /// The most bytes in use at one time, in the window before and in this one.
    peaks: [u64; 2],
    window: u64,
}

impl<T> Default for FreeList<T> {
    fn default() -> Self {
        Self { by_size: HashMap::new(), last_number: 0, waiting_bytes: 0, used_bytes: 0, peaks: [0; 2], window: 0 }
    }
}

impl<T> FreeList<T> {
    /// One of this size for which `fits` holds, the one that came last; `None` if there is none, and the caller makes one. It is in use from now on.
    pub fn take_where(&mut self, size: u64, submission: u64, fits: impl Fn(&T) -> bool) -> Option<T> {
        let found = self.by_size.get_mut(&size).and_then(|items| {
            let at = items.iter().rposition(|(_, item)| fits(item))?;
            items.remove(at)
        });
        if found.is_some() {
            self.waiting_bytes -= size;
        }
        self.used_bytes += size;
        self.turn(submission);
        self.peaks[1] = self.peaks[1].max(self.used_bytes);
        found.map(|(_, item)| item)
    }

    /// Takes back what could not be made after all.
    pub fn not_taken(&mut self, size: u64) {
        self.used_bytes -= size;
    }

    /// Takes one of this size back.
    pub fn put(&mut self, size: u64, item: T, submission: u64) {
        self.used_bytes -= size;
        self.turn(submission);
        self.last_number += 1;
        self.waiting_bytes += size;
        self.by_size.entry(size).or_default().push_back((self.last_number, item));
    }

    /// Gives up what is over the budget, after one was taken or put.
    pub fn take_excess(&mut self) -> Vec<T> {
        let limit = self.limit();
        let mut gone = Vec::new();
        while self.waiting_bytes > limit
            && let Some(item) = self.pop_oldest()
        {
            gone.push(item);
        }
        gone
    }

    /// Gives up those for which `gone` holds.
    pub fn remove_where(&mut self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for (size, items) in &mut self.by_size {
            let (out, stay): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(items).into_iter().partition(|(_, item)| gone(item));
            *items = stay;
            self.waiting_bytes -= size * out.len() as u64;
            removed.extend(out.into_iter().map(|(_, item)| item));
        }
        self.by_size.retain(|_, items| !items.is_empty());
        removed
    }

    /// Gives up the largest ones until at most `bytes` wait.
    pub fn shrink(&mut self, bytes: u64) -> Vec<T> {
        let mut sizes: Vec<u64> = self.by_size.keys().copied().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut gone = Vec::new();
        for size in sizes {
            while self.waiting_bytes > bytes
                && let Some((_, item)) = self.by_size.get_mut(&size).and_then(VecDeque::pop_front)
            {
                self.waiting_bytes -= size;
                gone.push(item);
            }
        }
        self.by_size.retain(|_, items| !items.is_empty());
        self.peaks = [0, self.used_bytes];
        gone
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.by_size.values().map(VecDeque::len).sum()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.waiting_bytes
    }

    fn limit(&self) -> u64 {
        let peak = self.peaks[0].max(self.peaks[1]);
        SPARE.max(peak.saturating_sub(self.used_bytes))
    }

    fn turn(&mut self, submission: u64) {
        let window = submission / WINDOW;
        if window != self.window {
            let before = if window == self.window + 1 { self.peaks[1] } else { 0 };
            self.peaks = [before, self.used_bytes];
            self.window = window;
        }
    }

    fn pop_oldest(&mut self) -> Option<T> {
        let first = |items: &VecDeque<(u64, T)>| items.front().map(|(number, _)| *number);
        let oldest = self.by_size.iter().filter_map(|(size, items)| Some((first(items)?, *size))).min()?;
        let items = self.by_size.get_mut(&oldest.1)?;
        let (_, item) = items.pop_front()?;
        if items.is_empty() {
            self.by_size.remove(&oldest.1);
        }
        self.waiting_bytes -= oldest.1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    impl<T> FreeList<T> {
        fn take(&mut self, size: u64, submission: u64) -> Option<T> {
            self.take_where(size, submission, |_| true)
        }
    }

    #[test]
    fn what_does_not_fit_stays() {
        let mut list = FreeList::default();
        (0..3).for_each(|_| assert_eq!(list.take(MIB, 0), None));
        (0..3).for_each(|item| list.put(MIB, item, 0));
        let odd = |item: &i32| item % 2 == 1;
        assert_eq!((list.take_where(MIB, 0, odd), list.take_where(MIB, 0, odd)), (Some(1), None));
        assert_eq!((list.len(), list.bytes()), (2, 2 * MIB));
        assert_eq!((list.take(MIB, 0), list.take(MIB, 0), list.take(MIB, 0)), (Some(2), Some(0), None));
    }

    #[test]
    fn sizes_that_are_no_longer_asked_for_make_room() {
        let mut list = FreeList::default();
        for _ in 0..3 {
            list.take(64 * MIB, 0);
        }
        (0..3).for_each(|item| list.put(64 * MIB, item, 3));
        assert!(list.take_excess().is_empty());
        // Two at a time of another size, long after.
        for submission in 1000..1010 {
            let taken = [list.take(7 * MIB, submission), list.take(7 * MIB, submission)];
            assert_eq!(taken.map(|item| item.is_some()), [submission > 1000; 2], "at {submission}");
            taken.into_iter().for_each(|item| list.put(7 * MIB, item.unwrap_or(submission), submission));
            list.take_excess();
        }
        assert!(list.bytes() <= SPARE, "{} bytes", list.bytes());
    }

    #[test]
    fn work_that_takes_more_than_what_is_spare_reuses_it() {
        let mut list = FreeList::default();
        for submission in 0..100 {
            (0..8).for_each(|_| assert_eq!(list.take(64 * MIB, submission).is_some(), submission > 0));
            (0..8).for_each(|item| list.put(64 * MIB, item, submission));
            assert!(list.take_excess().is_empty());
        }
        // Later work that needs less keeps less.
        for submission in 100..300 {
            let taken = list.take(MIB, submission);
            list.put(MIB, taken.unwrap_or(submission), submission);
            list.take_excess();
        }
        assert!(list.bytes() <= SPARE, "{} bytes", list.bytes());
    }

    proptest! {
        /// Against plain lists: sizes and sums are right, and what waits keeps within the budget.
        #[test]
        fn keeps_within_its_budget(steps in proptest::collection::vec((1u64..200, any::<bool>(), 0u64..40), 0..300)) {
            let mut list = FreeList::default();
            let mut used: Vec<(u64, u64)> = Vec::new();
            let (mut made, mut submission) = (0, 0);
            let mut history: Vec<(u64, u64)> = Vec::new();
            for (size, takes, later) in steps {
                submission += later;
                if takes || used.is_empty() {
                    let size = size * MIB;
                    let item = list.take(size, submission).unwrap_or_else(|| {
                        made += 1;
                        (size, made)
                    });
                    prop_assert_eq!(item.0, size);
                    prop_assert!(!used.contains(&item), "one item is in one place");
                    used.push(item);
                } else {
                    let item = used.remove((size as usize * 7) % used.len());
                    list.put(item.0, item, submission);
                }
                for gone in list.take_excess() {
                    prop_assert!(!used.contains(&gone));
                }
                let in_use: u64 = used.iter().map(|(size, _)| size).sum();
                history.push((submission, in_use));
                let lately = history.iter().filter(|(at, _)| at + 2 * WINDOW >= submission).map(|(_, bytes)| *bytes);
                let peak = lately.max().unwrap_or(0);
                prop_assert!(list.bytes() + in_use <= peak.max(in_use + SPARE));
                prop_assert_eq!(list.used_bytes, in_use);
                prop_assert_eq!(list.bytes(), list.by_size.iter().map(|(size, items)| size * items.len() as u64).sum::<u64>());
            }
            let waiting = list.len();
            prop_assert_eq!(list.shrink(0).len(), waiting);
            prop_assert_eq!((list.len(), list.bytes()), (0, 0));
        }
    }
}
