// One workgroup, a team of TEAM invocations, per row. With FOUR, rows are multiples of four long and read four at once.
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
    for (var i = local; i < numbers; i += TEAM * AT_ONCE) {
        // Reads that do not wait for each other.
        var values: array<Number, AT_ONCE>;
        for (var k = 0u; k < AT_ONCE; k++) {
            values[k] = x[start + min(i + k * TEAM, numbers - 1u)];
        }
        for (var k = 0u; k < AT_ONCE; k++) {
            let value = select(Number(), values[k], i + k * TEAM < numbers);
#ifdef FOUR
            squares += value * value;
#else
            squares.x += value * value;
#endif
        }
    }
    let total = sum_over_team(squares, local, 0u);
    let mean = (total.x + total.y + total.z + total.w) / f32(params.columns);
    let scale = inverseSqrt(mean + params.epsilon);
    if row < params.rows {
        for (var i = local; i < numbers; i += TEAM * AT_ONCE) {
            var values: array<Number, AT_ONCE>;
            for (var k = 0u; k < AT_ONCE; k++) {
                let at = min(i + k * TEAM, numbers - 1u);
                values[k] = x[start + at] * scale * weight[at];
            }
            for (var k = 0u; k < AT_ONCE; k++) {
                if i + k * TEAM < numbers {
                    out[start + i + k * TEAM] = values[k];
                }
            }
        }
    }
}
