// A team of TEAM invocations per row.
struct Params { rows: u32, blocks: u32, epsilon: f32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    // A team past the last row repeats it and writes nothing.
    let words = params.blocks * 8u;
    let start = min(row, params.rows - 1u) * words;
    var squares = vec4<f32>(0.0);
    for (var i = lane; i < words; i += TEAM) {
        let value = x[start + i];
        squares += value * value;
    }
    let total = sum_over_team(squares, local, 0u);
    let mean = (total.x + total.y + total.z + total.w) / f32(words * 4u);
    let scale = inverseSqrt(mean + params.epsilon);
    if row < params.rows {
        for (var i = lane; i < words; i += TEAM) {
            // In the order of the output: word, block.
            let source = i % params.blocks * 8u + i / params.blocks;
            out[start + i] = x[start + source] * scale * weight[source];
        }
    }
}
