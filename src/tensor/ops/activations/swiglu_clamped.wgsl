struct Params { elements: u32, alpha: f32, limit: f32 }

@group(0) @binding(0) var<storage, read> gate: array<f32>;
#ifdef PAIRS
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
#ifdef PAIRS
        let g = min(gate[2u * i], params.limit);
        let u = gate[2u * i + 1u];
#else
        let g = min(gate[i], params.limit);
        let u = up[i];
#endif
        // exp of more than 88 overflows f32, and WGSL does not specify the result.
        let gated = g / (1.0 + exp(min(-params.alpha * g, 80.0)));
        out[i] = gated * (clamp(u, -params.limit, params.limit) + 1.0);
    }
}
