// One workgroup, a team of LANES invocations, per token and head.
struct Params {
    items: u32,
    // Heads of a token that are normed, and those of them that are queries'.
    heads: u32, queries: u32,
    head_dim: u32, columns: u32, epsilon: f32,
}

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a team reads the last one and writes nothing. What it reads may be
    // changing: nobody looks at what it makes of it.
    let item = min(id, params.items - 1u);
    let head = item % params.heads;
    let start = item / params.heads * params.columns + head * params.head_dim;
    let weight = select(0u, params.head_dim, head >= params.queries);
    var squares = 0.0;
    for (var i = local; i < params.head_dim; i += LANES) {
        let value = x[start + i];
        squares += value * value;
    }
    let total = sum_over_lanes(vec4<f32>(squares, 0.0, 0.0, 0.0), local).x;
    let scale = inverseSqrt(total / f32(params.head_dim) + params.epsilon);
    if id < params.items {
        for (var i = local; i < params.head_dim; i += LANES) {
            x[start + i] = x[start + i] * scale * weights[weight + i];
        }
    }
}
