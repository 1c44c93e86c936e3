//! SHA-256 (FIPS 180-4) of bytes that come in pieces, which the browser's own `crypto.subtle` can't do.

use js_sys::Uint8Array;
use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::*;

/// Bytes are copied into the wasm heap in pieces of this length.
const PIECE_BYTES: usize = 64 << 10;

#[wasm_bindgen]
pub struct WasmSha256 {
    hasher: Sha256,
    piece: Vec<u8>,
}

#[wasm_bindgen]
impl WasmSha256 {
    #[wasm_bindgen(constructor)]
    #[allow(clippy::new_without_default, reason = "a constructor for JavaScript")]
    pub fn new() -> Self {
        Self { hasher: Sha256::new(), piece: vec![0; PIECE_BYTES] }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &Uint8Array) {
        let length = bytes.length() as usize;
        for start in (0..length).step_by(PIECE_BYTES) {
            let end = (start + PIECE_BYTES).min(length);
            let piece = &mut self.piece[..end - start];
            bytes.subarray(start as u32, end as u32).copy_to(piece);
            self.hasher.update(&*piece);
        }
    }

    /// The digest of all bytes so far, as 64 hexadecimal digits. Starts anew.
    pub fn digest(&mut self) -> String {
        let digest = self.hasher.finalize_reset();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
