struct Params { elements: u32, kv_dim: u32, cache_elements: u32 }

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<f32>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    let to = state[0] * params.kv_dim + i;
    // A step that ran ahead past the end of the context must not wrap or clamp onto a real entry.
    if i < params.elements && to < params.cache_elements {
        k_cache[to] = k[i];
        v_cache[to] = v[i];
    }
}
