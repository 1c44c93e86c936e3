//! A cache with a fixed number of entries that evicts in the order of insertion.
//!
//! FIFO rather than LRU: a hit only reads the map. A decode step asks for the same entries in the same order every time, so both
//! would evict the same entries.
//!
//! Invariant: an entry that somebody else holds (its `Rc` count is above one: the open step or a recording) is pinned
//! and never evicted. If the oldest entries are pinned, a new value is not kept, so the limit holds. Only a few are looked at, so
//! that a miss costs the same whatever the number of entries; those that are pinned go to the end, and the next miss looks at others.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::stats::CacheStats;

/// How many entries a miss looks at to find one that it may evict.
const LOOKS: usize = 2;

pub struct FifoCache<K: ?Sized, V> {
    limit: usize,
    /// Nobody but the page itself could make its keys collide, so the hash is a fast one.
    entries: HashMap<Rc<K>, (Rc<V>, u64), FixedState>,
    order: VecDeque<Rc<K>>,
    bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

impl<K: Eq + Hash + ?Sized, V> FifoCache<K, V> {
    /// A cache of at most `limit` entries; 0 keeps nothing.
    pub fn new(limit: usize) -> Self {
        Self { limit, entries: HashMap::default(), order: VecDeque::new(), bytes: 0, hits: 0, misses: 0, evictions: 0 }
    }

    pub fn get(&mut self, key: &K) -> Option<Rc<V>> {
        let found = self.entries.get(key).map(|(value, _)| value.clone());
        if found.is_some() {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        found
    }

    /// Evicts what has to go before one more can be kept; none if there is room, or if all that was looked at is pinned. The caller may
    /// release what it holds, or use it again.
    pub fn make_room(&mut self) -> Option<Rc<V>> {
        if self.limit == 0 || self.entries.len() < self.limit {
            return None;
        }
        for _ in 0..LOOKS {
            let Some(oldest) = self.order.pop_front() else { break };
            let Entry::Occupied(entry) = self.entries.entry(oldest) else { continue };
            if Rc::strong_count(&entry.get().0) > 1 {
                self.order.push_back(entry.key().clone());
                continue;
            }
            let (value, bytes) = entry.remove();
            self.evictions += 1;
            self.bytes -= bytes;
            return Some(value);
        }
        None
    }

    /// Keeps `value`, which holds `bytes` of GPU memory, under `key`, if there is room.
    pub fn insert(&mut self, key: Rc<K>, value: Rc<V>, bytes: u64) {
        self.make_room();
        if self.entries.len() < self.limit
            && let Entry::Vacant(place) = self.entries.entry(key)
        {
            self.order.push_back(place.key().clone());
            place.insert((value, bytes));
            self.bytes += bytes;
        }
    }

    /// Drops the entries for whose keys `gone` holds, such as those that name a destroyed buffer.
    pub fn remove_where(&mut self, gone: impl Fn(&K) -> bool) {
        let mut freed = 0;
        self.entries.retain(|key, (_, bytes)| {
            let keep = !gone(key);
            freed += if keep { 0 } else { *bytes };
            keep
        });
        self.bytes -= freed;
        self.order.retain(|key| !gone(key));
    }

    /// Drops the entries for whose values `gone` holds.
    pub fn remove_values(&mut self, gone: impl Fn(&V) -> bool) {
        let mut freed = 0;
        self.entries.retain(|_, (value, bytes)| {
            let keep = !gone(value);
            freed += if keep { 0 } else { *bytes };
            keep
        });
        self.bytes -= freed;
        let entries = &self.entries;
        self.order.retain(|key| entries.contains_key(key));
    }

    /// Drops all entries; those that somebody holds go with their holder.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits,
            misses: self.misses,
            evictions: self.evictions,
            entries: self.entries.len() as u64,
            bytes: self.bytes,
        }
    }

    pub fn reset_stats(&mut self) {
        (self.hits, self.misses, self.evictions) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evicts_in_order_of_insertion() {
        let mut cache = FifoCache::new(2);
        cache.insert(Rc::new(1), Rc::new('a'), 10);
        cache.insert(Rc::new(2), Rc::new('b'), 10);
        assert_eq!(cache.get(&1).as_deref(), Some(&'a'), "a hit does not make an entry younger");
        assert_eq!(cache.make_room().as_deref(), Some(&'a'));
        assert_eq!(cache.make_room(), None, "there is room");
        cache.insert(Rc::new(3), Rc::new('c'), 10);
        assert!(cache.get(&1).is_none());
        assert_eq!(cache.stats(), CacheStats { hits: 1, misses: 1, evictions: 1, entries: 2, bytes: 20 });
    }

    #[test]
    fn a_held_entry_is_never_evicted() {
        let mut cache = FifoCache::new(1);
        let held = Rc::new('a');
        cache.insert(Rc::new(1), held.clone(), 10);
        cache.insert(Rc::new(2), Rc::new('b'), 10);
        assert!(cache.get(&2).is_none(), "there was no room for it");
        drop(held);
        cache.insert(Rc::new(3), Rc::new('c'), 10);
        assert!(cache.get(&1).is_none());
        assert!(cache.get(&3).is_some());
    }

    #[test]
    fn a_miss_costs_the_same_however_many_entries_are_held() {
        let mut cache = FifoCache::new(1000);
        let held: Vec<Rc<i32>> = (0..1000).map(Rc::new).collect();
        for (key, value) in held.iter().enumerate() {
            cache.insert(Rc::new(key), value.clone(), 1);
        }
        let order: Vec<usize> = cache.order.iter().map(|key| **key).collect();
        cache.insert(Rc::new(1000), Rc::new(1000), 1);
        assert!(cache.get(&1000).is_none());
        let moved = cache.order.iter().zip(&order).position(|(now, before)| **now == *before);
        assert_eq!(moved, None, "all moved up");
        assert_eq!(*cache.order[0], LOOKS, "and no more were looked at");
        drop(held);
        // What is free now goes, and what is new is kept.
        cache.insert(Rc::new(1001), Rc::new(1001), 1);
        assert!(cache.get(&1001).is_some());
        assert_eq!(cache.stats().entries, 1000);
    }

    proptest! {
        /// Against a plain list: the same entries, never more than the limit, pinned ones always there.
        #[test]
        fn agrees_with_a_list(limit in 0usize..6, keys in proptest::collection::vec((0u8..12, any::<bool>()), 0..200)) {
            let mut cache = FifoCache::new(limit);
            let mut held: HashMap<u8, Rc<u8>> = HashMap::new();
            for (key, hold) in keys {
                let value = match cache.get(&key) {
                    Some(value) => value,
                    None => {
                        let value = Rc::new(key);
                        cache.insert(Rc::new(key), value.clone(), 3);
                        value
                    }
                };
                prop_assert_eq!(*value, key);
                let kept = cache.entries.contains_key(&key);
                if hold && kept { held.insert(key, value); } else { held.remove(&key); }
                prop_assert!(cache.entries.len() <= limit);
                prop_assert_eq!(cache.entries.len(), cache.order.len());
                prop_assert_eq!(cache.stats().bytes, 3 * cache.stats().entries);
                for key in held.keys() {
                    prop_assert!(cache.entries.contains_key(key));
                }
            }
        }
    }
}
