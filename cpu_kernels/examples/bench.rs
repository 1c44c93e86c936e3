//! What `node cpu_kernels/bench.mjs` runs: products with random weights.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, reason = "only wasm is measured"))]

use std::cell::RefCell;

use rillm_cpu_kernels::{Format, Packed, Quantized, Weights, mat_mul, mat_mul_int8, pack};

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
                mat_mul_int8(&weights, &Quantized::new(x, *tokens, *columns).unwrap(), out).unwrap();
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
