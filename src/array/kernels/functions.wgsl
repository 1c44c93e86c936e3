// The functions of elements. A kernel gets those that it calls, and what they call. NaN and infinities as in PyTorch, by their bits: compilers
// may take it for granted that no number is one. `infinity()` and `nan()` come from the parameters.

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_odd_integer(x: f32) -> bool {
    return abs(x) < 16777216.0 && floor(x) == x && (i32(x) & 1) == 1;
}

fn keep_f32(x: f32) -> f32 {
    return x;
}

fn keep_i32(x: i32) -> i32 {
    return x;
}

fn keep_u32(x: u32) -> u32 {
    return x;
}

fn keep_bool(x: bool) -> bool {
    return x;
}

fn add_f32(x: f32, y: f32) -> f32 {
    return x + y;
}

fn add_i32(x: i32, y: i32) -> i32 {
    return x + y;
}

fn add_u32(x: u32, y: u32) -> u32 {
    return x + y;
}

fn add_bool(x: bool, y: bool) -> bool {
    return x || y;
}

fn sub_f32(x: f32, y: f32) -> f32 {
    return x - y;
}

fn sub_i32(x: i32, y: i32) -> i32 {
    return x - y;
}

fn sub_u32(x: u32, y: u32) -> u32 {
    return x - y;
}

fn mul_f32(x: f32, y: f32) -> f32 {
    return x * y;
}

fn mul_i32(x: i32, y: i32) -> i32 {
    return x * y;
}

fn mul_u32(x: u32, y: u32) -> u32 {
    return x * y;
}

fn mul_bool(x: bool, y: bool) -> bool {
    return x && y;
}

// WGSL's quotient is unspecified for a divisor above 2^126, and nothing says what a division by zero gives.
fn div_f32(x: f32, y: f32) -> f32 {
    if is_nan(x) || is_nan(y) {
        return nan();
    }
    let sign = (bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u;
    if y == 0.0 {
        return select(bitcast<f32>(bitcast<u32>(infinity()) | sign), nan(), x == 0.0);
    }
    if is_infinite(y) {
        return select(bitcast<f32>(sign), nan(), is_infinite(x));
    }
    if is_infinite(x) {
        return bitcast<f32>(bitcast<u32>(infinity()) | sign);
    }
    if abs(y) > 8.0e37 {
        return (x * 0.0625) / (y * 0.0625);
    }
    return x / y;
}

fn max_f32(x: f32, y: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    return select(select(y, x, x > y), y, is_nan(y));
}

fn max_i32(x: i32, y: i32) -> i32 {
    return max(x, y);
}

fn max_u32(x: u32, y: u32) -> u32 {
    return max(x, y);
}

fn max_bool(x: bool, y: bool) -> bool {
    return x || y;
}

fn min_f32(x: f32, y: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    return select(select(y, x, x < y), y, is_nan(y));
}

fn min_i32(x: i32, y: i32) -> i32 {
    return min(x, y);
}

fn min_u32(x: u32, y: u32) -> u32 {
    return min(x, y);
}

fn min_bool(x: bool, y: bool) -> bool {
    return x && y;
}

// x^y by 2^(y · log2 x) loses digits with the size of the exponent; whole exponents up to 64 are multiplied out.
fn pow_f32(x: f32, y: f32) -> f32 {
    if y == 0.0 || bitcast<u32>(x) == 0x3f800000u {
        return 1.0;
    }
    if is_nan(x) || is_nan(y) {
        return nan();
    }
    let a = abs(x);
    if is_infinite(y) {
        if a == 1.0 {
            return 1.0;
        }
        return select(0.0, infinity(), (a > 1.0) == (y > 0.0));
    }
    let is_negative = (bitcast<u32>(x) >> 31u) == 1u && is_odd_integer(y);
    let sign = select(1.0, -1.0, is_negative);
    if a == 0.0 || is_infinite(x) {
        return sign * select(0.0, infinity(), (a == 0.0) == (y < 0.0));
    }
    if floor(y) == y && abs(y) <= 64.0 {
        return whole_power(x, i32(y));
    }
    if x < 0.0 && floor(y) != y {
        return nan();
    }
    let e = y * log2(a);
    if e >= 128.0 {
        return sign * infinity();
    }
    return sign * exp2(max(e, -160.0));
}

fn whole_power(x: f32, y: i32) -> f32 {
    var result = 1.0;
    var factor = x;
    var left = u32(abs(y));
    while left > 0u {
        if (left & 1u) == 1u {
            result *= factor;
        }
        left >>= 1u;
        if left > 0u {
            factor *= factor;
        }
    }
    if y < 0 {
        return div_f32(1.0, result);
    }
    return result;
}

// Modulo 2^32; a negative exponent gives 0, but for a base of 1 or -1.
fn pow_i32(x: i32, y: i32) -> i32 {
    if y < 0 {
        if x == 1 {
            return 1;
        }
        return select(0, select(1, -1, (y & 1) == 1), x == -1);
    }
    return bitcast<i32>(pow_u32(bitcast<u32>(x), bitcast<u32>(y)));
}

fn pow_u32(x: u32, y: u32) -> u32 {
    var result = 1u;
    var factor = x;
    var left = y;
    while left > 0u {
        if (left & 1u) == 1u {
            result *= factor;
        }
        factor *= factor;
        left >>= 1u;
    }
    return result;
}

fn neg_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}

fn neg_i32(x: i32) -> i32 {
    return -x;
}

fn neg_u32(x: u32) -> u32 {
    return ~x + 1u;
}

fn abs_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}

fn abs_i32(x: i32) -> i32 {
    return abs(x);
}

// Above 88.72 WGSL's result is unspecified.
fn exp_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if x < -104.0 {
        return 0.0;
    }
    if x > 88.72283 {
        return infinity();
    }
    return exp(x);
}

// The built-in is within 2^-21 near 1 in absolute terms; here the relative error stays small. log(1 + f) by a series in f / (2 + f), coefficients of
// FDLIBM (Sun 1993).
fn log_f32(x: f32) -> f32 {
    if is_nan(x) || x < 0.0 {
        return nan();
    }
    if x == 0.0 {
        return -infinity();
    }
    if is_infinite(x) {
        return x;
    }
    var bits = bitcast<u32>(x);
    var e = -127;
    if bits < 0x800000u {
        bits = bitcast<u32>(f32(bits));
        e = -276;
    }
    e += i32(bits >> 23u);
    var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
    if m > 1.4142135 {
        m *= 0.5;
        e += 1;
    }
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * (0.66666666 + z * (0.40000972 + z * (0.28498787 + z * 0.24279079)));
    let half = 0.5 * f * f;
    return f32(e) * 0.6931381 + ((f32(e) * 9.0580006e-6 + s * (half + r)) - half + f);
}

fn sqrt_f32(x: f32) -> f32 {
    if is_nan(x) || x < 0.0 {
        return nan();
    }
    if x == 0.0 || is_infinite(x) {
        return x;
    }
    return sqrt(x);
}

fn rsqrt_f32(x: f32) -> f32 {
    if is_nan(x) || x < 0.0 {
        return nan();
    }
    if x == 0.0 {
        return bitcast<f32>(bitcast<u32>(infinity()) | (bitcast<u32>(x) & 0x80000000u));
    }
    if is_infinite(x) {
        return 0.0;
    }
    return 1.0 / sqrt(x);
}

// The built-ins may be off by 2^-11. Up to 8192 the reduction by quarter turns is that of Cody and Waite, whose products are exact there; beyond, x is
// multiplied by as much of 2/π as it takes (Payne, Hanek 1983). Polynomials of the Cephes library (Moshier).
fn cos_sin(x: f32) -> vec2<f32> {
    var quarters = round(x * 0.636619772367581);
    var r = (((x - quarters * 1.5) - quarters * 0.0703125) - quarters * 4.83751296997070312e-4) - quarters * 7.549789954891882e-8;
    if abs(x) > 8192.0 {
        let reduced = reduced_by_quarters(x);
        quarters = reduced.x;
        r = reduced.y;
    }
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    switch i32(quarters) & 3 {
        case 0: { return vec2<f32>(c, s); }
        case 1: { return vec2<f32>(-s, c); }
        case 2: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}

// The bits of 2/π behind the point, 32 from a word on: word 0 has the first. Before them there are zeros.
fn two_over_pi(word: i32) -> u32 {
    switch word {
        case 0: { return 0xa2f9836eu; }
        case 1: { return 0x4e441529u; }
        case 2: { return 0xfc2757d1u; }
        case 3: { return 0xf534ddc0u; }
        case 4: { return 0xdb629599u; }
        case 5: { return 0x3c439041u; }
        case 6: { return 0xfe5163abu; }
        default: { return 0u; }
    }
}

// The upper half of the product of two words.
fn product_high(x: u32, y: u32) -> u32 {
    let low = (x & 0xffffu) * (y & 0xffffu);
    let middle = (x >> 16u) * (y & 0xffffu) + (low >> 16u);
    let other = (x & 0xffffu) * (y >> 16u) + (middle & 0xffffu);
    return (x >> 16u) * (y >> 16u) + (middle >> 16u) + (other >> 16u);
}

// For |x| from 1 on and finite: quarter turns modulo 4, and what is left over, between -π/4 and π/4. With x = m · 2^(e - 32) and m of 32 bits, word i
// of 2/π counts 2^(e - 64 - 32 i) times m: more than whole turns until about i = e / 32 - 2, and less than what a float holds after four more.
fn reduced_by_quarters(x: f32) -> vec2<f32> {
    let bits = bitcast<u32>(x);
    let m = (bits << 8u) | 0x80000000u;
    let e = i32((bits >> 23u) & 0xffu) - 126;
    let first = e / 32 - 2;
    let shift = u32(e % 32);
    var words: array<u32, 5>;
    var carry = 0u;
    for (var i = 4; i >= 0; i--) {
        let word = two_over_pi(first + i);
        let low = m * word;
        let sum = low + carry;
        words[i] = sum;
        carry = product_high(m, word) + select(0u, 1u, sum < low);
    }
    // The point lies `shift` bits after the first word.
    var whole = words[0];
    var high = words[1];
    var low = words[2];
    if shift > 0u {
        whole = (words[0] << shift) | (words[1] >> (32u - shift));
        high = (words[1] << shift) | (words[2] >> (32u - shift));
        low = (words[2] << shift) | (words[3] >> (32u - shift));
    }
    // Past half a quarter it is less than the next one.
    let is_past = (high >> 31u) == 1u;
    if is_past {
        whole += 1u;
        high = ~high;
        low = ~low;
    }
    var rest = (f32(high) * 2.3283064e-10 + f32(low) * 5.4210109e-20) * 1.5707964;
    rest = select(rest, -rest, is_past != (x < 0.0));
    let turns = f32(whole & 3u);
    return vec2<f32>(select(turns, -turns, x < 0.0), rest);
}

fn sin_f32(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) {
        return nan();
    }
    if x == 0.0 {
        return x;
    }
    return cos_sin(x).y;
}

fn cos_f32(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) {
        return nan();
    }
    return cos_sin(x).x;
}

// The built-in may divide infinity by infinity far out and be off by 1e-5 near zero. There it is an odd polynomial of the Cephes library (Moshier).
fn tanh_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let a = abs(x);
    let z = x * x;
    if a < 0.625 {
        let p = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z;
        return x + x * z * (p - 3.33332819422e-1);
    }
    return sign(x) * (1.0 - 2.0 / (exp(2.0 * min(a, 20.0)) + 1.0));
}

// The exponential of a negative number only.
fn sigmoid_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let e = exp(max(-abs(x), -104.0));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn relu_f32(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0);
}

fn relu_i32(x: i32) -> i32 {
    return max(x, 0);
}

// The slope of x · Φ(x): Φ(x) + x · φ(x). From 13 on it is 1 and up to −13 it is 0.
fn gelu_slope_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let y = clamp(x, -13.0, 13.0);
    // Φ(y) by the other function, which is y · Φ(y), but where that is 0 / 0.
    let phi = select(gelu_f32(y) / y, 0.5 + 0.3989422804 * y, abs(y) < 1e-4);
    return phi + 0.3989422804 * y * exp(-0.5 * y * y);
}

// The slope of its tanh approximation x · sigmoid(2u), u = √(2/π) (x + 0.044715 x³).
fn gelu_tanh_slope_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let y = clamp(x, -13.0, 13.0);
    let s = sigmoid_f32(1.5957691216 * y * (1.0 + 0.044715 * y * y));
    return s + y * s * (1.0 - s) * 1.5957691216 * (1.0 + 0.134145 * y * y);
}

// x · Φ(x), with the error function in Chebyshev form (Numerical Recipes, erfcc), to 2e-7.
fn gelu_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if x < -1e38 {
        return select(0.0, nan(), is_infinite(x));
    }
    let z = min(abs(x) * 0.70710678, 10.0);
    let t = 1.0 / (1.0 + 0.5 * z);
    let high = (((0.17087277 * t - 0.82215223) * t + 1.48851587) * t - 1.13520398) * t + 0.27886807;
    let low = (((high * t - 0.18628806) * t + 0.09678418) * t + 0.37409196) * t + 1.00002368;
    let tail = 0.5 * t * exp(low * t - 1.26551223 - z * z);
    return x * select(tail, 1.0 - tail, x >= 0.0);
}

// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) with ½ (1 + tanh(a)) = sigmoid(2a). Past ±30 it is x or 0.
fn gelu_tanh_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if x < -1e38 {
        return select(0.0, nan(), is_infinite(x));
    }
    let y = clamp(x, -30.0, 30.0);
    return x * sigmoid_f32(1.5957691216 * y * (1.0 + 0.044715 * y * y));
}

fn silu_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if x < -1e38 {
        return select(0.0, nan(), is_infinite(x));
    }
    return x * sigmoid_f32(x);
}

// log(1 + e^x); ln(1 + u) for small u by the ratio that makes up for rounding 1 + u (Goldberg 1991, theorem 4).
fn softplus_f32(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    let u = exp(max(-abs(x), -104.0));
    let w = 1.0 + u;
    let tail = select(log_f32(w) * u / (w - 1.0), u, w == 1.0);
    return max_f32(x, 0.0) + tail;
}

fn floor_f32(x: f32) -> f32 {
    return select(floor(x), x, is_nan(x) || is_infinite(x));
}

fn eq_f32(x: f32, y: f32) -> bool {
    return x == y && !is_nan(x) && !is_nan(y);
}

fn eq_i32(x: i32, y: i32) -> bool {
    return x == y;
}

fn eq_u32(x: u32, y: u32) -> bool {
    return x == y;
}

fn eq_bool(x: bool, y: bool) -> bool {
    return x == y;
}

fn lt_f32(x: f32, y: f32) -> bool {
    return x < y && !is_nan(x) && !is_nan(y);
}

fn lt_i32(x: i32, y: i32) -> bool {
    return x < y;
}

fn lt_u32(x: u32, y: u32) -> bool {
    return x < y;
}

fn lt_bool(x: bool, y: bool) -> bool {
    return !x && y;
}

fn le_f32(x: f32, y: f32) -> bool {
    return x <= y && !is_nan(x) && !is_nan(y);
}

fn le_i32(x: i32, y: i32) -> bool {
    return x <= y;
}

fn le_u32(x: u32, y: u32) -> bool {
    return x <= y;
}

fn le_bool(x: bool, y: bool) -> bool {
    return !x || y;
}

fn not_bool(x: bool) -> bool {
    return !x;
}

fn xor_bool(x: bool, y: bool) -> bool {
    return x != y;
}

fn where_f32(condition: bool, x: f32, y: f32) -> f32 {
    return select(y, x, condition);
}

fn where_i32(condition: bool, x: i32, y: i32) -> i32 {
    return select(y, x, condition);
}

fn where_u32(condition: bool, x: u32, y: u32) -> u32 {
    return select(y, x, condition);
}

fn where_bool(condition: bool, x: bool, y: bool) -> bool {
    return select(y, x, condition);
}

// Towards zero; beyond the integers the nearest one, and 0 for NaN.
fn f32_to_i32(x: f32) -> i32 {
    if is_nan(x) {
        return 0;
    }
    if x >= 2147483648.0 {
        return 2147483647;
    }
    if x < -2147483648.0 {
        return bitcast<i32>(0x80000000u);
    }
    return i32(x);
}

fn f32_to_u32(x: f32) -> u32 {
    if is_nan(x) || x <= 0.0 {
        return 0u;
    }
    if x >= 4294967296.0 {
        return 0xffffffffu;
    }
    return u32(x);
}

fn f32_to_bool(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

fn i32_to_f32(x: i32) -> f32 {
    return f32(x);
}

fn i32_to_u32(x: i32) -> u32 {
    return bitcast<u32>(x);
}

fn i32_to_bool(x: i32) -> bool {
    return x != 0;
}

fn u32_to_f32(x: u32) -> f32 {
    return f32(x);
}

fn u32_to_i32(x: u32) -> i32 {
    return bitcast<i32>(x);
}

fn u32_to_bool(x: u32) -> bool {
    return x != 0u;
}

fn bool_to_f32(x: bool) -> f32 {
    return select(0.0, 1.0, x);
}

fn bool_to_i32(x: bool) -> i32 {
    return select(0, 1, x);
}

fn bool_to_u32(x: bool) -> u32 {
    return select(0u, 1u, x);
}

// The bits of the nearest f16, ties to even.
fn f16_bits(x: f32) -> u32 {
    let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
    let a = bitcast<u32>(x) & 0x7fffffffu;
    if a > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if a >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if a >= 0x38800000u {
        return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
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

fn f16_value(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let e = (bits >> 10u) & 0x1fu;
    let m = bits & 0x3ffu;
    if e == 0u {
        return bitcast<f32>(sign | bitcast<u32>(f32(m) * 5.9604645e-8));
    }
    let exponent = select(e + 112u, 255u, e == 31u);
    return bitcast<f32>(sign | (exponent << 23u) | (m << 13u));
}

// The bits of the nearest bfloat16, ties to even.
fn bf16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if is_nan(x) {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

fn bf16_value(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}

fn round_f16(x: f32) -> f32 {
    return f16_value(f16_bits(x));
}

fn round_bf16(x: f32) -> f32 {
    return bf16_value(bf16_bits(x));
}
