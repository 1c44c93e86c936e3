//! What chooses tokens against f64 and against loops over single numbers.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

mod support;

use rillm_cpu_kernels::{Depths, NoiseKey, REST, best_of_shares, extremes, noise, nonzero, sum_exp};
use support::Rng;

/// pcg3d's first word.
fn hashed(key: [u32; 3]) -> u32 {
    let [mut x, mut y, mut z] = key.map(|v| v.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    for round in 0..2 {
        x = x.wrapping_add(y.wrapping_mul(z));
        y = y.wrapping_add(z.wrapping_mul(x));
        z = z.wrapping_add(x.wrapping_mul(y));
        if round == 0 {
            (x, y, z) = (x ^ (x >> 16), y ^ (y >> 16), z ^ (z >> 16));
        }
    }
    x
}

fn noise_of(token: u32, key: NoiseKey) -> f64 {
    let v = ((hashed([key.seed[0] ^ token, key.seed[1], key.step]) as f32 + 0.5) * 2f32.powi(-32)).min(0.999_999_94);
    -(-(-f64::from(v)).ln_1p()).ln()
}

const KEYS: [NoiseKey; 3] = [
    NoiseKey { seed: [0, 0], step: 0 },
    NoiseKey { seed: [9, 256], step: 77 },
    NoiseKey { seed: [u32::MAX, 1], step: u32::MAX },
];

#[test]
fn noise_is_that_of_f64() {
    let tokens: Vec<u32> = (0..300_001).collect();
    for key in KEYS {
        for count in [0, 1, 3, 4, 7, tokens.len()] {
            let got = noise(&tokens[..count], key).unwrap();
            for (token, got) in tokens.iter().zip(&got) {
                let wanted = noise_of(*token, key);
                let off = (f64::from(*got) - wanted).abs();
                assert!(off <= 5e-7 * wanted.abs().max(1.0), "token {token}: {got} is not {wanted}");
            }
        }
    }
}

/// The best of each share one token after the other.
fn shares_one_by_one(logits: &[f32], scale: f32, key: NoiseKey, shares: usize) -> (Vec<f64>, Vec<u32>) {
    let (mut values, mut tokens) = (vec![f64::from(f32::MIN); shares], vec![0; shares]);
    for (token, logit) in logits.iter().enumerate() {
        let value = if *logit <= f32::MIN {
            f64::from(f32::MIN)
        } else if scale > 0.0 {
            f64::from(*logit) * f64::from(scale) + noise_of(token as u32, key)
        } else {
            f64::from(*logit)
        };
        let share = token % shares;
        if token < shares || value > values[share] {
            (values[share], tokens[share]) = (value, token as u32);
        }
    }
    (values, tokens)
}

#[test]
fn the_best_of_each_share_is_found() {
    let mut rng = Rng(3);
    for (vocabulary, shares) in [(0, 4), (1, 4), (3, 8), (8, 8), (257, 256), (1000, 8), (32_003, 4096)] {
        for scale in [0.0, 1.0, 1.25] {
            for masks in [false, true] {
                let mut logits: Vec<f32> = rng.floats(vocabulary).iter().map(|x| 8.0 * x).collect();
                if masks {
                    logits.iter_mut().step_by(3).for_each(|logit| *logit = f32::NEG_INFINITY);
                    logits.iter_mut().step_by(7).for_each(|logit| *logit = f32::MIN);
                }
                let (mut values, mut tokens) = (vec![f32::NAN; shares], vec![7; shares]);
                let (wanted_values, wanted_tokens) = shares_one_by_one(&logits, scale, KEYS[1], shares);
                assert!(best_of_shares(&logits, scale, KEYS[1], &mut values, &mut tokens).unwrap());
                assert_eq!(tokens, wanted_tokens, "{vocabulary} tokens, {shares} shares, {scale}");
                for (got, wanted) in values.iter().zip(wanted_values) {
                    assert!((f64::from(*got) - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{got}, {wanted}");
                }
            }
        }
    }
    let (mut values, mut tokens) = ([0.0; 8], [0; 8]);
    for at in [0, 5, 16] {
        let mut logits = [1.0; 17];
        logits[at] = if at == 5 { -f32::NAN } else { f32::NAN };
        assert!(!best_of_shares(&logits, 1.0, KEYS[0], &mut values, &mut tokens).unwrap());
    }
    // Equal ones: the first. Shares that are no multiple of four are an error.
    assert!(best_of_shares(&[0.5; 100], 0.0, KEYS[0], &mut values, &mut tokens).unwrap());
    assert_eq!(tokens, [0, 1, 2, 3, 4, 5, 6, 7]);
    for shares in [0, 1, 6] {
        assert!(best_of_shares(&[0.5; 9], 0.0, KEYS[0], &mut vec![0.0; shares], &mut vec![0; shares]).is_err());
    }
}

#[test]
fn extremes_are_those_of_numbers() {
    let mut rng = Rng(4);
    for count in [1, 2, 4, 5, 31, 256] {
        for scale in [1.0, -1e30, 1e-40] {
            let x: Vec<f32> = rng.floats(count).iter().map(|x| x * scale).collect();
            let wanted = [f32::min, f32::max].map(|of| x.iter().copied().reduce(of).unwrap());
            assert_eq!(extremes(&x), Some(wanted));
            for odd in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut x = x.clone();
                x[count / 2] = odd;
                assert_eq!(extremes(&x), None);
            }
            let mut x = x;
            x[count - 1] = f32::NEG_INFINITY;
            assert_eq!(extremes(&x).map(|[smallest, _]| smallest), Some(f32::NEG_INFINITY));
        }
    }
    assert_eq!(extremes(&[]), None);
    assert_eq!(extremes(&[-0.0, 0.0]).map(|of| of.map(f32::to_bits)), Some([1 << 31, 0]));
}

#[test]
fn exponentials_are_summed_and_marks_found() {
    let mut rng = Rng(6);
    for count in [0, 1, 3, 4, 255, 256, 257, 50_001] {
        let mut x: Vec<f32> = rng.floats(count).iter().map(|x| 30.0 * x).collect();
        if count > 2 {
            x[1] = f32::NEG_INFINITY;
        }
        let wanted: f64 = x.iter().map(|x| (f64::from(*x) - 30.0).exp()).sum();
        assert!((sum_exp(&x, 30.0) - wanted).abs() <= 1e-6 * wanted, "{count}");
        let mut words = vec![0; count];
        words.iter_mut().skip(5).step_by(97).for_each(|word| *word = 1 << 31);
        let wanted: Vec<u32> = (0..count as u32).filter(|at| words[*at as usize] != 0).collect();
        assert_eq!(nonzero(&words).unwrap(), wanted);
    }
}

#[test]
fn masses_are_powers_of_two_and_bins_those_of_depths() {
    let mut rng = Rng(5);
    let (largest, octaves) = (20.0, 0.9);
    let depths = Depths { largest, octaves };
    for count in [1, 3, 4, 1001] {
        let mut logits: Vec<f32> = rng.floats(count).iter().map(|x| largest - 60.0 * x.abs()).collect();
        logits[count / 2] = largest;
        if count > 3 {
            (logits[0], logits[1]) = (f32::NEG_INFINITY, f32::NAN);
        }
        let below = |logit: f32| f64::from(largest - logit) * f64::from(octaves);
        for (shift, mass_bits) in [(0, 31), (20, 46), (26, 45)] {
            let bins = (REST >> shift.max(10)) as usize + 1;
            let (mut counts, mut masses) = (vec![0; bins], vec![0; bins]);
            depths.tally(&logits, [shift.max(10), mass_bits], &mut counts, &mut masses).unwrap();
            let kept: Vec<f64> = logits.iter().map(|logit| below(*logit)).filter(|below| *below < 47.999).collect();
            assert!(counts.iter().sum::<u32>().abs_diff(kept.len() as u32) <= 1);
            let mass = masses.iter().sum::<u64>() as f64;
            let wanted: f64 = kept.iter().map(|below| (f64::from(mass_bits) - below).exp2()).sum();
            assert!((mass / wanted - 1.0).abs() < 1e-6, "{mass} is not {wanted}");
        }
        for most in [0, 1 << 24, 30 << 24, REST - 1] {
            let found = depths.within(&logits, most).unwrap();
            let tokens: Vec<u32> = found.iter().map(|[token, _]| *token).collect();
            for (token, logit) in logits.iter().enumerate() {
                let exact = below(*logit) * 16_777_216.0;
                let is_near = (exact - f64::from(most)).abs() <= 2.0 + exact * 1e-6;
                assert!(is_near || tokens.contains(&(token as u32)) == (exact <= f64::from(most)), "{logit}");
            }
            for [token, depth] in found {
                let exact = below(logits[token as usize]) * 16_777_216.0;
                assert!((f64::from(depth) - exact).abs() <= 2.0 + exact * 1e-6);
            }
        }
    }
    assert!(depths.tally(&[1.0], [20, 45], &mut [0; 3], &mut [0; 2]).is_err());
}
