//! Buckets of distances in attention: small distances have one each, and larger ones share them by their logarithm. In DeBERTa's attention they
//! have keys and queries (`Buckets`), in T5's a number for each head (`Distances`).

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

/// The buckets of T5's attention (Raffel et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distances {
    /// How many there are.
    pub buckets: usize,
    /// From this distance on all fall into one bucket.
    pub farthest: usize,
}

impl Distances {
    /// How many of the buckets of one side have a single distance each.
    pub(super) fn exact(self, looks_ahead: bool) -> usize {
        self.of_side(looks_ahead) / 2
    }

    fn of_side(self, looks_ahead: bool) -> usize {
        if looks_ahead { self.buckets / 2 } else { self.buckets }
    }

    /// The bucket of a token so far after another one. If tokens look ahead, half of the buckets are for those before. Small distances have
    /// one each, and larger ones share them by their logarithm.
    pub(super) fn bucket(self, distance: i64, looks_ahead: bool) -> usize {
        let of_side = self.of_side(looks_ahead);
        let (side, far) = match distance {
            // Never looked at.
            1.. if !looks_ahead => (0, 0),
            1.. => (of_side, distance.unsigned_abs() as usize),
            _ => (0, distance.unsigned_abs() as usize),
        };
        let exact = self.exact(looks_ahead);
        let bucket = if far < exact {
            far
        } else {
            // In the precision of the reference, so that a distance at the border falls to the same side.
            let share = (far as f32 / exact as f32).ln() / ((self.farthest as f64 / exact as f64).ln() as f32);
            exact + (share * (of_side - exact) as f32) as usize
        };
        side + bucket.min(of_side.saturating_sub(1))
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

    #[test]
    fn small_distances_have_buckets_of_their_own() {
        let distances = Distances { buckets: 32, farthest: 128 };
        let of = |distance| distances.bucket(distance, true);
        assert_eq!([0, -1, -7, 1, 7].map(of), [0, 1, 7, 17, 23]);
        assert_eq!([-8, -11, -12, -16, -127, -128, -5000].map(of), [8, 8, 9, 10, 15, 15, 15]);
        assert_eq!([8, 5000].map(of), [24, 31]);
    }

    #[test]
    fn a_decoder_has_all_buckets_for_what_was_before() {
        let distances = Distances { buckets: 32, farthest: 128 };
        let of = |distance| distances.bucket(distance, false);
        // 16 + ⌊ln(d/16) / ln(128/16) · 16⌋
        assert_eq!([0, -1, -15, -16, -18, -21, -64, -127, -128, -5000].map(of), [0, 1, 15, 16, 16, 18, 26, 31, 31, 31]);
    }
}
