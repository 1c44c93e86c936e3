// One workgroup, a team of LANES invocations, per row. With FOUR, rows are multiples of four long and read four at once.
struct Params { rows: u32, columns: u32, groups: u32, epsilon: f32 }

#import "numbers"

@group(0) @binding(0) var<storage, read> x: array<Number>;
@group(0) @binding(1) var<storage, read> weight: array<Number>;
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<Number>;
@group(0) @binding(3) var<storage, read_write> out: array<Number>;
#else
@group(0) @binding(2) var<storage, read_write> out: array<Number>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

fn sum_of(parts: vec4<f32>, local: u32) -> f32 {
    let total = sum_over_lanes(parts, local);
    return (total.x + total.y) + (total.z + total.w);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    // The grid can be a little larger than the rows; such a team repeats the last row and writes nothing.
    let numbers = params.columns / WIDTH;
    let start = min(row, params.rows - 1u) * numbers;
    var sums = vec4<f32>(0.0);
    for (var i = local; i < numbers; i += LANES) {
#ifdef FOUR
        sums += x[start + i];
#else
        sums.x += x[start + i];
#endif
    }
    let mean = sum_of(sums, local) / f32(params.columns);
    var squares = vec4<f32>(0.0);
    for (var i = local; i < numbers; i += LANES) {
        let difference = x[start + i] - mean;
#ifdef FOUR
        squares += difference * difference;
#else
        squares.x += difference * difference;
#endif
    }
    let scale = inverseSqrt(sum_of(squares, local) / f32(params.columns) + params.epsilon);
    if row < params.rows {
        let weights = row % params.groups * numbers;
        for (var i = local; i < numbers; i += LANES) {
            let normed = (x[start + i] - mean) * scale * weight[weights + i];
#ifdef BIAS
            out[start + i] = normed + bias[i];
#else
            out[start + i] = normed;
#endif
        }
    }
}
