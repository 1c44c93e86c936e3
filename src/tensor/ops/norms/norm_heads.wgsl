// One workgroup, a team of LANES invocations, per token and head.
struct Params {
    items: u32,
    // Normed heads of a token; queries and keys among them, which have weights; queries.
    heads: u32, weighted: u32, queries: u32,
    query_length: u32, key_length: u32, columns: u32, epsilon: f32,
}

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a team reads the last one and writes nothing. The item may change while it
    // is read, but the result is not used.
    let item = min(id, params.items - 1u);
    let head = item % params.heads;
    let is_key = head >= params.queries;
    let length = select(params.query_length, params.key_length, is_key);
    let before = select(head * length, params.queries * params.query_length + (head - params.queries) * length, is_key);
    let start = item / params.heads * params.columns + before;
    let weight = select(0u, params.query_length, is_key);
    var squares = 0.0;
    for (var i = local; i < length; i += LANES) {
        let value = x[start + i];
        squares += value * value;
    }
    let total = sum_over_lanes(vec4<f32>(squares, 0.0, 0.0, 0.0), local).x;
    let scale = inverseSqrt(total / f32(length) + params.epsilon);
    if id < params.items {
        for (var i = local; i < length; i += LANES) {
            let w = select(1.0, weights[weight + i], head < params.weighted);
            x[start + i] = x[start + i] * scale * w;
        }
    }
}
