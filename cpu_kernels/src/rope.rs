//! Rotary positions (Su et al. 2021): pairs of numbers are turned by an angle each.

use crate::lanes::{padded, put};
use crate::simd::F32x4;

const LANES: usize = F32x4::LANES;

/// Turns the pairs (i, i + pairs) of a head, as many as there are sines and cosines and as it has.
pub fn turn_halves(head: &mut [f32], sines: &[f32], cosines: &[f32]) {
    let pairs = sines.len().min(cosines.len()).min(head.len() / 2);
    let (first, second) = head.split_at_mut(pairs);
    let angles = sines[..pairs].chunks(LANES).zip(cosines[..pairs].chunks(LANES));
    let numbers = first.chunks_mut(LANES).zip(second[..pairs].chunks_mut(LANES));
    for ((a, b), (sin, cos)) in numbers.zip(angles) {
        let ([x, y], [sin, cos]) = ([padded(a), padded(b)], [padded(sin), padded(cos)]);
        put(a, x.mul(cos).sub(y.mul(sin)));
        put(b, x.mul(sin).add(y.mul(cos)));
    }
}

/// Turns the pairs (2i, 2i + 1) of a head.
pub fn turn_neighbours(head: &mut [f32], sines: &[f32], cosines: &[f32]) {
    for (pair, (sin, cos)) in head.chunks_exact_mut(2).zip(sines.iter().zip(cosines)) {
        let (x, y) = (pair[0], pair[1]);
        pair[0] = x * cos - y * sin;
        pair[1] = x * sin + y * cos;
    }
}
