//! Tallies of a vocabulary in whole numbers, for truncated sampling.

use crate::format::{Mismatch, expect};
use crate::functions::exp;
use crate::lanes::padded;
use crate::room::{pushed, reserved};
use crate::simd::{F32x4, I32x4};

const LANES: usize = F32x4::LANES;
/// The depth of what is never drawn: 48 octaves.
pub const REST: u32 = 48 << 24;

/// The smallest and the largest number; `None` if one of them is infinite, with the sign +, or no number, or if there are none.
pub fn extremes(x: &[f32]) -> Option<[f32; 2]> {
    // Floats in the order of whole numbers: of negative ones all bits but the sign are inverted.
    let in_order = |x: F32x4| {
        let bits = x.bits();
        bits.xor(bits.shr_s::<31>().and(I32x4::splat(i32::MAX)))
    };
    let first = *x.first()?;
    let mut smallest = in_order(F32x4::splat(first));
    let mut largest = smallest;
    let whole = x.chunks_exact(LANES);
    let rest = whole.remainder();
    for x in whole {
        let ordered = in_order(padded(x));
        (smallest, largest) = (smallest.min(ordered), largest.max(ordered));
    }
    for x in rest {
        let ordered = in_order(F32x4::splat(*x));
        (smallest, largest) = (smallest.min(ordered), largest.max(ordered));
    }
    let smallest = smallest.lanes().into_iter().fold(i32::MAX, i32::min);
    let largest = largest.lanes().into_iter().fold(i32::MIN, i32::max);
    let float = |ordered: i32| f32::from_bits((ordered ^ (ordered >> 31 & i32::MAX)) as u32);
    let [smallest, largest] = [smallest, largest].map(float);
    (largest < f32::INFINITY && !smallest.is_nan()).then_some([smallest, largest])
}

/// How far logits lie below the largest, in octaves of probability times 2²⁴, rounded down; at most `REST`.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// The largest logit, which is finite.
    pub largest: f32,
    /// Octaves of a logit.
    pub octaves: f32,
}

impl Depths {
    #[inline(always)]
    fn of(self, logits: F32x4) -> I32x4 {
        let below = F32x4::splat(self.largest).sub(logits).mul(F32x4::splat(self.octaves));
        let depth = below.mul(F32x4::splat(16_777_216.0)).to_u32();
        F32x4::splat(48.0).greater(below).select(depth, I32x4::splat(REST as i32))
    }

    /// Adds each logit that is not at `REST` to the bin of its depth, `depth >> shift`: 1 to its count, and its mass, which for the largest
    /// logit is 2 to the power of `mass_bits`, 31 at least.
    pub fn tally(
        self,
        logits: &[f32],
        [shift, mass_bits]: [u32; 2],
        counts: &mut [u32],
        masses: &mut [u64],
    ) -> Result<(), Mismatch> {
        expect("bins of masses", counts.len(), masses.len())?;
        for logits in logits.chunks(LANES) {
            let depths = self.of(padded(logits));
            let fractions = fraction(depths).lanes();
            for (depth, fraction) in depths.lanes().into_iter().zip(fractions).take(logits.len()) {
                let depth = depth as u32;
                let bin = (depth >> shift) as usize;
                if let (true, Some(count), Some(mass)) = (depth < REST, counts.get_mut(bin), masses.get_mut(bin)) {
                    *count += 1;
                    *mass += u64::from(fraction as u32) << mass_bits.saturating_sub(31) >> (depth >> 24);
                }
            }
        }
        Ok(())
    }

    /// The tokens whose depth is at most that, in their order, each with its depth.
    pub fn within(self, logits: &[f32], most: u32) -> Result<Vec<[u32; 2]>, Mismatch> {
        let mut found = reserved(64)?;
        // As signed numbers: depths are far below 2³¹.
        let most = I32x4::splat(most.min(REST) as i32 + 1);
        for (at, logits) in logits.chunks(LANES).enumerate() {
            let depths = self.of(padded(logits));
            let is_within = depths.less(most).lanes();
            if is_within == [0; LANES] {
                continue;
            }
            for (lane, depth) in depths.lanes().into_iter().enumerate().take(logits.len()) {
                if is_within[lane] != 0 {
                    pushed(&mut found, [(at * LANES + lane) as u32, depth as u32])?;
                }
            }
        }
        Ok(found)
    }
}

/// A fit of (1 - 2^-x) / x at Chebyshev nodes of [0, 1], in units of 2⁻³².
pub const MASS_COEFFICIENTS: [u32; 6] = [0xb172_17e0, 0x3d7f_7520, 0x0e35_3360, 0x0274_f5cb, 0x0054_a8a5, 0x0007_8910];

/// 2³¹ · 2^-x of the fraction x of a depth, with a relative error of about 2⁻²⁶.
#[inline(always)]
fn fraction(depths: I32x4) -> I32x4 {
    let x = depths.shl::<8>();
    let coefficient = |at: usize| I32x4::splat(MASS_COEFFICIENTS[at] as i32);
    let mut h = coefficient(5);
    for at in (0..5).rev() {
        h = coefficient(at).sub(x.mul_high_u(h));
    }
    I32x4::splat(i32::MIN).sub(x.mul_high_u(h).shr_u::<1>())
}

/// The sum of e^(x − largest). Where x is infinitely far below, it adds next to nothing.
pub fn sum_exp(x: &[f32], largest: f32) -> f64 {
    let largest = F32x4::splat(largest);
    let of_few = |x: &[f32]| {
        let whole = x.chunks_exact(LANES);
        let rest: f32 = whole.remainder().iter().map(|x| exp(F32x4::splat(*x).sub(largest)).lanes()[0]).sum();
        let whole = whole.fold(F32x4::splat(0.0), |sum, x| sum.add(exp(padded(x).sub(largest))));
        f64::from(whole.sum() + rest)
    };
    // Few at a time, so that the sums of floats lose nothing that matters.
    x.chunks(256).map(of_few).sum()
}

/// The places of the words that are not 0, in their order.
pub fn nonzero(words: &[u32]) -> Result<Vec<u32>, Mismatch> {
    let mut found = reserved(64)?;
    for (chunk, words) in words.chunks(64).enumerate() {
        if words.iter().fold(0, |any, word| any | word) == 0 {
            continue;
        }
        for at in (0..words.len()).filter(|at| words[*at] != 0) {
            pushed(&mut found, (chunk * 64 + at) as u32)?;
        }
    }
    Ok(found)
}
