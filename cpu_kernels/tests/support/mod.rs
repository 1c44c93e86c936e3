//! Random blocks, what they mean by plain formulas, and products in f64.
#![allow(dead_code, reason = "each program of tests uses a part")]

use half::f16;
use rillm_cpu_kernels::{Format, GroupQuants, Groups, OtherFormat};

/// Numbers that are the same in every run (xorshift64*, Marsaglia 2003, Vigna 2016).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// From −1 to 1.
    pub fn signed(&mut self) -> f32 {
        self.next() as f32 / 2f32.powi(31) - 1.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.signed()).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    fn half(&mut self, largest: f32) -> [u8; 2] {
        f16::from_f32(self.signed() * largest).to_le_bytes()
    }
}

/// A format with what tests know of it.
pub struct Known {
    pub name: &'static str,
    pub format: Format,
    pub random_block: fn(&mut Rng) -> Vec<u8>,
    pub weights: fn(&[u8]) -> Vec<f64>,
}

impl Known {
    /// Whole blocks of random weights for a matrix.
    pub fn matrix(&self, rows: usize, columns: usize, rng: &mut Rng) -> Vec<u8> {
        let (size, _) = self.format.block();
        (0..rows * columns / size).flat_map(|_| (self.random_block)(rng)).collect()
    }

    pub fn dequantized(&self, bytes: &[u8]) -> Vec<f64> {
        let (_, block_bytes) = self.format.block();
        bytes.chunks_exact(block_bytes).flat_map(self.weights).collect()
    }
}

fn half_at(bytes: &[u8]) -> f64 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f64()
}

fn nibble(bytes: &[u8], j: usize) -> f64 {
    f64::from(bytes[j % 16] >> (j / 16 * 4) & 15)
}

fn five(fifths: &[u8], nibbles: &[u8], j: usize) -> f64 {
    nibble(nibbles, j) + 16.0 * f64::from(fifths[j / 8] >> (j % 8) & 1)
}

fn scale_and_minimum(header: &[u8], block: usize) -> (f64, f64) {
    let bytes = &header[4..16];
    let (scale, minimum) = if block < 4 {
        (bytes[block] & 63, bytes[block + 4] & 63)
    } else {
        (bytes[block + 4] & 15 | bytes[block - 4] >> 6 << 4, bytes[block + 4] >> 4 | bytes[block] >> 6 << 4)
    };
    (half_at(header) * f64::from(scale), half_at(&header[2..]) * f64::from(minimum))
}

fn nibble_of_64(quants: &[u8], j: usize) -> u8 {
    quants[j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15
}

/// A format that the crate has no loops for: 24 weights of a byte each after a scale, so that blocks are no multiple of 16.
fn own_block(bytes: &[u8], out: &mut [f32]) {
    for (out, byte) in out.iter_mut().zip(&bytes[1..]) {
        *out = f32::from(bytes[0]) * 0.01 * f32::from(*byte as i8);
    }
}

/// The scale and the zero point of a group.
fn scale_and_zero(bytes: &[u8]) -> (f64, f64) {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (f64::from(f32::from_bits(word & !255)), f64::from(word & 255))
}

fn with_zero(word: u32) -> (f32, f32) {
    let scale = f32::from_bits(word & !255);
    (scale, -scale * (word & 255) as f32)
}

fn random_group(rng: &mut Rng, bytes: usize, largest_zero: usize) -> Vec<u8> {
    let word = ((rng.signed() * 0.1).to_bits() & !255) | rng.below(largest_zero + 1) as u32;
    [rng.bytes(bytes), word.to_le_bytes().to_vec()].concat()
}

fn groups(columns: usize, quants: GroupQuants, scale_and_offset: fn(u32) -> (f32, f32)) -> Format {
    Format::Groups(Groups { columns, quants, scale_and_offset })
}

/// The nibble of a weight in a group.
fn nibble_of_group(quants: &[u8], j: usize) -> usize {
    nibble(&quants[j / 32 * 16..], j % 32) as usize
}

/// A float of eight bits, by its definition.
fn e4m3(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let magnitude = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if byte < 128 { magnitude } else { -magnitude }
}

static CODES: [f32; 16] =
    [-1.0, -0.7, -0.53, -0.39, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1.0];

pub fn formats() -> Vec<Known> {
    vec![
        Known {
            name: "f32",
            format: Format::F32,
            random_block: |rng| rng.signed().to_le_bytes().to_vec(),
            weights: |b| vec![f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))],
        },
        Known {
            name: "f16",
            format: Format::F16,
            // One in four is subnormal.
            random_block: |rng| rng.half(if rng.0 % 4 == 0 { 6e-5 } else { 1.0 }).to_vec(),
            weights: |b| vec![half_at(b)],
        },
        Known {
            name: "bf16",
            format: Format::BF16,
            random_block: |rng| ((rng.signed().to_bits() >> 16) as u16).to_le_bytes().to_vec(),
            weights: |b| vec![f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))],
        },
        Known {
            name: "q4_0",
            format: Format::Q4_0,
            random_block: |rng| [&rng.half(0.1)[..], &rng.bytes(16)].concat(),
            weights: |b| (0..32).map(|j| half_at(b) * (nibble(&b[2..], j) - 8.0)).collect(),
        },
        Known {
            name: "q4_1",
            format: Format::Q4_1,
            random_block: |rng| [&rng.half(0.1)[..], &rng.half(0.8), &rng.bytes(16)].concat(),
            weights: |b| (0..32).map(|j| half_at(b) * nibble(&b[4..], j) + half_at(&b[2..])).collect(),
        },
        Known {
            name: "q5_0",
            format: Format::Q5_0,
            random_block: |rng| [&rng.half(0.05)[..], &rng.bytes(20)].concat(),
            weights: |b| (0..32).map(|j| half_at(b) * (five(&b[2..6], &b[6..], j) - 16.0)).collect(),
        },
        Known {
            name: "q5_1",
            format: Format::Q5_1,
            random_block: |rng| [&rng.half(0.05)[..], &rng.half(0.8), &rng.bytes(20)].concat(),
            weights: |b| (0..32).map(|j| half_at(b) * five(&b[4..8], &b[8..], j) + half_at(&b[2..])).collect(),
        },
        Known {
            name: "q8_0",
            format: Format::Q8_0,
            random_block: |rng| [&rng.half(0.01)[..], &rng.bytes(32)].concat(),
            weights: |b| (0..32).map(|j| half_at(b) * f64::from(b[2 + j] as i8)).collect(),
        },
        Known {
            name: "q4_k",
            format: Format::Q4_K,
            random_block: |rng| [&rng.half(0.003)[..], &rng.half(0.02), &rng.bytes(140)].concat(),
            weights: |b| {
                let weight = |j| {
                    let (scale, minimum) = scale_and_minimum(b, j / 32);
                    scale * f64::from(nibble_of_64(&b[16..], j)) - minimum
                };
                (0..256).map(weight).collect()
            },
        },
        Known {
            name: "q5_k",
            format: Format::Q5_K,
            random_block: |rng| [&rng.half(0.0015)[..], &rng.half(0.02), &rng.bytes(172)].concat(),
            weights: |b| {
                let weight = |j| {
                    let (scale, minimum) = scale_and_minimum(b, j / 32);
                    let quant = nibble_of_64(&b[48..], j) | (b[16 + j % 32] >> (j / 32) & 1) << 4;
                    scale * f64::from(quant) - minimum
                };
                (0..256).map(weight).collect()
            },
        },
        Known {
            name: "q6_k",
            format: Format::Q6_K,
            random_block: |rng| [&rng.bytes(208)[..], &rng.half(0.0005)].concat(),
            weights: |b| {
                let weight = |j: usize| {
                    let low = b[j / 128 * 64 + j % 64] >> (j % 128 / 64 * 4) & 15;
                    let high = b[128 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
                    half_at(&b[208..]) * f64::from(b[192 + j / 16] as i8) * (f64::from(low | high << 4) - 32.0)
                };
                (0..256).map(weight).collect()
            },
        },
        Known {
            name: "nibbles in groups of 64",
            format: groups(64, GroupQuants::Nibbles, with_zero),
            random_block: |rng| random_group(rng, 32, 15),
            weights: |b| {
                let (scale, zero) = scale_and_zero(&b[32..]);
                (0..64).map(|j| scale * (nibble_of_group(b, j) as f64 - zero)).collect()
            },
        },
        Known {
            name: "bytes in groups of 128",
            format: groups(128, GroupQuants::Bytes, with_zero),
            random_block: |rng| random_group(rng, 128, 100),
            weights: |b| {
                let (scale, zero) = scale_and_zero(&b[128..]);
                (0..128).map(|j| scale * (f64::from(b[j] as i8) - zero)).collect()
            },
        },
        Known {
            name: "fp8 in groups of 32",
            format: groups(32, GroupQuants::Fp8, |word| (f32::from_bits(word), 0.0)),
            // Without what is no number.
            random_block: |rng| {
                let mut block = random_group(rng, 32, 0);
                block[..32].iter_mut().filter(|byte| **byte & 127 == 127).for_each(|byte| *byte = 3);
                block
            },
            weights: |b| b[..32].iter().map(|byte| scale_and_zero(&b[32..]).0 * e4m3(*byte)).collect(),
        },
        Known {
            name: "codes in groups of 64",
            format: groups(64, GroupQuants::Codes(&CODES), |word| (f32::from_bits(word), 0.0)),
            random_block: |rng| random_group(rng, 32, 0),
            weights: |b| {
                (0..64).map(|j| scale_and_zero(&b[32..]).0 * f64::from(CODES[nibble_of_group(b, j)])).collect()
            },
        },
        Known {
            name: "of 24",
            format: Format::Other(OtherFormat { block_size: 24, block_bytes: 25, dequantize_block: own_block }),
            random_block: |rng| rng.bytes(25),
            weights: |b| {
                let mut out = [0.0; 24];
                own_block(b, &mut out);
                out.map(f64::from).to_vec()
            },
        },
    ]
}

/// Of each token and row the product, and the sum of the magnitudes of its terms, which errors are measured by.
pub fn products(w: &[f64], rows: usize, columns: usize, x: &[f32], tokens: usize) -> Vec<(f64, f64)> {
    let mut all = Vec::with_capacity(tokens * rows);
    for token in 0..tokens {
        for row in 0..rows {
            let w = &w[row * columns..][..columns];
            let terms = w.iter().zip(&x[token * columns..][..columns]).map(|(w, x)| w * f64::from(*x));
            all.push(terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs())));
        }
    }
    all
}

/// Fails where a product is off by more than a part of its terms' magnitudes; the largest such part.
pub fn compare(what: &str, got: &[f32], wanted: &[(f64, f64)], tolerance: f64) -> f64 {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let mut most: f64 = 0.0;
    for (at, (got, (wanted, size))) in got.iter().zip(wanted).enumerate() {
        let off = (f64::from(*got) - wanted).abs();
        assert!(off <= tolerance * size, "{what}: {got} is not {wanted} at {at}, of terms of {size}");
        most = most.max(off / size.max(f64::MIN_POSITIVE));
    }
    most
}
