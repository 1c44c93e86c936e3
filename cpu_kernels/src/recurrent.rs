//! Steps of recurrent layers, one token and one head at a time, and sums of rows. States have four numbers of a key, or of a channel, side by side.

use crate::format::{Mismatch, expect};
use crate::lanes::{update, update2};
use crate::simd::F32x4;

const LANES: usize = F32x4::LANES;
/// Elements of a value whose sums stay in registers or close by, while their part of the state is read twice.
const TILE: usize = 16;

/// A token's step of a gated delta net: S ← decay · S, S ← S + rate · (v − S k) kᵀ, and what S q reads. The state is [key / 4, value, 4].
pub fn delta_step(
    state: &mut [f32],
    [q, k, v]: [&[f32]; 3],
    [decay, rate]: [f32; 2],
    read: &mut [f32],
) -> Result<(), Mismatch> {
    expect("a key of whole vectors", k.len().next_multiple_of(LANES), k.len())?;
    expect("the numbers of a query", k.len(), q.len())?;
    expect("the numbers of a state", k.len().saturating_mul(v.len()), state.len())?;
    expect("the numbers that are read", v.len(), read.len())?;
    if v.is_empty() {
        return Ok(());
    }
    let state: &mut [[f32; LANES]] = bytemuck::cast_slice_mut(state);
    let (k, q): (&[[f32; LANES]], &[[f32; LANES]]) = (bytemuck::cast_slice(k), bytemuck::cast_slice(q));
    let (columns, factor) = (v.len(), F32x4::splat(decay));
    for (tile, (v, read)) in v.chunks(TILE).zip(read.chunks_mut(TILE)).enumerate() {
        let place = tile * TILE..tile * TILE + v.len();
        let mut sums = [F32x4::splat(0.0); TILE];
        for (row, k) in state.chunks_exact(columns).zip(k) {
            let k = F32x4::load(k);
            for (sum, s) in sums.iter_mut().zip(&row[place.clone()]) {
                *sum = F32x4::load(s).mul_add(k, *sum);
            }
        }
        let mut changes = [F32x4::splat(0.0); TILE];
        for ((change, sum), v) in changes.iter_mut().zip(sums).zip(v) {
            *change = F32x4::splat((v - decay * sum.sum()) * rate);
        }
        sums = [F32x4::splat(0.0); TILE];
        for ((row, k), q) in state.chunks_exact_mut(columns).zip(k).zip(q) {
            let (k, q) = (F32x4::load(k), F32x4::load(q));
            for ((sum, s), change) in sums.iter_mut().zip(&mut row[place.clone()]).zip(&changes) {
                let new = k.mul_add(*change, F32x4::load(s).mul(factor));
                *s = new.lanes();
                *sum = new.mul_add(q, *sum);
            }
        }
        read.iter_mut().zip(sums).for_each(|(read, sum)| *read = sum.sum());
    }
    Ok(())
}

/// A token's step of four numbers of each channel's state in a selective state space model: s ← decay · s + added · b. What c reads of them is added
/// to `sums`, which are four for each channel.
pub fn scan_step(
    state: &mut [f32],
    [decay, b, c]: [[f32; LANES]; 3],
    added: &[f32],
    sums: &mut [[f32; LANES]],
) -> Result<(), Mismatch> {
    expect("the numbers of a state", LANES * added.len(), state.len())?;
    expect("the sums of channels", added.len(), sums.len())?;
    let state: &mut [[f32; LANES]] = bytemuck::cast_slice_mut(state);
    let [decay, b, c] = [decay, b, c].map(|four| F32x4::load(&four));
    for ((s, sum), added) in state.iter_mut().zip(sums).zip(added) {
        let new = F32x4::splat(*added).mul_add(b, F32x4::load(s).mul(decay));
        *s = new.lanes();
        *sum = new.mul_add(c, F32x4::load(sum)).lanes();
    }
    Ok(())
}

/// out += factor · x.
pub fn add_scaled(out: &mut [f32], factor: f32, x: &[f32]) -> Result<(), Mismatch> {
    expect("numbers to add", out.len(), x.len())?;
    let factor = F32x4::splat(factor);
    update(out, x, |out, x| x.mul_add(factor, out));
    Ok(())
}

/// out += a · b, number by number.
pub fn add_products(out: &mut [f32], a: &[f32], b: &[f32]) -> Result<(), Mismatch> {
    expect("numbers to add", out.len(), a.len())?;
    expect("numbers to multiply", a.len(), b.len())?;
    update2(out, a, b, |out, a, b| a.mul_add(b, out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{add_products, add_scaled, delta_step, scan_step};

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
    }

    fn check(got: &[f32], wanted: &[f64]) {
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((f64::from(*got) - wanted).abs() < 1e-4, "{got} instead of {wanted}");
        }
    }

    #[test]
    fn a_step_of_a_delta_net_is_that_of_its_matrices() {
        for (keys, values) in [(4, 1), (8, 15), (12, 16), (64, 33), (20, 48)] {
            let mut state = numbers(keys * values, 1);
            let (q, k, v) = (numbers(keys, 2), numbers(keys, 3), numbers(values, 4));
            let k: Vec<f32> = k.iter().map(|k| k / keys as f32).collect();
            let [decay, rate] = [0.75, 0.5];
            let at = |i: usize, j: usize| (i / 4 * values + j) * 4 + i % 4;
            let mut wanted: Vec<f64> = state.iter().map(|s| f64::from(*s)).collect();
            let mut wanted_read = vec![0.0; values];
            for j in 0..values {
                let known: f64 = (0..keys).map(|i| wanted[at(i, j)] * f64::from(decay) * f64::from(k[i])).sum();
                for i in 0..keys {
                    let s = &mut wanted[at(i, j)];
                    *s = *s * f64::from(decay) + f64::from(k[i]) * (f64::from(v[j]) - known) * f64::from(rate);
                    wanted_read[j] += *s * f64::from(q[i]);
                }
            }
            let mut read = vec![9.0; values];
            delta_step(&mut state, [&q, &k, &v], [decay, rate], &mut read).unwrap();
            check(&read, &wanted_read);
            check(&state, &wanted);
        }
        let mut read = [0.0; 3];
        assert!(delta_step(&mut [0.0; 12], [&[0.0; 4], &[0.0; 4], &[0.0; 2]], [1.0, 1.0], &mut read).is_err());
        assert!(delta_step(&mut [0.0; 9], [&[0.0; 3], &[0.0; 3], &[0.0; 3]], [1.0, 1.0], &mut read).is_err());
    }

    #[test]
    fn a_step_of_a_scan_is_that_of_its_numbers() {
        let (mut state, added) = (numbers(20, 1), numbers(5, 2));
        let [decay, b, c] = [[0.5, 0.25, 1.0, 0.0], [1.0, -1.0, 0.5, 2.0], [0.25, 1.0, -1.0, 0.5]];
        let mut sums = vec![[1.0; 4]; 5];
        let wanted: Vec<f64> =
            (0..20).map(|at| f64::from(state[at] * decay[at % 4] + added[at / 4] * b[at % 4])).collect();
        let wanted_sums: Vec<f64> = (0..20).map(|at| 1.0 + wanted[at] * f64::from(c[at % 4])).collect();
        scan_step(&mut state, [decay, b, c], &added, &mut sums).unwrap();
        check(&state, &wanted);
        check(sums.as_flattened(), &wanted_sums);
        assert!(scan_step(&mut state, [decay, b, c], &added[1..], &mut sums).is_err());
    }

    #[test]
    fn rows_are_added_to_their_end() {
        for count in [0, 1, 3, 4, 7, 130] {
            let (mut out, x) = (numbers(count, 1), numbers(count, 2));
            let wanted: Vec<f64> = out.iter().zip(&x).map(|(out, x)| f64::from(*out) + 0.5 * f64::from(*x)).collect();
            add_scaled(&mut out, 0.5, &x).unwrap();
            check(&out, &wanted);
            let y = numbers(count, 3);
            let products = x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y));
            let wanted: Vec<f64> = wanted.iter().zip(products).map(|(out, product)| out + product).collect();
            add_products(&mut out, &x, &y).unwrap();
            check(&out, &wanted);
        }
        assert!(add_scaled(&mut [0.0; 2], 1.0, &[0.0; 3]).is_err());
        assert!(add_products(&mut [0.0; 2], &[0.0; 2], &[0.0; 3]).is_err());
    }
}
