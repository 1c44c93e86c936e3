//! Truncated sampling (top-k, top-p, min-p) in whole numbers: the order and the masses of logits, and the cut of a vocabulary.
//! The kernels `sample_range`, `sample_histogram`, `sample_split` and `sample_resolve` compute it with the module
//! `truncation.wgsl`; this is the same for their references.
//!
//! Every truncation keeps the logits from a threshold on. The threshold is found by selection, by count for top-k and by mass
//! for top-p, with histograms of ever finer digits (radix selection; Alabi, Blanchard, Gordon, Steinbach 2012, "Fast
//! K-Selection Algorithms for Graphics Processing Units"). Then Gumbel-max chooses among the kept tokens (Gumbel 1954;
//! Maddison, Tarlow, Minka 2014, "A* Sampling").
//!
//! 1. `sample_range`: the largest and the smallest logit.
//! 2. `sample_histogram`: count and mass of the vocabulary in bins of equal width, from the largest logit down.
//! 3. `sample_split`: the bins of the thresholds. Logits above them take part in Gumbel-max, logits in them go to a list.
//! 4. `sample_resolve`: the exact thresholds by radix selection in the list, and Gumbel-max over the tokens that they keep. If
//!    the list was too short for the border bins (hundreds of nearly equal logits), it reads the whole vocabulary instead.
//!
//! Masses are sums of integers, so they don't depend on the order of additions, and the same logits are cut at the same place on
//! every device. Equal logits at a threshold are all kept. A logit that is 48 octaves or more below the largest (2^-48 of its
//! probability) is never drawn: Gumbel noise of 32 random bits would not let it win.

use rillm_cpu_kernels::{Depths, MASS_COEFFICIENTS, NoiseKey};

use super::path::SamplerPath;
use super::row::SamplerRow;
use crate::error::Result;
use crate::tensor::ops::{PCG3D, pcg3d};
use crate::tensor::{Define, HostTensor};

/// Workgroups that may share a vocabulary.
pub(super) const MAX_GROUPS: usize = 64;
const BIN_BITS: u32 = 10;
pub(super) const BINS: usize = 1 << BIN_BITS;
/// Entries of the list, which the workgroups share evenly.
const ENTRIES: usize = 8192;
/// Words of `tally`: the largest key of each workgroup, the inverted smallest, and the histogram as counts, low and high
/// words of masses.
pub(super) const TALLY: usize = HISTOGRAM + 3 * BINS;
pub(super) const HISTOGRAM: usize = 2 * MAX_GROUPS;
/// Words of `border`: the fields of `Border`, the length of each workgroup's part of the list, and the list: key and token.
pub(super) const BORDER: usize = LIST + 2 * ENTRIES;
const COUNTS: usize = 16;
const LIST: usize = COUNTS + MAX_GROUPS;
/// The border bin is kept entirely; the bin of the nucleus' border has a single entry.
const K_IS_WHOLE: u32 = 1;
const P_IS_SINGLE: u32 = 2;
/// A depth that counts as unreachable.
pub(super) const REST: u32 = rillm_cpu_kernels::REST;
pub(super) const NAN_KEY: u32 = u32::MAX;
pub(super) const NONE: u32 = u32::MAX;
/// The key of the lowest finite number, which like -∞ marks a masked token.
const LOWEST_KEY: u32 = 0x80_0000;

/// Whether, with this largest logit, there is nothing to choose from.
pub(super) fn is_no_logit(largest: u32) -> bool {
    largest == NAN_KEY || largest <= LOWEST_KEY
}

pub(super) fn modules() -> &'static [(&'static str, &'static str)] {
    &[
        ("sampler_row", SamplerRow::WGSL),
        ("sampler_paths", SamplerPath::WGSL),
        ("truncation", crate::shader!("wgsl/truncation.wgsl")),
        ("four_logits", crate::shader!("wgsl/four_logits.wgsl")),
        ("thresholds", crate::shader!("wgsl/thresholds.wgsl")),
        ("tally_sums", crate::shader!("wgsl/tally_sums.wgsl")),
        ("gumbel", crate::shader!("wgsl/gumbel.wgsl")),
        ("pcg3d", PCG3D),
        ("advance", crate::shader!("wgsl/advance.wgsl")),
    ]
}

pub(super) fn defines(vocabulary: usize) -> Vec<(&'static str, Define)> {
    let number = |n: usize| Define::U32(n as u32);
    vec![
        ("GROUPS", number(groups(vocabulary))),
        ("MAX_GROUPS", number(MAX_GROUPS)),
        ("BINS", number(BINS)),
        ("BIN_BITS", Define::U32(BIN_BITS)),
        ("SEGMENT", number(segment(vocabulary))),
        ("REST", Define::U32(REST)),
        ("NAN_KEY", Define::U32(NAN_KEY)),
        ("LOWEST_KEY", Define::U32(LOWEST_KEY)),
        ("NONE", Define::U32(NONE)),
        ("K_IS_WHOLE", Define::U32(K_IS_WHOLE)),
        ("P_IS_SINGLE", Define::U32(P_IS_SINGLE)),
        ("HISTOGRAM", number(HISTOGRAM)),
        ("COUNTS", number(COUNTS)),
        ("LIST", number(LIST)),
    ]
}

/// Workgroups that share a vocabulary: a power of two, so that each invocation has at least eight logits.
pub(super) fn groups(vocabulary: usize) -> usize {
    vocabulary.div_ceil(2048).next_power_of_two().min(MAX_GROUPS)
}

/// Entries of the list that each workgroup has.
pub(super) fn segment(vocabulary: usize) -> usize {
    ENTRIES / groups(vocabulary)
}

/// Logits that a workgroup reads at once.
pub(super) const READ_AT_ONCE: usize = 256;

/// The workgroup that reads the logit of a token.
pub(super) fn group_of(token: usize, vocabulary: usize) -> usize {
    token / READ_AT_ONCE % groups(vocabulary)
}

/// The effect of a chosen token on one sequence, like `advance.wgsl`. `of` is the path that chose.
pub(super) fn advance(
    row: &SamplerRow,
    [state, token, ring]: [&mut [u32]; 3],
    chosen: u32,
    tokens_taken_in: u32,
    of: SamplerPath,
) {
    if state[2] != 0 || (row.path != SamplerPath::Any as u32 && row.path != of as u32) {
        return;
    }
    let slot = state[1] as usize % ring.len();
    ring[slot] = chosen;
    token[0] = chosen;
    state[0] += tokens_taken_in;
    state[1] += 1;
    state[2] = u32::from(chosen == NONE || state[1] >= row.last_step || row.stops.contains(&chosen));
}

/// Runs a reference of one row on each row of tensors with `rows` rows.
pub(super) fn by_rows(
    rows: usize,
    inputs: &mut [HostTensor],
    one: impl Fn(&mut [HostTensor]) -> Result<Vec<HostTensor>>,
) -> Result<Vec<HostTensor>> {
    let mut outputs: Vec<HostTensor> = Vec::new();
    for row in 0..rows {
        let range = |tensor: &HostTensor| {
            let bytes = tensor.bytes.len() / rows;
            row * bytes..(row + 1) * bytes
        };
        let mut parts: Vec<HostTensor> = inputs
            .iter()
            .map(|tensor| {
                let bytes = tensor.bytes[range(tensor)].to_vec();
                HostTensor { shape: [1, bytes.len() / 4].into(), dtype: tensor.dtype, bytes }
            })
            .collect();
        for (index, part) in one(&mut parts)?.into_iter().enumerate() {
            match outputs.get_mut(index) {
                Some(output) => output.bytes.extend(part.bytes),
                None => outputs.push(part),
            }
        }
        for (tensor, part) in inputs.iter_mut().zip(parts) {
            let range = range(tensor);
            tensor.bytes[range].copy_from_slice(&part.bytes);
        }
    }
    for output in &mut outputs {
        output.shape = [rows, output.bytes.len() / 4 / rows].into();
    }
    Ok(outputs)
}

impl SamplerRow {
    /// The mass that the kept logits must reach, of a total mass.
    pub(super) fn wanted_mass(&self, mass: u64) -> f32 {
        (self.top_p * mass_as_float(mass)).max(1.0)
    }

    /// What its noise depends on.
    pub(super) fn noise_key(&self, step: u32) -> NoiseKey {
        NoiseKey { seed: [self.seed_low, self.seed_high], step }
    }

    /// For the loops of the CPU: how far logits are below the largest. `None` if that is not finite.
    pub(super) fn depths(&self, largest: u32) -> Option<Depths> {
        let largest = logit_of(largest);
        largest.is_finite().then_some(Depths { largest, octaves: self.octaves })
    }

    /// The logit with temperature and Gumbel noise, minus the largest: small numbers, which round little.
    pub(super) fn value(&self, key: u32, largest: u32, token: u32, step: u32) -> f32 {
        let noise = gumbel([self.seed_low ^ token, self.seed_high, step]);
        below_largest(key, largest) * self.inverse_temperature + noise
    }
}

/// Gumbel noise of a key: -ln(-ln(1 - v)) with v uniform in (0, 1), in multiples of 2^-33 near 0, where the winners are.
pub(super) fn gumbel(key: [u32; 3]) -> f32 {
    let v = ((pcg3d(key)[0] as f32 + 0.5) * 2f32.powi(-32)).min(0.999_999_94);
    -(-(-f64::from(v)).ln_1p()).ln() as f32
}

/// A word with the order of the logits; -0 is 0. An infinite logit has no softmax, so it counts as NaN.
pub(super) fn key_of(logit: f32) -> u32 {
    let bits = logit.to_bits();
    if logit.is_nan() || logit == f32::INFINITY {
        NAN_KEY
    } else if bits >> 31 == 0 || logit == 0.0 {
        bits | 1 << 31
    } else {
        !bits
    }
}

/// The logit of a word.
pub(super) fn logit_of(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// A logit minus the largest, also if both are -inf.
fn below_largest(key: u32, largest: u32) -> f32 {
    if key == largest { 0.0 } else { logit_of(key) - logit_of(largest) }
}

/// The depth: the distance below the largest logit, in octaves of probability times 2^24, rounded down; at most `REST`.
pub(super) fn depth_of(key: u32, largest: u32, octaves: f32) -> u32 {
    let octaves_below = -below_largest(key, largest) * octaves;
    if octaves_below < 48.0 {
        // A product by a power of two is exact.
        (octaves_below * 16_777_216.0) as u32
    } else {
        // Also for NaN, the distance of infinities.
        REST
    }
}

pub(super) fn bin_shift(smallest: u32, largest: u32, octaves: f32) -> u32 {
    let bits = u32::BITS - depth_of(smallest, largest, octaves).leading_zeros();
    bits.saturating_sub(BIN_BITS)
}

/// The binary logarithm of the mass of the largest logit, so that a whole vocabulary's mass is below 2^63.
pub(super) fn mass_bits(vocabulary: usize) -> u32 {
    63 - vocabulary.next_power_of_two().ilog2().clamp(17, 24)
}

/// 2^mass_bits · 2^(-depth / 2^24), with a relative error of about 2^-26. The polynomial is a fit of (1 - 2^-x) / x at Chebyshev
/// nodes of [0, 1].
pub(super) fn weight_of(depth: u32, mass_bits: u32) -> u64 {
    let high_product = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    let x = depth << 8;
    let h = MASS_COEFFICIENTS.into_iter().rev().reduce(|h, coefficient| coefficient - high_product(x, h)).unwrap_or(0);
    let fraction = 0x8000_0000 - (high_product(x, h) >> 1);
    (u64::from(fraction) << (mass_bits - 31)) >> (depth >> 24)
}

pub(super) fn mass_as_float(mass: u64) -> f32 {
    (mass >> 32) as u32 as f32 * 4_294_967_296.0 + mass as u32 as f32
}

/// A count and a mass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub count: u32,
    pub mass: u64,
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, mass: self.mass + other.mass }
    }
}

/// The tally after `sample_histogram`.
pub(super) struct Histogram {
    pub largest: u32,
    pub shift: u32,
    pub bins: Vec<Tally>,
}

impl Histogram {
    pub fn of(tally: &[u32], octaves: f32) -> Self {
        // The entries of other workgroups are zero.
        let largest = tally[..MAX_GROUPS].iter().copied().fold(0, u32::max);
        let inverted_smallest = tally[MAX_GROUPS..HISTOGRAM].iter().copied().fold(0, u32::max);
        let bins = &tally[HISTOGRAM..];
        let mass = |bin: usize| u64::from(bins[2 * BINS + bin]) << 32 | u64::from(bins[BINS + bin]);
        Self {
            largest,
            shift: bin_shift(!inverted_smallest, largest, octaves),
            bins: (0..BINS).map(|bin| Tally { count: bins[bin], mass: mass(bin) }).collect(),
        }
    }
}

/// The places of the thresholds, as `sample_split` writes them in front of the list. Bins are `NONE` without a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    pub largest: u32,
    pub shift: u32,
    pub k_bin: u32,
    pub k_above: Tally,
    pub k_through: u64,
    pub p_first: u32,
    pub p_last: u32,
    pub p_above: u64,
    pub total: u64,
    flags: u32,
}

impl Border {
    pub fn find(histogram: &Histogram, words: &SamplerRow) -> Self {
        // Each bin with the tallies above it, and above it and in it.
        let mut sum = Tally::default();
        let bins: Vec<(Tally, Tally)> = histogram
            .bins
            .iter()
            .map(|bin| {
                let above = sum;
                sum = sum + *bin;
                (above, sum)
            })
            .collect();
        let total = sum.mass;
        let k_cut = bins.iter().position(|(_, through)| through.count >= words.top_k).filter(|_| words.top_k > 0);
        let (least, most) = match k_cut {
            Some(bin) => (bins[bin].0.mass, bins[bin].1.mass),
            None => (total, total),
        };
        let p_cut = |mass: u64| {
            let wanted = words.wanted_mass(mass);
            bins.iter().position(|(_, through)| mass_as_float(through.mass) >= wanted).unwrap_or(0)
        };
        let (first, last) = (p_cut(least), p_cut(most));
        let cuts_p = words.top_p < 1.0;
        let k_is_whole = k_cut.is_some_and(|bin| bins[bin].1.count == words.top_k);
        let p_is_single = cuts_p && first == last && histogram.bins[first].count == 1;
        Self {
            largest: histogram.largest,
            shift: histogram.shift,
            k_bin: k_cut.map_or(NONE, |bin| bin as u32),
            k_above: k_cut.map_or_else(Tally::default, |bin| bins[bin].0),
            k_through: k_cut.map_or(0, |bin| bins[bin].1.mass),
            p_first: if cuts_p { first as u32 } else { NONE },
            p_last: if cuts_p { last as u32 } else { 0 },
            p_above: bins[first].0.mass,
            total,
            flags: u32::from(k_is_whole) * K_IS_WHOLE + u32::from(p_is_single) * P_IS_SINGLE,
        }
    }

    /// Its words, with an empty list.
    pub fn with_list(&self) -> Vec<u32> {
        let mut words = vec![0; BORDER];
        words[..COUNTS].copy_from_slice(&self.words());
        words
    }

    fn words(&self) -> [u32; COUNTS] {
        let masses = [self.k_above.mass, self.p_above, self.total, self.k_through];
        let [k, p, total, through] = masses.map(|mass| [mass as u32, (mass >> 32) as u32]);
        let mut words = [0; COUNTS];
        words[..4].copy_from_slice(&[self.largest, self.shift, self.k_bin, self.k_above.count]);
        words[4..6].copy_from_slice(&k);
        words[6..8].copy_from_slice(&[self.p_first, self.p_last]);
        words[8..10].copy_from_slice(&p);
        words[10..12].copy_from_slice(&total);
        words[12..14].copy_from_slice(&through);
        words[14] = self.flags;
        words
    }

    pub fn of(words: &[u32]) -> Self {
        let mass = |at: usize| u64::from(words[at + 1]) << 32 | u64::from(words[at]);
        Self {
            largest: words[0],
            shift: words[1],
            k_bin: words[2],
            k_above: Tally { count: words[3], mass: mass(4) },
            k_through: mass(12),
            p_first: words[6],
            p_last: words[7],
            p_above: mass(8),
            total: mass(10),
            flags: words[14],
        }
    }

    /// The largest depth that is kept or in a list.
    pub fn most_depth(&self, min_p_depth: u32) -> u32 {
        let cuts = [(self.k_bin, self.k_bin), (self.p_first, self.p_last)];
        match cuts.into_iter().filter(|(first, _)| *first != NONE).map(|(_, last)| last).max() {
            Some(bin) => (((u64::from(bin) + 1) << self.shift) - 1).min(u64::from(REST - 1)) as u32,
            None => min_p_depth.min(REST - 1),
        }
    }

    /// Bins before it are kept entirely.
    pub fn kept(&self) -> u32 {
        self.p_first.min(self.k_bin)
    }

    pub fn is_on_border(&self, bin: u32) -> bool {
        bin == self.k_bin || (self.p_first..=self.p_last).contains(&bin)
    }

    /// The bins that contain a threshold.
    pub fn drawn_from(&self, bin: u32) -> bool {
        if self.p_first == NONE { bin == self.k_bin } else { (self.p_first..=self.p_last).contains(&bin) }
    }
}

/// Puts a token into the list of a border, whose part it may be too long for: then its count alone tells.
pub(super) fn list(border: &mut [u32], vocabulary: usize, token: usize, key: u32) {
    let (group, segment) = (group_of(token, vocabulary), segment(vocabulary));
    let at = border[COUNTS + group] as usize;
    border[COUNTS + group] += 1;
    if at < segment {
        let start = LIST + 2 * (group * segment + at);
        border[start..start + 2].copy_from_slice(&[key, token as u32]);
    }
}

/// The entries (key, token) of a border's list; `None` if they did not fit.
pub(super) fn list_of(border: &[u32], vocabulary: usize) -> Option<Vec<(u32, u32)>> {
    let segment = segment(vocabulary);
    let mut entries = Vec::new();
    for (group, count) in border[COUNTS..LIST].iter().enumerate() {
        let start = LIST + 2 * group * segment;
        let pairs = border.get(start..start + 2 * *count as usize).filter(|_| *count as usize <= segment);
        match pairs {
            Some(pairs) => entries.extend(pairs.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            None if *count == 0 => {}
            None => return None,
        }
    }
    Some(entries)
}

/// Keys and tokens of a border's list, or of the whole vocabulary if the list was too short. Both give the same result.
pub(super) fn candidates_of(border: &[u32], logits: &[f32]) -> Vec<(u32, u32)> {
    let whole = || logits.iter().enumerate().map(|(token, logit)| (key_of(*logit), token as u32)).collect();
    list_of(border, logits.len()).unwrap_or_else(whole)
}

/// The key from which on top_k and top_p keep, in the bins that they cut.
pub(super) fn least_key_of(border_words: &[u32], logits: &[f32], words: &SamplerRow) -> u32 {
    let border = Border::of(border_words);
    let mut keys: Vec<u32> = candidates_of(border_words, logits).into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable_by_key(|key| std::cmp::Reverse(*key));
    let depth = |key: u32| depth_of(key, border.largest, words.octaves);
    let bin = |key: u32| if depth(key) >= REST { NONE } else { depth(key) >> border.shift };
    let weight = |key: u32| weight_of(depth(key), mass_bits(logits.len()));
    let (mut least_key, mut mass) = (0, border.total);
    if border.k_bin != NONE {
        let of_border = || keys.iter().copied().filter(|key| bin(*key) == border.k_bin);
        least_key = of_border().nth((words.top_k - border.k_above.count - 1) as usize).unwrap_or(0);
        mass = border.k_above.mass + of_border().filter(|key| *key >= least_key).map(weight).sum::<u64>();
    }
    if border.p_first != NONE {
        let wanted = words.wanted_mass(mass);
        let mut sum = border.p_above;
        let bins = border.p_first..=border.p_last;
        for key in keys.into_iter().filter(|key| *key >= least_key && bins.contains(&bin(*key))) {
            sum += weight(key);
            if mass_as_float(sum) >= wanted {
                return key;
            }
        }
    }
    least_key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Rng;

    #[test]
    fn weights_are_powers_of_two_to_25_bits() {
        let mut rng = Rng(61);
        for vocabulary in [2, 152_064, 1 << 24] {
            let bits = mass_bits(vocabulary);
            assert_eq!(weight_of(0, bits), 1 << bits);
            assert!((vocabulary as u64).checked_mul(1 << bits).is_some_and(|mass| mass <= 1 << 63));
            for _ in 0..20_000 {
                // Down to where rounding to a whole number exceeds the polynomial's error.
                let depth = rng.below(13 << 24) as u32;
                let wanted = 2f64.powf(f64::from(bits) - f64::from(depth) / f64::from(1 << 24));
                let error = weight_of(depth, bits) as f64 / wanted - 1.0;
                assert!(error.abs() < 2f64.powi(-25), "depth {depth}: {error:e}");
            }
        }
    }

    #[test]
    fn keys_order_as_logits_and_depths_follow() {
        let logits = [f32::NEG_INFINITY, f32::MIN, -2.5, -1e-40, -0.0, 0.0, 1e-40, 1.0, 1.000_000_1, 3e38];
        for pair in logits.windows(2) {
            let (a, b) = (key_of(pair[0]), key_of(pair[1]));
            assert_eq!(a.cmp(&b), pair[0].partial_cmp(&pair[1]).unwrap(), "{pair:?}");
        }
        assert_eq!([f32::NAN, -f32::NAN, f32::INFINITY].map(key_of), [NAN_KEY; 3]);

        let mut rng = Rng(62);
        let largest = key_of(20.0);
        for _ in 0..20_000 {
            let (a, b) = (20.0 - 40.0 * rng.signed().abs(), 20.0 - 1e-4 * rng.signed().abs());
            for logit in [a, b] {
                let octaves = f64::from(20.0 - logit) * 0.9;
                let depth = f64::from(depth_of(key_of(logit), largest, 0.9)) / f64::from(1 << 24);
                assert!((depth - octaves).abs() <= octaves * 2f64.powi(-22) + 2f64.powi(-24), "{logit}");
            }
        }
        assert_eq!(depth_of(key_of(f32::NEG_INFINITY), largest, 1.0), REST);
        assert_eq!(depth_of(key_of(f32::NEG_INFINITY), key_of(f32::NEG_INFINITY), 1.0), 0);
    }
}
