// A team of TEAM invocations computes ROWS rows.
#import "weight"

struct Params { rows: u32, blocks: u32, first_row: u32, x_blocks: u32 }

@group(0) @binding(0) var<storage, read> activations: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "soa"
#import "residual"
#import "dot_rows"
#import "subgroup_sum"
#ifdef LOW_RANK
#import "low_rank"
#endif

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * ROWS;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(params.rows - 1u));
    let n = params.blocks;
    var sums = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(
            activations[b], activations[n + b], activations[2u * n + b], activations[3u * n + b],
            activations[4u * n + b], activations[5u * n + b], activations[6u * n + b], activations[7u * n + b],
        );
        sums += dot_rows(rows * n, b, v);
    }
#ifdef LOW_RANK
    sums += low_rank_rows(rows, lane);
#endif
    sums = sum_over_team(sums, local, 0u);
    for (var i = lane; i < ROWS; i += TEAM) {
        if row + i < params.rows {
            store_row(row + i, sums[i]);
        }
    }
}
