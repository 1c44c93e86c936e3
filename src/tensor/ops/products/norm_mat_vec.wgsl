// A team of TEAM invocations computes four rows.
#import "weight"

struct Params { columns: u32, blocks: u32, epsilon: f32, rows: u32 }

@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "normed_rows"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * 4u;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(params.rows - 1u));
    let sums = sum_normed_rows(rows * params.blocks, lane, local);
    for (var i = lane; i < 4u; i += TEAM) {
        if row + i < params.rows {
            out[row + i] = sums[i];
        }
    }
}
