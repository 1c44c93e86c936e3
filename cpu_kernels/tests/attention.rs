//! Activations, norms and attention, held to plain formulas in f64.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

mod support;

use half::f16;
use rillm_cpu_kernels::{
    Activation, Added, Attention, Cache, Seen, activate, gate, layer_norm, normalize, rms_norm, softcap,
};
use support::Rng;

fn is_near(got: f32, wanted: f64, tolerance: f64) -> bool {
    (f64::from(got) - wanted).abs() <= tolerance * wanted.abs() + 1e-30
}

/// Φ(x) by Simpson's rule, from −12 on.
fn normal(x: f64) -> f64 {
    const STEPS: usize = 40_000;
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let step = (x + 12.0) / STEPS as f64;
    let inner: f64 = (1..STEPS).map(|i| density(-12.0 + i as f64 * step) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (density(-12.0) + inner + density(x)) * step / 3.0
}

#[test]
fn activations_are_within_their_error() {
    let numbers: Vec<f32> = (-160..=160).map(|i| i as f32 / 16.0 + 1e-3).collect();
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let tanh_form = |x: f64| {
        let a = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        x / (1.0 + (-2.0 * a).exp())
    };
    type Formula<'a> = &'a dyn Fn(f64) -> f64;
    // Where an exponent is large, rounding it counts that many times.
    let cases: [(Activation, Formula<'_>, f64); 5] = [
        (Activation::Silu(1.0), &silu, 1e-6),
        (Activation::Silu(0.5), &|x| silu(0.5 * x), 1e-6),
        (Activation::GeluTanh, &tanh_form, 2e-5),
        (Activation::Relu, &|x| x.max(0.0), 0.0),
        (Activation::ReluSquared, &|x| x.max(0.0).powi(2), 1e-7),
    ];
    for (activation, formula, tolerance) in cases {
        let mut got = numbers.clone();
        activate(activation, &mut got);
        let up: Vec<f32> = numbers.iter().map(|x| 1.0 + x / 100.0).collect();
        let mut gated = vec![0.0; got.len()];
        gate(activation, &numbers, &up, &mut gated);
        for (((x, got), gated), up) in numbers.iter().zip(&got).zip(&gated).zip(&up) {
            // Below −86 exponents are cut, which leaves less than 1e-30 here.
            let wanted = formula(f64::from(*x));
            assert!(is_near(*got, wanted, tolerance), "{activation:?} of {x}: {got}, wanted {wanted}");
            assert_eq!(got * up, *gated, "{activation:?}");
        }
    }
    let few: Vec<f32> = (-300..=300).map(|i| i as f32 / 37.0).collect();
    let mut got = few.clone();
    activate(Activation::Gelu, &mut got);
    for (x, got) in few.iter().zip(got) {
        let wanted = f64::from(*x) * normal(f64::from(*x));
        let error = (f64::from(got) - wanted).abs();
        assert!(error <= 2e-7 + 1e-7 * wanted.abs(), "gelu of {x}: {got}, wanted {wanted}");
    }
    for cap in [1.0, 30.0] {
        let mut got = numbers.clone();
        softcap(cap, &mut got);
        for (x, got) in numbers.iter().zip(got) {
            let wanted = f64::from(cap) * (f64::from(*x) / f64::from(cap)).tanh();
            assert!(is_near(got, wanted, 5e-7), "{x} below {cap}: {got}, wanted {wanted}");
        }
    }
}

#[test]
fn what_is_no_number_stays_none() {
    for activation in [Activation::Silu(1.0), Activation::GeluTanh, Activation::Gelu] {
        let mut x = [f32::NAN, 1.0, f32::INFINITY, -1e30];
        activate(activation, &mut x);
        assert!(x[0].is_nan() && x[1] > 0.7 && x[2] == f32::INFINITY && x[3].abs() < 1e-6, "{activation:?}: {x:?}");
    }
    let mut x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    softcap(2.0, &mut x);
    assert!(x[0].is_nan() && x[1] == 2.0 && x[2] == -2.0, "{x:?}");
}

#[test]
fn norms_are_their_formulas() {
    let mut rng = Rng(5);
    for columns in [1, 3, 16, 37, 4099] {
        let [x, weight, bias] = [0; 3].map(|_| rng.floats(columns));
        let mut got = [vec![0.0; columns], vec![0.0; columns]];
        rms_norm(&x, &weight, 1e-5, &mut got[0]).unwrap();
        layer_norm(&x, &weight, Some(&bias), 1e-5, &mut got[1]).unwrap();
        let n = columns as f64;
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let squares = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n;
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
        for at in 0..columns {
            let [x, weight, bias] = [x[at], weight[at], bias[at]].map(f64::from);
            let wanted = [x / (squares + 1e-5).sqrt() * weight, (x - mean) / (variance + 1e-5).sqrt() * weight + bias];
            for (got, wanted) in got.iter().zip(wanted) {
                assert!((f64::from(got[at]) - wanted).abs() < 3e-6, "{columns}: {}, wanted {wanted}", got[at]);
            }
        }
        assert!(rms_norm(&x, &weight[1..], 1e-5, &mut got[0]).is_err());
    }
}

/// The numbers of a cache in a format, as bytes and as floats.
fn cache(rng: &mut Rng, format: &str, rows: usize, columns: usize) -> (Vec<u8>, Vec<f32>) {
    let numbers = rng.floats(rows * columns);
    match format {
        "f32" => (numbers.iter().flat_map(|x| x.to_le_bytes()).collect(), numbers),
        "f16" => {
            let halves: Vec<f16> = numbers.iter().map(|x| f16::from_f32(*x)).collect();
            (halves.iter().flat_map(|x| x.to_le_bytes()).collect(), halves.iter().map(|x| x.to_f32()).collect())
        }
        _ => {
            let (mut bytes, mut values) = (Vec::new(), Vec::new());
            for pair in numbers.chunks(64) {
                let quants: Vec<i8> = pair.iter().map(|x| (x * 127.0) as i8).collect();
                let scales = [f16::from_f32(0.01), f16::from_f32(0.02)];
                values.extend(quants.iter().enumerate().map(|(i, q)| f32::from(*q) * scales[i / 32].to_f32()));
                bytes.extend(quants.iter().map(|quant| *quant as u8));
                bytes.resize(bytes.len().next_multiple_of(68) - 4, 0);
                bytes.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
            }
            (bytes, values)
        }
    }
}

#[test]
fn attention_is_its_formula() {
    let mut rng = Rng(9);
    // Heads, heads of keys, dimensions, rows, tokens.
    let shapes = [
        (1, 1, 32, 1, 1),
        (4, 2, 64, 33, 3),
        (6, 3, 37, 101, 5),
        (2, 2, 128, 64, 2),
        (8, 1, 6, 200, 67),
        (9, 3, 64, 97, 11),
        (7, 1, 80, 67, 4),
        (3, 3, 256, 31, 19),
        (5, 5, 1, 129, 2),
        (2, 1, 16, 40, 0),
    ];
    for (index, (heads, kv_heads, dim, rows, tokens)) in shapes.into_iter().enumerate() {
        for format in ["f32", "f16", "q8_0"] {
            let stride = if format == "q8_0" { usize::next_multiple_of(dim, 32) } else { dim };
            let columns = kv_heads * stride;
            let caches = [0; 2].map(|_| cache(&mut rng, format, rows, columns));
            let floats: [Vec<f32>; 2] = [0, 1].map(|i| {
                let bytes: &[u8] = &caches[i].0;
                bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
            });
            let of = |i: usize| match format {
                "f32" => Cache::f32(&floats[i], columns, stride),
                "f16" => Cache::f16(&caches[i].0, columns, stride),
                _ => Cache::q8_0(&caches[i].0, columns, stride).unwrap(),
            };
            let q = rng.floats(tokens * heads * dim);
            let slopes = rng.floats(heads);
            let distances = rng.floats(heads * 7);
            let added = match index % 3 {
                0 => Added::Nothing,
                1 => Added::Slopes(&slopes),
                _ => Added::Distances { numbers: &distances, reach: 3 },
            };
            let softcap = (index % 2 == 1).then_some(1.5);
            // The last token sees nothing, if there are several.
            let seen: Vec<Seen> = (0..tokens)
                .map(|token| {
                    let end = 1 + rng.below(rows);
                    let begin = rng.below(end);
                    let is_none = token > 0 && token + 1 == tokens;
                    Seen { rows: if is_none { 0..0 } else { begin..end }, own: end - 1 }
                })
                .collect();
            let sinks = rng.floats(heads);
            let attention = Attention { heads, kv_heads, head_dim: dim, scale: 0.7, softcap, added };
            let (mut sums, mut totals) = (vec![0.0; q.len()], vec![0.0; tokens * heads * 2]);
            attention.attend(&q, [of(0), of(1)], &seen, &mut sums, &mut totals).unwrap();
            let mut with_sinks = sums.clone();
            normalize(&mut sums, &totals, None).unwrap();
            normalize(&mut with_sinks, &totals, Some(&sinks)).unwrap();
            for (token, seen) in seen.iter().enumerate() {
                for head in 0..heads {
                    let at = (token * heads + head) * dim;
                    let row = |p: usize| p * columns + head / (heads / kv_heads) * stride;
                    let weights: Vec<f64> = seen
                        .rows
                        .clone()
                        .map(|p| {
                            let k = &caches[0].1[row(p)..][..dim];
                            let dot: f64 =
                                q[at..at + dim].iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                            let distance = p as i64 - seen.own as i64;
                            let score = softcap
                                .map_or(dot * 0.7, |cap: f32| f64::from(cap) * (dot * 0.7 / f64::from(cap)).tanh());
                            let more = match added {
                                Added::Nothing => 0.0,
                                Added::Slopes(slopes) => f64::from(slopes[head]) * distance as f64,
                                Added::Distances { numbers, .. } => {
                                    f64::from(numbers[head * 7 + (distance.clamp(-3, 3) + 3) as usize])
                                }
                            };
                            (score + more).exp()
                        })
                        .collect();
                    let total: f64 = weights.iter().sum();
                    for d in 0..dim {
                        let values = seen.rows.clone().map(|p| f64::from(caches[1].1[row(p) + d]));
                        let sum: f64 = weights.iter().zip(values).map(|(w, v)| w * v).sum();
                        let wanted = [sum / total, sum / (total + f64::from(sinks[head]).exp())];
                        for (got, wanted) in [sums[at + d], with_sinks[at + d]].into_iter().zip(wanted) {
                            let wanted = if weights.is_empty() { 0.0 } else { wanted };
                            assert!((f64::from(got) - wanted).abs() < 1e-5, "{index} {format}: {got}, wanted {wanted}");
                        }
                    }
                }
            }
        }
    }
}

/// Attention of one head of 16 dimensions over caches of half floats.
fn of_halves(q: &[f32; 16], keys: &[f16], values: &[f16], seen: &[Seen]) -> Vec<f32> {
    let attention = Attention { heads: 1, kv_heads: 1, head_dim: 16, scale: 1.0, softcap: None, added: Added::Nothing };
    let bytes = [keys, values].map(|halves| halves.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let caches = [0, 1].map(|at| Cache::f16(&bytes[at], 16, 16));
    let q = q.repeat(seen.len());
    let (mut sums, mut totals) = (vec![0.0; q.len()], vec![0.0; seen.len() * 2]);
    attention.attend(&q, caches, seen, &mut sums, &mut totals).unwrap();
    normalize(&mut sums, &totals, None).unwrap();
    sums
}

#[test]
fn every_half_float_of_a_cache_is_what_it_is() {
    // A row that is seen alone is the result.
    let seen: Vec<Seen> = (0..64).map(|row| Seen { rows: row..row + 1, own: row }).collect();
    for first in (0..=u16::MAX).step_by(64 * 16) {
        let values: Vec<f16> = (first..=first + (64 * 16 - 1)).map(f16::from_bits).collect();
        let keys = vec![f16::ZERO; values.len()];
        for (got, wanted) in of_halves(&[1.0; 16], &keys, &values, &seen).into_iter().zip(values) {
            let wanted = wanted.to_f32();
            assert!(got == wanted || got.is_nan() && wanted.is_nan(), "{got}, wanted {wanted}");
        }
    }
}

#[test]
fn what_is_not_seen_changes_nothing_and_what_is_no_number_is_kept() {
    let mut rng = Rng(11);
    for (rows, at) in [(7, 3), (40, 33), (101, 64)] {
        let halves = |rng: &mut Rng| rng.floats(rows * 16).into_iter().map(f16::from_f32).collect::<Vec<_>>();
        let (keys, values) = (halves(&mut rng), halves(&mut rng));
        // A token before the row, one that sees it, and one after it.
        let seen = [0..at, 0..rows, at + 1..rows].map(|rows| Seen { rows, own: 0 });
        let wanted = of_halves(&[0.5; 16], &keys, &values, &seen);
        for (bad, of_keys) in [(f16::NAN, true), (f16::NAN, false), (f16::INFINITY, false), (f16::INFINITY, true)] {
            let (mut keys, mut values) = (keys.clone(), values.clone());
            (if of_keys { &mut keys } else { &mut values })[at * 16 + 5] = bad;
            let got = of_halves(&[0.5; 16], &keys, &values, &seen);
            for token in [0, 2] {
                let of_token = token * 16..(token + 1) * 16;
                assert_eq!(got[of_token.clone()], wanted[of_token], "{rows}, {at}");
            }
            assert!(!got[16 + 5].is_finite(), "{rows}, {at}: {}", got[16 + 5]);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let numbers = [0.0; 64];
    let attention = Attention { heads: 2, kv_heads: 1, head_dim: 16, scale: 1.0, softcap: None, added: Added::Nothing };
    let caches = [Cache::f32(&numbers, 16, 16); 2];
    let (mut sums, mut totals) = ([0.0; 32], [0.0; 4]);
    let seen = |end: usize| [Seen { rows: 0..end, own: 0 }];
    let q = [0.0; 32];
    assert!(attention.attend(&q, caches, &seen(4), &mut sums, &mut totals).is_ok());
    assert!(attention.attend(&q, caches, &seen(5), &mut sums, &mut totals).is_err());
    assert!(attention.attend(&q[1..], caches, &seen(4), &mut sums, &mut totals).is_err());
    assert!(attention.attend(&q, caches, &seen(4), &mut sums, &mut totals[1..]).is_err());
    let odd = Attention { heads: 3, kv_heads: 2, ..attention };
    assert!(odd.attend(&[0.0; 48], caches, &seen(4), &mut [0.0; 48], &mut [0.0; 6]).is_err());
    assert!(Cache::q8_0(&[0; 68], 33, 33).is_err());
}

#[test]
fn numbers_become_the_nearest_half_floats() {
    let mut numbers = vec![f32::INFINITY, f32::NEG_INFINITY, 1e-10, -1e-10, 1e10, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    // Each half float, what is halfway to the next one, and what is next to that on both sides.
    for bits in 0..=u16::MAX {
        let half = f16::from_bits(bits).to_f32();
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        let middle = half + (next - half) / 2.0;
        numbers.extend([half, middle, middle.next_up(), middle.next_down()]);
    }
    let mut got = vec![0; 2 * numbers.len()];
    rillm_cpu_kernels::to_f16(&numbers, &mut got);
    for (x, got) in numbers.iter().zip(got.chunks_exact(2)) {
        let (got, wanted) = (u16::from_le_bytes([got[0], got[1]]), f16::from_f32(*x).to_bits());
        assert!(got == wanted, "{x:e} ({:x}): {got:x}, wanted {wanted:x}", x.to_bits());
    }
    // As many as there are, and no byte more.
    for count in 0..20 {
        let mut all = vec![7; 64];
        rillm_cpu_kernels::to_f16(&numbers[100..][..count], &mut all);
        let wanted: Vec<u8> = numbers[100..][..count].iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        assert_eq!((&all[..2 * count], all[2 * count..].iter().all(|byte| *byte == 7)), (&wanted[..], true));
    }
}

#[test]
fn pairs_are_turned() {
    let mut rng = Rng(3);
    for (pairs, rest) in [(1, 0), (4, 0), (7, 3), (32, 0), (33, 31)] {
        let head = rng.floats(2 * pairs + rest);
        let [sines, cosines] = [(); 2].map(|()| rng.floats(pairs));
        let [mut halves, mut neighbours] = [head.clone(), head.clone()];
        rillm_cpu_kernels::turn_halves(&mut halves, &sines, &cosines);
        rillm_cpu_kernels::turn_neighbours(&mut neighbours, &sines, &cosines);
        for i in 0..pairs {
            for (got, [a, b]) in [(&halves, [i, i + pairs]), (&neighbours, [2 * i, 2 * i + 1])] {
                let (x, y, sin, cos) = (head[a], head[b], sines[i], cosines[i]);
                assert_eq!([got[a], got[b]], [x * cos - y * sin, x * sin + y * cos], "{pairs} pairs, {i}");
            }
        }
        assert_eq!(halves[2 * pairs..], head[2 * pairs..]);
        assert_eq!(neighbours[2 * pairs..], head[2 * pairs..]);
    }
}
