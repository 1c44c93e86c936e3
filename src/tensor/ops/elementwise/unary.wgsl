struct Params { elements: u32, infinity: u32, nan: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// By their bits: compilers may take it for granted that no number is NaN or infinite.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// The exponential of a negative number: above 88 WGSL's result is unspecified.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn apply(x: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
#ifdef KIND_ABS
    return abs(x);
#endif
#ifdef KIND_EXP
    if x < -104.0 {
        return 0.0;
    }
    // Written as bits and taken from memory: WGSL lets compilers treat an infinity that they see as undefined.
    if x > 88.72283 {
        return bitcast<f32>(params.infinity);
    }
    return exp(x);
#endif
#ifdef KIND_GELU
    if x < -1e38 {
        // As x · 0 is where x is infinite.
        return select(0.0, bitcast<f32>(params.nan), is_infinite(x));
    }
    // ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) with ½ (1 + tanh(a)) = sigmoid(2a). Past ±30 it is x or 0.
    let y = clamp(x, -30.0, 30.0);
    return x * sigmoid(1.5957691216 * y * (1.0 + 0.044715 * y * y));
#endif
#ifdef KIND_GELU_ERF
    if x < -1e38 {
        return select(0.0, bitcast<f32>(params.nan), is_infinite(x));
    }
    // x Φ(x) with Φ(x) = ½ erfc(-x / √2). The polynomial gives erfc of positive numbers, so Φ of negative ones.
    let z = min(abs(x) * 0.70710678, 10.0);
    let t = 1.0 / (1.0 + 0.5 * z);
    let high = (((0.17087277 * t - 0.82215223) * t + 1.48851587) * t - 1.13520398) * t + 0.27886807;
    let low = (((high * t - 0.18628806) * t + 0.09678418) * t + 0.37409196) * t + 1.00002368;
    let tail = 0.5 * t * exp(low * t - 1.26551223 - z * z);
    return x * select(tail, 1.0 - tail, x >= 0.0);
#endif
#ifdef KIND_NEG
    return -x;
#endif
#ifdef KIND_RELU
    // Unlike max, this keeps a NaN.
    return select(x, 0.0, x < 0.0);
#endif
#ifdef KIND_RELU_SQUARED
    return select(x * x, 0.0, x < 0.0);
#endif
#ifdef KIND_SIGMOID
    return sigmoid(x);
#endif
#ifdef KIND_SQRT
    if x < 0.0 {
        return bitcast<f32>(params.nan);
    }
    return sqrt(x);
#endif
#ifdef KIND_SWISH
    if x < -1e38 {
        return select(0.0, bitcast<f32>(params.nan), is_infinite(x));
    }
    return x * sigmoid(x);
#endif
#ifdef KIND_TANH
    // The built-in may divide infinity by infinity far out and be off by 1e-5 near zero. There it is an odd polynomial, of the
    // Cephes library (Moshier).
    let a = abs(x);
    let z = x * x;
    if a < 0.625 {
        let p = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z;
        return x + x * z * (p - 3.33332819422e-1);
    }
    return sign(x) * (1.0 - 2.0 / (exp(2.0 * min(a, 20.0)) + 1.0));
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
        out[i] = apply(x[i]);
    }
}
