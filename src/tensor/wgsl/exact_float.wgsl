// Float arithmetic on the bits of numbers: WGSL's divisions and conversions may round in either direction, and sums of products may be
// fused, but quantised weights must be the same on every adapter.

fn exponent_of(x: f32) -> u32 {
    return (bitcast<u32>(x) >> 23u) & 0xffu;
}

fn mantissa_of(x: f32) -> u32 {
    return (bitcast<u32>(x) & 0x7fffffu) | 0x800000u;
}

// q · 2^exponent for q up to 2^24; zero if that is not a normal number.
fn scaled(q: u32, exponent: i32) -> f32 {
    let bits = bitcast<u32>(f32(q));
    let e = i32(bits >> 23u) + exponent;
    if q == 0u || e < 1 || e > 254 {
        return 0.0;
    }
    return bitcast<f32>((bits & 0x7fffffu) | (u32(e) << 23u));
}

// x / 127, to nearest; x is not negative. No remainder is half of 127, so ties are only possible with the 25th bit.
fn divided_by_127(x: f32) -> f32 {
    let e = i32(exponent_of(x));
    if e == 0 {
        return 0.0;
    }
    let n = mantissa_of(x) << 7u;
    var q = n / 127u;
    let rest = n % 127u;
    if q < 0x1000000u {
        q += select(0u, 1u, rest * 2u > 127u);
        return scaled(q, e - 157);
    }
    let up = (q & 1u) == 1u && (rest > 0u || (q & 2u) == 2u);
    q = (q >> 1u) + select(0u, 1u, up);
    return scaled(q, e - 156);
}

// 1 / x, to nearest: 2^47 / mantissa by long division. There are no ties.
fn reciprocal(x: f32) -> f32 {
    let e = i32(exponent_of(x));
    if e == 0 {
        return 0.0;
    }
    let m = mantissa_of(x);
    var q = 0x1000000u;
    if m != 0x800000u {
        q = 0u;
        var rest = 0x800000u;
        for (var i = 0; i < 24; i++) {
            rest <<= 1u;
            q <<= 1u;
            if rest >= m {
                rest -= m;
                q |= 1u;
            }
        }
        q += select(0u, 1u, rest * 2u > m);
    }
    let magnitude = scaled(q, 103 - e);
    return select(magnitude, -magnitude, x < 0.0);
}

// The bits of the nearest f16, ties to even.
fn f16_bits(x: f32) -> u32 {
    let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
    let a = bitcast<u32>(x) & 0x7fffffffu;
    if a >= 0x47800000u {
        return sign | select(0x7c00u, 0x7e00u, a > 0x7f800000u);
    }
    if a >= 0x38800000u {
        let q = (a - 0x38000000u) >> 13u;
        let rest = a & 0x1fffu;
        return sign | (q + select(0u, 1u, rest > 0x1000u || (rest == 0x1000u && (q & 1u) == 1u)));
    }
    let shift = 126u - (a >> 23u);
    if shift > 25u {
        return sign;
    }
    let m = (a & 0x7fffffu) | 0x800000u;
    let q = m >> shift;
    let rest = m & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (q + select(0u, 1u, rest > half || (rest == half && (q & 1u) == 1u)));
}

// The value of an f16, subnormal ones too.
fn f16_value(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let e = (bits >> 10u) & 0x1fu;
    let m = bits & 0x3ffu;
    if e == 0u {
        let magnitude = f32(m) * 5.9604645e-8;
        return select(magnitude, -magnitude, sign != 0u);
    }
    let exponent = select(e + 112u, 255u, e == 31u);
    return bitcast<f32>(sign | (exponent << 23u) | (m << 13u));
}

// a / b, to nearest, by long division; b is not zero. Zero where the result is not a normal number.
fn divided(a: f32, b: f32) -> f32 {
    if exponent_of(a) == 0u {
        return 0.0;
    }
    let by = mantissa_of(b);
    var rest = mantissa_of(a);
    var q = 0u;
    for (var i = 0; i < 26; i++) {
        q <<= 1u;
        if rest >= by {
            rest -= by;
            q |= 1u;
        }
        rest <<= 1u;
    }
    // 25 or 26 bits, of which 24 are kept.
    let shift = select(1u, 2u, q >= 0x2000000u);
    let kept = q >> shift;
    let below = q & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let up = below > middle || (below == middle && (rest != 0u || (kept & 1u) == 1u));
    let exponent = i32(exponent_of(a)) - i32(exponent_of(b)) - 25 + i32(shift);
    let magnitude = scaled(kept + select(0u, 1u, up), exponent);
    return select(magnitude, -magnitude, (a < 0.0) != (b < 0.0));
}
