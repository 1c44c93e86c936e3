// A workgroup takes one row.
struct Params { rows: u32, columns: u32, least: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> largest: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the rows; such a workgroup repeats the last one and writes nothing.
    let start = min(id, params.rows - 1u) * params.columns;
    var most = params.least;
    for (var i = local; i < params.columns; i += 64u) {
        most = max(most, abs(x[start + i]));
    }
    largest[local] = most;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            largest[local] = max(largest[local], largest[local + step]);
        }
    }
    workgroupBarrier();
    let steps = 127.0 / largest[0];
    if id < params.rows {
        for (var i = local; i < params.columns; i += 64u) {
            out[start + i] = clamp(round(x[start + i] * steps), -128.0, 127.0) / steps;
        }
    }
}
