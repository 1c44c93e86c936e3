//! The rules of GGML's reference quantiser in plain loops (`quantize_row_q8_0_ref`, `…_q4_0_ref`, `…_iq4_nl_ref`, `…_q4_K_ref`, `…_q6_K_ref`),
//! each operation rounded to f32. Tests call them, and the CPU's device.

use half::f16;

use super::Format;
use super::iq4_nl::VALUES;

/// Blocks whose magnitudes are all below this become zero (GGML's `GROUP_MAX_EPS`).
const LEAST: f32 = 1e-15;

/// The bytes of a block as in a file; `None` for formats that are not targets.
pub fn reference(to: &Format, weights: &[f32]) -> Option<Vec<u8>> {
    match to.name {
        "q8_0" => {
            let d = largest(weights).abs() / 127.0;
            let id = if d == 0.0 { 0.0 } else { 1.0 / d };
            let quants = weights.iter().map(|x| (x * id).round() as i8 as u8);
            Some(half_bytes(d).into_iter().chain(quants).collect())
        }
        "q4_0" => {
            let d = largest(weights) / -8.0;
            let id = if d == 0.0 { 0.0 } else { 1.0 / d };
            let quant = |x: f32| ((x * id + 8.5) as u8).min(15);
            let quants = (0..16).map(|j| quant(weights[j]) | (quant(weights[j + 16]) << 4));
            Some(half_bytes(d).into_iter().chain(quants).collect())
        }
        "iq4_nl" => Some(iq4_nl(weights)),
        "q4_k" => Some(q4_k(weights)),
        "q6_k" => Some(q6_k(weights)),
        _ => None,
    }
}

/// The number of the largest magnitude, the first of several.
fn largest(weights: &[f32]) -> f32 {
    weights.iter().fold(0f32, |largest, x| if x.abs() > largest.abs() { *x } else { largest })
}

fn half_bytes(x: f32) -> [u8; 2] {
    f16::from_f32(x).to_le_bytes()
}

fn half(x: f32) -> f32 {
    f16::from_f32(x).to_f32()
}

/// To the nearest, halves to even, as GGML's `nearest_int`.
fn nearest(x: f32) -> i32 {
    x.round_ties_even() as i32
}

/// The place of the nearest of IQ4_NL's values; of two as near, the larger.
fn nearest_value(x: f32) -> u8 {
    let above = VALUES.iter().position(|value| x < f32::from(*value));
    match above {
        Some(0) => 0,
        None => 15,
        Some(at) => {
            let (below, above) = (f32::from(VALUES[at - 1]), f32::from(VALUES[at]));
            if x - below < above - x { at as u8 - 1 } else { at as u8 }
        }
    }
}

fn iq4_nl(x: &[f32]) -> Vec<u8> {
    let most = largest(x);
    if most.abs() < LEAST {
        return vec![0; 18];
    }
    let id = 1.0 / (most / f32::from(VALUES[0]));
    let quants: Vec<u8> = x.iter().map(|x| nearest_value(id * x)).collect();
    let (mut products, mut squares) = (0f32, 0f32);
    for (x, quant) in x.iter().zip(&quants) {
        let (value, weight) = (f32::from(VALUES[usize::from(*quant)]), x * x);
        products += weight * value * x;
        squares += weight * value * value;
    }
    let packed = (0..16).map(|j| quants[j] | quants[j + 16] << 4);
    half_bytes(products / squares).into_iter().chain(packed).collect()
}

/// The scale of 16 weights with quants of -32 to 31: of 19 scales the one whose best fit, weighted by squares, errs least.
fn scale_of_16(x: &[f32]) -> f32 {
    let most = largest(x);
    if most.abs() < LEAST {
        return 0.0;
    }
    let fit = |inverse: f32| {
        let (mut products, mut squares) = (0f32, 0f32);
        for x in x {
            let quant = nearest(inverse * x).clamp(-32, 31) as f32;
            products += x * x * x * quant;
            squares += x * x * quant * quant;
        }
        (products, squares)
    };
    let (products, squares) = fit(-32.0 / most);
    let mut scale = if squares == 0.0 { 0.0 } else { products / squares };
    let mut best = scale * products;
    for step in (-9..=9).filter(|step| *step != 0) {
        let (products, squares) = fit(-(32.0 + 0.1 * step as f32) / most);
        if squares > 0.0 && products * products > best * squares {
            scale = products / squares;
            best = scale * products;
        }
    }
    scale
}

fn q6_k(x: &[f32]) -> Vec<u8> {
    let scales: Vec<f32> = x.chunks(16).map(scale_of_16).collect();
    let most = largest(&scales);
    if most.abs() < LEAST {
        return vec![0; 210];
    }
    let inverse = -128.0 / most;
    let d = half(1.0 / inverse);
    let scales: Vec<i8> = scales.iter().map(|scale| nearest(inverse * scale).min(127) as i8).collect();
    let quant = |j: usize| {
        let scale = d * f32::from(scales[j / 16]);
        // Without a scale GGML keeps the quant of the search, which is multiplied by zero.
        if scale == 0.0 { 32 } else { (nearest(x[j] / scale).clamp(-32, 31) + 32) as u8 }
    };
    let mut bytes = vec![0; 192];
    for j in 0..256 {
        let quant = quant(j);
        bytes[j / 128 * 64 + j % 64] |= (quant & 15) << (j % 128 / 64 * 4);
        bytes[128 + j / 128 * 32 + j % 32] |= quant >> 4 << (j % 128 / 32 * 2);
    }
    bytes.extend(scales.iter().map(|scale| *scale as u8));
    bytes.extend(half_bytes(1.0 / inverse));
    bytes
}

/// Scale and minimum, which is not negative, of 32 weights with quants of 0 to 15: of 22 tries the one that errs least, weighted.
fn scale_and_minimum(x: &[f32]) -> (f32, f32) {
    let average = (x.iter().fold(0f32, |sum, x| sum + x * x) / 32.0).sqrt();
    let weights: Vec<f32> = x.iter().map(|x| average + x.abs()).collect();
    let low = x.iter().fold(x[0], |low, x| low.min(*x));
    let high = x.iter().fold(x[0], |high, x| high.max(*x));
    let (mut sum_w, mut sum_x) = (0f32, 0f32);
    for (x, w) in x.iter().zip(&weights) {
        sum_w += w;
        sum_x += w * x;
    }
    let low = low.min(0.0);
    if high == low {
        return (0.0, -low);
    }
    let quant = |inverse: f32, x: f32| nearest(inverse * (x - low)).clamp(0, 15) as f32;
    let error = |inverse: f32, scale: f32, minimum: f32| {
        let square = |(x, w): (&f32, &f32)| {
            let difference = scale * quant(inverse, *x) + minimum - x;
            w * (difference * difference)
        };
        x.iter().zip(&weights).map(square).fold(0f32, |sum, error| sum + error)
    };
    let inverse = 15.0 / (high - low);
    let (mut scale, mut minimum) = (1.0 / inverse, low);
    let mut least = error(inverse, scale, minimum);
    for step in 0..=20 {
        let inverse = (-1.0 + 0.1 * step as f32 + 15.0) / (high - low);
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0f32, 0f32, 0f32);
        for (x, w) in x.iter().zip(&weights) {
            let l = quant(inverse, *x);
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let determinant = sum_w * sum_l2 - sum_l * sum_l;
        if determinant <= 0.0 {
            continue;
        }
        let mut this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
        let mut this_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
        if this_minimum > 0.0 {
            (this_scale, this_minimum) = (sum_xl / sum_l2, 0.0);
        }
        let this = error(inverse, this_scale, this_minimum);
        if this < least {
            (scale, minimum, least) = (this_scale, this_minimum, this);
        }
    }
    (scale, -minimum)
}

fn q4_k(x: &[f32]) -> Vec<u8> {
    let found: Vec<(f32, f32)> = x.chunks(32).map(scale_and_minimum).collect();
    let most = |of: fn(&(f32, f32)) -> f32| found.iter().map(of).fold(0f32, f32::max);
    let (most_scale, most_minimum) = (most(|found| found.0), most(|found| found.1));
    let inverse = |most: f32| if most > 0.0 { 63.0 / most } else { 0.0 };
    let six = |x: f32, most: f32| nearest(inverse(most) * x).clamp(0, 63) as u8;
    let (d, dmin) = (most_scale / 63.0, most_minimum / 63.0);
    let sixes: Vec<(u8, u8)> =
        found.iter().map(|(scale, minimum)| (six(*scale, most_scale), six(*minimum, most_minimum))).collect();
    let mut bytes = [half_bytes(d), half_bytes(dmin)].concat();
    bytes.resize(16 + 128, 0);
    for (block, (scale, minimum)) in sixes.iter().enumerate() {
        if block < 4 {
            bytes[4 + block] |= scale;
            bytes[8 + block] |= minimum;
        } else {
            bytes[8 + block] = (scale & 15) | (minimum & 15) << 4;
            bytes[block] |= scale >> 4 << 6;
            bytes[4 + block] |= minimum >> 4 << 6;
        }
    }
    for (j, x) in x.iter().enumerate() {
        let (scale, minimum) = sixes[j / 32];
        let (scale, minimum) = (half(d) * f32::from(scale), half(dmin) * f32::from(minimum));
        let quant = if scale == 0.0 { 0 } else { nearest((x + minimum) / scale).clamp(0, 15) as u8 };
        bytes[16 + j / 64 * 32 + j % 32] |= quant << (j % 64 / 32 * 4);
    }
    bytes
}
