// Order and mass of logits in whole numbers; `truncation.rs` explains it and computes the same.

// The places of the fields of `border`.
const LARGEST: u32 = 0u;
const SHIFT: u32 = 1u;
const K_BIN: u32 = 2u;
const K_ABOVE: u32 = 3u;
const P_FIRST: u32 = 6u;
const P_LAST: u32 = 7u;
const P_ABOVE: u32 = 8u;
const TOTAL: u32 = 10u;
const K_THROUGH: u32 = 12u;
const FLAGS: u32 = 14u;
// Words of a row's tally and border.
const TALLY: u32 = HISTOGRAM + 3u * BINS;
const BORDER: u32 = LIST + 2u * GROUPS * SEGMENT;

// A word with the order of the logits; -0 is 0. An infinite logit has no softmax, so it counts as NaN.
fn key_of(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u {
        return NAN_KEY;
    }
    if (bits >> 31u) == 0u || bits == 0x80000000u {
        return bits | 0x80000000u;
    }
    return ~bits;
}

// Whether, with this largest logit, there is nothing to choose from.
fn is_no_logit(largest: u32) -> bool {
    return largest == NAN_KEY || largest <= LOWEST_KEY;
}

fn logit_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

// A logit minus the largest, also if both are -inf.
fn below_largest(key: u32, largest: u32) -> f32 {
    return select(logit_of(key) - logit_of(largest), 0.0, key == largest);
}

// The depth: the distance below the largest logit, in octaves of probability times 2^24, rounded down; at most REST.
fn depth_of(key: u32, largest: u32, octaves: f32) -> u32 {
    // Fixed point by the bits of the product, so that no compiler can fuse the conversion into it.
    let bits = bitcast<u32>(-below_largest(key, largest) * octaves) & 0x7fffffffu;
    let exponent = bits >> 23u;
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    if exponent >= 133u {
        return REST;
    }
    if exponent >= 126u {
        return min(mantissa << (exponent - 126u), REST);
    }
    return mantissa >> min(126u - exponent, 31u);
}

// So that the bins from the largest to the smallest logit are at most BINS.
fn bin_shift(smallest: u32, largest: u32, octaves: f32) -> u32 {
    let bits = 32u - countLeadingZeros(depth_of(smallest, largest, octaves));
    return select(0u, bits - BIN_BITS, bits > BIN_BITS);
}

fn high_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu);
    let other = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (cross & 0xffffu) + (other & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u) + (middle >> 16u);
}

// 2^mass_bits · 2^(-depth / 2^24), as low and high word.
fn weight_of(depth: u32, mass_bits: u32) -> vec2<u32> {
    let x = depth << 8u;
    var h = 0x78910u;
    h = 0x54a8a5u - high_product(x, h);
    h = 0x274f5cbu - high_product(x, h);
    h = 0xe353360u - high_product(x, h);
    h = 0x3d7f7520u - high_product(x, h);
    h = 0xb17217e0u - high_product(x, h);
    let fraction = 0x80000000u - (high_product(x, h) >> 1u);
    let left = mass_bits - 31u;
    let right = depth >> 24u;
    if right > left {
        return vec2<u32>(fraction >> min(right - left, 31u), 0u);
    }
    let shift = left - right;
    if shift == 0u {
        return vec2<u32>(fraction, 0u);
    }
    return vec2<u32>(fraction << shift, fraction >> (32u - shift));
}

fn mass_sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn mass_as_float(mass: vec2<u32>) -> f32 {
    return f32(mass.y) * 4294967296.0 + f32(mass.x);
}

// The mass that the logits kept by top_p must reach, if those before it have `mass`.
fn wanted_mass(top_p: f32, mass: vec2<u32>) -> f32 {
    return max(top_p * mass_as_float(mass), 1.0);
}
