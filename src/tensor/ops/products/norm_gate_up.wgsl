// A team of TEAM invocations computes two outputs: two rows of the gate and the same two of up.
#import "weight"

struct Params { columns: u32, blocks: u32, epsilon: f32, outputs: u32 }

@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "normed_rows"

#import "activate"

fn activated(gate: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(activate(gate.x), activate(gate.y));
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * 2u;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let last = params.outputs - 1u;
    let rows = min(vec2<u32>(row, row + 1u), vec2<u32>(last));
    let first_blocks = vec4<u32>(rows, rows + params.outputs) * params.blocks;
    let sums = sum_normed_rows(first_blocks, lane, local);
    if lane != 0u {
        return;
    }
    let values = activated(sums.xy) * sums.zw;
    let blocks = params.outputs / 32u;
    if row <= last {
        out[soa_index(row, blocks)] = values.x;
    }
    if row + 1u <= last {
        out[soa_index(row + 1u, blocks)] = values.y;
    }
}
