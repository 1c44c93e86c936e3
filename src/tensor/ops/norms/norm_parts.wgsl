// One workgroup, a team of LANES invocations, per row and part.
struct Params { items: u32, columns: u32, first: u32, second: u32, third: u32, epsilon: f32 }

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
    let part = item % 3u;
    let length = select(select(params.third, params.second, part == 1u), params.first, part == 0u);
    let before = select(select(params.first + params.second, params.first, part == 1u), 0u, part == 0u);
    let start = item / 3u * params.columns + before;
    var squares = 0.0;
    for (var i = local; i < length; i += LANES) {
        let value = x[start + i];
        squares += value * value;
    }
    let total = sum_over_lanes(vec4<f32>(squares, 0.0, 0.0, 0.0), local).x;
    let scale = inverseSqrt(total / f32(length) + params.epsilon);
    if id < params.items {
        for (var i = local; i < length; i += LANES) {
            x[start + i] = x[start + i] * scale * weights[before + i];
        }
    }
}
