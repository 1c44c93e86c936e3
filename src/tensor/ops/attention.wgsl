// One workgroup, a team of LANES invocations, per token and head. Each lane holds every LANES-th dimension of the query and
// of the output; four positions are scored at once, because the sum over lanes takes a vec4.
struct Params { items: u32, heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<f32>;
@group(0) @binding(2) var<storage, read> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a team repeats the last one and writes nothing.
    let item = min(id, params.items - 1u);
    let token = item / params.heads;
    let head = item % params.heads;
    let kv_dim = params.kv_heads * params.head_dim;
    let kv_start = head / (params.heads / params.kv_heads) * params.head_dim;
    let length = min(state[0] + token + 1u, params.capacity);

    var query: array<f32, DIMS_PER_LANE>;
    var sums: array<f32, DIMS_PER_LANE>;
    for (var i = 0u; i < DIMS_PER_LANE; i++) {
        let d = local + i * LANES;
        query[i] = 0.0;
        sums[i] = 0.0;
        if d < params.head_dim {
            query[i] = q[item * params.head_dim + d] * params.scale;
        }
    }

    // The largest score so far, and the sum of exp(score - largest).
    var largest = -3.0e38;
    var total = 0.0;
    for (var p = 0u; p < length; p += 4u) {
        // Positions past the end repeat the last one, and get no weight.
        let last = length - 1u;
        let at0 = min(p, last) * kv_dim + kv_start;
        let at1 = min(p + 1u, last) * kv_dim + kv_start;
        let at2 = min(p + 2u, last) * kv_dim + kv_start;
        let at3 = min(p + 3u, last) * kv_dim + kv_start;
        var scores = vec4<f32>(0.0);
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                scores += query[i] * vec4<f32>(k_cache[at0 + d], k_cache[at1 + d], k_cache[at2 + d], k_cache[at3 + d]);
            }
        }
        scores = sum_over_lanes(scores, local);
        let there = vec4<u32>(p, p + 1u, p + 2u, p + 3u) < vec4<u32>(length);
        scores = select(vec4<f32>(-3.0e38), scores, there);

        let before = largest;
        largest = max(largest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let keep = exp(before - largest);
        let weights = select(vec4<f32>(0.0), exp(scores - largest), there);
        total = total * keep + weights.x + weights.y + weights.z + weights.w;
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                let values = vec4<f32>(v_cache[at0 + d], v_cache[at1 + d], v_cache[at2 + d], v_cache[at3 + d]);
                sums[i] = sums[i] * keep + dot(weights, values);
            }
        }
    }
    if id < params.items {
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                out[item * params.head_dim + d] = sums[i] / total;
            }
        }
    }
}
