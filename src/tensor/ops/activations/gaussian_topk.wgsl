// One workgroup, a team of LANES invocations, per row.
struct Params { rows: u32, columns: u32, deviations: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    // The grid can be a little larger than the rows; such a team repeats the last row and writes nothing.
    let start = min(row, params.rows - 1u) * params.columns;
    var sum = vec4<f32>(0.0);
    for (var i = local; i < params.columns; i += LANES) {
        sum.x += x[start + i];
    }
    let mean = sum_over_lanes(sum, local).x / f32(params.columns);
    var squares = vec4<f32>(0.0);
    for (var i = local; i < params.columns; i += LANES) {
        let distance = x[start + i] - mean;
        squares.x += distance * distance;
    }
    let deviation = sqrt(sum_over_lanes(squares, local).x / f32(params.columns));
    let cutoff = mean + deviation * params.deviations;
    if row < params.rows {
        for (var i = local; i < params.columns; i += LANES) {
            out[start + i] = max(x[start + i] - cutoff, 0.0);
        }
    }
}
