//! Shapes by number, so that one crosses from JavaScript as a small integer instead of an array.
//!
//! First in, first out. Invariant: a number means one shape for ever. If its shape was evicted, the number is an error and never
//! another shape.

use std::collections::{HashMap, VecDeque};

use super::shape::MAX_RANK;
use super::{CacheStats, Shape};
use crate::error::Result;

/// The cache of shapes.
pub struct ShapeCache {
    limit: usize,
    numbers: HashMap<Shape, u32>,
    /// The kept shapes with their numbers, oldest first; numbers ascend.
    shapes: VecDeque<(u32, Shape)>,
    next: u32,
    stats: CacheStats,
}

impl ShapeCache {
    /// The default limit.
    pub const DEFAULT_LIMIT: usize = 256;

    /// A cache of at most `limit` shapes; at least one.
    pub fn new(limit: usize) -> Self {
        let (numbers, shapes) = (HashMap::new(), VecDeque::new());
        Self { limit: limit.max(1), numbers, shapes, next: 0, stats: CacheStats::default() }
    }

    /// The number of a shape. It stays the same while the shape is kept.
    pub fn intern(&mut self, dims: &[usize]) -> Result<u32> {
        if dims.len() > MAX_RANK {
            bail!(ShapeMismatch, "a shape has at most six dimensions, not {dims:?}");
        }
        let shape = Shape::new(dims);
        if let Some(number) = self.numbers.get(&shape) {
            self.stats.hits += 1;
            return Ok(*number);
        }
        self.stats.misses += 1;
        if self.shapes.len() == self.limit
            && let Some((_, oldest)) = self.shapes.pop_front()
        {
            self.numbers.remove(&oldest);
            self.stats.evictions += 1;
        }
        let number = self.next;
        self.next += 1;
        self.shapes.push_back((number, shape));
        self.numbers.insert(shape, number);
        Ok(number)
    }

    /// The shape of a number. An error if it was evicted or never given out.
    pub fn shape(&self, number: u32) -> Result<Shape> {
        match self.shapes.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => Ok(self.shapes[index].1),
            Err(_) => bail!(
                OutOfRange,
                "shape {number} is not known (any more); at most {} are kept, intern it again",
                self.limit
            ),
        }
    }

    /// Hits, misses, evictions and entries. The shapes take no GPU memory.
    pub fn stats(&self) -> CacheStats {
        CacheStats { entries: self.shapes.len() as u64, ..self.stats }
    }

    /// Sets the counts to zero.
    pub fn reset_stats(&mut self) {
        self.stats = CacheStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_never_means_another_shape(
            limit in 1usize..8,
            shapes in proptest::collection::vec(proptest::collection::vec(1usize..4, 0..4), 1..100),
        ) {
            let mut cache = ShapeCache::new(limit);
            let mut seen: Vec<(u32, Vec<usize>)> = Vec::new();
            for dims in shapes {
                let number = cache.intern(&dims).unwrap();
                prop_assert_eq!(cache.intern(&dims).unwrap(), number);
                seen.push((number, dims));
                for (number, dims) in &seen {
                    if let Ok(shape) = cache.shape(*number) {
                        prop_assert_eq!(shape.dims(), &dims[..]);
                    }
                }
                prop_assert!(cache.stats().entries <= limit as u64);
            }
        }
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut cache = ShapeCache::new(2);
        let first = cache.intern(&[1]).unwrap();
        let second = cache.intern(&[2]).unwrap();
        cache.intern(&[1]).unwrap();
        cache.intern(&[3]).unwrap();
        assert_eq!(cache.shape(first).unwrap_err().code(), crate::Code::OutOfRange);
        assert_eq!(cache.shape(second).unwrap().dims(), [2]);
        assert!(cache.intern(&[1; 7]).is_err());
    }
}
