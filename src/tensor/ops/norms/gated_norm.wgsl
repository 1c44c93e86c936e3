// A team of TEAM invocations per group of a row.
#import "activate"
#import "soa"

struct Params { items: u32, groups: u32, length: u32, columns: u32, first: u32, weights: u32, gate_scale: f32, epsilon: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

fn gate_of(row: u32, column: u32) -> f32 {
    return activate(gate[row * params.columns + params.first + column] * params.gate_scale);
}

fn value(row: u32, column: u32) -> f32 {
    let number = x[row * params.length + column];
#ifdef NORM_FIRST
    return number;
#else
    return number * gate_of(row, column);
#endif
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    // A team past the last item repeats it and writes nothing.
    let item = min(id, params.items - 1u);
    let row = item / params.groups;
    let of_group = params.length / params.groups;
    let start = item % params.groups * of_group;
    var squares = 0.0;
    for (var i = lane; i < of_group; i += TEAM * AT_ONCE) {
        // Reads that do not wait for each other.
        var numbers: array<f32, AT_ONCE>;
        for (var k = 0u; k < AT_ONCE; k++) {
            numbers[k] = value(row, start + min(i + k * TEAM, of_group - 1u));
        }
        for (var k = 0u; k < AT_ONCE; k++) {
            squares += select(0.0, numbers[k] * numbers[k], i + k * TEAM < of_group);
        }
    }
    let total = sum_over_team(vec4<f32>(squares, 0.0, 0.0, 0.0), local, 0u).x;
    let scale = inverseSqrt(total / f32(of_group) + params.epsilon);
    if id < params.items {
        for (var i = lane; i < of_group; i += TEAM * AT_ONCE) {
            var numbers: array<f32, AT_ONCE>;
            for (var k = 0u; k < AT_ONCE; k++) {
                let column = start + min(i + k * TEAM, of_group - 1u);
                numbers[k] = value(row, column) * scale * weight[column % params.weights];
#ifdef NORM_FIRST
                numbers[k] *= gate_of(row, column);
#endif
            }
            for (var k = 0u; k < AT_ONCE; k++) {
                let column = start + i + k * TEAM;
#ifdef SOA
                let at = soa_index(column, params.length / 32u);
#else
                let at = column;
#endif
                if i + k * TEAM < of_group {
                    out[row * params.length + at] = numbers[k];
                }
            }
        }
    }
}
