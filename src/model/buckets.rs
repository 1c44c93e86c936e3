//! Buckets of distances in DeBERTa's attention: small distances have one each, and larger ones share them by their logarithm.

/// The sizes of disentangled attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Of distances to one side; the embedding has a row for each bucket of either side.
    pub count: usize,
    /// Distances up to this one fall into different buckets, by their logarithm.
    pub farthest: usize,
}

impl Buckets {
    /// The row of the embedding for a token that is so far before another one.
    pub(super) fn row(self, distance: i64) -> u32 {
        let (count, middle) = (self.count as i64, (self.count / 2) as f32);
        let far = distance.abs() as f32;
        let bucket = if far <= middle {
            distance
        } else {
            // In the precision of the reference, so that a distance at the border falls to the same side.
            let share = (far / middle).ln() / ((self.farthest as f32 - 1.0) / middle).ln();
            ((share * (middle - 1.0)).ceil() + middle) as i64 * distance.signum()
        };
        (bucket + count).clamp(0, 2 * count - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_have_buckets_of_their_own() {
        let buckets = Buckets { count: 8, farthest: 64 };
        let of = |distance| buckets.row(distance);
        assert_eq!([0, 1, 4, -1, -4].map(of), [8, 9, 12, 7, 4]);
        // ⌈ln(d/4) / ln(63/4) · 3⌉ + 4
        assert_eq!([5, 10, 11, 25, 26, 63, 1000].map(of), [13, 13, 14, 14, 15, 15, 15]);
        assert_eq!([-5, -63, -1000].map(of), [3, 1, 0]);
    }
}
