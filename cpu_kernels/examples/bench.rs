//! What `node cpu_kernels/bench.mjs` runs: products with random weights, attention over random caches, and the rounding of activations.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "only wasm is measured"))]

use std::cell::RefCell;

use half::f16;
use rillm_cpu_kernels::{
    Added, Attention, Cache, Format, Packed, Quantized, Seen, Weights, mat_mul, mat_mul_packed, pack,
};

#[path = "../tests/support/mod.rs"]
mod support;

use support::{Rng, formats};

struct Subject {
    format: Format,
    bytes: Vec<u8>,
    /// Empty if the format is not packed.
    packed: Vec<u8>,
    rows: usize,
    columns: usize,
    tokens: usize,
    x: Vec<f32>,
    out: Vec<f32>,
}

thread_local! {
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

/// Makes a matrix [rows, columns] of a format (its place in the list of tests), and activations. Returns the bytes of the matrix.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn prepare(format: usize, rows: usize, columns: usize, tokens: usize) -> usize {
    let mut rng = Rng(7);
    let known = &formats()[format];
    // Some random rows, again and again: to make all of them takes longer than what is measured.
    let row = known.matrix(1, columns * rows.min(16), &mut rng);
    let bytes: Vec<u8> = row.iter().copied().cycle().take(row.len() / rows.min(16) * rows).collect();
    let mut packed = vec![0; Packed::bytes(known.format, rows, columns).unwrap_or_default()];
    if !packed.is_empty() {
        pack(&Weights::new(known.format, &bytes, rows, columns).unwrap(), 0, &mut packed).unwrap();
    }
    let x = rng.floats(tokens * columns);
    let length = bytes.len();
    SUBJECT.set(Some(Subject {
        format: known.format,
        bytes,
        packed,
        rows,
        columns,
        tokens,
        x,
        out: vec![0.0; tokens * rows],
    }));
    length
}

/// Computes the product a number of times, in floats or with activations that are rounded.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn run(times: usize, int8: bool) -> f32 {
    SUBJECT.with_borrow_mut(|subject| {
        let Subject { format, bytes, packed, rows, columns, tokens, x, out } = subject.as_mut().unwrap();
        for _ in 0..times {
            if int8 {
                let weights = Packed::new(*format, packed, *rows, *columns).unwrap();
                mat_mul_packed(&weights, &Quantized::new(x, *tokens, *columns).unwrap(), out).unwrap();
            } else {
                let weights = Weights::new(*format, bytes, *rows, *columns).unwrap();
                mat_mul(&weights, *tokens, x, out).unwrap();
            }
        }
        out[0]
    })
}

/// Packs the weights a number of times.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn run_packing(times: usize) {
    SUBJECT.with_borrow_mut(|subject| {
        let Subject { format, bytes, packed, rows, columns, .. } = subject.as_mut().unwrap();
        for _ in 0..times {
            pack(&Weights::new(*format, bytes, *rows, *columns).unwrap(), 0, packed).unwrap();
        }
    });
}

/// Rounds the activations a number of times.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn run_rounding(times: usize) {
    SUBJECT.with_borrow(|subject| {
        let Subject { x, tokens, columns, .. } = subject.as_ref().unwrap();
        for _ in 0..times {
            std::hint::black_box(Quantized::new(x, *tokens, *columns).unwrap());
        }
    });
}

struct Attended {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    format: usize,
    floats: [Vec<f32>; 2],
    bytes: [Vec<u8>; 2],
    q: Vec<f32>,
    seen: Vec<Seen>,
    sums: Vec<f32>,
    totals: Vec<f32>,
}

thread_local! {
    static ATTENDED: RefCell<Option<Attended>> = const { RefCell::new(None) };
}

/// Makes caches of `rows` rows, in f32, f16 or q8_0, and the last `tokens` tokens of them, which see what is before them.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn prepare_attention(
    format: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rows: usize,
    tokens: usize,
) -> usize {
    let mut rng = Rng(7);
    let floats = [0; 2].map(|_| rng.floats(rows * kv_heads * head_dim));
    let bytes = floats.each_ref().map(|floats| match format {
        0 => Vec::new(),
        1 => floats.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        _ => {
            let quants = |pair: &[f32]| pair.iter().map(|x| (x * 127.0) as i8 as u8).collect::<Vec<_>>();
            let scale = f16::from_f32(1.0 / 127.0).to_le_bytes();
            floats.chunks(64).flat_map(|pair| [quants(pair), scale.to_vec(), scale.to_vec()].concat()).collect()
        }
    });
    let q = rng.floats(tokens * heads * head_dim);
    let seen = (rows - tokens..rows).map(|own| Seen { rows: 0..own + 1, own }).collect();
    let (sums, totals) = (vec![0.0; q.len()], vec![0.0; tokens * heads * 2]);
    let size = bytes[0].len().max(floats[0].len() * 4) * 2;
    ATTENDED.set(Some(Attended { heads, kv_heads, head_dim, format, floats, bytes, q, seen, sums, totals }));
    size
}

/// Attends a number of times.
#[cfg_attr(target_arch = "wasm32", wasm_bindgen::prelude::wasm_bindgen)]
pub fn run_attention(times: usize) {
    ATTENDED.with_borrow_mut(|attended| {
        let Attended { heads, kv_heads, head_dim, format, floats, bytes, q, seen, sums, totals } =
            attended.as_mut().unwrap();
        let (heads, kv_heads, head_dim) = (*heads, *kv_heads, *head_dim);
        let attention = Attention { heads, kv_heads, head_dim, scale: 0.125, softcap: None, added: Added::Nothing };
        let columns = kv_heads * head_dim;
        let caches = [0, 1].map(|at| match format {
            0 => Cache::f32(&floats[at], columns, head_dim),
            1 => Cache::f16(&bytes[at], columns, head_dim),
            _ => Cache::q8_0(&bytes[at], columns, head_dim).unwrap(),
        });
        for _ in 0..times {
            attention.attend(q, caches, seen, sums, totals).unwrap();
        }
    });
}
