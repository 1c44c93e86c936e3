struct Params { elements: u32, infinity: u32, nan: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// By their bits: compilers may take it for granted that no number is NaN or infinite.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

#ifdef KIND_DIV
// WGSL leaves open what a division by zero gives, and by a number whose reciprocal is none of f32.
fn quotient(x: f32, y: f32) -> f32 {
    let infinity = bitcast<f32>(params.infinity);
    let is_negative = ((bitcast<u32>(x) ^ bitcast<u32>(y)) >> 31u) == 1u;
    if y == 0.0 {
        if x == 0.0 {
            return bitcast<f32>(params.nan);
        }
        return select(infinity, -infinity, is_negative);
    }
    if is_infinite(y) {
        if is_infinite(x) {
            return bitcast<f32>(params.nan);
        }
        return 0.0;
    }
    if is_infinite(x) {
        return select(infinity, -infinity, is_negative);
    }
    let by = select(select(1.0, 0x1p-64f, abs(y) > 0x1p64f), 0x1p64f, abs(y) < 0x1p-64f);
    return (x * by) / (y * by);
}
#endif

fn apply(x: f32, y: f32) -> f32 {
    if is_nan(x) {
        return x;
    }
    if is_nan(y) {
        return y;
    }
#ifdef KIND_ADD
    return x + y;
#endif
#ifdef KIND_SUB
    return x - y;
#endif
#ifdef KIND_MUL
    return x * y;
#endif
#ifdef KIND_DIV
    return quotient(x, y);
#endif
#ifdef KIND_MAX
    return max(x, y);
#endif
#ifdef KIND_MIN
    return min(x, y);
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
        out[i] = apply(x[i], y[i]);
    }
}
