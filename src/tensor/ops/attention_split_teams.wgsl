// One workgroup, a team of LANES invocations, per head, split and token, without barriers where there are subgroups. Each lane holds
// every LANES-th dimension of the query and of the sums; four positions are scored at once, because the sum over lanes takes a
// vec4.
struct Params { heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, splits: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<f32>;
@group(0) @binding(2) var<storage, read> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<storage, read_write> totals: array<vec2<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "planar"
#import "splits"
#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.x;
    let split = group.y;
    let token = group.z;
    let length = min(state[0] + token + 1u, params.capacity);
    let positions = positions_per_split(length, params.splits, TILE);
    let begin = split * positions;
    let end = min(begin + positions, length);
    let blocks = params.heads * params.head_dim / 32u;
    // Outputs are [token][split].
    let first_total = (token * params.splits + split) * params.heads;
    let first_sum = first_total * params.head_dim;
    if begin >= end {
        for (var d = local; d < params.head_dim; d += LANES) {
            sums[first_sum + planar_index(head * params.head_dim + d, blocks)] = 0.0;
        }
        if local == 0u {
            totals[first_total + head] = vec2<f32>(0.0);
        }
        return;
    }
    let kv_dim = params.kv_heads * params.head_dim;
    let kv_start = head / (params.heads / params.kv_heads) * params.head_dim;

    var query: array<f32, DIMS_PER_LANE>;
    var sum: array<f32, DIMS_PER_LANE>;
    for (var i = 0u; i < DIMS_PER_LANE; i++) {
        let d = local + i * LANES;
        query[i] = 0.0;
        sum[i] = 0.0;
        if d < params.head_dim {
            query[i] = q[(token * params.heads + head) * params.head_dim + d] * params.scale;
        }
    }

    // The largest score so far, and the sum of exp(score - largest).
    var largest = -3.0e38;
    var total = 0.0;
    for (var p = begin; p < end; p += 4u) {
        // Positions past the end repeat the last one, and get no weight.
        let last = end - 1u;
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
        let is_there = vec4<u32>(p, p + 1u, p + 2u, p + 3u) < vec4<u32>(end);
        scores = select(vec4<f32>(-3.0e38), scores, is_there);

        let before = largest;
        largest = max(largest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let keep = exp(before - largest);
        let weights = select(vec4<f32>(0.0), exp(scores - largest), is_there);
        total = total * keep + weights.x + weights.y + weights.z + weights.w;
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                let values = vec4<f32>(v_cache[at0 + d], v_cache[at1 + d], v_cache[at2 + d], v_cache[at3 + d]);
                sum[i] = sum[i] * keep + dot(weights, values);
            }
        }
    }
    for (var i = 0u; i < DIMS_PER_LANE; i++) {
        let d = local + i * LANES;
        if d < params.head_dim {
            sums[first_sum + planar_index(head * params.head_dim + d, blocks)] = sum[i];
        }
    }
    if local == 0u {
        totals[first_total + head] = vec2<f32>(largest, total);
    }
}
