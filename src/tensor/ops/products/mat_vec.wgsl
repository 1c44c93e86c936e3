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
    let starts = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(params.rows - 1u)) * params.blocks;

    var sum = vec4<f32>(0.0);
    for (var block = lane; block < params.blocks; block += LANES) {
        let x = load_activations(0u, block);
#ifdef ROLLED
        for (var i = 0u; i < 4u; i++) {
            sum[i] += dot_blocks(load_block(starts[i] + block), x);
        }
#else
        sum += vec4<f32>(
            dot_blocks(load_block(starts.x + block), x),
            dot_blocks(load_block(starts.y + block), x),
            dot_blocks(load_block(starts.z + block), x),
            dot_blocks(load_block(starts.w + block), x),
        );
#endif
    }
    sum = sum_over_lanes(sum, local);
    for (var i = lane; i < 4u; i += LANES) {
        if row + i < params.rows {
            out[row + i] = sum[i];
        }
    }
}
