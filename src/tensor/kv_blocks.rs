//! The memory layout of a KV cache of q8_0, on the CPU; `wgsl/kv_cache.wgsl` and `wgsl/kv_store.wgsl` are the same for kernels.
//!
//! Each 32 numbers along a head become int8 with an f16 scale, like llama.cpp's block of that name. Two neighbouring blocks are
//! 16 words of int8, four in a word, and a word with both scales. So every word is aligned, and a number takes 8.5 bits. A head
//! whose length is not a multiple of 32 is padded with zeros.

use super::DType;

/// Numbers of a block.
pub const BLOCK: usize = 32;

/// Numbers of two blocks, and their bytes.
pub const PAIR: u64 = 2 * BLOCK as u64;
pub const PAIR_BYTES: u64 = PAIR + 4;

/// The bytes of the blocks of `values`, padded to an even number of blocks.
pub fn quantize(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(DType::Q8_0.bytes(values.len() as u64) as usize);
    for pair in values.chunks(PAIR as usize) {
        let mut scales = [half::f16::ZERO; 2];
        let begin = bytes.len();
        for (scale, block) in scales.iter_mut().zip(pair.chunks(BLOCK)) {
            *scale = scale_of(block);
            bytes.extend(block.iter().map(|value| quant_of(*value, *scale) as u8));
        }
        bytes.resize(begin + PAIR as usize, 0);
        bytes.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
    }
    bytes
}

/// Writes blocks from the number `first` on, a multiple of 32, to a cache. The last block is padded with zeros.
pub fn store(bytes: &mut [u8], first: usize, values: &[f32]) {
    for (block, values) in (first / BLOCK..).zip(values.chunks(BLOCK)) {
        let pair = &mut bytes[block / 2 * PAIR_BYTES as usize..][..PAIR_BYTES as usize];
        let (quants, scales) = pair.split_at_mut(PAIR as usize);
        let quants = &mut quants[block % 2 * BLOCK..][..BLOCK];
        let scale = scale_of(values);
        quants.fill(0);
        quants.iter_mut().zip(values).for_each(|(quant, value)| *quant = quant_of(*value, scale) as u8);
        scales[block % 2 * 2..][..2].copy_from_slice(&scale.to_le_bytes());
    }
}

/// A number as a multiple of a block's scale. With a NaN as scale the whole block is NaN.
fn quant_of(value: f32, scale: half::f16) -> i8 {
    let divisor = scale.to_f32();
    if divisor > 0.0 { (value / divisor).round().clamp(-127.0, 127.0) as i8 } else { 0 }
}

/// The scale of a block: its largest magnitude divided by 127.
fn scale_of(block: &[f32]) -> half::f16 {
    if block.iter().any(|value| value.is_nan()) {
        return half::f16::NAN;
    }
    let largest = block.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    half::f16::from_f32((largest / 127.0).min(half::f16::MAX.to_f32()))
}

/// So many numbers of some blocks.
pub fn dequantize(bytes: &[u8], count: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(count.next_multiple_of(PAIR as usize));
    for pair in bytes.chunks_exact(PAIR_BYTES as usize) {
        let (quants, scales) = pair.split_at(PAIR as usize);
        for (block, scale) in quants.chunks_exact(BLOCK).zip(scales.chunks_exact(2)) {
            let scale = half::f16::from_le_bytes([scale[0], scale[1]]).to_f32();
            values.extend(block.iter().map(|quant| f32::from(*quant as i8) * scale));
        }
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_off_by_half_a_step_at_most() {
        let mut rng = super::super::Rng(71);
        for blocks in [1, 2, 5] {
            let values: Vec<f32> = (0..blocks * BLOCK).map(|i| rng.signed() * (i / BLOCK + 1) as f32).collect();
            let bytes = quantize(&values);
            assert_eq!(bytes.len() as u64, DType::Q8_0.bytes(values.len() as u64));
            let got = dequantize(&bytes, values.len());
            for (got, wanted) in got.chunks(BLOCK).zip(values.chunks(BLOCK)) {
                let step = wanted.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
                assert!(got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() <= step * 0.57));
            }
            // Quantising twice changes nothing.
            assert_eq!(quantize(&got), bytes);
        }
    }

    #[test]
    fn zeros_and_what_is_no_number_stay_so() {
        assert_eq!(dequantize(&quantize(&[0.0; 40]), 40), [0.0; 40]);
        let mut values = [1.0; 64];
        values[40] = f32::NAN;
        let got = dequantize(&quantize(&values), 64);
        assert!((got[0] - 1.0).abs() < 1e-3 && got[32..].iter().all(|value| value.is_nan()));
    }
}
