//! Truncations that are more than a threshold on the logit, in whole numbers like those of `truncation.rs`: typical sampling, XTC and
//! mirostat 2. They keep a band: the logits between two depths below the largest.
//!
//! Depths are octaves of probability times 2^24. So the surprise of a token, -log2 of its probability, is its depth plus log2 of the
//! mass of all kept tokens, and the distance of its surprise from the entropy is the distance of its depth from the mean depth.
//!
//! 1. `sample_range`, `sample_histogram`, `sample_split` as for the thresholds; `sample_band`: these as a band. With mirostat 2
//!    (Basu et al. 2020; the second version, of the authors' code) the band ends at the currently allowed surprise.
//! 2. Typical sampling (Meister et al. 2022): `typical_moments` sums masses and depths, `typical_histogram` finds, in three digits of
//!    10 bits, the distance from the mean depth within which tokens weigh enough together, `typical_band` cuts the band to it.
//! 3. `band_mass`: the mass of the band. `xtc` (p-e-w 2024, https://github.com/oobabooga/text-generation-webui/pull/6335; llama.cpp
//!    has the same) begins it at the least probable of the tokens that reach the threshold.
//! 4. `band_partial` and `sample_merge`: Gumbel-max over the band. `mirostat_update` updates the allowed surprise.

use super::row::SamplerRow;
use super::truncation::{
    self, BINS, Border, MAX_GROUPS, NONE, REST, depth_of, key_of, mass_as_float, mass_bits, weight_of,
};
use crate::error::Result;
use crate::tensor::ops::PCG3D;
use crate::tensor::{DType, Define, Desc, HostTensor, expect};

/// Words of a row of a band.
pub(super) const BAND: usize = 4;
/// Words of a workgroup's moments: the mass, and the sum of mass times depth.
pub(super) const MOMENTS: usize = 5;
/// Words of a row of the tally of typical sampling: the mean depth and the mass; for each digit after the first, the digits before it and
/// the mass of more typical tokens; the masses of the bins of each digit, low words and high words.
pub(super) const TYPICAL: usize = HEADER + 2 * DIGITS * BINS;
pub(super) const HEADER: usize = 16;
pub(super) const DIGITS: usize = 3;

/// The rows of an op whose inputs are logits [rows, vocabulary], settings [rows, WORDS] and band [rows, 4].
pub(super) fn rows_of(name: &str, inputs: &[Desc]) -> Result<usize> {
    expect(name, inputs, &[Some(DType::F32), Some(DType::U32), Some(DType::U32)])?;
    let (rows, _) = inputs[0].shape.matrix()?;
    let lengths = [1, 2].map(|input| inputs[input].shape.elements());
    if lengths != [SamplerRow::WORDS, BAND].map(|words| words * rows) {
        bail!(ShapeMismatch, "{name}: inputs of {rows} rows have {lengths:?} elements");
    }
    Ok(rows)
}

pub(super) fn modules() -> &'static [(&'static str, &'static str)] {
    &[
        ("sampler_row", SamplerRow::WGSL),
        ("truncation", crate::shader!("wgsl/truncation.wgsl")),
        ("thresholds", crate::shader!("wgsl/thresholds.wgsl")),
        ("tally_sums", crate::shader!("wgsl/tally_sums.wgsl")),
        ("gumbel", crate::shader!("wgsl/gumbel.wgsl")),
        ("pcg3d", PCG3D),
        ("band", crate::shader!("wgsl/band.wgsl")),
        ("log2_mass", crate::shader!("wgsl/log2_mass.wgsl")),
        ("typical_cut", crate::shader!("wgsl/typical_cut.wgsl")),
    ]
}

pub(super) fn defines(vocabulary: usize) -> Vec<(&'static str, Define)> {
    let number = |n: usize| Define::U32(n as u32);
    let own = [("BAND", BAND), ("MOMENTS", MOMENTS), ("HEADER", HEADER), ("DIGITS", DIGITS), ("TYPICAL", TYPICAL)];
    truncation::defines(vocabulary).into_iter().chain(own.map(|(name, n)| (name, number(n)))).collect()
}

/// The kept logits: from `least_key` on, and between two depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub largest: u32,
    pub least_key: u32,
    pub low: u32,
    pub high: u32,
}

impl Band {
    pub fn of(words: &[u32]) -> Self {
        Self { largest: words[0], least_key: words[1], low: words[2], high: words[3] }
    }

    pub fn words(&self) -> [u32; BAND] {
        [self.largest, self.least_key, self.low, self.high]
    }

    /// The band of a border's thresholds and mirostat's allowed surprise.
    pub fn of_border(border: &Border, least_key: u32, row: &SamplerRow, mu: f32, bits: u32) -> Self {
        let mut high = row.min_p_depth.min(REST - 1);
        let end = if border.p_first == NONE { border.k_bin } else { border.p_last };
        if end != NONE {
            high = high.min(((end + 1) << border.shift) - 1);
        }
        if row.mirostat_tau > 0.0 {
            let room = mu - log2_mass(border.total, bits);
            high = high.min(if room > 0.0 { (room * 16_777_216.0) as u32 } else { 0 });
        }
        Self { largest: border.largest, least_key, low: 0, high }
    }

    pub fn keeps(&self, key: u32, depth: u32) -> bool {
        key >= self.least_key && (self.low..=self.high).contains(&depth)
    }

    /// Token, key and depth of the logits that it keeps.
    pub fn kept(&self, logits: &[f32], octaves: f32) -> impl Iterator<Item = (usize, u32, u32)> {
        let with_depths = logits.iter().enumerate().map(move |(token, logit)| {
            let key = key_of(*logit);
            (token, key, depth_of(key, self.largest, octaves))
        });
        with_depths.filter(|(_, key, depth)| self.keeps(*key, *depth))
    }
}

/// Binary logarithm of a mass in units of 2^mass_bits, to 19 bits after the point, rounded down: by squaring the mantissa.
pub(super) fn log2_mass(mass: u64, mass_bits: u32) -> f32 {
    if mass == 0 {
        return 0.0;
    }
    let mut mantissa = ((mass << mass.leading_zeros()) >> 32) as u32;
    let mut log = 63 - mass.leading_zeros();
    for _ in 0..19 {
        let square = ((u64::from(mantissa) * u64::from(mantissa)) >> 32) as u32;
        let bit = square >> 31;
        log = 2 * log + bit;
        mantissa = square << (1 - bit);
    }
    // At most 24 bits: a vocabulary weighs at most 2^24 times its largest logit.
    (log as i32 - (mass_bits << 19) as i32) as f32 / 524_288.0
}

/// Mass and depth-weighted mass, summed over the workgroups.
pub(super) fn moments_of(words: &[u32]) -> (u64, u128) {
    let groups = words.chunks_exact(MOMENTS);
    groups.fold((0, 0), |(mass, product), words| {
        let word = |at: usize| u128::from(words[at]);
        let of_group = word(4) << 64 | word(3) << 32 | word(2);
        (mass + (u64::from(words[1]) << 32 | u64::from(words[0])), product + of_group)
    })
}

/// The next digit of the typical distance: the digits so far and the mass of more typical tokens, from the bins of a digit (low
/// words, high words) and the result for the digits before.
pub(super) fn typical_cut(bins: &[u32], (digits, above): (u32, u64), wanted: f32) -> (u32, u64) {
    let mut sum = above;
    for bin in 0..BINS {
        let through = sum + (u64::from(bins[BINS + bin]) << 32 | u64::from(bins[bin]));
        if mass_as_float(sum) < wanted && wanted <= mass_as_float(through) {
            return (digits << 10 | bin as u32, sum);
        }
        sum = through;
    }
    (digits << 10, 0)
}

/// The given part of a mass, at least 1.
pub(super) fn part_of(mass: u64, part: f32) -> f32 {
    (part * mass_as_float(mass)).max(1.0)
}

/// A mass summed over the workgroups.
pub(super) fn mass_of(words: &[u32]) -> u64 {
    words.chunks_exact(2).map(|words| u64::from(words[1]) << 32 | u64::from(words[0])).sum()
}

pub(super) fn weight(depth: u32, vocabulary: usize) -> u64 {
    weight_of(depth, mass_bits(vocabulary))
}

/// A tensor of words for each possible workgroup.
pub(super) fn by_groups(sums: &[Vec<u32>], words: usize) -> HostTensor {
    let mut all = sums.concat();
    all.resize(MAX_GROUPS * words, 0);
    HostTensor::u32(&[1, MAX_GROUPS * words], &all)
}

/// A digit of the distance of a depth from the mean; `None` if the digits before differ.
pub(super) fn typical_bin(depth: u32, mean: u32, digit: usize, digits: u32) -> Option<usize> {
    let distance = depth.abs_diff(mean);
    let shift = 20 - 10 * digit;
    let agrees = digit == 0 || distance >> (shift + 10) == digits;
    agrees.then_some((distance >> shift) as usize % BINS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Rng;

    #[test]
    fn logarithms_are_right_to_19_bits() {
        let mut rng = Rng(91);
        for vocabulary in [2, 128_256, 1 << 24] {
            let bits = mass_bits(vocabulary);
            assert_eq!(log2_mass(1 << bits, bits), 0.0);
            for _ in 0..5000 {
                let mass = (1 << bits) + rng.next_u64() % ((vocabulary as u64 - 1) << bits);
                let wanted = (mass as f64).log2() - f64::from(bits);
                let log = f64::from(log2_mass(mass, bits));
                assert!((wanted - 2.5e-6..=wanted + 1e-9).contains(&log), "{mass}: {log}, wanted {wanted}");
            }
        }
    }

    #[test]
    fn a_distance_has_three_digits() {
        let (mean, depth) = (5 << 20 | 77 << 10 | 9, 900 << 20);
        let distance = depth - mean;
        let mut digits = 0;
        for digit in 0..DIGITS {
            let bin = typical_bin(depth, mean, digit, digits).unwrap();
            digits = digits << 10 | bin as u32;
        }
        assert_eq!(digits, distance);
        assert_eq!(typical_bin(depth, mean, 1, 1), None);
    }
}
