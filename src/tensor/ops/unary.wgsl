struct Params { elements: u32, infinity: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// The exponential is of a number below zero: what WGSL gives above 88 is left open.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn apply(x: f32) -> f32 {
#ifdef KIND_ABS
    return abs(x);
#endif
#ifdef KIND_EXP
    // Written as bits and taken from memory: WGSL lets compilers treat an infinity that they see as undefined.
    if x > 88.72283 {
        return bitcast<f32>(params.infinity);
    }
    return exp(x);
#endif
#ifdef KIND_GELU
    // ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) with ½ (1 + tanh(a)) = sigmoid(2a). Past ±30 it is x or 0.
    let y = clamp(x, -30.0, 30.0);
    return x * sigmoid(1.5957691216 * y * (1.0 + 0.044715 * y * y));
#endif
#ifdef KIND_NEG
    return -x;
#endif
#ifdef KIND_RELU
    // Unlike max, this keeps a NaN.
    return select(x, 0.0, x < 0.0);
#endif
#ifdef KIND_SIGMOID
    return sigmoid(x);
#endif
#ifdef KIND_SQRT
    return sqrt(x);
#endif
#ifdef KIND_SWISH
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
