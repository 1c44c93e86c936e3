// One workgroup, a team of LANES invocations, per row. With FOUR, rows are multiples of four long and read four at once.
struct Params { rows: u32, columns: u32, epsilon: f32 }

#import "numbers"

@group(0) @binding(0) var<storage, read> x: array<Number>;
@group(0) @binding(1) var<storage, read> weight: array<Number>;
@group(0) @binding(2) var<storage, read_write> out: array<Number>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    // The grid can be a little larger than the rows; such a team repeats the last row and writes nothing.
    let numbers = params.columns / WIDTH;
    let start = min(row, params.rows - 1u) * numbers;
    var squares = vec4<f32>(0.0);
    for (var i = local; i < numbers; i += LANES) {
        let value = x[start + i];
#ifdef FOUR
        squares += value * value;
#else
        squares.x += value * value;
#endif
    }
    let total = sum_over_lanes(squares, local);
    let mean = (total.x + total.y + total.z + total.w) / f32(params.columns);
    let scale = inverseSqrt(mean + params.epsilon);
    if row < params.rows {
        for (var i = local; i < numbers; i += LANES) {
            out[start + i] = x[start + i] * scale * weight[i];
        }
    }
}
