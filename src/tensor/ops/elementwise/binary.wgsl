struct Params { elements: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

fn apply(x: f32, y: f32) -> f32 {
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
    return x / y;
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
