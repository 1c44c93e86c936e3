// LANES invocations together compute four rows; each takes every LANES-th block of 32 columns.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32 }

@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "subgroup_sum"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / LANES) + local / LANES;
    let lane = local % LANES;
    let row = team * 4u;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let last = params.rows - 1u;
    let start0 = min(row, last) * params.blocks;
    let start1 = min(row + 1u, last) * params.blocks;
    let start2 = min(row + 2u, last) * params.blocks;
    let start3 = min(row + 3u, last) * params.blocks;

    var sum = vec4<f32>(0.0);
    for (var block = lane; block < params.blocks; block += LANES) {
        let x = load_activations(0u, block);
        sum += vec4<f32>(
            dot_blocks(load_block(start0 + block), x),
            dot_blocks(load_block(start1 + block), x),
            dot_blocks(load_block(start2 + block), x),
            dot_blocks(load_block(start3 + block), x),
        );
    }
    sum = sum_over_lanes(sum, local);
    for (var i = lane; i < 4u; i += LANES) {
        if row + i < params.rows {
            out[row + i] = sum[i];
        }
    }
}
