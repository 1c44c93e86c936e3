//! Runs of ids, such as those of the buffers that one step made.

/// The ids after the first one, up to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdRange {
    pub after: u64,
    pub last: u64,
}

impl IdRange {
    pub fn contains(self, id: u64) -> bool {
        (self.after + 1..=self.last).contains(&id)
    }
}

#[derive(Default)]
pub(super) struct IdRanges(Vec<IdRange>);

impl IdRanges {
    pub fn push(&mut self, range: IdRange) {
        self.0.push(range);
    }

    /// Takes one back that equals this one, if there is one.
    pub fn remove(&mut self, range: IdRange) {
        if let Some(at) = self.0.iter().position(|other| *other == range) {
            self.0.swap_remove(at);
        }
    }

    pub fn contains(&self, id: u64) -> bool {
        self.0.iter().any(|range| range.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ranges_are_taken_back_one_by_one() {
        let range = IdRange { after: 3, last: 5 };
        let mut ranges = IdRanges::default();
        [range, range, IdRange { after: 9, last: 9 }].into_iter().for_each(|range| ranges.push(range));
        assert_eq!([3, 4, 5, 6, 9].map(|id| ranges.contains(id)), [false, true, true, false, false]);
        ranges.remove(range);
        assert!(ranges.contains(4));
        ranges.remove(range);
        ranges.remove(range);
        assert!(!ranges.contains(4));
    }
}
