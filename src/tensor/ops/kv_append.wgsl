// One invocation copies two neighbouring numbers of k and of v.
struct Params { pairs: u32, kv_pairs: u32, cache_pairs: u32 }

@group(0) @binding(0) var<storage, read> k: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> v: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<CachePair>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<CachePair>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "kv_cache"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    let to = state[0] * params.kv_pairs + i;
    // A step that ran ahead past the end of the context must not wrap or clamp onto a real entry.
    if i < params.pairs && to < params.cache_pairs {
        k_cache[to] = cache_pair(k[i]);
        v_cache[to] = cache_pair(v[i]);
    }
}
