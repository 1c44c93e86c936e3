//! Loops over slices by vectors. What is left at the end goes through a vector that is filled up with zeros.

use crate::simd::F32x4;

const LANES: usize = F32x4::LANES;

/// The numbers as a vector, with zeros after their end.
#[inline(always)]
pub(crate) fn padded(x: &[f32]) -> F32x4 {
    match x.first_chunk() {
        Some(whole) => F32x4::load(whole),
        None => {
            let mut all = [0.0; LANES];
            all[..x.len()].copy_from_slice(x);
            F32x4::load(&all)
        }
    }
}

/// Writes as many lanes as there is room for.
#[inline(always)]
pub(crate) fn put(out: &mut [f32], vector: F32x4) {
    let lanes = vector.lanes();
    let count = out.len();
    out.copy_from_slice(&lanes[..count]);
}

/// x = f(x).
#[inline(always)]
pub(crate) fn map(x: &mut [f32], f: impl Fn(F32x4) -> F32x4) {
    let mut whole = x.chunks_exact_mut(LANES);
    for x in &mut whole {
        put(x, f(padded(x)));
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        put(rest, f(padded(rest)));
    }
}

/// `out` = f(a, b), for as many numbers as all have.
#[inline(always)]
pub(crate) fn map2(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(F32x4, F32x4) -> F32x4) {
    let count = a.len().min(b.len()).min(out.len());
    let (a, b, out) = (&a[..count], &b[..count], &mut out[..count]);
    let mut whole = out.chunks_exact_mut(LANES);
    let (mut of_a, mut of_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for ((out, a), b) in (&mut whole).zip(&mut of_a).zip(&mut of_b) {
        put(out, f(padded(a), padded(b)));
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        put(rest, f(padded(of_a.remainder()), padded(of_b.remainder())));
    }
}

/// x = f(x, y), for as many numbers as both have.
#[inline(always)]
pub(crate) fn update(x: &mut [f32], y: &[f32], f: impl Fn(F32x4, F32x4) -> F32x4) {
    let count = x.len().min(y.len());
    let mut whole = x[..count].chunks_exact_mut(LANES);
    let mut of_y = y[..count].chunks_exact(LANES);
    for (x, y) in (&mut whole).zip(&mut of_y) {
        put(x, f(padded(x), padded(y)));
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        put(rest, f(padded(rest), padded(of_y.remainder())));
    }
}

/// x = f(x, y, z), for as many numbers as all have.
#[inline(always)]
pub(crate) fn update2(x: &mut [f32], y: &[f32], z: &[f32], f: impl Fn(F32x4, F32x4, F32x4) -> F32x4) {
    let count = x.len().min(y.len()).min(z.len());
    let mut whole = x[..count].chunks_exact_mut(LANES);
    let (mut of_y, mut of_z) = (y[..count].chunks_exact(LANES), z[..count].chunks_exact(LANES));
    for ((x, y), z) in (&mut whole).zip(&mut of_y).zip(&mut of_z) {
        put(x, f(padded(x), padded(y), padded(z)));
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        put(rest, f(padded(rest), padded(of_y.remainder()), padded(of_z.remainder())));
    }
}

/// The sum of f over all numbers. f of 0 is 0. Four sums side by side, which do not wait for each other.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(F32x4) -> F32x4) -> f32 {
    let mut sums = [F32x4::splat(0.0); 4];
    let mut whole = x.chunks_exact(4 * LANES);
    for x in &mut whole {
        for (sum, x) in sums.iter_mut().zip(x.chunks_exact(LANES)) {
            *sum = sum.add(f(padded(x)));
        }
    }
    for (sum, x) in sums.iter_mut().zip(whole.remainder().chunks(LANES)) {
        *sum = sum.add(f(padded(x)));
    }
    sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum()
}
