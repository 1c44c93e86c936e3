//! A copy of a buffer's bytes in a team's memory, so that threads get what they read again and again once: keys and values.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::kernel::Problem;
use super::team::{Team, TeamAddress, TeamBytes};

/// Ranges that are known to be the same in both, at most. Each sequence of a cache has one.
const MOST_RANGES: usize = 64;

#[derive(Default)]
enum Place {
    /// Nobody asked for it.
    #[default]
    None,
    NoRoom,
    There(TeamBytes),
}

/// The copy, if there is one, and which bytes are there as they are in the buffer: ranges that neither overlap nor touch.
#[derive(Default)]
pub struct Twins {
    place: Place,
    fresh: Vec<Range<usize>>,
}

impl Twins {
    /// These bytes were overwritten, or will be.
    pub fn changed(&mut self, range: Range<usize>) {
        if range.is_empty() || self.fresh.is_empty() {
            return;
        }
        let around = |fresh: Range<usize>| {
            let before = fresh.start..fresh.end.min(range.start);
            let after = fresh.start.max(range.end)..fresh.end;
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        self.fresh = std::mem::take(&mut self.fresh).into_iter().flat_map(around).collect();
    }

    /// What of `range` is not the same in both.
    fn missing(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut parts = vec![range.clone()];
        for fresh in &self.fresh {
            let without = |part: Range<usize>| {
                [part.start..part.end.min(fresh.start), part.start.max(fresh.end)..part.end]
                    .into_iter()
                    .filter(|part| !part.is_empty())
            };
            parts = parts.into_iter().flat_map(without).collect();
        }
        parts
    }

    fn is_fresh(&mut self, mut range: Range<usize>) {
        self.fresh.retain(|other| {
            let touches = other.start <= range.end && range.start <= other.end;
            if touches {
                range = range.start.min(other.start)..range.end.max(other.end);
            }
            !touches
        });
        if self.fresh.len() >= MOST_RANGES {
            self.fresh.clear();
        }
        self.fresh.push(range);
    }
}

/// The twin of bytes that are lent.
#[derive(Clone, Copy)]
pub struct Twin<'a> {
    pub(crate) of: &'a RefCell<Twins>,
    /// Where the bytes begin in their buffer.
    pub(crate) first: usize,
    /// Bytes of the buffer.
    pub(crate) size: usize,
}

impl Twin<'_> {
    fn within(&self, range: &Range<usize>) -> Range<usize> {
        self.first + range.start..self.first + range.end
    }

    pub(crate) fn changed(&self, range: &Range<usize>) {
        self.of.borrow_mut().changed(self.within(range));
    }

    /// Where in the team's memory there is a range of `bytes`, which are those that were lent; there it is as here. `None` if there is no room for
    /// the whole buffer, or none of such a range.
    pub fn address(
        &self,
        team: &Arc<dyn Team>,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<Option<TeamAddress>, Problem> {
        if range.start > range.end || range.end > bytes.len() {
            return Ok(None);
        }
        let mut twins = self.of.borrow_mut();
        if matches!(twins.place, Place::None) {
            twins.place = TeamBytes::new(team, self.size).map_or(Place::NoRoom, Place::There);
        }
        let Place::There(there) = &twins.place else { return Ok(None) };
        let within = self.within(&range);
        let at = there.at() + within.start as TeamAddress;
        for part in twins.missing(&within) {
            let from = part.start - self.first..part.end - self.first;
            there.team().write(there.at() + part.start as TeamAddress, &bytes[from])?;
        }
        twins.is_fresh(within);
        Ok(Some(at))
    }
}

impl fmt::Debug for Twin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Twin of bytes from {} on", self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every change and every question against a table of bytes.
    #[test]
    fn what_is_missing_is_what_changed_since() {
        let mut state = 7u32;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % limit
        };
        const SIZE: usize = 50;
        let (mut twins, mut is_fresh) = (Twins::default(), [false; SIZE]);
        for _ in 0..20_000 {
            let start = below(SIZE);
            let range = start..start + below(SIZE - start + 1);
            if below(2) == 0 {
                twins.changed(range.clone());
                is_fresh[range].fill(false);
                continue;
            }
            let mut missing = [false; SIZE];
            for part in twins.missing(&range) {
                assert!(missing[part.clone()].iter().all(|is_there| !is_there), "{part:?} is there twice");
                missing[part].fill(true);
            }
            for at in 0..SIZE {
                assert_eq!(missing[at], range.contains(&at) && !is_fresh[at], "byte {at} of {range:?}");
            }
            twins.is_fresh(range.clone());
            is_fresh[range].fill(true);
            let mut sorted = twins.fresh.clone();
            sorted.sort_by_key(|range| range.start);
            assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start), "{sorted:?}");
        }
    }

    #[test]
    fn too_many_ranges_are_forgotten() {
        let mut twins = Twins::default();
        for at in 0..MOST_RANGES + 3 {
            twins.is_fresh(10 * at..10 * at + 5);
        }
        assert_eq!(twins.fresh.len(), 3);
        let missing: Vec<usize> = twins.missing(&(0..5)).into_iter().flatten().collect();
        assert_eq!(missing, [0, 1, 2, 3, 4], "the first is among them");
    }
}
