// One workgroup. Each group of LANES computes a part of the sum of squares, and every invocation adds the parts.
struct Params { vectors: u32, epsilon: f32, factor: f32 }

@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

var<workgroup> parts: array<f32, WORKGROUP / LANES>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
    var squares = vec4<f32>(0.0);
    for (var i = local; i < params.vectors; i += WORKGROUP) {
        squares += y[i] * y[i];
    }
    let sums = sum_over_lanes(squares, local);
    if local % LANES == 0u {
        parts[local / LANES] = (sums.x + sums.y) + (sums.z + sums.w);
    }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < WORKGROUP / LANES; i++) {
        total += parts[i];
    }
    let scale = inverseSqrt(total / f32(params.vectors * 4u) + params.epsilon);
    for (var i = local; i < params.vectors; i += WORKGROUP) {
        x[i] = (x[i] + y[i] * scale * weight[i]) * params.factor;
    }
}
