//! Which rows of a table a cache holds, and where. What makes room is found by CLOCK, which comes close to the least recently used row (Corbató 1968, "A paging
//! experiment with the Multics system"). Rows that somebody holds stay.

/// The place of a row that the cache doesn't hold.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Place {
    row: Option<u32>,
    leases: u32,
    /// Used since the hand came by.
    is_used: bool,
}

pub(super) struct Clock {
    places: Vec<Place>,
    hand: usize,
    /// The place of each row of the table, or `NOWHERE`.
    of_rows: Vec<u32>,
}

/// Rows that got places.
pub(super) struct Placed {
    /// In the order of the rows.
    pub places: Vec<usize>,
    /// The rows whose place is another one now: these, and those that made room.
    pub changed: Vec<u32>,
}

impl Clock {
    /// An empty cache of `places` rows of a table with this number of rows.
    pub fn new(places: usize, rows: usize) -> Self {
        Self { places: vec![Place::default(); places], hand: 0, of_rows: vec![NOWHERE; rows] }
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn of_rows(&self) -> &[u32] {
        &self.of_rows
    }

    /// Holds a row that is there, until its place is given back.
    pub fn lease(&mut self, row: u32) -> Option<usize> {
        let at = *self.of_rows.get(row as usize)? as usize;
        let place = self.places.get_mut(at)?;
        (place.leases, place.is_used) = (place.leases + 1, true);
        Some(at)
    }

    /// Finds places for rows that are not there, and holds them. `None` if too many are held; then nothing changes.
    pub fn place(&mut self, rows: &[u32]) -> Option<Placed> {
        let mut places = Vec::with_capacity(rows.len());
        for _ in rows {
            let Some(at) = self.free_place() else {
                self.give_back(&places);
                return None;
            };
            self.places[at].leases += 1;
            places.push(at);
        }
        let mut changed = Vec::with_capacity(2 * rows.len());
        for (at, row) in places.iter().zip(rows) {
            let place = &mut self.places[*at];
            place.is_used = true;
            if let Some(old) = place.row.replace(*row) {
                self.of_rows[old as usize] = NOWHERE;
                changed.push(old);
            }
            self.of_rows[*row as usize] = *at as u32;
            changed.push(*row);
        }
        Some(Placed { places, changed })
    }

    pub fn give_back(&mut self, places: &[usize]) {
        for at in places {
            self.places[*at].leases -= 1;
        }
    }

    /// A place that nobody holds.
    fn free_place(&mut self) -> Option<usize> {
        for _ in 0..2 * self.places.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.places.len();
            let place = &mut self.places[at];
            if place.leases == 0 && !std::mem::take(&mut place.is_used) {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const ROWS: usize = 40;

    /// As the cache does it: what is there is held, and what is not gets a place. False if there was no room.
    fn hold(clock: &mut Clock, wanted: &BTreeSet<u32>) -> Option<Vec<(u32, usize)>> {
        let mut held = Vec::new();
        let mut missing = Vec::new();
        for row in wanted {
            match clock.lease(*row) {
                Some(at) => held.push((*row, at)),
                None => missing.push(*row),
            }
        }
        match clock.place(&missing) {
            Some(placed) => held.extend(missing.into_iter().zip(placed.places)),
            None => {
                clock.give_back(&held.iter().map(|(_, at)| *at).collect::<Vec<_>>());
                return None;
            }
        }
        Some(held)
    }

    proptest! {
        /// Whoever holds rows finds each of them in a place of its own, whatever others hold and give back; and there is no room only if there is none.
        #[test]
        fn rows_that_are_held_stay(
            places in 1usize..24,
            steps in prop::collection::vec((any::<bool>(), prop::collection::btree_set(0..ROWS as u32, 0..12)), 1..60),
        ) {
            let mut clock = Clock::new(places, ROWS);
            let mut holders: Vec<Vec<(u32, usize)>> = Vec::new();
            for (gives_back, wanted) in steps {
                if gives_back && !holders.is_empty() {
                    let first = holders.remove(0);
                    clock.give_back(&first.iter().map(|(_, at)| *at).collect::<Vec<_>>());
                }
                let before: BTreeSet<u32> = holders.iter().flatten().map(|(row, _)| *row).collect();
                let needed = before.union(&wanted).count();
                match hold(&mut clock, &wanted) {
                    Some(held) => {
                        prop_assert_eq!(held.len(), wanted.len());
                        holders.push(held);
                    }
                    None => prop_assert!(needed > places, "{} rows in {} places", needed, places),
                }
                for (row, at) in holders.iter().flatten() {
                    prop_assert_eq!(clock.of_rows()[*row as usize] as usize, *at);
                }
                let there: Vec<u32> = clock.of_rows().iter().copied().filter(|at| *at != NOWHERE).collect();
                let apart: BTreeSet<&u32> = there.iter().collect();
                prop_assert!(apart.len() == there.len() && there.len() <= places);
                for (at, place) in clock.places.iter().enumerate() {
                    prop_assert!(place.row.is_none_or(|row| clock.of_rows()[row as usize] as usize == at));
                }
            }
            for held in holders {
                clock.give_back(&held.iter().map(|(_, at)| *at).collect::<Vec<_>>());
            }
            prop_assert!(clock.places.iter().all(|place| place.leases == 0));
        }
    }

    #[test]
    fn what_was_used_again_outlives_what_was_not() {
        let mut clock = Clock::new(4, ROWS);
        let hold_and_give_back = |clock: &mut Clock, rows: &[u32]| {
            let held = hold(clock, &rows.iter().copied().collect()).unwrap();
            clock.give_back(&held.iter().map(|(_, at)| *at).collect::<Vec<_>>());
        };
        hold_and_give_back(&mut clock, &[0, 1, 2, 3]);
        // The hand takes the marks away once.
        hold_and_give_back(&mut clock, &[4]);
        hold_and_give_back(&mut clock, &[2]);
        hold_and_give_back(&mut clock, &[5, 6]);
        let there = |row: usize| clock.of_rows()[row] != NOWHERE;
        assert!(there(2) && there(5) && there(6) && !there(1), "{:?}", clock.of_rows());
    }
}
